//! A node under conversion: its operands and attributes, and short forms for the graph nodes it becomes.

use tilewright_graph::infer;
use tilewright_graph::op::{BinaryOp, Op, ReduceKind, ReshapeDynamicAttrs, UnaryOp};
use tilewright_graph::tensor::Tensor;
use tilewright_graph::{DType, Dim, Graph, Provenance, RegionId, ValueId};

use super::attrs::{Attrs, missing};
use super::error::{FaultKind, Reason, Result};
use crate::model::OnnxModel;
use crate::proto::NodeProto;
use crate::proto::tensor::dtype_from_onnx;

/// A node under conversion.
pub(crate) struct Cx<'a> {
    pub(crate) model: &'a OnnxModel,
    pub(crate) graph: &'a mut Graph,
    pub(crate) region: RegionId,
    pub(crate) node: &'a NodeProto,
    /// Version of the operator's set that the model imports.
    pub(crate) opset: i64,
    pub(crate) inputs: Vec<Option<ValueId>>,
    pub(crate) attrs: Attrs<'a>,
    pub(crate) provenance: Provenance,
}

impl<'a> Cx<'a> {
    /// Operand `position`, which must be there.
    pub(crate) fn input(&self, position: usize) -> Result<ValueId> {
        self.opt(position).ok_or_else(|| Reason::arity(format!("input {position} is missing")))
    }

    /// Operand `position`, if there.
    pub(crate) fn opt(&self, position: usize) -> Option<ValueId> {
        self.inputs.get(position).copied().flatten()
    }

    /// Operand `position`, if there and not a constant without elements (how exporters leave one out).
    pub(crate) fn opt_non_empty(&self, position: usize) -> Option<ValueId> {
        self.opt(position)
            .filter(|&value| self.dims(value).is_none_or(|dims| !dims.iter().any(|dim| dim.is(0))))
    }

    /// Number of results up to the last one with a name.
    pub(crate) fn n_outputs(&self) -> usize {
        self.node.output.iter().rposition(|name| !name.is_empty()).map_or(0, |last| last + 1)
    }

    /// Whether result `position` is used.
    pub(crate) fn wants(&self, position: usize) -> bool {
        self.node.output.get(position).is_some_and(|name| !name.is_empty())
    }

    pub(crate) fn dtype(&self, value: ValueId) -> Result<DType> {
        let tensor = self.graph.tensor_type(value);
        tensor.map(|tensor| tensor.dtype).ok_or_else(|| Reason::ty("an operand is not a tensor"))
    }

    /// Extents of a value, if its rank is known.
    pub(crate) fn dims(&self, value: ValueId) -> Option<&[Dim]> {
        self.graph.dims(value)
    }

    /// Extents of a value, whose rank must be known.
    pub(crate) fn ranked(&self, value: ValueId) -> Result<Vec<Dim>> {
        let unknown = || Reason::unsupported("the rank of an operand is not known").advise(RANK_ADVICE);
        self.dims(value).map(<[Dim]>::to_vec).ok_or_else(unknown)
    }

    pub(crate) fn rank(&self, value: ValueId) -> Result<usize> {
        self.ranked(value).map(|dims| dims.len())
    }

    /// The elements of an integer tensor, if they are known now.
    pub(crate) fn known_ints(&self, value: ValueId) -> Option<Vec<i64>> {
        match self.graph.constant(value) {
            Some(tensor) => tensor.to_i64s(),
            None => self.graph.shape_value(value)?.iter().map(Dim::as_const).collect(),
        }
    }

    /// The value of a one-element tensor, if it is a constant.
    pub(crate) fn known_scalar(&self, value: ValueId) -> Option<f64> {
        self.graph.constant(value)?.as_scalar()
    }

    /// A non-negative axis from an attribute or constant.
    pub(crate) fn axis(&self, axis: i64, rank: usize) -> Result<usize> {
        let normal = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
        let inside = usize::try_from(normal).ok().filter(|&normal| normal < rank);
        inside.ok_or_else(|| Reason::malformed(format!("axis {axis} is out of range for rank {rank}")))
    }

