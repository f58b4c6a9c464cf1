//! Flat addresses of accesses, and what lanes of a vector address of memory.

use tilewright_dtype::DType;

use super::emit::{Emitter, Lane};
use crate::expr::{BinaryOp, Buffer, Expr, ExprKind};
use crate::flatten::error::FlattenError;
use crate::flatten::poly::Poly;
use crate::kernel::{KernelOp, Type, Value};
use crate::simplify::Simplifier;

/// Runs of fewer bytes are no faster than elements one by one: they are no registers of their own.
const LEAST_RUN_BYTES: usize = 16;

/// A flat element address.
pub(super) enum Address {
    /// One element, or consecutive elements in the lanes.
    Consecutive {
        /// Scalar element index.
        index: Value,
        /// Constant part of the index.
        offset: i64,
        /// Whether the lanes of the open vector address consecutive elements (else all the same one).
        per_lane: bool,
    },
    /// Lanes in runs of equal length, each of consecutive elements, as channel blocks are that are narrower than a vector.
    Runs {
        /// Scalar element index and its constant part where each run begins.
        starts: Vec<(Value, i64)>,
        /// Lanes of a run.
        len: u32,
    },
    /// Consecutive elements in the lanes up to the last of them that is there, which those behind it have too: a vector at the end of
    /// what `pad_einsum` pads.
    Clamped {
        /// Scalar element index of the first lane.
        index: Value,
        /// Scalar element index of the last element.
        last: Value,
        /// Constant part of both.
        offset: i64,
    },
    /// A vector of element indices.
    Scattered {
        /// One index a lane.
        indices: Value,
        /// Constant part of the indices.
        offset: i64,
    },
}

