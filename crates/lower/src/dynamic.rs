//! Extents that are data: how the result of an operator follows from the elements of its operands.
//!
//! The rules are written once over [`Extents`], which the plan implements with size slots and the reference
//! with numbers. Choices are arithmetic (a condition is 0 or 1), so that a rule has no branches; what ONNX
//! requires of the operands is required here too, because kernels index by these extents.

mod operands;
#[cfg(test)]
mod tests;

use tilewright_dtype::DType;
use tilewright_graph::dim::Dim;
use tilewright_graph::op::{
    AspectPolicy, CoordinateMode, DftAttrs, ReduceDynamicAttrs, ResizeAttrs, StftAttrs,
};
use tilewright_graph::{Graph, Node, NodeId, Op, ValueId};
use tilewright_runtime::plan::Cmp;

/// An operation on two sizes, as [`tilewright_runtime::plan::SizeDef`] defines them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeOp {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Quotient rounded towards minus infinity.
    FloorDiv,
    /// Quotient rounded towards plus infinity.
    CeilDiv,
    /// The smaller.
    Min,
    /// The larger.
    Max,
}

impl SizeOp {
    /// The result on two numbers; `None` if it overflows or the divisor is 0.
    pub fn apply(self, a: i64, b: i64) -> Option<i64> {
        let floor_div = |a: i64, b: i64| {
            let quotient = a.checked_div(b)?;
            Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
        };
        match self {
            SizeOp::Add => a.checked_add(b),
            SizeOp::Sub => a.checked_sub(b),
            SizeOp::Mul => a.checked_mul(b),
            SizeOp::FloorDiv => floor_div(a, b),
            SizeOp::CeilDiv => floor_div(a, b.checked_neg()?)?.checked_neg(),
            SizeOp::Min => Some(a.min(b)),
            SizeOp::Max => Some(a.max(b)),
        }
    }
}

/// Arithmetic on extents and on elements of operands.
pub trait Extents {
    /// A number, perhaps known only at run time.
    type Size: Copy;
    /// Why a number cannot be had.
    type Error;

    /// A constant.
    fn constant(&mut self, value: i64) -> Self::Size;
    /// The value of an extent.
    ///
    /// # Errors
    /// A symbol of it has no definition.
    fn dim(&mut self, dim: &Dim) -> Result<Self::Size, Self::Error>;
    /// An element of an integer tensor, by its row-major position.
    ///
    /// # Errors
    /// The value is no integer tensor that exists.
    fn element(&mut self, value: ValueId, position: usize) -> Result<Self::Size, Self::Error>;
    /// `floor(size * factor)` in binary32, where the factor is an element of an F32 tensor.
    ///
    /// # Errors
    /// The value is no F32 tensor that exists.
    fn scaled(
        &mut self,
        size: Self::Size,
        value: ValueId,
        position: usize,
    ) -> Result<Self::Size, Self::Error>;
    /// An operation on two numbers.
    fn apply(&mut self, op: SizeOp, a: Self::Size, b: Self::Size) -> Self::Size;
    /// Ends the run with an error unless the comparison holds.
    ///
    /// # Errors
    /// It does not hold, where that is known at once.
    fn require(&mut self, a: Self::Size, cmp: Cmp, b: Self::Size, message: &str) -> Result<(), Self::Error>;
    /// The error for what has no rule.
    fn gap(&self, reason: &str) -> Self::Error;
}

/// The extent of axis `axis` of result `position` of a node, which its type rule left open.
///
/// # Errors
/// The operator's extents follow from its operands in a way no rule describes, and what `extents` reports.
pub fn extent<E: Extents>(
    graph: &Graph,
    node: NodeId,
    position: usize,
    axis: usize,
    extents: &mut E,
) -> Result<E::Size, E::Error> {
    let mut rules = Rules { graph, node: graph.node(node), e: extents };
    let size = rules.extent(position, axis)?;
    let zero = rules.number(0);
    rules.require(zero, Cmp::Le, size, "an extent must not be negative")?;
    Ok(size)
}

struct Rules<'a, E: Extents> {
    graph: &'a Graph,
    node: &'a Node,
    e: &'a mut E,
}

