//! What a type rule sees of a node, and the checks the rules share.

use tilewright_dtype::DType;

use crate::dim::Dim;
use crate::graph::{Graph, Provenance};
use crate::guard::{Comparison, Guard};
use crate::ids::{RegionId, ValueId};
use crate::op::Op;
use crate::symbol::{SymbolKind, SymbolTable};
use crate::tensor::Tensor;
use crate::types::{Shape, TensorType, Type};

/// A node whose operands do not fit its operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{op} `{node}`: {message}")]
pub struct InferError {
    /// Name of the operator.
    pub op: &'static str,
    /// Names of the user's nodes the node stands for.
    pub node: String,
    /// What is wrong.
    pub message: String,
}

/// The longest list of axes or extents: a damaged model must not make us allocate by its word.
const MAX_RANK: usize = 1024;

/// The most axes of a result, as in numpy: what extents follow from by data takes a step for each two of them.
const MAX_AXES: usize = 64;

/// The most bytes of a tensor, 64 TiB: offsets inside are far from overflowing, and no machine has as much.
const MAX_BYTES: i64 = 1 << 46;

/// A node under inference.
pub(crate) struct Context<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) symbols: &'a mut SymbolTable,
    guards: &'a mut Vec<Guard>,
    pub(crate) op: &'a Op,
    pub(crate) inputs: &'a [Option<ValueId>],
    pub(crate) n_outputs: usize,
    region: RegionId,
    provenance: &'a Provenance,
}

/// The deepest nesting of concatenations that a shape is followed through.
const MAX_PARTS: usize = 4;

type Result<T> = std::result::Result<T, InferError>;

