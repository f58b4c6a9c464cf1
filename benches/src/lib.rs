//! What the micro-benchmarks stand on: one operator as a model of its own, compiled for this machine, and what its time
//! means against the machine's ceilings.

use std::time::Duration;

use anyhow::bail;
use tilewright_driver::graph::Tensor;
use tilewright_driver::machine::Ceilings;
use tilewright_driver::onnx::OnnxModel;
use tilewright_driver::onnx::proto::tensor_shape_proto::{Dimension, dimension};
use tilewright_driver::onnx::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorShapeProto, TypeProto,
    ValueInfoProto, type_proto,
};
use tilewright_driver::onnx::tensor::to_proto;
use tilewright_driver::runtime::plan::{Plan, SizeDef, SizeId};
use tilewright_driver::runtime::pool::Serial;
use tilewright_driver::runtime::{AlignedBuf, Session, SessionOptions, TensorView};
use tilewright_driver::{DType, Options, Trust};

/// ONNX's codes of the types that are used here.
mod code {
    pub(super) const F32: i32 = 1;
    pub(super) const INT: i32 = 2;
    pub(super) const INTS: i32 = 7;
}

/// One operator on tensors of `f32`, described as a node of ONNX.
#[derive(Clone, Debug, Default)]
pub struct Case {
    /// The operator's name.
    pub op: &'static str,
    /// Attributes that are lists of integers.
    pub lists: Vec<(&'static str, Vec<i64>)>,
    /// Attributes that are integers.
    pub integers: Vec<(&'static str, i64)>,
    /// Extents of what is computed from.
    pub inputs: Vec<Vec<usize>>,
    /// Extents of further operands that are constants: they may be laid out anew when it is compiled.
    pub constants: Vec<Vec<usize>>,
}

/// A compiled case with its operands, ready to run on the calling thread.
pub struct Kernel {
    session: Session,
    inputs: Vec<Operand>,
    /// Arithmetic operations of a run.
    pub flops: f64,
    /// Bytes that a run must read and write.
    pub bytes: f64,
}

/// A tensor of `f32`.
struct Operand {
    dims: Vec<usize>,
    bytes: AlignedBuf,
}

impl Operand {
    fn view(&self) -> TensorView<'_> {
        TensorView::new(DType::F32, &self.dims, &self.bytes)
    }
}

impl Kernel {
    /// Compiles a case with the best code generator of this build.
    ///
    /// # Errors
    /// Where the case is no valid model, or cannot be compiled or loaded.
    pub fn new(case: &Case) -> anyhow::Result<Kernel> {
        let options = Options::host(Options::best_codegen());
        let model = OnnxModel::from_proto(model(case)?)?;
        let artifact = tilewright_driver::compile_model(&model, &options, &mut ())?.artifact;
        let (Some(level), Some(image)) = (artifact.levels.first(), artifact.manifest.images.first()) else {
            bail!("nothing was compiled")
        };
        let (plan, steps) = (&level.plan, &image.program.steps);
        let sum =
            |slots: &mut dyn Iterator<Item = Option<SizeId>>| slots.map(|slot| constant(plan, slot)).sum();
        let flops: Option<f64> = sum(&mut steps.iter().map(|step| step.flops));
        let bytes: Option<f64> = sum(&mut steps.iter().map(|step| step.bytes));
        let (Some(flops), Some(bytes)) = (flops, bytes) else { bail!("extents are open") };
        let inputs = case.inputs.iter().zip(1..).map(|(dims, seed)| {
            let bytes: Vec<u8> = noise(dims, seed).iter().flat_map(|x| x.to_ne_bytes()).collect();
            Ok(Operand { dims: dims.clone(), bytes: AlignedBuf::copy_of(&bytes)? })
        });
        let inputs = inputs.collect::<anyhow::Result<Vec<_>>>()?;
        let model = tilewright_driver::loader(Trust::Origin).from_bytes(artifact.to_bytes()?)?;
        let options = SessionOptions { pool: std::sync::Arc::new(Serial), ..SessionOptions::default() };
        let mut kernel = Kernel { session: model.session_with(options), inputs, flops, bytes };
        kernel.run()?;
        Ok(kernel)
    }

    /// Runs it once.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run(&mut self) -> anyhow::Result<()> {
        // One operand or two: what is set up here is nothing against the shortest kernel.
        match self.inputs.as_slice() {
            [x] => self.session.run(&[x.view()])?,
            [x, y] => self.session.run(&[x.view(), y.view()])?,
            others => bail!("{} operands", others.len()),
        };
        Ok(())
    }

