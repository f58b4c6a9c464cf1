//! Movement, generators, selection and control flow.

use tilewright_graph::op::{
    AspectPolicy, CoordinateMode, Distribution, EyeAttrs, GridPadding, GridSampleAttrs, IfAttrs,
    InterpolationMode, IotaAttrs, LoopAttrs, NearestMode, OneHotAttrs, PadAttrs, PadMode, RandomAttrs,
    ResizeAttrs, ScanAttrs, ScatterReduction, SliceAttrs, TfIdfAttrs, TfIdfMode, TopKAttrs, TriluAttrs,
};
use tilewright_graph::tensor::Tensor;
use tilewright_graph::{DType, Dim};

use super::build::{self, flag, int, ints, real, reals, size, sizes, text, texts};
use super::elementwise::dtype_attr;
use super::{Exporter, Item, Result};

pub(super) fn pad_mode(mode: PadMode) -> &'static str {
    match mode {
        PadMode::Constant => "constant",
        PadMode::Edge => "edge",
        PadMode::Reflect => "reflect",
        PadMode::Wrap => "wrap",
    }
}

pub(super) fn reduction(reduction: ScatterReduction) -> &'static str {
    match reduction {
        ScatterReduction::None => "none",
        ScatterReduction::Add => "add",
        ScatterReduction::Mul => "mul",
        ScatterReduction::Max => "max",
        ScatterReduction::Min => "min",
    }
}

fn interpolation(mode: InterpolationMode) -> &'static str {
    match mode {
        InterpolationMode::Nearest => "nearest",
        InterpolationMode::Linear => "linear",
        InterpolationMode::Cubic => "cubic",
    }
}