impl<'a> Context<'a> {
    /// A node to be with the given operands and number of results.
    #[expect(clippy::too_many_arguments, reason = "the parts of a node before it is one")]
    pub(crate) fn new(
        graph: &'a Graph,
        symbols: &'a mut SymbolTable,
        guards: &'a mut Vec<Guard>,
        region: RegionId,
        op: &'a Op,
        inputs: &'a [Option<ValueId>],
        n_outputs: usize,
        provenance: &'a Provenance,
    ) -> Context<'a> {
        Context { graph, symbols, guards, op, inputs, n_outputs, region, provenance }
    }

    fn node_name(&self) -> String {
        self.provenance.names().collect::<Vec<_>>().join("+")
    }

    pub(crate) fn fail(&self, message: impl Into<String>) -> InferError {
        InferError { op: self.op.name(), node: self.node_name(), message: message.into() }
    }

    pub(crate) fn show(&self, dims: &[Dim]) -> String {
        let dims: Vec<String> = dims.iter().map(|dim| dim.display(self.symbols).to_string()).collect();
        format!("[{}]", dims.join(", "))
    }

    /// Operand `position`, if present.
    pub(crate) fn input(&self, position: usize) -> Option<ValueId> {
        self.inputs.get(position).copied().flatten()
    }

    /// Type of operand `position`, which must be present.
    pub(crate) fn ty(&self, position: usize) -> Result<&'a Type> {
        match self.input(position) {
            Some(value) => Ok(self.graph.ty(value)),
            None => Err(self.fail(format!("operand {position} is missing"))),
        }
    }

    /// Tensor type of operand `position`, which must be present.
    pub(crate) fn tensor(&self, position: usize) -> Result<&'a TensorType> {
        self.ty(position)?.as_tensor().ok_or_else(|| self.fail(format!("operand {position} is not a tensor")))
    }

    /// Element type of operand `position`.
    pub(crate) fn dtype(&self, position: usize) -> Result<DType> {
        Ok(self.tensor(position)?.dtype)
    }

    /// Extents of operand `position`; `None` if the rank is unknown.
    pub(crate) fn dims(&self, position: usize) -> Result<Option<&'a [Dim]>> {
        Ok(self.tensor(position)?.shape.dims())
    }

    /// Extents of operand `position`, if it is there and its rank is known.
    pub(crate) fn optional_dims(&self, position: usize) -> Result<Option<&'a [Dim]>> {
        if self.input(position).is_some() { self.dims(position) } else { Ok(None) }
    }

    /// The operand as a constant.
    pub(crate) fn constant(&self, position: usize) -> Option<&'a Tensor> {
        self.graph.constant(self.input(position)?)
    }

    /// The operand's elements as extents.
    pub(crate) fn elements(&self, position: usize) -> Option<&'a [Dim]> {
        self.graph.shape_value(self.input(position)?)
    }

    /// The operand's elements as extents, those that are known: a shape is often put together from constants and data.
    /// `None` if its length is not known.
    pub(crate) fn partial_elements(&self, position: usize) -> Option<Vec<Option<Dim>>> {
        partial_elements(self.graph, self.input(position)?, MAX_PARTS)
    }

    /// The operand's elements as integers.
    pub(crate) fn integers(&self, position: usize) -> Option<Vec<i64>> {
        self.elements(position)?.iter().map(Dim::as_const).collect()
    }

    /// The operand's constant reals.
    pub(crate) fn reals(&self, position: usize) -> Option<Vec<f64>> {
        self.constant(position)?.to_f64s()
    }

    /// The number of elements of operand `position`, a vector with an element an axis.
    pub(crate) fn vector_len(&self, position: usize) -> Result<Option<usize>> {
        let len = match self.dims(position)? {
            Some([len]) => len.as_const().and_then(|len| usize::try_from(len).ok()),
            Some(dims) => {
                return Err(
                    self.fail(format!("operand {position} must be a vector, not {}", self.show(dims)))
                );
            }
            None => None,
        };
        match len {
            Some(len) if len > MAX_RANK => {
                Err(self
                    .fail(format!("operand {position} has {len} elements, more than a tensor may have axes")))
            }
            len => Ok(len),
        }
    }

    /// A new extent that is known when the node has run.
    pub(crate) fn fresh(&mut self, stem: &str) -> Dim {
        let name = match self.provenance.names().next() {
            Some(node) => format!("{stem}@{node}"),
            None => stem.to_owned(),
        };
        Dim::symbol(self.symbols.fresh(&name, SymbolKind::Computed))
    }

    /// Whether an extent depends on what running shows.
    pub(crate) fn is_computed(&self, dim: &Dim) -> bool {
        is_computed(dim, self.symbols)
    }

    pub(crate) fn fresh_dims(&mut self, stem: &str, count: usize) -> Vec<Dim> {
        (0..count).map(|_| self.fresh(stem)).collect()
    }

    /// Records an assumption, unless it is there already.
    pub(crate) fn guard(&mut self, left: &Dim, comparison: Comparison, right: &Dim, why: &str) {
        // Equality reads the same from both sides.
        let swap = comparison == Comparison::Equal && right < left;
        let (left, right) = if swap { (right, left) } else { (left, right) };
        let region = self.region;
        let message = format!("{} `{}`: {why}", self.op.name(), self.node_name());
        Guard { left: left.clone(), comparison, right: right.clone(), region, message }.add_to(self.guards);
    }

    /// The common value of two extents that must be equal: an error where they cannot be, a guard where it is
    /// not decided.
    pub(crate) fn unify(&mut self, a: &Dim, b: &Dim, what: &str) -> Result<Dim> {
        if a == b {
            return Ok(a.clone());
        }
        let (least, most) = (a - b).bounds(self.symbols);
        if least.is_some_and(|least| least > 0) || most.is_some_and(|most| most < 0) {
            let (a, b) = (a.display(self.symbols).to_string(), b.display(self.symbols).to_string());
            return Err(self.fail(format!("{what} differ: {a} and {b}")));
        }
        self.guard(a, Comparison::Equal, b, &format!("{what} must be equal"));
        Ok(if b.as_const().is_some() { b.clone() } else { a.clone() })
    }

    /// numpy broadcasting. A symbolic extent against a constant above 1 is taken to be that constant, two
    /// different symbolic extents to be equal; both under guard.
    pub(crate) fn broadcast(&mut self, a: &[Dim], b: &[Dim]) -> Result<Vec<Dim>> {
        let rank = a.len().max(b.len());
        let at = |dims: &[Dim], axis: usize| (axis + dims.len()).checked_sub(rank).map(|i| dims[i].clone());
        let mut merged = Vec::with_capacity(rank);
        for axis in 0..rank {
            merged.push(match (at(a, axis), at(b, axis)) {
                (Some(x), Some(y)) if y.is(1) || x == y => x,
                (Some(x), Some(y)) if x.is(1) => y,
                (Some(x), Some(y)) => match self.unify(&x, &y, "broadcast extents") {
                    Ok(dim) => dim,
                    Err(_) => {
                        return Err(self.fail(format!(
                            "{} and {} do not broadcast",
                            self.show(a),
                            self.show(b)
                        )));
                    }
                },
                (Some(dim), None) | (None, Some(dim)) => dim,
                (None, None) => Dim::ONE,
            });
        }
        Ok(merged)
    }

    /// Checks that operand `position`, if it is there, has one element.
    pub(crate) fn check_scalar(&mut self, position: usize) -> Result<()> {
        let is_tensor = self.input(position).is_some_and(|value| self.graph.ty(value).as_tensor().is_some());
        let Some(dims) = (if is_tensor { self.dims(position)? } else { None }) else { return Ok(()) };
        if dims.iter().any(|dim| dim.as_const().is_some_and(|extent| extent != 1)) {
            let shown = self.show(dims);
            return Err(self.fail(format!("operand {position} must have one element, not {shown}")));
        }
        dims.iter().try_for_each(|dim| self.unify(dim, &Dim::ONE, "extents of a scalar").map(drop))
    }

    /// Checks that operand `position`, if it is there, is a vector, of the extent given.
    pub(crate) fn check_vector(&mut self, position: usize, len: Option<&Dim>) -> Result<()> {
        let Some(dims) = self.optional_dims(position)? else { return Ok(()) };
        self.check_rank(position, dims, 1)?;
        match len {
            Some(len) => {
                self.unify(&dims[0], len, &format!("the extent of operand {position} and what it is for"))
            }
            None => Ok(dims[0].clone()),
        }
        .map(drop)
    }

    /// Checks that operand `position`, if it is there, has the extents given.
    pub(crate) fn check_extents(&mut self, position: usize, expected: &[Dim], what: &str) -> Result<()> {
        let Some(dims) = self.optional_dims(position)? else { return Ok(()) };
        self.check_rank(position, dims, expected.len())?;
        dims.iter().zip(expected).try_for_each(|(dim, expected)| self.unify(dim, expected, what).map(drop))
    }

    /// Checks that operand `position`, if it is there, broadcasts to the extents given, which stay as they are.
    pub(crate) fn check_broadcasts_to(&mut self, position: usize, onto: &[Dim]) -> Result<()> {
        let Some(dims) = self.optional_dims(position)? else { return Ok(()) };
        let fits = |dims: &[Dim]| {
            let grows = |(dim, onto): (&Dim, &Dim)| {
                !dim.is(1) && matches!((dim.as_const(), onto.as_const()), (Some(a), Some(b)) if a != b)
            };
            dims.len() <= onto.len() && !dims.iter().rev().zip(onto.iter().rev()).any(grows)
        };
        if !fits(dims) {
            let (dims, onto) = (self.show(dims), self.show(onto));
            return Err(self.fail(format!("operand {position} of {dims} does not broadcast to {onto}")));
        }
        for (dim, onto) in dims.iter().rev().zip(onto.iter().rev()) {
            if !dim.is(1) {
                self.unify(dim, onto, &format!("extents of operand {position} and what it is broadcast to"))?;
            }
        }
        Ok(())
    }

    /// Checks that an extent is not above another: an error where it is, a guard where that is not decided.
    pub(crate) fn check_at_most(&mut self, dim: &Dim, limit: &Dim, what: &str) -> Result<()> {
        let (least, most) = (dim - limit).bounds(self.symbols);
        if least.is_some_and(|least| least > 0) {
            let (dim, limit) =
                (dim.display(self.symbols).to_string(), limit.display(self.symbols).to_string());
            return Err(self.fail(format!("{what}: {dim} is more than {limit}")));
        }
        if most.is_none_or(|most| most > 0) {
            self.guard(dim, Comparison::AtMost, limit, &format!("{what} must not be more"));
        }
        Ok(())
    }

    /// Checks that a tensor is one that there may be: no negative extent, and less than fills any memory.
    pub(super) fn check_size(&self, ty: &Type, what: &str) -> Result<()> {
        let Some(tensor) = ty.as_tensor() else { return Ok(()) };
        let Some(dims) = tensor.shape.dims() else { return Ok(()) };
        if dims.len() > MAX_AXES {
            return Err(self.fail(format!("{what} would have {} axes, more than {MAX_AXES}", dims.len())));
        }
        let known = || dims.iter().filter_map(Dim::as_const);
        if known().any(|extent| extent < 0) {
            return Err(self.fail(format!("{what} would be {}", self.show(dims))));
        }
        // An extent of 0 does not make up for others: strides are products of them.
        let bytes = known()
            .try_fold(tensor.dtype.bytes().max(1) as i64, |bytes, extent| bytes.checked_mul(extent.max(1)));
        if bytes.is_none_or(|bytes| bytes > MAX_BYTES) {
            let shown = self.show(dims);
            return Err(self.fail(format!("{what} would be {shown}, more than {MAX_BYTES} bytes")));
        }
        Ok(())
    }

    /// Checks that an axis attribute is below the rank.
    pub(crate) fn check_axis(&self, axis: usize, rank: usize) -> Result<()> {
        if axis < rank {
            Ok(())
        } else {
            Err(self.fail(format!("axis {axis} is out of range for rank {rank}")))
        }
    }

    /// An axis from data: counted from the end if negative.
    pub(crate) fn normalize_axis(&self, axis: i64, rank: usize) -> Result<usize> {
        let signed = rank as i64;
        let normalized = if axis < 0 { axis.saturating_add(signed) } else { axis };
        match usize::try_from(normalized) {
            Ok(normalized) if normalized < rank => Ok(normalized),
            _ => Err(self.fail(format!("axis {axis} is out of range for rank {rank}"))),
        }
    }

    /// Checks a number of extents.
    pub(crate) fn check_rank(&self, position: usize, dims: &[Dim], rank: usize) -> Result<()> {
        if dims.len() == rank {
            return Ok(());
        }
        Err(self.fail(format!("operand {position} must have rank {rank}, not {}", self.show(dims))))
    }

    /// Checks a lower bound of the number of extents.
    pub(crate) fn check_least_rank(&self, position: usize, dims: &[Dim], rank: usize) -> Result<()> {
        if dims.len() >= rank {
            return Ok(());
        }
        Err(self.fail(format!("operand {position} must have rank {rank} or more, not {}", self.show(dims))))
    }

    /// Checks that two operands have one element type.
    pub(crate) fn check_same_dtype(&self, a: usize, b: usize) -> Result<DType> {
        let (left, right) = (self.dtype(a)?, self.dtype(b)?);
        if left == right {
            return Ok(left);
        }
        Err(self.fail(format!("element types of operands {a} and {b} differ: {left} and {right}")))
    }

    /// Checks the element types of all operands that are tensors.
    pub(super) fn check_dtypes(&self) -> Result<()> {
        let tensor = |value: ValueId| self.graph.ty(value).as_tensor();
        let dtypes =
            self.inputs.iter().enumerate().filter_map(|(n, value)| Some((n, tensor((*value)?)?.dtype)));
        for (position, dtype) in dtypes {
            let accepted = self.op.operand_dtypes(position);
            if !accepted.contains(dtype) {
                let kind = match self.op {
                    Op::Unary(kind) => format!("{kind} "),
                    Op::Binary(kind) => format!("{kind} "),
                    _ => String::new(),
                };
                return Err(self
                    .fail(format!("{kind}takes {accepted} as operand {position}, not {dtype}: convert it")));
            }
        }
        Ok(())
    }

    /// Checks the length of a list attribute.
    pub(crate) fn check_len(&self, what: &str, len: usize, expected: usize) -> Result<()> {
        if len == expected {
            return Ok(());
        }
        Err(self.fail(format!("`{what}` has {len} entries, not {expected}")))
    }
}

