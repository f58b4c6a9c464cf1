//! The rules of the kernel form, checked. Tests are `targets/suite/filetests/*.kernel`.

use std::collections::HashSet;

use cranelift_entity::EntityRef;
use tilewright_dtype::{DType, Kind};

use super::{Access, Inst, Kernel, KernelOp, MemRef, Threads, Type, Value};
use crate::expr::{BinaryOp, UnaryOp};

impl Kernel {
    /// Checks that every value is defined once, before its uses and in their scope, that types agree, that
    /// operations have a meaning for their types, that read-only buffers are not written, and that threads arrive
    /// together where they must.
    ///
    /// # Errors
    /// All violations, each naming the value or place.
    pub fn verify(&self) -> Result<(), Vec<String>> {
        let mut check =
            Check { kernel: self, scopes: vec![HashSet::new()], defined: HashSet::new(), faults: vec![] };
        check.define(self.task, Some(Type::scalar(DType::I64)));
        check.body(&self.body);
        check.threads();
        if check.faults.is_empty() { Ok(()) } else { Err(check.faults) }
    }
}

struct Check<'a> {
    kernel: &'a Kernel,
    /// Values in scope, by list of instructions, outermost first.
    scopes: Vec<HashSet<Value>>,
    /// Every value defined so far.
    defined: HashSet<Value>,
    faults: Vec<String>,
}

const INDEX: Type = Type::scalar(DType::I64);

