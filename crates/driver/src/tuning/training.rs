//! Functions that a machine's timing is fitted on, and candidates for them: products and convolutions of many shapes, as models have them.

use serde::{Deserialize, Serialize};
use tilewright_autosched::{Decision, Decisions};
use tilewright_graph::text;
use tilewright_onnx::proto::TensorProto;
use tilewright_onnx::proto::tensor_proto::DataType;
use tilewright_onnx::{OnnxModel, export};
use tilewright_tune::Task;
use tilewright_tune::space::Point;

use super::Tasks;
use crate::compile::programs_of;
use crate::error::CompileError;
use crate::options::Options;

/// A product or convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Shape {
    /// A product of `rows` x `depth` with constants of `depth` x `columns`.
    Product {
        /// Rows.
        rows: i64,
        /// Steps of a sum.
        depth: i64,
        /// Columns.
        columns: i64,
    },
    /// A convolution of an image in blocks of channels, padded to keep its size but for the stride.
    Convolution {
        /// Channels.
        channels: i64,
        /// Filters; 0 for one a channel (depthwise).
        filters: i64,
        /// Rows and columns of the image.
        size: i64,
        /// Rows and columns of the window.
        kernel: i64,
        /// Places from one window to the next.
        stride: i64,
    },
}

/// Multiply-adds of a function: so few that it is measured soon, so many that what it costs to call it is nothing.
const WORK: std::ops::RangeInclusive<i64> = 2_000_000..=160_000_000;

/// Bytes of constants between two uses of one, as in a convolutional network of medium size: they come from where weights do.
const CONVOLUTION_CONSTANTS: u64 = 24 << 20;

/// The same for products, which are most of language models: no cache holds their weights.
const PRODUCT_CONSTANTS: u64 = 512 << 20;

impl Shape {
    /// `n` different ones, the same for the same seed.
    pub fn several(n: usize, seed: u64) -> Vec<Shape> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut shapes: Vec<Shape> = Vec::new();
        while shapes.len() < n {
            let shape = Shape::any(&mut random, shapes.len() % 5);
            if WORK.contains(&shape.work()) && !shapes.contains(&shape) {
                shapes.push(shape);
            }
        }
        shapes
    }

    /// One of a kind: two of five are products, one each convolutions of 1 x 1 and 3 x 3 and depthwise.
    fn any(random: &mut fastrand::Rng, kind: usize) -> Shape {
        let mut of = |from: &[i64]| random.choice(from).copied().unwrap_or(1);
        match kind {
            0 | 1 => Shape::Product {
                rows: of(&[16, 32, 49, 64, 100, 128, 196, 197, 256, 384, 512]),
                depth: of(&[64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096]),
                columns: of(&[64, 128, 192, 256, 320, 384, 512, 768, 1024, 2048, 3072]),
            },
            2 | 3 => Shape::Convolution {
                channels: of(&[32, 64, 96, 128, 160, 192, 256, 384, 512, 960]),
                filters: of(&[32, 64, 96, 128, 160, 192, 256, 384, 512]),
                size: of(&[7, 14, 20, 28, 40, 56]),
                kernel: if kind == 2 { 1 } else { 3 },
                stride: of(&[1, 1, 1, 2]),
            },
            _ => Shape::Convolution {
                channels: of(&[64, 96, 128, 192, 256, 384, 576, 960]),
                filters: 0,
                size: of(&[14, 28, 40, 56, 80, 112]),
                kernel: of(&[3, 3, 5, 7]),
                stride: of(&[1, 1, 2]),
            },
        }
    }

    /// Multiply-adds.
    pub fn work(&self) -> i64 {
        match *self {
            Shape::Product { rows, depth, columns } => rows * depth * columns,
            Shape::Convolution { channels, filters, size, kernel, stride } => {
                let places = ((size + stride - 1) / stride).pow(2);
                places * kernel * kernel * channels * filters.max(1)
            }
        }
    }

    /// The name of the function.
    pub fn name(&self) -> String {
        match *self {
            Shape::Product { rows, depth, columns } => format!("product {rows}x{depth}x{columns}"),
            Shape::Convolution { channels, filters: 0, size, kernel, stride } => {
                format!("depthwise {channels} at {size}x{size}, window {kernel}, stride {stride}")
            }
            Shape::Convolution { channels, filters, size, kernel, stride } => {
                format!(
                    "convolution {channels} to {filters} at {size}x{size}, window {kernel}, stride {stride}"
                )
            }
        }
    }

    /// The function as a task for the options' target.
    ///
    /// # Errors
    /// As [`crate::compile()`]: a defect.
    pub fn task(&self, options: &Options) -> Result<Task, CompileError> {
        let model = self.model().map_err(|error| CompileError::internal("training", error))?;
        let mut tasks = Tasks::default();
        for program in programs_of(&model, options)? {
            tasks.add_program(program, options);
        }
        // The convolutions around it, which see to its layouts, are small beside it.
        let most = tasks.tasks.into_iter().max_by_key(|task| {
            let blocks = task.computation.func.blocks();
            let work = |iters: &[tilewright_te::Iter]| {
                iters.iter().filter_map(|i| i.extent.as_int()).product::<i64>()
            };
            blocks.into_iter().map(|block| work(&block.iters)).max()
        });
        let task = most.ok_or_else(|| CompileError::internal("training", "no function"))?;
        let constant_bytes = match self {
            Shape::Product { .. } => PRODUCT_CONSTANTS,
            Shape::Convolution { .. } => CONVOLUTION_CONSTANTS,
        };
        Ok(Task { constant_bytes, ..task })
    }

    /// A model with the function, and with small convolutions before and after it where the layout of an image is to follow from them.
    fn model(&self) -> Result<OnnxModel, String> {
        let (graph, constants) = match *self {
            Shape::Product { rows, depth, columns } => {
                let text = format!(
                    "graph g {{\n region0(%x x: f32[{rows}, {depth}], %w w: f32[{depth}, {columns}]) {{\n \
                     %y: f32[{rows}, {columns}] = MatMul[](%x, %w)\n return %y as y\n }}\n}}"
                );
                (text, vec![("w", vec![depth, columns])])
            }
            Shape::Convolution { channels: c, filters, size: s, kernel: k, stride } => {
                let (group, f) = if filters == 0 { (c, c) } else { (1, filters) };
                let (out, pad, of_group) = ((s + stride - 1) / stride, k / 2, c / group);
                let conv = |stride: i64, pad: i64, group: i64| {
                    format!(
                        "Conv[strides=[{stride}, {stride}], pads=[{pad}, {pad}, {pad}, {pad}], dilations=[1, 1], group={group}]"
                    )
                };
                let (one, main) = (conv(1, 0, 1), conv(stride, pad, group));
                let text = format!(
                    "graph g {{\n region0(%x x: f32[1, 1, {s}, {s}], %u u: f32[{c}, 1, 1, 1], \
                     %w w: f32[{f}, {of_group}, {k}, {k}], %v v: f32[8, {f}, 1, 1]) {{\n \
                     %a: f32[1, {c}, {s}, {s}] = {one}(%x, %u)\n \
                     %b: f32[1, {f}, {out}, {out}] = {main}(%a, %w)\n \
                     %y: f32[1, 8, {out}, {out}] = {one}(%b, %v)\n return %y as y\n }}\n}}"
                );
                let constants =
                    vec![("u", vec![c, 1, 1, 1]), ("w", vec![f, of_group, k, k]), ("v", vec![8, f, 1, 1])];
                (text, constants)
            }
        };
        let graph = text::parse(&graph).map_err(|error| error.to_string())?;
        let mut proto = export(&graph).map_err(|error| error.to_string())?;
        let graph = proto.graph.as_mut().ok_or("a model without a graph")?;
        for (name, dims) in constants {
            let n = dims.iter().product::<i64>() as usize;
            graph.input.retain(|input| input.name.as_deref() != Some(name));
            graph.initializer.push(TensorProto {
                name: Some(name.to_string()),
                dims,
                data_type: Some(DataType::Float as i32),
                raw_data: Some(tilewright_run::measure::made_up::noise(n as u64, n).into()),
                ..TensorProto::default()
            });
        }
        OnnxModel::from_proto(proto).map_err(|error| error.to_string())
    }
}