fn partial_elements(graph: &Graph, value: ValueId, depth: usize) -> Option<Vec<Option<Dim>>> {
    if let Some(elements) = graph.shape_value(value) {
        return Some(elements.iter().cloned().map(Some).collect());
    }
    let [len] = graph.dims(value)? else { return None };
    let len = usize::try_from(len.as_const()?).ok().filter(|&len| len <= MAX_RANK)?;
    let unknown = || Some(vec![None; len]);
    let (Some(node), Some(depth)) = (graph.producer(value), depth.checked_sub(1)) else { return unknown() };
    let node = graph.node(node);
    let parts = match &node.op {
        Op::Concat(_) => node.inputs.iter().map(|&part| partial_elements(graph, part?, depth)).collect(),
        Op::Identity => partial_elements(graph, node.input(0)?, depth).map(|part| vec![part]),
        _ => None,
    };
    let elements = parts.map(|parts: Vec<Vec<_>>| parts.concat()).filter(|elements| elements.len() == len);
    elements.or_else(unknown)
}

/// Whether an extent depends on what running shows.
pub(crate) fn is_computed(dim: &Dim, symbols: &SymbolTable) -> bool {
    dim.symbols().into_iter().any(|symbol| symbols[symbol].kind == SymbolKind::Computed)
}

/// A tensor type of known rank.
pub(crate) fn ranked(dtype: DType, dims: Vec<Dim>) -> Type {
    Type::Tensor(TensorType::new(dtype, dims))
}

/// A tensor type of unknown rank.
pub(crate) fn unranked(dtype: DType) -> Type {
    Type::Tensor(TensorType { dtype, shape: Shape::Unranked })
}