impl Exporter<'_> {
    pub(super) fn reshape(&mut self, item: &Item<'_>, dims: &[Dim]) -> Result<()> {
        let shape = self.shape(dims)?;
        self.finish(item, "Reshape", &[item.input(0), &shape], vec![flag("allowzero", true)]);
        Ok(())
    }

    pub(super) fn expand(&mut self, item: &Item<'_>, dims: &[Dim]) -> Result<()> {
        let shape = self.shape(dims)?;
        self.finish(item, "Expand", &[item.input(0), &shape], Vec::new());
        Ok(())
    }

    /// Ends of backward slices count from the operand's end, below its beginning: there a plain -1 would mean
    /// its last element.
    pub(super) fn slice(&mut self, item: &Item<'_>, attrs: &SliceAttrs) -> Result<()> {
        let extents = self.operand_dims(item, 0)?;
        let mut ends = Vec::new();
        for (index, &axis) in attrs.axes.iter().enumerate() {
            let end =
                attrs.starts[index].clone() + attrs.sizes[index].clone() * Dim::from(attrs.steps[index]);
            ends.push(if attrs.steps[index] < 0 { end - extents[axis].clone() } else { end });
        }
        let axes: Vec<i64> = attrs.axes.iter().map(|&axis| axis as i64).collect();
        let (starts, ends) = (self.shape(&attrs.starts)?, self.shape(&ends)?);
        let (axes, steps) = (self.ints(&axes), self.ints(&attrs.steps));
        self.finish(item, "Slice", &[item.input(0), &starts, &ends, &axes, &steps], Vec::new());
        Ok(())
    }

    pub(super) fn pad(&mut self, item: &Item<'_>, attrs: &PadAttrs) -> Result<()> {
        let pads = self.shape(&[attrs.before.as_slice(), attrs.after.as_slice()].concat())?;
        let inputs = [item.input(0), &pads, item.input(1)];
        self.finish(item, "Pad", &inputs, vec![text("mode", pad_mode(attrs.mode))]);
        Ok(())
    }

    pub(super) fn resize(&mut self, item: &Item<'_>, attrs: &ResizeAttrs, dynamic: bool) -> Result<()> {
        let coordinates = match attrs.coordinates {
            CoordinateMode::HalfPixel => "half_pixel",
            CoordinateMode::HalfPixelSymmetric => "half_pixel_symmetric",
            CoordinateMode::PytorchHalfPixel => "pytorch_half_pixel",
            CoordinateMode::AlignCorners => "align_corners",
            CoordinateMode::Asymmetric => "asymmetric",
            CoordinateMode::TfCropAndResize => "tf_crop_and_resize",
        };
        let nearest = match attrs.nearest {
            NearestMode::RoundPreferFloor => "round_prefer_floor",
            NearestMode::RoundPreferCeil => "round_prefer_ceil",
            NearestMode::Floor => "floor",
            NearestMode::Ceil => "ceil",
        };
        let policy = match attrs.policy {
            AspectPolicy::Stretch => "stretch",
            AspectPolicy::NotLarger => "not_larger",
            AspectPolicy::NotSmaller => "not_smaller",
        };
        let mut attributes = vec![
            text("mode", interpolation(attrs.mode)),
            text("coordinate_transformation_mode", coordinates),
            text("nearest_mode", nearest),
            real("cubic_coeff_a", attrs.cubic_coeff_a),
            real("extrapolation_value", attrs.extrapolation_value),
            flag("exclude_outside", attrs.exclude_outside),
            flag("antialias", attrs.antialias),
            sizes("axes", &attrs.axes),
        ];
        let mut operands = vec![item.input(0).to_owned()];
        if dynamic {
            operands.extend((1..4).map(|position| item.input(position).to_owned()));
            attributes.push(text("keep_aspect_ratio_policy", policy));
        } else {
            let floats = |values: &[tilewright_graph::op::Real]| {
                Tensor::vector(&values.iter().map(|value| value.0).collect::<Vec<f32>>())
            };
            let has = |list: &[tilewright_graph::op::Real]| !list.is_empty();
            operands.push(if has(&attrs.roi) {
                self.initializer("roi", &floats(&attrs.roi))
            } else {
                String::new()
            });
            if has(&attrs.scales) {
                operands.push(self.initializer("scales", &floats(&attrs.scales)));
            } else {
                let extents = attrs.axes.iter().map(|&axis| attrs.dims.get(axis).cloned());
                let extents: Option<Vec<Dim>> = extents.collect();
                operands.push(String::new());
                operands.push(self.shape(&extents.ok_or("the extents of the result are not known")?)?);
            }
        }
        let operands: Vec<&str> = operands.iter().map(String::as_str).collect();
        self.finish(item, "Resize", &operands, attributes);
        Ok(())
    }

    pub(super) fn grid_sample(&mut self, item: &Item<'_>, attrs: &GridSampleAttrs) -> Result<()> {
        let padding = match attrs.padding {
            GridPadding::Zeros => "zeros",
            GridPadding::Border => "border",
            GridPadding::Reflection => "reflection",
        };
        let attributes = vec![
            text("mode", interpolation(attrs.mode)),
            text("padding_mode", padding),
            flag("align_corners", attrs.align_corners),
        ];
        self.plain(item, "GridSample", attributes)
    }

    pub(super) fn trilu(&mut self, item: &Item<'_>, attrs: &TriluAttrs) -> Result<()> {
        let diagonal = match attrs.diagonal {
            Some(0) => String::new(),
            Some(diagonal) => self.initializer("diagonal", &Tensor::scalar(diagonal)),
            None => item.input(1).to_owned(),
        };
        self.finish(item, "Trilu", &[item.input(0), &diagonal], vec![flag("upper", attrs.upper)]);
        Ok(())
    }

    /// `start + i * step`.
    pub(super) fn iota(&mut self, item: &Item<'_>, attrs: &IotaAttrs) -> Result<()> {
        let dtype = self.operand_dtype(item, 0)?;
        let len = self.extent(&attrs.len)?;
        let len = self.as_scalar(&len);
        let (zero, one) = (self.zero(DType::I64)?, self.scalar(DType::I64, 1.0)?);
        let mut steps = self.emit("Range", &[&zero, &len, &one], Vec::new());
        if dtype != DType::I64 {
            steps = self.emit("Cast", &[&steps], vec![dtype_attr("to", dtype)]);
        }
        let offsets = self.emit("Mul", &[&steps, item.input(1)], Vec::new());
        self.finish(item, "Add", &[&offsets, item.input(0)], Vec::new());
        Ok(())
    }

    pub(super) fn eye(&mut self, item: &Item<'_>, attrs: &EyeAttrs) -> Result<()> {
        let zero = self.zero(DType::F32)?;
        let shape = self.shape(&attrs.dims)?;
        let like = self.emit("Expand", &[&zero, &shape], Vec::new());
        self.finish(
            item,
            "EyeLike",
            &[&like],
            vec![int("k", attrs.diagonal), dtype_attr("dtype", attrs.dtype)],
        );
        Ok(())
    }

    pub(super) fn one_hot(&mut self, item: &Item<'_>, attrs: &OneHotAttrs) -> Result<()> {
        let depth = match &attrs.depth {
            Some(depth) => {
                let vector = self.extent(depth)?;
                self.as_scalar(&vector)
            }
            None => item.input(2).to_owned(),
        };
        self.finish(item, "OneHot", &[item.input(0), &depth, item.input(1)], vec![size("axis", attrs.axis)]);
        Ok(())
    }

    pub(super) fn random(&mut self, item: &Item<'_>, attrs: &RandomAttrs) -> Result<()> {
        let zero = self.zero(DType::F32)?;
        let shape = self.shape(&attrs.dims)?;
        let like = self.emit("Expand", &[&zero, &shape], Vec::new());
        let mut attributes = vec![dtype_attr("dtype", attrs.dtype)];
        attributes.extend(attrs.seed.map(|seed| real("seed", seed)));
        let op_type = match attrs.distribution {
            Distribution::Uniform => {
                attributes.extend([real("low", attrs.a), real("high", attrs.b)]);
                "RandomUniformLike"
            }
            Distribution::Normal => {
                attributes.extend([real("mean", attrs.a), real("scale", attrs.b)]);
                "RandomNormalLike"
            }
        };
        self.finish(item, op_type, &[&like], attributes);
        Ok(())
    }

    pub(super) fn top_k(&mut self, item: &Item<'_>, attrs: &TopKAttrs) -> Result<()> {
        let k = match &attrs.k {
            Some(k) => self.extent(k)?,
            None => {
                let one = self.ints(&[1]);
                self.emit("Reshape", &[item.input(1), &one], Vec::new())
            }
        };
        let attributes =
            vec![size("axis", attrs.axis), flag("largest", attrs.largest), flag("sorted", attrs.sorted)];
        self.finish(item, "TopK", &[item.input(0), &k], attributes);
        Ok(())
    }

    pub(super) fn if_node(&mut self, item: &Item<'_>, attrs: &IfAttrs) -> Result<()> {
        let captures = &item.inputs[1..];
        let then_branch = self.subgraph(attrs.then_region, 0, captures)?;
        let else_branch = self.subgraph(attrs.else_region, 0, captures)?;
        let attributes =
            vec![build::graph("then_branch", then_branch), build::graph("else_branch", else_branch)];
        self.finish(item, "If", &[item.input(0)], attributes);
        Ok(())
    }

    pub(super) fn loop_node(&mut self, item: &Item<'_>, attrs: &LoopAttrs) -> Result<()> {
        let (own, captures) = item.inputs.split_at((2 + attrs.carried).min(item.inputs.len()));
        let body = self.subgraph(attrs.body, 2 + attrs.carried, captures)?;
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        self.finish(item, "Loop", &own, vec![build::graph("body", body)]);
        Ok(())
    }

    pub(super) fn scan(&mut self, item: &Item<'_>, attrs: &ScanAttrs) -> Result<()> {
        let formals = attrs.states + attrs.input_axes.len();
        let (own, captures) = item.inputs.split_at(formals.min(item.inputs.len()));
        let body = self.subgraph(attrs.body, formals, captures)?;
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        let ways = |ways: &[bool]| ways.iter().map(|&reversed| i64::from(reversed)).collect::<Vec<_>>();
        let attributes = vec![
            build::graph("body", body),
            size("num_scan_inputs", attrs.input_axes.len()),
            sizes("scan_input_axes", &attrs.input_axes),
            ints("scan_input_directions", &ways(&attrs.input_reversed)),
            sizes("scan_output_axes", &attrs.output_axes),
            ints("scan_output_directions", &ways(&attrs.output_reversed)),
        ];
        self.finish(item, "Scan", &own, attributes);
        Ok(())
    }

    pub(super) fn tf_idf(&mut self, item: &Item<'_>, attrs: &TfIdfAttrs) -> Result<()> {
        let mode = match attrs.mode {
            TfIdfMode::Tf => "TF",
            TfIdfMode::Idf => "IDF",
            TfIdfMode::TfIdf => "TFIDF",
        };
        let mut attributes = vec![
            text("mode", mode),
            size("min_gram_length", attrs.min_length),
            size("max_gram_length", attrs.max_length),
            size("max_skip_count", attrs.max_skip),
            sizes("ngram_counts", &attrs.counts),
            sizes("ngram_indexes", &attrs.indexes),
        ];
        if !attrs.pool_integers.is_empty() {
            attributes.push(ints("pool_int64s", &attrs.pool_integers));
        }
        if !attrs.pool_strings.is_empty() {
            attributes.push(texts("pool_strings", &attrs.pool_strings));
        }
        if !attrs.weights.is_empty() {
            attributes.push(reals("weights", &attrs.weights));
        }
        self.plain(item, "TfIdfVectorizer", attributes)
    }
}