impl Emitter<'_> {
    /// The row-major element index of `indices`, or of the one that has been joined of them.
    pub(super) fn flat_index(&mut self, buffer: Buffer, indices: &[Expr]) -> Poly {
        self.atoms.position(self.func, buffer, indices)
    }

    /// The flat address of an access.
    pub(super) fn address(&mut self, buffer: Buffer, indices: &[Expr]) -> Result<Address, FlattenError> {
        let mut poly = self.flat_index(buffer, indices);
        let offset = std::mem::take(&mut poly.constant);
        let Some(lane) = self.lane else {
            let index = self.poly_value(&poly)?;
            return self.settle(index, offset, false);
        };
        let depends = |e: &Emitter<'_>, product: &[u32]| product.iter().any(|&a| e.atoms.uses(a, lane.var));
        let mut lane_terms = Poly::default();
        let mut rest = Poly::default();
        for (product, coefficient) in poly.terms {
            let target = if depends(self, &product) { &mut lane_terms } else { &mut rest };
            target.terms.insert(product, coefficient);
        }
        let index = self.poly_value(&rest)?;
        if lane_terms.is_constant() {
            return self.settle(index, offset, false);
        }
        let bytes = self.func.buffers[buffer].dtype.bytes();
        let unit = lane_terms.terms.len() == 1
            && lane_terms
                .terms
                .iter()
                .all(|(p, &c)| c == 1 && p.len() == 1 && self.atoms.expr(p[0]).as_var() == Some(lane.var));
        if unit {
            return self.settle(index, offset, true);
        }
        if self.type_of(index).lanes == 1
            && let Some((len, starts)) = self.runs(&lane_terms, lane, bytes)
        {
            let start = |e: &mut Self, mut start: Poly| {
                let offset = offset + std::mem::take(&mut start.constant);
                if start.is_constant() {
                    return Ok((index, offset));
                }
                let start = e.poly_value(&start)?;
                Ok((e.index_op(BinaryOp::Add, index, start), offset))
            };
            let starts = starts.into_iter().map(|poly| start(self, poly)).collect::<Result<_, _>>()?;
            return Ok(Address::Runs { starts, len });
        }
        if self.type_of(index).lanes == 1
            && let Some((first, last)) = self.clamped(&lane_terms, lane)
        {
            let [first, last] = [self.poly_value(&first)?, self.poly_value(&last)?];
            let index = [first, last].map(|part| self.index_op(BinaryOp::Add, index, part));
            return Ok(Address::Clamped { index: index[0], last: index[1], offset });
        }
        let lanes_part = self.poly_value(&lane_terms)?;
        let lanes_part = self.widen(lanes_part, lane.lanes);
        let base = self.widen(index, lane.lanes);
        let indices =
            self.op(Type::vector(DType::I64, lane.lanes), KernelOp::Binary(BinaryOp::Add, base, lanes_part));
        Ok(Address::Scattered { indices, offset })
    }

    /// What lanes add to an index that is the lesser of two things, if one of them is the lane and something else: that, and the other
    /// thing.
    fn clamped(&mut self, lane_terms: &Poly, lane: Lane) -> Option<(Poly, Poly)> {
        let mut terms = lane_terms.terms.iter();
        let (Some((product, 1)), None) = (terms.next(), terms.next()) else { return None };
        let &[atom] = &product[..] else { return None };
        let lesser = self.atoms.expr(atom).clone();
        let ExprKind::Binary(BinaryOp::Min, a, b) = lesser.kind() else { return None };
        let (moving, last) = if a.uses(lane.var) { (a, b) } else { (b, a) };
        if last.uses(lane.var) {
            return None;
        }
        let first = self.atoms.poly(moving).plus(&self.atoms.poly(&Expr::var(lane.var)), -1);
        let is_free =
            first.terms.keys().all(|product| product.iter().all(|&atom| !self.atoms.uses(atom, lane.var)));
        is_free.then(|| (first, self.atoms.poly(last)))
    }

    /// The runs of consecutive elements that lanes address, with the part of the index that each begins with; nothing where
    /// there are none worth it.
    fn runs(&mut self, lane_terms: &Poly, lane: Lane, bytes: usize) -> Option<(u32, Vec<Poly>)> {
        let least = (LEAST_RUN_BYTES / bytes.max(1)).max(2) as u32;
        let is_step = |from: &Poly, to: &Poly, by: u32| {
            let distance = to.clone().plus(from, -1);
            distance.is_constant() && distance.constant == i64::from(by)
        };
        let first = self.at_lane(lane_terms, lane, 0);
        let mut len = 1;
        while len < lane.lanes && is_step(&first, &self.at_lane(lane_terms, lane, len), len) {
            len += 1;
        }
        if len < least || len == lane.lanes || !lane.lanes.is_multiple_of(len) {
            return None;
        }
        let mut starts = vec![first];
        for begin in (len..lane.lanes).step_by(len as usize) {
            let start = self.at_lane(lane_terms, lane, begin);
            if !(1..len).all(|by| is_step(&start, &self.at_lane(lane_terms, lane, begin + by), by)) {
                return None;
            }
            starts.push(start);
        }
        Some((len, starts))
    }

    /// A polynomial in the lane, for one lane.
    fn at_lane(&mut self, poly: &Poly, lane: Lane, number: u32) -> Poly {
        let simplifier = Simplifier::new();
        let number = Expr::int(i64::from(number));
        let mut sum = Poly { constant: poly.constant, ..Poly::default() };
        for (product, &coefficient) in &poly.terms {
            let mut term = Poly { constant: 1, ..Poly::default() };
            for &atom in product {
                let factor = simplifier.simplify(&self.atoms.expr(atom).substitute_var(lane.var, &number));
                term = term.times(&self.atoms.poly(&factor));
            }
            sum = sum.plus(&term, coefficient);
        }
        sum
    }

    /// A scalar index, or one that a load has made a vector.
    fn settle(&mut self, index: Value, offset: i64, per_lane: bool) -> Result<Address, FlattenError> {
        let lanes = self.type_of(index).lanes;
        if lanes == 1 {
            return Ok(Address::Consecutive { index, offset, per_lane });
        }
        let mut indices = index;
        if per_lane {
            let iota = self.op(Type::vector(DType::I64, lanes), KernelOp::Iota);
            indices = self.op(Type::vector(DType::I64, lanes), KernelOp::Binary(BinaryOp::Add, index, iota));
        }
        Ok(Address::Scattered { indices, offset })
    }

    /// The value of a polynomial. What changes least comes first in products and sums, so that loops compute
    /// only the part that changes in them.
    pub(super) fn poly_value(&mut self, poly: &Poly) -> Result<Value, FlattenError> {
        let mut terms = Vec::new();
        for (product, &coefficient) in &poly.terms {
            let mut factors = Vec::new();
            for &atom in product {
                let expr = self.atoms.expr(atom).clone();
                factors.push(self.expr_in_common(&expr)?);
            }
            factors.sort_by_key(|&factor| self.depth_of(factor));
            let product = factors.into_iter().reduce(|a, b| self.index_op(BinaryOp::Mul, a, b));
            let Some(mut value) = product else { continue };
            if coefficient != 1 {
                let constant = self.int(coefficient);
                value = self.index_op(BinaryOp::Mul, value, constant);
            }
            terms.push(value);
        }
        terms.sort_by_key(|&term| self.depth_of(term));
        let sum = terms.into_iter().reduce(|a, b| self.index_op(BinaryOp::Add, a, b));
        match sum {
            Some(value) if poly.constant != 0 => {
                let constant = self.int(poly.constant);
                Ok(self.index_op(BinaryOp::Add, value, constant))
            }
            Some(value) => Ok(value),
            None => Ok(self.int(poly.constant)),
        }
    }

    fn index_op(&mut self, op: BinaryOp, a: Value, b: Value) -> Value {
        let lanes = self.type_of(a).lanes.max(self.type_of(b).lanes);
        let (a, b) = (self.widen(a, lanes), self.widen(b, lanes));
        self.op(Type::vector(DType::I64, lanes), KernelOp::Binary(op, a, b))
    }
}