impl Check<'_> {
    fn fault(&mut self, text: String) {
        self.faults.push(text);
    }

    /// The declared type of a value.
    fn ty(&mut self, value: Value) -> Option<Type> {
        let ty = self.kernel.values.get(value).copied().filter(|ty| ty.lanes > 0);
        if ty.is_none() {
            self.fault(format!("{value} has no type"));
        }
        ty
    }

    fn define(&mut self, value: Value, ty: Option<Type>) {
        if !self.defined.insert(value) {
            self.fault(format!("{value} is defined twice"));
        }
        if let (Some(declared), Some(ty)) = (self.ty(value), ty)
            && declared != ty
        {
            self.fault(format!("{value} is declared {declared} and defined as {ty}"));
        }
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(value);
        }
    }

    /// The type of an operand, which must be in scope.
    fn operand(&mut self, value: Value) -> Option<Type> {
        if value.index() < self.kernel.values.len() && !self.scopes.iter().any(|scope| scope.contains(&value))
        {
            self.fault(format!("{value} is used where it is not defined"));
        }
        self.ty(value)
    }

    fn expect(&mut self, value: Value, expected: Type, role: &str) {
        if let Some(ty) = self.operand(value)
            && ty != expected
        {
            self.fault(format!("{role} {value} is {ty}, not {expected}"));
        }
    }

    fn body(&mut self, insts: &[Inst]) {
        for inst in insts {
            self.inst(inst);
        }
    }

    fn inst(&mut self, inst: &Inst) {
        match inst {
            Inst::Let { result, op } => {
                if let Some(ty) = self.ty(*result) {
                    self.op(*result, ty, op);
                }
                self.define(*result, None);
            }
            Inst::Store { place, index, offset: _, value, mask } => {
                self.expect(*index, INDEX, "index");
                self.written(*place, *value, *mask);
            }
            Inst::Scatter { place, indices, offset: _, value, mask } => {
                if let Some(ty) = self.ty(*value) {
                    self.expect(*indices, Type::vector(DType::I64, ty.lanes), "indices");
                }
                self.written(*place, *value, *mask);
            }
            Inst::Prefetch { place, index, offset: _ } => {
                self.expect(*index, INDEX, "index");
                match place {
                    MemRef::Param(_) => {}
                    MemRef::Local(_) => self.fault("prefetches from the stack".into()),
                    MemRef::Shared(_) => self.fault("prefetches from a shared array".into()),
                }
            }
            Inst::Barrier | Inst::CommitCopies | Inst::WaitCopies { pending: _ } => {}
            Inst::CopyAsync { to, to_index, to_offset: _, from, index, offset: _, elements, mask } => {
                self.expect(*to_index, INDEX, "index");
                self.expect(*index, INDEX, "index");
                self.copied(*to, *from, *elements, *mask);
            }
            Inst::Loop { var, begin, end, carried, body } => {
                self.expect(*begin, INDEX, "begin");
                self.expect(*end, INDEX, "end");
                let types: Vec<_> = carried.iter().map(|c| self.operand(c.init)).collect();
                self.scopes.push(HashSet::new());
                self.define(*var, Some(INDEX));
                for (c, ty) in carried.iter().zip(&types) {
                    self.define(c.param, *ty);
                }
                self.body(body);
                for (c, ty) in carried.iter().zip(&types) {
                    if let Some(ty) = ty {
                        self.expect(c.next, *ty, "next value");
                    }
                }
                self.scopes.pop();
                for (c, ty) in carried.iter().zip(types) {
                    self.define(c.result, ty);
                }
            }
            Inst::If { condition, then_body, else_body, joins } => {
                self.expect(*condition, Type::scalar(DType::Bool), "condition");
                for (body, is_then) in [(then_body, true), (else_body, false)] {
                    self.scopes.push(HashSet::new());
                    self.body(body);
                    for join in joins {
                        if let Some(ty) = self.ty(join.result) {
                            self.expect(
                                if is_then { join.then_value } else { join.else_value },
                                ty,
                                "joined value",
                            );
                        }
                    }
                    self.scopes.pop();
                }
                for join in joins {
                    self.define(join.result, None);
                }
            }
        }
    }

    /// The element type of a place.
    fn element(&mut self, place: MemRef) -> Option<DType> {
        let dtype = match place {
            MemRef::Param(i) => self.kernel.buffers.get(i as usize).map(|buffer| buffer.dtype),
            MemRef::Local(i) => self.kernel.locals.get(i as usize).map(|local| local.dtype),
            MemRef::Shared(i) => self.kernel.shared.get(i as usize).map(|shared| shared.dtype),
        };
        if dtype.is_none() {
            self.fault(format!("there is no {place:?}"));
        }
        dtype
    }

    fn copied(&mut self, to: MemRef, from: MemRef, elements: u32, mask: Option<Value>) {
        if !matches!((to, from), (MemRef::Shared(_), MemRef::Param(_))) {
            self.fault(format!("copies from {from:?} to {to:?}, not from a parameter to a shared array"));
        }
        if let (Some(to), Some(from)) = (self.element(to), self.element(from))
            && to != from
        {
            self.fault(format!("copies {from} to {to}"));
        }
        if elements == 0 {
            self.fault("copies nothing".into());
        }
        self.masked(mask, 1);
    }

    /// What the threads of a task must do together.
    fn threads(&mut self) {
        let Threads { warps, lanes } = self.kernel.threads;
        if warps == 0 || lanes == 0 {
            self.fault(format!("a task has {warps} x {lanes} threads"));
        } else if self.faults.is_empty() {
            self.faults = super::uniform::divergent(self.kernel);
        }
    }

    fn written(&mut self, place: MemRef, value: Value, mask: Option<Value>) {
        if let MemRef::Param(i) = place
            && let Some(buffer) = self.kernel.buffers.get(i as usize)
            && buffer.access == Access::Read
        {
            self.fault(format!("buffer `{}` is read-only, yet {value} is stored to it", buffer.name));
        }
        if let (Some(dtype), Some(ty)) = (self.element(place), self.operand(value)) {
            if ty.dtype != dtype {
                self.fault(format!("{value}, a {ty}, is stored to {place:?} of {dtype}"));
            }
            self.masked(mask, ty.lanes);
        }
    }

    fn read(&mut self, place: MemRef, ty: Type, mask: Option<Value>) {
        if let Some(dtype) = self.element(place)
            && ty.dtype != dtype
        {
            self.fault(format!("{ty} is loaded from {place:?} of {dtype}"));
        }
        self.masked(mask, ty.lanes);
    }

    fn masked(&mut self, mask: Option<Value>, lanes: u32) {
        if let Some(mask) = mask {
            self.expect(mask, Type::vector(DType::Bool, lanes), "mask");
        }
    }

    fn op(&mut self, result: Value, ty: Type, op: &KernelOp) {
        let kind = ty.dtype.kind();
        let legal = match op {
            KernelOp::Int(_) => matches!(kind, Kind::Bool | Kind::Int | Kind::UInt),
            KernelOp::Float(_) => kind == Kind::Float,
            KernelOp::Size(i) => ty == INDEX && (*i as usize) < self.kernel.sizes.len(),
            KernelOp::Warp | KernelOp::Lane => ty == INDEX,
            KernelOp::Shuffle { value, from } => {
                self.expect(*value, ty, "operand");
                self.expect(*from, INDEX, "lane");
                true
            }
            KernelOp::Iota => ty.dtype.is_integer(),
            KernelOp::Splat(a) => {
                self.expect(*a, Type::scalar(ty.dtype), "operand");
                true
            }
            KernelOp::Extract(a, lane) => {
                let from = self.operand(*a);
                from.is_none_or(|from| from.dtype == ty.dtype && ty.lanes == 1 && *lane < from.lanes)
            }
            KernelOp::Slice(a, first) => self.operand(*a).is_none_or(|from| {
                from.dtype == ty.dtype && u64::from(*first) + u64::from(ty.lanes) <= u64::from(from.lanes)
            }),
            KernelOp::Concat(parts) => {
                let types: Vec<Type> = parts.iter().filter_map(|part| self.operand(*part)).collect();
                let lanes: u64 = types.iter().map(|part| u64::from(part.lanes)).sum();
                types.len() < parts.len()
                    || (types.iter().all(|part| part.dtype == ty.dtype) && lanes == u64::from(ty.lanes))
            }
            KernelOp::Unary(op, a) => {
                let from = if *op == UnaryOp::IsNan { self.operand(*a) } else { Some(ty) };
                if *op != UnaryOp::IsNan {
                    self.expect(*a, ty, "operand");
                }
                from.is_none_or(|from| from.lanes == ty.lanes && unary_is_legal(*op, from.dtype.kind(), kind))
            }
            KernelOp::Binary(op, a, b) => {
                self.expect(*a, ty, "operand");
                self.expect(*b, ty, "operand");
                binary_is_legal(*op, kind)
            }
            KernelOp::Compare(_, a, b) => {
                let from = self.operand(*a);
                if let Some(from) = from {
                    self.expect(*b, from, "operand");
                }
                from.is_none_or(|from| ty == Type::vector(DType::Bool, from.lanes))
            }
            KernelOp::Select(condition, a, b) => {
                self.expect(*a, ty, "operand");
                self.expect(*b, ty, "operand");
                self.operand(*condition).is_none_or(|condition| {
                    condition.dtype == DType::Bool && (condition.lanes == ty.lanes || condition.lanes == 1)
                })
            }
            KernelOp::Cast(a) => self.operand(*a).is_none_or(|from| from.lanes == ty.lanes),
            KernelOp::Bitcast(a) => self
                .operand(*a)
                .is_none_or(|from| from.lanes == ty.lanes && from.dtype.bytes() == ty.dtype.bytes()),
            KernelOp::Fma(a, b, c) => {
                for operand in [a, b, c] {
                    self.expect(*operand, ty, "operand");
                }
                kind == Kind::Float
            }
            KernelOp::Load { place, index, offset: _, mask } => {
                self.expect(*index, INDEX, "index");
                self.read(*place, ty, *mask);
                true
            }
            KernelOp::Gather { place, indices, offset: _, mask } => {
                self.expect(*indices, Type::vector(DType::I64, ty.lanes), "indices");
                self.read(*place, ty, *mask);
                true
            }
        };
        if !legal {
            self.fault(format!("{result} of type {ty} cannot be {op:?}"));
        }
    }
}