    /// Non-negative axes, ascending, none twice.
    pub(crate) fn axes(&self, axes: &[i64], rank: usize) -> Result<Vec<usize>> {
        let mut axes = axes.iter().map(|&axis| self.axis(axis, rank)).collect::<Result<Vec<_>>>()?;
        axes.sort_unstable();
        if axes.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Reason::malformed("an axis is listed twice"));
        }
        Ok(axes)
    }

    /// The axis that an attribute names on operand `value`.
    pub(crate) fn axis_attr(&self, default: i64, value: ValueId) -> Result<usize> {
        self.axis(self.attrs.int("axis", default)?, self.rank(value)?)
    }

    /// An attribute that is a size or count.
    pub(crate) fn size_attr(&self, name: &str, default: i64) -> Result<usize> {
        size(name, self.attrs.int(name, default)?)
    }

    /// An attribute that lists sizes.
    pub(crate) fn sizes_attr(&self, name: &str) -> Result<Option<Vec<usize>>> {
        let Some(values) = self.attrs.ints(name)? else { return Ok(None) };
        values.iter().map(|&value| size(name, value)).collect::<Result<_>>().map(Some)
    }

    /// An attribute that lists paddings, which may be negative.
    pub(crate) fn pads_attr(&self, name: &str) -> Result<Option<&'a [i64]>> {
        let Some(values) = self.attrs.ints(name)? else { return Ok(None) };
        match values.iter().find(|value| value.unsigned_abs() > i32::MAX as u64) {
            Some(value) => Err(beyond_measure(name, *value)),
            None => Ok(Some(values)),
        }
    }

    /// An attribute that names an element type.
    pub(crate) fn dtype_attr(&self, name: &str) -> Result<Option<DType>> {
        self.attrs.opt_int(name)?.map(dtype_from_int).transpose()
    }

    pub(crate) fn required_int(&self, name: &str) -> Result<i64> {
        self.attrs.opt_int(name)?.ok_or_else(|| missing(name))
    }

    /// One of several keywords, as what it stands for.
    pub(crate) fn keyword<T: Copy>(&self, name: &str, default: &'a str, values: &[(&str, T)]) -> Result<T> {
        let text = self.attrs.text(name, default)?;
        values.iter().find(|(keyword, _)| *keyword == text).map(|&(_, value)| value).ok_or_else(|| {
            let known: Vec<&str> = values.iter().map(|&(keyword, _)| keyword).collect();
            Reason::unsupported(format!("`{name}` is `{text}`; known are {}", known.join(", ")))
        })
    }

    /// Appends a graph node, and gives its first result.
    pub(crate) fn emit(&mut self, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
        let inputs = inputs.iter().copied().map(Some).collect();
        self.emit_opt(op, inputs)
    }

    /// Appends a graph node with operands that may be absent, and gives its first result.
    pub(crate) fn emit_opt(&mut self, op: Op, inputs: Vec<Option<ValueId>>) -> Result<ValueId> {
        let inputs = trimmed(inputs);
        let node =
            infer::append(self.graph, self.region, op, inputs, self.provenance.clone()).map_err(misfit)?;
        self.graph.node(node).output().ok_or_else(|| Reason::arity("the operator has no result"))
    }

    /// Appends a graph node, and gives all its results.
    pub(crate) fn emit_n(
        &mut self,
        op: Op,
        inputs: Vec<Option<ValueId>>,
        n_outputs: usize,
    ) -> Result<Vec<ValueId>> {
        let inputs = trimmed(inputs);
        let provenance = self.provenance.clone();
        let node =
            infer::append_n(self.graph, self.region, op, inputs, n_outputs, provenance).map_err(misfit)?;
        Ok(self.graph.node(node).outputs.clone())
    }

    pub(crate) fn constant(&mut self, tensor: Tensor) -> Result<ValueId> {
        self.emit(Op::Constant(tensor), &[])
    }

    /// A scalar constant of an element type.
    pub(crate) fn scalar(&mut self, dtype: DType, value: f64) -> Result<ValueId> {
        let tensor = Tensor::scalar_of(dtype, value);
        let tensor =
            tensor.ok_or_else(|| Reason::unsupported(format!("constants of {dtype} cannot be made")))?;
        self.constant(tensor)
    }

    /// A scalar constant of the element type of `like`.
    pub(crate) fn scalar_like(&mut self, like: ValueId, value: f64) -> Result<ValueId> {
        let dtype = self.dtype(like)?;
        self.scalar(dtype, value)
    }

    pub(crate) fn ints(&mut self, values: &[i64]) -> Result<ValueId> {
        self.constant(Tensor::vector(values))
    }

    pub(crate) fn unary(&mut self, op: UnaryOp, x: ValueId) -> Result<ValueId> {
        self.emit(Op::Unary(op), &[x])
    }

    pub(crate) fn binary(&mut self, op: BinaryOp, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.emit(Op::Binary(op), &[a, b])
    }

    /// A binary operation with a scalar constant on the right.
    pub(crate) fn binary_scalar(&mut self, op: BinaryOp, a: ValueId, b: f64) -> Result<ValueId> {
        let b = self.scalar_like(a, b)?;
        self.binary(op, a, b)
    }

    pub(crate) fn select(&mut self, condition: ValueId, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.emit(Op::Where, &[condition, x, y])
    }

    /// Conversion, unless the value has the type already.
    pub(crate) fn cast(&mut self, x: ValueId, to: DType) -> Result<ValueId> {
        if self.dtype(x)? == to { Ok(x) } else { self.emit(Op::cast(to), &[x]) }
    }

    pub(crate) fn reshape(&mut self, x: ValueId, dims: Vec<Dim>) -> Result<ValueId> {
        if self.dims(x) == Some(dims.as_slice()) { Ok(x) } else { self.emit(Op::reshape(dims), &[x]) }
    }

    /// ONNX reshape: 0 keeps an extent, -1 infers one.
    pub(crate) fn reshape_ints(&mut self, x: ValueId, shape: &[i64]) -> Result<ValueId> {
        let shape = self.ints(shape)?;
        self.reshape_dynamic(x, shape, false)
    }

    pub(crate) fn reshape_dynamic(
        &mut self,
        x: ValueId,
        shape: ValueId,
        allow_zero: bool,
    ) -> Result<ValueId> {
        self.emit(Op::ReshapeDynamic(ReshapeDynamicAttrs { allow_zero }), &[x, shape])
    }

    pub(crate) fn transpose(&mut self, x: ValueId, perm: &[usize]) -> Result<ValueId> {
        self.emit(Op::transpose(perm.to_vec()), &[x])
    }

    pub(crate) fn reduce(
        &mut self,
        kind: ReduceKind,
        x: ValueId,
        axes: &[usize],
        keep: bool,
    ) -> Result<ValueId> {
        self.emit(Op::reduce(kind, axes.to_vec(), keep), &[x])
    }

    /// Inserts extents of 1 so that the vector `x` lies along `axis` of a tensor of rank `rank`.
    pub(crate) fn along_axis(&mut self, x: ValueId, axis: usize, rank: usize) -> Result<ValueId> {
        let dims = self.ranked(x)?;
        match dims.as_slice() {
            [len] if axis < rank => {
                let mut dims = vec![Dim::ONE; rank - axis];
                dims[0] = len.clone();
                self.reshape(x, dims)
            }
            _ => Ok(x),
        }
    }

    /// A tensor of the extents and element type given, full of a value.
    pub(crate) fn full(&mut self, dtype: DType, dims: Vec<Dim>, value: f64) -> Result<ValueId> {
        let value = self.scalar(dtype, value)?;
        self.emit(Op::Full(tilewright_graph::op::DimsAttrs { dims }), &[value])
    }
}