impl<E: Extents> Rules<'_, E> {
    fn extent(&mut self, position: usize, axis: usize) -> Result<E::Size, E::Error> {
        match &self.node.op {
            Op::Concat(_) => {
                let mut sum = self.number(0);
                for operand in 0..self.node.inputs.len() {
                    let extent = self.extent_of(operand, axis)?;
                    sum = self.add(sum, extent);
                }
                Ok(sum)
            }
            Op::ReduceDynamic(attrs) => self.reduce(attrs, axis),
            Op::ReshapeDynamic(attrs) => self.reshape(axis, attrs.allow_zero),
            Op::ExpandDynamic => self.expand(axis),
            Op::SliceDynamic => self.slice(axis),
            Op::SplitDynamic(attrs) => self.split(position, attrs.axis),
            Op::PadDynamic(_) => self.pad(axis),
            Op::TileDynamic => {
                let (extent, repeats) = (self.x(axis)?, self.element(1, axis)?);
                let zero = self.number(0);
                self.require(zero, Cmp::Le, repeats, "a number of repeats must not be negative")?;
                Ok(self.mul(extent, repeats))
            }
            Op::ResizeDynamic(attrs) => self.resize(attrs, axis),
            Op::CenterCropPad(attrs) => match attrs.axes.iter().position(|&a| a == axis) {
                Some(listed) => self.element(1, listed),
                None => self.x(axis),
            },
            Op::FullDynamic => self.element(0, axis),
            Op::RangeDynamic => self.range(),
            Op::OneHot(_) => self.depth(),
            Op::TopK(attrs) => {
                let (k, extent) = (self.element(1, 0)?, self.x(attrs.axis)?);
                self.require(k, Cmp::Le, extent, "k must not exceed the extent")?;
                Ok(k)
            }
            Op::MaxUnpoolDynamic(_) => self.element(2, axis),
            // The result is `[batch, spatial.., coordinates]` of a size `[batch, channels, spatial..]`.
            Op::AffineGrid(_) => self.element(1, if axis == 0 { 0 } else { axis + 1 }),
            Op::Col2Im(attrs) => match axis {
                0 => self.x(0),
                1 => {
                    let block = self.block(&attrs.block)?;
                    let columns = self.x(1)?;
                    let channels = self.floor_div(columns, block);
                    let covered = self.mul(channels, block);
                    self.require(covered, Cmp::Eq, columns, "blocks must divide the columns")?;
                    Ok(channels)
                }
                _ => self.element(1, axis - 2),
            },
            Op::MelWeightMatrix(_) => match axis {
                0 => {
                    let (length, two, one) = (self.element(1, 0)?, self.number(2), self.number(1));
                    let half = self.floor_div(length, two);
                    Ok(self.add(half, one))
                }
                _ => self.element(0, 0),
            },
            Op::Dft(attrs) => self.dft(attrs, axis),
            Op::Stft(attrs) if axis == 1 => self.frames(attrs),
            Op::Stft(attrs) if axis == 2 => {
                let length = self.frame_length(attrs)?;
                Ok(self.bins(length, attrs.onesided))
            }
            op => Err(self.e.gap(&format!(
                "the extents of a result of {} follow from data in a way that is not compiled",
                op.name()
            ))),
        }
    }

    fn reduce(&mut self, attrs: &ReduceDynamicAttrs, axis: usize) -> Result<E::Size, E::Error> {
        let rank = self.rank()?;
        let count = self.len(1)?;
        let mut listed = Vec::new();
        for i in 0..count {
            listed.push(self.axis_element(1, i, rank)?);
        }
        let one = self.number(1);
        // Whether each axis stays.
        let mut kept = Vec::new();
        for i in 0..rank {
            let mut stays = self.number(i64::from(count > 0 || attrs.empty_is_noop));
            for &reduced in &listed {
                let i = self.number(i as i64);
                let differs = self.differs(reduced, i);
                stays = self.mul(stays, differs);
            }
            kept.push(stays);
        }
        if attrs.keep_dims {
            let extent = self.x(axis)?;
            return Ok(self.select(kept[axis], extent, one));
        }
        let (wanted, mut before, mut size) = (self.number(axis as i64), self.number(0), self.number(0));
        for (i, &stays) in kept.iter().enumerate() {
            let equal = self.equal(before, wanted);
            let here = self.mul(equal, stays);
            let extent = self.x(i)?;
            let part = self.mul(here, extent);
            size = self.add(size, part);
            before = self.add(before, stays);
        }
        let rank = self.number((rank - count.min(rank)) as i64);
        self.require(before, Cmp::Eq, rank, "axes must not repeat")?;
        Ok(size)
    }

    fn reshape(&mut self, axis: usize, allow_zero: bool) -> Result<E::Size, E::Error> {
        let (zero, one) = (self.number(0), self.number(1));
        let (count, rank) = (self.len(1)?, self.rank()?);
        let mut total = one;
        for i in 0..rank {
            let extent = self.x(i)?;
            total = self.mul(total, extent);
        }
        // Each extent with 0 replaced, and -1 by 1; how many are -1.
        let (mut known, mut inferred, mut wanted, mut product) = (one, zero, zero, one);
        for i in 0..count {
            let given = self.element(1, i)?;
            let negative = self.negative(given);
            let mut extent = self.select(negative, one, given);
            if !allow_zero {
                let is_zero = self.equal(given, zero);
                let kept = if i < rank { self.x(i)? } else { zero };
                extent = self.select(is_zero, kept, extent);
            }
            known = self.mul(known, extent);
            inferred = self.add(inferred, negative);
            if i == axis {
                (wanted, product) = (extent, negative);
            }
        }
        self.require(inferred, Cmp::Le, one, "more than one extent is -1")?;
        let divisor = self.e.apply(SizeOp::Max, known, one);
        let quotient = self.floor_div(total, divisor);
        let rest = self.select(inferred, quotient, one);
        let covered = self.mul(known, rest);
        self.require(covered, Cmp::Eq, total, "numbers of elements must be equal")?;
        Ok(self.select(product, quotient, wanted))
    }

    /// numpy's broadcast of the operand's extents and the given ones, aligned at the end.
    fn expand(&mut self, axis: usize) -> Result<E::Size, E::Error> {
        // Extents that inference could tell from the operand alone have nobody else to check them; open ones check themselves.
        let graph = self.graph;
        let dims = self.node.output().and_then(|value| graph.dims(value)).unwrap_or_default();
        for (known, _) in dims.iter().enumerate().filter(|(_, dim)| dim.as_const().is_some()) {
            self.expand_axis(known)?;
        }
        self.expand_axis(axis)
    }

    fn expand_axis(&mut self, axis: usize) -> Result<E::Size, E::Error> {
        let (x, given) = (self.rank()?, self.len(1)?);
        let rank = x.max(given);
        let one = self.number(1);
        let extent = if axis + x >= rank { self.x(axis + x - rank)? } else { one };
        let wanted = if axis + given >= rank { self.element(1, axis + given - rank)? } else { one };
        let stretches = self.equal(extent, one);
        let size = self.select(stretches, wanted, extent);
        // Either they agree, or the given extent is 1.
        let (difference, width) = (self.sub(wanted, size), self.sub(wanted, one));
        let (clash, zero) = (self.mul(difference, width), self.number(0));
        self.require(clash, Cmp::Eq, zero, "extents must broadcast")?;
        Ok(size)
    }

    fn slice(&mut self, axis: usize) -> Result<E::Size, E::Error> {
        let (rank, count) = (self.rank()?, self.len(1)?);
        let extent = self.x(axis)?;
        let mut size = extent;
        for i in 0..count {
            let (start, end) = (self.element(1, i)?, self.element(2, i)?);
            let step = if self.has(4) { self.element(4, i)? } else { self.number(1) };
            let listed = if self.has(3) { self.axis_element(3, i, rank)? } else { self.number(i as i64) };
            let wanted = self.number(axis as i64);
            let here = self.equal(listed, wanted);
            let sliced = self.slice_size(extent, start, end, step)?;
            size = self.select(here, sliced, size);
        }
        Ok(size)
    }

    fn slice_size(
        &mut self,
        extent: E::Size,
        start: E::Size,
        end: E::Size,
        step: E::Size,
    ) -> Result<E::Size, E::Error> {
        let zero = self.number(0);
        let backwards = self.negative(step);
        // Forwards bounds lie in 0..=extent, backwards ones in -1..extent; a start before all is the first.
        let (low, high) = (self.sub(zero, backwards), self.sub(extent, backwards));
        let (start, end) = (self.absolute(start, extent), self.absolute(end, extent));
        let start = self.e.apply(SizeOp::Max, start, zero);
        let start = self.e.apply(SizeOp::Min, start, high);
        let end = self.e.apply(SizeOp::Max, end, low);
        let end = self.e.apply(SizeOp::Min, end, high);
        let moves = self.differs(step, zero);
        let one = self.number(1);
        self.require(moves, Cmp::Eq, one, "a step must not be 0")?;
        let distance = self.sub(end, start);
        let size = self.e.apply(SizeOp::CeilDiv, distance, step);
        Ok(self.e.apply(SizeOp::Max, size, zero))
    }

    /// A bound that counts from the end when negative; clamped first, because bounds may be any `i64`.
    fn absolute(&mut self, bound: E::Size, extent: E::Size) -> E::Size {
        let (zero, one) = (self.number(0), self.number(1));
        let below = self.sub(zero, extent);
        let below = self.sub(below, one);
        let bound = self.e.apply(SizeOp::Max, bound, below);
        let bound = self.e.apply(SizeOp::Min, bound, extent);
        let negative = self.negative(bound);
        let shift = self.mul(negative, extent);
        self.add(bound, shift)
    }

    fn split(&mut self, position: usize, axis: usize) -> Result<E::Size, E::Error> {
        let (zero, extent) = (self.number(0), self.x(axis)?);
        let mut total = zero;
        for i in 0..self.len(1)? {
            let size = self.element(1, i)?;
            self.require(zero, Cmp::Le, size, "the size of a part must not be negative")?;
            total = self.add(total, size);
        }
        self.require(total, Cmp::Eq, extent, "the sizes of the parts must add up to the extent")?;
        self.element(1, position)
    }

    fn pad(&mut self, axis: usize) -> Result<E::Size, E::Error> {
        let rank = self.rank()?;
        let count = self.len(1)? / 2;
        let mut size = self.x(axis)?;
        for i in 0..count {
            let listed = if self.has(3) { self.axis_element(3, i, rank)? } else { self.number(i as i64) };
            let wanted = self.number(axis as i64);
            let here = self.equal(listed, wanted);
            let (begin, end) = (self.element(1, i)?, self.element(1, i + count)?);
            let both = self.add(begin, end);
            let grown = self.mul(here, both);
            size = self.add(size, grown);
        }
        Ok(size)
    }

    fn resize(&mut self, attrs: &ResizeAttrs, axis: usize) -> Result<E::Size, E::Error> {
        let axes: Vec<usize> =
            if attrs.axes.is_empty() { (0..self.rank()?).collect() } else { attrs.axes.clone() };
        let extent = self.x(axis)?;
        let Some(listed) = axes.iter().position(|&a| a == axis) else { return Ok(extent) };
        if !self.has(3) || self.len(3)? == 0 {
            if attrs.coordinates == CoordinateMode::TfCropAndResize {
                return Err(self.e.gap("extents that follow from a region of interest are not compiled"));
            }
            let scales = self.operand(2)?;
            return self.e.scaled(extent, scales, listed);
        }
        let narrow = match attrs.policy {
            AspectPolicy::Stretch => return self.element(3, listed),
            AspectPolicy::NotLarger => SizeOp::Min,
            AspectPolicy::NotSmaller => SizeOp::Max,
        };
        // round(extent * scale) with the least or largest scale: rounding is monotonic, so the least or largest
        // of the results, each exact: floor((2 extent size + from) / (2 from)).
        let mut result: Option<E::Size> = None;
        for (i, &from) in axes.iter().enumerate() {
            let (size, from, one) = (self.element(3, i)?, self.x(from)?, self.number(1));
            let from = self.e.apply(SizeOp::Max, from, one);
            let product = self.mul(extent, size);
            let doubled = self.add(product, product);
            let (sum, divisor) = (self.add(doubled, from), self.add(from, from));
            let rounded = self.floor_div(sum, divisor);
            result = Some(result.map_or(rounded, |r| self.e.apply(narrow, r, rounded)));
        }
        Ok(result.unwrap_or(extent))
    }

    /// The depth of `OneHot`, which may be a float that holds an integer.
    fn depth(&mut self) -> Result<E::Size, E::Error> {
        let value = self.operand(2)?;
        if self.graph.tensor_type(value).is_some_and(|ty| ty.dtype == DType::F32) {
            let one = self.number(1);
            return self.e.scaled(one, value, 0);
        }
        self.element(2, 0)
    }

    fn range(&mut self) -> Result<E::Size, E::Error> {
        let (start, limit, step) = (self.element(0, 0)?, self.element(1, 0)?, self.element(2, 0)?);
        let (zero, one) = (self.number(0), self.number(1));
        let moves = self.differs(step, zero);
        self.require(moves, Cmp::Eq, one, "the step must not be 0")?;
        let distance = self.sub(limit, start);
        let count = self.e.apply(SizeOp::CeilDiv, distance, step);
        Ok(self.e.apply(SizeOp::Max, count, zero))
    }

    fn dft(&mut self, attrs: &DftAttrs, axis: usize) -> Result<E::Size, E::Error> {
        let rank = self.rank()?;
        let (extent, one, two) = (self.x(axis)?, self.number(1), self.number(2));
        let transformed = match attrs.axis {
            Some(transformed) => self.number(transformed as i64),
            None => self.axis_element(2, 0, rank)?,
        };
        let length = match &attrs.length {
            Some(length) => self.e.dim(length)?,
            None if self.has(1) => self.element(1, 0)?,
            None if attrs.inverse && attrs.onesided => {
                let less = self.sub(extent, one);
                self.mul(less, two)
            }
            None => extent,
        };
        let produced = self.bins(length, attrs.onesided && !attrs.inverse);
        let wanted = self.number(axis as i64);
        let here = self.equal(transformed, wanted);
        Ok(self.select(here, produced, extent))
    }

    /// Elements of a spectrum, or of its half without redundancy.
    fn bins(&mut self, length: E::Size, halved: bool) -> E::Size {
        if !halved {
            return length;
        }
        let (one, two) = (self.number(1), self.number(2));
        let half = self.floor_div(length, two);
        self.add(half, one)
    }

    /// Samples in a frame of `Stft`.
    fn frame_length(&mut self, attrs: &StftAttrs) -> Result<E::Size, E::Error> {
        match attrs.frame_length {
            Some(length) => Ok(self.number(length)),
            None if self.has(3) => self.element(3, 0),
            None => {
                let window = self.operand(2)?;
                let extent = self.graph.dims(window).and_then(<[Dim]>::first).cloned();
                match extent {
                    Some(extent) => self.e.dim(&extent),
                    None => Err(self.e.gap("the rank of the window is not known at compile time")),
                }
            }
        }
    }

    /// Number of frames of `Stft`.
    fn frames(&mut self, attrs: &StftAttrs) -> Result<E::Size, E::Error> {
        let (samples, one) = (self.x(1)?, self.number(1));
        let length = self.frame_length(attrs)?;
        let step = match attrs.frame_step {
            Some(step) => self.number(step),
            None => self.element(1, 0)?,
        };
        self.require(one, Cmp::Le, step, "the step between frames must be positive")?;
        let last = self.sub(samples, length);
        let steps = self.floor_div(last, step);
        Ok(self.add(steps, one))
    }

    /// Number of elements of a block of `Col2Im`.
    fn block(&mut self, fixed: &[usize]) -> Result<E::Size, E::Error> {
        let mut product = self.number(fixed.iter().product::<usize>() as i64);
        if fixed.is_empty() {
            for i in 0..self.len(2)? {
                let extent = self.element(2, i)?;
                product = self.mul(product, extent);
            }
        }
        let one = self.number(1);
        self.require(one, Cmp::Le, product, "a block must not be empty")?;
        Ok(product)
    }
}