/// Whether an operation has a meaning from one kind of element to another.
fn unary_is_legal(op: UnaryOp, from: Kind, to: Kind) -> bool {
    match op {
        UnaryOp::Neg | UnaryOp::Abs => matches!(from, Kind::Int | Kind::UInt | Kind::Float),
        UnaryOp::Not => matches!(from, Kind::Bool | Kind::Int | Kind::UInt),
        UnaryOp::Sqrt | UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Trunc | UnaryOp::Round => {
            from == Kind::Float
        }
        UnaryOp::IsNan => from == Kind::Float && to == Kind::Bool,
        UnaryOp::Exp
        | UnaryOp::ExpFtz
        | UnaryOp::Exp2Ftz
        | UnaryOp::Log
        | UnaryOp::Tanh
        | UnaryOp::Erf
        | UnaryOp::NormCdf
        | UnaryOp::Sigmoid
        | UnaryOp::Sin
        | UnaryOp::Cos
        | UnaryOp::Tan
        | UnaryOp::Asin
        | UnaryOp::Acos
        | UnaryOp::Atan
        | UnaryOp::Sinh
        | UnaryOp::Cosh
        | UnaryOp::Asinh
        | UnaryOp::Acosh
        | UnaryOp::Atanh
        | UnaryOp::Log1p
        | UnaryOp::Expm1 => false,
    }
}

/// Whether an operation has a meaning on a kind of element.
fn binary_is_legal(op: BinaryOp, kind: Kind) -> bool {
    let is_integer = matches!(kind, Kind::Int | Kind::UInt);
    match op {
        BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div => is_integer || kind == Kind::Float,
        BinaryOp::Rem | BinaryOp::FloorDiv | BinaryOp::FloorMod | BinaryOp::Shl | BinaryOp::Shr => is_integer,
        BinaryOp::Min | BinaryOp::Max => kind != Kind::String,
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => is_integer || kind == Kind::Bool,
        BinaryOp::Pow | BinaryOp::Atan2 | BinaryOp::Fmod => false,
    }
}