const RANK_ADVICE: &str = "give the graph's inputs shapes, if only with open extents";

/// An element type from an ONNX type number in an attribute.
pub(crate) fn dtype_from_int(code: i64) -> Result<DType> {
    let fault = |code: i64| Reason::malformed(format!("{code} is not an element type"));
    let code = i32::try_from(code).map_err(|_| fault(code))?;
    dtype_from_onnx(code).map_err(|fault| Reason::unsupported(fault.to_string()))
}

/// A number that must not be negative, nor beyond all measure: extents are computed from it before anything is checked.
pub(crate) fn size(name: &str, value: i64) -> Result<usize> {
    if value > i64::from(i32::MAX) {
        return Err(beyond_measure(name, value));
    }
    usize::try_from(value).map_err(|_| Reason::malformed(format!("`{name}` is {value}")))
}

fn beyond_measure(name: &str, value: i64) -> Reason {
    Reason::new(FaultKind::Limit, format!("`{name}` is {value}, more than {}", i32::MAX))
}

fn misfit(error: infer::InferError) -> Reason {
    Reason::ty(error.message)
}

fn trimmed(mut inputs: Vec<Option<ValueId>>) -> Vec<Option<ValueId>> {
    while inputs.last() == Some(&None) {
        inputs.pop();
    }
    inputs
}