/// Up to `n` different candidates for a function, what the rules do by default first: they differ in what the model has a price for.
pub fn candidates(task: &Task, n: usize, random: &mut fastrand::Rng) -> Vec<Decisions> {
    /// How often is tried to find one more.
    const TRIES: usize = 8;
    let Ok(default) = Point::of(task, &Decisions::default()) else { return Vec::new() };
    let mut found = vec![default.clone()];
    for _ in 0..TRIES * n {
        if found.len() >= n {
            break;
        }
        // Decisions that follow from others are taken after them. The order of a window's loops has no price in cycles.
        let mut point = default.clone();
        let is_window = !default.taken.iter().any(|d| d.point.ends_with("/depth"));
        for what in if is_window { &["/tile"][..] } else { &["/tile", "/depth", "/order"] } {
            let priced = |d: &&Decision| d.point.ends_with(what) && is_priced(d);
            let Some(decision) = point.taken.iter().find(priced) else { continue };
            let Some(choice) = random.choice(&decision.candidates) else { continue };
            let mut decisions = point.decisions.clone();
            decisions.set(&decision.point, &choice.value);
            if let Ok(next) = Point::of(task, &decisions) {
                point = next;
            }
        }
        if found.iter().all(|known| known.digest != point.digest) {
            found.push(point);
        }
    }
    found.into_iter().map(|point| point.decisions).collect()
}

/// Whether the model prices candidates of a decision differently.
fn is_priced(decision: &Decision) -> bool {
    let mut costs = decision.candidates.iter().map(|candidate| candidate.cost);
    let first = costs.next();
    costs.any(|cost| Some(cost) != first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_machine::{CodegenKind, Target};

    #[test]
    fn shapes_are_many_and_the_same_every_time() {
        let shapes = Shape::several(100, 1);
        assert_eq!(shapes, Shape::several(100, 1));
        assert!(shapes.iter().all(|shape| WORK.contains(&shape.work())));
        let depthwise = |shape: &&Shape| matches!(shape, Shape::Convolution { filters: 0, .. });
        assert_eq!(shapes.iter().filter(depthwise).count(), 20);
    }

    #[test]
    fn each_kind_has_a_task_with_candidates() {
        let target = Target::parse("x86-64-v3", CodegenKind::Cranelift).expect("a known target");
        let options = Options::for_target(target);
        for shape in Shape::several(5, 2) {
            let task = shape.task(&options).unwrap_or_else(|error| panic!("{}: {error}", shape.name()));
            let constants = task.computation.constant_inputs.iter().filter(|is| **is).count();
            assert_eq!(constants, 1, "{}", shape.name());
            let found = candidates(&task, 6, &mut fastrand::Rng::with_seed(1));
            assert!(found.len() >= 2 && found[0].is_empty(), "{}: {found:?}", shape.name());
        }
    }
}
