//! Compiles a classifier after a pass of one's own: every `relu` becomes a `softplus`, which is smooth, and the scores are printed
//! before and after.
//!
//! `cargo run --release -p tilewright --example own_pass -- examples/digits/digits.onnx examples/digits/images/8`

use std::error::Error;
use std::path::Path;

use tilewright::internals::graph::NodeId;
use tilewright::internals::graph::op::{Op, UnaryOp};
use tilewright::{Compiler, Graph, Pass, PassError, Tensor, files, values};

/// Replaces the function of every node that computes `relu`; operands, results and types stay.
struct SmoothRelus;

impl Pass for SmoothRelus {
    fn name(&self) -> &str {
        "smooth_relus"
    }

    fn run(&self, graph: &mut Graph) -> Result<bool, PassError> {
        let is_relu = |&id: &NodeId| graph.node(id).op == Op::Unary(UnaryOp::Relu);
        let relus: Vec<NodeId> = graph.live_nodes().into_iter().filter(is_relu).collect();
        relus.iter().for_each(|&id| graph.set_op(id, Op::Unary(UnaryOp::Softplus)));
        Ok(!relus.is_empty())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [model, image] = &args[..] else { return Err("usage: own_pass MODEL.onnx IMAGE".into()) };
    let [plain, smooth] = scores(model.as_ref(), image.as_ref())?;
    for (class, (plain, smooth)) in plain.iter().zip(&smooth).enumerate() {
        println!("class {class}: {plain:8.3} {smooth:8.3}");
    }
    Ok(())
}

/// The scores of an image without the pass and with it. The pass runs on the graph as imported, before all others.
pub(crate) fn scores(model: &Path, image: &Path) -> Result<[Vec<f32>; 2], Box<dyn Error>> {
    let compiler = Compiler::new().target("cpu")?.dim("batch", 1);
    let scores = |compiler: Compiler| {
        let model = compiler.compile(model)?.load()?;
        let inputs = files::read_inputs(image, model.inputs())?;
        let outputs = model.run(values::inputs(&inputs))?;
        let scores = outputs.tensor("scores").and_then(Tensor::as_slice::<f32>).ok_or("no scores of f32")?;
        Ok::<_, Box<dyn Error>>(scores.to_vec())
    };
    Ok([scores(compiler.clone())?, scores(compiler.first_pass(SmoothRelus))?])
}
