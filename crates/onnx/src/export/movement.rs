//! Movement, generators and selection.

use tilewright_graph::op::{
    AspectPolicy, CacheMode, CoordinateMode, Distribution, EyeAttrs, FromDimsAttrs, GridPadding,
    GridSampleAttrs, InterpolationMode, IotaAttrs, MultinomialAttrs, NearestMode, NonMaxSuppressionAttrs,
    OneHotAttrs, OptionalAxisAttrs, PadAttrs, PadMode, RandomAttrs, ResizeAttrs, ReverseSequenceAttrs,
    ScatterElementsAttrs, ScatterReduction, ShapeAttrs, SliceAttrs, SplitAttrs, TensorScatterAttrs,
    TileAttrs, TopKAttrs, TriluAttrs, UniqueAttrs,
};
use tilewright_graph::tensor::Tensor;
use tilewright_graph::{DType, Dim};

use super::build::{flag, int, real, size, sizes, text};
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

    pub(super) fn split(&mut self, item: &Item<'_>, attrs: &SplitAttrs) -> Result<()> {
        let parts = self.shape(&attrs.sizes)?;
        self.finish(item, "Split", &[item.input(0), &parts], vec![size("axis", attrs.axis)]);
        Ok(())
    }

    pub(super) fn scatter_elements(&mut self, item: &Item<'_>, attrs: &ScatterElementsAttrs) -> Result<()> {
        let attributes = vec![size("axis", attrs.axis), text("reduction", reduction(attrs.reduction))];
        self.plain(item, "ScatterElements", attributes)
    }

    pub(super) fn tensor_scatter(&mut self, item: &Item<'_>, attrs: &TensorScatterAttrs) -> Result<()> {
        self.need(24);
        let mode = match attrs.mode {
            CacheMode::Linear => "linear",
            CacheMode::Circular => "circular",
        };
        self.plain(item, "TensorScatter", vec![size("axis", attrs.axis), text("mode", mode)])
    }

    pub(super) fn tile(&mut self, item: &Item<'_>, attrs: &TileAttrs) -> Result<()> {
        let repeats = self.shape(&attrs.repeats)?;
        self.finish(item, "Tile", &[item.input(0), &repeats], vec![]);
        Ok(())
    }

    pub(super) fn reverse_sequence(&mut self, item: &Item<'_>, attrs: &ReverseSequenceAttrs) -> Result<()> {
        let attributes = vec![size("batch_axis", attrs.batch_axis), size("time_axis", attrs.time_axis)];
        self.plain(item, "ReverseSequence", attributes)
    }

    pub(super) fn compress(&mut self, item: &Item<'_>, attrs: &OptionalAxisAttrs) -> Result<()> {
        self.plain(item, "Compress", attrs.axis.map(|axis| size("axis", axis)).into_iter().collect())
    }

    pub(super) fn constant_of_dims(&mut self, item: &Item<'_>, attrs: &FromDimsAttrs) -> Result<()> {
        let mut value = self.shape(&attrs.values)?;
        if attrs.scalar {
            value = self.as_scalar(&value);
        }
        self.finish(item, "Cast", &[&value], vec![dtype_attr("to", attrs.dtype)]);
        Ok(())
    }

    pub(super) fn shape_of(&mut self, item: &Item<'_>, attrs: &ShapeAttrs) -> Result<()> {
        self.plain(item, "Shape", vec![size("start", attrs.start), size("end", attrs.end)])
    }

    pub(super) fn full_dynamic(&mut self, item: &Item<'_>) -> Result<()> {
        self.finish(item, "Expand", &[item.input(1), item.input(0)], vec![]);
        Ok(())
    }

    pub(super) fn multinomial(&mut self, item: &Item<'_>, attrs: &MultinomialAttrs) -> Result<()> {
        let mut attributes = vec![size("sample_size", attrs.sample_size), dtype_attr("dtype", attrs.dtype)];
        attributes.extend(attrs.seed.map(|seed| real("seed", seed)));
        self.plain(item, "Multinomial", attributes)
    }

    pub(super) fn unique(&mut self, item: &Item<'_>, attrs: &UniqueAttrs) -> Result<()> {
        let mut attributes = vec![flag("sorted", attrs.sorted)];
        attributes.extend(attrs.axis.map(|axis| size("axis", axis)));
        self.plain(item, "Unique", attributes)
    }

    pub(super) fn non_max_suppression(
        &mut self,
        item: &Item<'_>,
        attrs: &NonMaxSuppressionAttrs,
    ) -> Result<()> {
        self.plain(item, "NonMaxSuppression", vec![flag("center_point_box", attrs.center_point_box)])
    }
}
