//! What rules read of operands, and arithmetic with it.

use tilewright_graph::ValueId;
use tilewright_graph::dim::Dim;
use tilewright_runtime::plan::Cmp;

use super::{Extents, Rules, SizeOp};

impl<E: Extents> Rules<'_, E> {
    pub(super) fn has(&self, position: usize) -> bool {
        self.node.input(position).is_some()
    }

    pub(super) fn operand(&self, position: usize) -> Result<ValueId, E::Error> {
        self.node.input(position).ok_or_else(|| self.e.gap("an operand that gives extents is absent"))
    }

    /// Extent of an axis of the first operand.
    pub(super) fn x(&mut self, axis: usize) -> Result<E::Size, E::Error> {
        self.extent_of(0, axis)
    }

    /// Extent of an axis of an operand.
    pub(super) fn extent_of(&mut self, position: usize, axis: usize) -> Result<E::Size, E::Error> {
        let value = self.operand(position)?;
        match self.graph.dims(value).and_then(|dims| dims.get(axis)) {
            Some(dim) => self.e.dim(dim),
            None => Err(self.e.gap("the rank of an operand is not known at compile time")),
        }
    }

    pub(super) fn rank(&self) -> Result<usize, E::Error> {
        let dims = self.graph.dims(self.operand(0)?);
        dims.map(<[Dim]>::len)
            .ok_or_else(|| self.e.gap("the rank of an operand is not known at compile time"))
    }

    /// Number of elements of an operand, which must be known.
    pub(super) fn len(&self, position: usize) -> Result<usize, E::Error> {
        let dims = self.graph.dims(self.operand(position)?);
        let len = dims.and_then(|dims| Dim::product(dims).as_const()).and_then(|n| usize::try_from(n).ok());
        len.ok_or_else(|| {
            self.e.gap("the length of an operand that gives extents is not known at compile time")
        })
    }

    pub(super) fn element(&mut self, position: usize, index: usize) -> Result<E::Size, E::Error> {
        let value = self.operand(position)?;
        if index >= self.len(position)? {
            return Err(self.e.gap("an operand that gives extents has too few elements"));
        }
        match self.graph.shape_value(value).and_then(|dims| dims.get(index)) {
            Some(dim) => self.e.dim(dim),
            None => self.e.element(value, index),
        }
    }

    /// An element that names an axis of the first operand, from the start on.
    pub(super) fn axis_element(
        &mut self,
        position: usize,
        index: usize,
        rank: usize,
    ) -> Result<E::Size, E::Error> {
        let given = self.element(position, index)?;
        let (zero, rank, last) = (self.number(0), self.number(rank as i64), self.number(rank as i64 - 1));
        let negative = self.negative(given);
        let shift = self.mul(negative, rank);
        let axis = self.add(given, shift);
        self.require(zero, Cmp::Le, axis, "an axis is out of range")?;
        self.require(axis, Cmp::Le, last, "an axis is out of range")?;
        Ok(axis)
    }

    pub(super) fn number(&mut self, value: i64) -> E::Size {
        self.e.constant(value)
    }

    pub(super) fn add(&mut self, a: E::Size, b: E::Size) -> E::Size {
        self.e.apply(SizeOp::Add, a, b)
    }

    pub(super) fn sub(&mut self, a: E::Size, b: E::Size) -> E::Size {
        self.e.apply(SizeOp::Sub, a, b)
    }

    pub(super) fn mul(&mut self, a: E::Size, b: E::Size) -> E::Size {
        self.e.apply(SizeOp::Mul, a, b)
    }

    pub(super) fn floor_div(&mut self, a: E::Size, b: E::Size) -> E::Size {
        self.e.apply(SizeOp::FloorDiv, a, b)
    }

    pub(super) fn require(&mut self, a: E::Size, cmp: Cmp, b: E::Size, why: &str) -> Result<(), E::Error> {
        let names: Vec<&str> = self.node.provenance.names().collect();
        self.e.require(a, cmp, b, &format!("{} `{}`: {why}", self.node.op.name(), names.join("+")))
    }

    /// Whether `a` is below 0. Clamping first keeps the negation from overflowing.
    pub(super) fn negative(&mut self, a: E::Size) -> E::Size {
        let (zero, minus_one) = (self.number(0), self.number(-1));
        let clamped = self.e.apply(SizeOp::Max, a, minus_one);
        let clamped = self.e.apply(SizeOp::Min, clamped, zero);
        self.sub(zero, clamped)
    }

    /// Whether `a != b`; no overflow as long as `a - b` has none.
    pub(super) fn differs(&mut self, a: E::Size, b: E::Size) -> E::Size {
        let (difference, one) = (self.sub(a, b), self.number(1));
        let minus_one = self.number(-1);
        let clamped = self.e.apply(SizeOp::Max, difference, minus_one);
        let sign = self.e.apply(SizeOp::Min, clamped, one);
        self.mul(sign, sign)
    }

    pub(super) fn equal(&mut self, a: E::Size, b: E::Size) -> E::Size {
        let (differs, one) = (self.differs(a, b), self.number(1));
        self.sub(one, differs)
    }

    /// `a` where the condition (0 or 1) holds, else `b`.
    pub(super) fn select(&mut self, condition: E::Size, a: E::Size, b: E::Size) -> E::Size {
        let difference = self.sub(a, b);
        let part = self.mul(condition, difference);
        self.add(b, part)
    }
}
