//! Index arithmetic of 32 bits where bounds prove that it loses nothing, for GPUs and processors of 32 bits: these compute
//! with as many at a time.
//!
//! An operation on numbers of 64 bits is done on 32 if its result and its operands fit. What it computes is widened for all other uses:
//! indices of accesses and bounds of loops stay numbers of 64 bits. Divisions of numbers that are not negative become unsigned ones, which
//! need no correction. Done before loop-invariant code motion, which shares the conversions.

use cranelift_entity::{PrimaryMap, SecondaryMap};
use tilewright_dtype::DType;

use crate::expr::BinaryOp;
use crate::flatten::FlattenOptions;
use crate::kernel::{Inst, Kernel, KernelOp, Range, Type, Value};

const WIDE: Type = Type::scalar(DType::I64);
const NARROW: Type = Type::scalar(DType::I32);
const UNSIGNED: Type = Type::scalar(DType::U32);

/// Narrows a kernel's arithmetic, on a target that computes with 32 bits at a time.
pub fn narrow(kernel: &mut Kernel, options: &FlattenOptions) {
    if options.lanes.is_none() && !options.computes_narrow {
        return;
    }
    let ranges = kernel.ranges();
    let mut pass = Narrow {
        values: std::mem::take(&mut kernel.values),
        ranges,
        uses: SecondaryMap::new(),
        narrowed: SecondaryMap::new(),
    };
    let mut body = std::mem::take(&mut kernel.body);
    pass.note(&mut body);
    let mut out = Vec::new();
    pass.convert(kernel.task, &mut out);
    pass.rewrite(body, &mut out);
    kernel.body = out;
    kernel.values = pass.values;
}

/// How a value is used.
#[derive(Clone, Copy, Default)]
struct Uses {
    as_it_is: bool,
    narrowed: bool,
}

struct Narrow {
    values: PrimaryMap<Value, Type>,
    ranges: SecondaryMap<Value, Option<Range>>,
    uses: SecondaryMap<Value, Uses>,
    /// The same number as a value of 32 bits.
    narrowed: SecondaryMap<Value, Option<Value>>,
}

impl Narrow {
    /// Whether it is a number of 64 bits that 32 hold.
    fn fits(&self, value: Value) -> bool {
        let all = Range::of_type(DType::I32);
        // Values of this pass have no range.
        let range = self.ranges.get(value).copied().flatten();
        self.values[value] == WIDE && range.zip(all).is_some_and(|(range, all)| range.is_within(all))
    }

    /// Whether 32 bits do for the operation.
    fn narrows(&self, result: Value, op: &KernelOp) -> bool {
        match *op {
            KernelOp::Binary(op, a, b) => {
                let is_arithmetic = matches!(
                    op,
                    BinaryOp::Add
                        | BinaryOp::Sub
                        | BinaryOp::Mul
                        | BinaryOp::Div
                        | BinaryOp::Rem
                        | BinaryOp::FloorDiv
                        | BinaryOp::FloorMod
                        | BinaryOp::Min
                        | BinaryOp::Max
                        | BinaryOp::And
                        | BinaryOp::Shr
                );
                is_arithmetic && [result, a, b].into_iter().all(|value| self.fits(value))
            }
            KernelOp::Compare(_, a, b) => self.fits(a) && self.fits(b),
            KernelOp::Select(_, a, b) => [result, a, b].into_iter().all(|value| self.fits(value)),
            _ => false,
        }
    }

    /// Notes how values are used.
    fn note(&mut self, insts: &mut [Inst]) {
        for inst in insts {
            if let Inst::Let { result, op } = inst {
                let narrows = self.narrows(*result, op);
                op.for_each_operand(|operand| {
                    let narrowed = narrows && self.values[operand] == WIDE;
                    let uses = &mut self.uses[operand];
                    uses.narrowed |= narrowed;
                    uses.as_it_is |= !narrowed;
                });
                continue;
            }
            inst.for_each_operand_mut(|operand| self.uses[*operand].as_it_is = true);
            match inst {
                Inst::Loop { carried, body, .. } => {
                    self.note(body);
                    carried.iter().for_each(|carried| self.uses[carried.next].as_it_is = true);
                }
                Inst::If { then_body, else_body, joins, .. } => {
                    self.note(then_body);
                    self.note(else_body);
                    for join in joins {
                        self.uses[join.then_value].as_it_is = true;
                        self.uses[join.else_value].as_it_is = true;
                    }
                }
                _ => {}
            }
        }
    }