    /// One line: what a time of one run means on this machine.
    pub fn line(&self, name: &str, time: Duration, ceilings: &Ceilings) -> String {
        let seconds = time.as_secs_f64();
        let level = ceilings.level_of(self.bytes);
        let traffic = level.map_or(0.0, |level| level.bytes_per_s);
        format!(
            "{name:28}{:>12.2} us{:>10.1} GFLOP/s {:>5.1} %{:>10.1} GB/s {:>5.1} % of {}",
            seconds * 1e6,
            self.flops / seconds / 1e9,
            100.0 * self.flops / seconds / ceilings.flops,
            self.bytes / seconds / 1e9,
            100.0 * self.bytes / seconds / traffic,
            level.map_or("", |level| level.name),
        )
    }
}

fn constant(plan: &Plan, slot: Option<SizeId>) -> Option<f64> {
    match plan.sizes.get(slot?.index())? {
        SizeDef::Const(value) => Some(*value as f64),
        _ => None,
    }
}

/// Numbers from -1 to 1 that look random and are the same every time.
fn noise(dims: &[usize], seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        // An xorshift generator; its upper bits are the good ones.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..dims.iter().product()).map(|_| next()).collect()
}

/// The case as a model; its result's extents are inferred.
fn model(case: &Case) -> anyhow::Result<ModelProto> {
    let name = |kind: &str, index: usize| format!("{kind}{index}");
    let attribute = |name: &str| AttributeProto { name: Some(name.to_string()), ..AttributeProto::default() };
    let lists = case.lists.iter().map(|(name, ints)| AttributeProto {
        r#type: Some(code::INTS),
        ints: ints.clone(),
        ..attribute(name)
    });
    let integers = case.integers.iter().map(|&(name, i)| AttributeProto {
        r#type: Some(code::INT),
        i: Some(i),
        ..attribute(name)
    });
    let inputs = (0..case.inputs.len()).map(|index| name("x", index));
    let constants = (0..case.constants.len()).map(|index| name("w", index));
    let node = NodeProto {
        op_type: Some(case.op.to_string()),
        name: Some(case.op.to_lowercase()),
        input: inputs.chain(constants).collect(),
        output: vec!["y".to_string()],
        attribute: lists.chain(integers).collect(),
        ..NodeProto::default()
    };
    let initializer = case.constants.iter().enumerate().map(|(index, dims)| {
        let tensor = Tensor::from_elements(dims, &noise(dims, 1 << 20 | index as u64))?;
        Ok(to_proto(&tensor, &name("w", index)))
    });
    let graph = GraphProto {
        name: Some(case.op.to_string()),
        node: vec![node],
        initializer: initializer.collect::<anyhow::Result<_>>()?,
        input: case
            .inputs
            .iter()
            .enumerate()
            .map(|(index, dims)| value(name("x", index), Some(dims)))
            .collect(),
        output: vec![value("y".to_string(), None)],
        ..GraphProto::default()
    };
    let opset = OperatorSetIdProto { domain: Some(String::new()), version: Some(17) };
    Ok(ModelProto {
        ir_version: Some(8),
        opset_import: vec![opset],
        graph: Some(graph),
        ..ModelProto::default()
    })
}

fn value(name: String, dims: Option<&Vec<usize>>) -> ValueInfoProto {
    let dim =
        |&n: &usize| Dimension { value: Some(dimension::Value::DimValue(n as i64)), ..Dimension::default() };
    let shape = dims.map(|dims| TensorShapeProto { dim: dims.iter().map(dim).collect() });
    let tensor = type_proto::Tensor { elem_type: Some(code::F32), shape };
    let ty = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..TypeProto::default() };
    ValueInfoProto { name: Some(name), r#type: Some(ty), ..ValueInfoProto::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_runs_and_knows_what_it_computes() {
        let case =
            Case { op: "MatMul", inputs: vec![vec![8, 16]], constants: vec![vec![16, 4]], ..Case::default() };
        let kernel = Kernel::new(&case).unwrap();
        assert_eq!(
            (kernel.flops, kernel.bytes),
            (2.0 * 8.0 * 16.0 * 4.0, 4.0 * (8 * 16 + 16 * 4 + 8 * 4) as f64)
        );
    }
}