    fn rewrite(&mut self, insts: Vec<Inst>, out: &mut Vec<Inst>) {
        for inst in insts {
            match inst {
                Inst::Let { result, op } => self.bind(result, op, out),
                Inst::Loop { var, begin, end, carried, body } => {
                    let mut inside = Vec::new();
                    self.convert(var, &mut inside);
                    self.rewrite(body, &mut inside);
                    out.push(Inst::Loop { var, begin, end, carried, body: inside });
                }
                Inst::If { condition, then_body, else_body, joins } => {
                    let [then_body, else_body] = [then_body, else_body].map(|body| {
                        let mut inside = Vec::new();
                        self.rewrite(body, &mut inside);
                        inside
                    });
                    let joined: Vec<Value> = joins.iter().map(|join| join.result).collect();
                    out.push(Inst::If { condition, then_body, else_body, joins });
                    joined.into_iter().for_each(|value| self.convert(value, out));
                }
                other => out.push(other),
            }
        }
    }

    fn bind(&mut self, result: Value, op: KernelOp, out: &mut Vec<Inst>) {
        if !self.narrows(result, &op) {
            // A constant is made anew in each width.
            let is_constant = matches!(op, KernelOp::Int(_));
            if !is_constant || self.uses[result].as_it_is {
                out.push(Inst::Let { result, op: op.clone() });
            }
            match is_constant && self.uses[result].narrowed {
                true => self.narrowed[result] = Some(self.define(NARROW, op, out)),
                false => self.convert(result, out),
            }
            return;
        }
        let op = match op {
            KernelOp::Compare(op, a, b) => {
                let op = KernelOp::Compare(op, self.narrow(a), self.narrow(b));
                return out.push(Inst::Let { result, op });
            }
            KernelOp::Binary(op, a, b) => self.binary(op, a, b, out),
            KernelOp::Select(condition, a, b) => KernelOp::Select(condition, self.narrow(a), self.narrow(b)),
            other => other,
        };
        let narrowed = self.define(NARROW, op, out);
        self.narrowed[result] = Some(narrowed);
        if self.uses[result].as_it_is {
            out.push(Inst::Let { result, op: KernelOp::Cast(narrowed) });
        }
    }

    fn binary(&mut self, op: BinaryOp, a: Value, b: Value, out: &mut Vec<Inst>) -> KernelOp {
        let unsigned = match op {
            BinaryOp::Div | BinaryOp::FloorDiv => Some(BinaryOp::Div),
            BinaryOp::Rem | BinaryOp::FloorMod => Some(BinaryOp::Rem),
            _ => None,
        };
        let is_negative = |value: Value| self.ranges[value].is_none_or(|range| range.least < 0);
        let unsigned = unsigned.filter(|_| !is_negative(a) && !is_negative(b));
        let Some(op) = unsigned else { return KernelOp::Binary(op, self.narrow(a), self.narrow(b)) };
        let [a, b] = [a, b].map(|value| {
            let known = self.ranges[value].filter(|range| range.least == range.greatest);
            let op = known
                .map_or_else(|| KernelOp::Bitcast(self.narrow(value)), |range| KernelOp::Int(range.least));
            self.define(UNSIGNED, op, out)
        });
        KernelOp::Bitcast(self.define(UNSIGNED, KernelOp::Binary(op, a, b), out))
    }

    /// The value in 32 bits: it has been converted where it was defined.
    fn narrow(&self, value: Value) -> Value {
        self.narrowed[value].unwrap_or(value)
    }

    /// Converts a value right after its definition, if 32 bits of it are used.
    fn convert(&mut self, value: Value, out: &mut Vec<Inst>) {
        if self.uses[value].narrowed {
            self.narrowed[value] = Some(self.define(NARROW, KernelOp::Cast(value), out));
        }
    }

    fn define(&mut self, ty: Type, op: KernelOp, out: &mut Vec<Inst>) -> Value {
        let result = self.values.push(ty);
        out.push(Inst::Let { result, op });
        result
    }
}
