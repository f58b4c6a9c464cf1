//! Scalar expressions: what one element of a tensor is computed from.
//!
//! Semantics shared by the interpreter, the simplifier and every code generator:
//! - An expression has one [`DType`]; operands of arithmetic have equal types, conversions are explicit.
//! - Indices, extents and loop variables are `I64`; they never overflow in a legal function.
//! - Integer arithmetic wraps. `Div` and `Rem` truncate toward zero, `FloorDiv` and `FloorMod` round toward
//!   minus infinity; division by zero gives 0 and `x % 0` gives `x` (a defined value instead of a trap).
//!   Shifts by at least the width give 0 (or the sign for an arithmetic right shift).
//! - Floats follow IEEE 754 with round-to-nearest-even and subnormals; nothing contracts or reassociates.
//!   A fused multiply-add is the explicit node [`ExprKind::Fma`], rounded once.
//! - `Min(a, b)` is `if a < b { a } else { b }` and `Max(a, b)` is `if a > b { a } else { b }`: the second
//!   operand where either is NaN. Definitions that must propagate NaN put the data second.
//! - `Cast` float to integer truncates toward zero and saturates, NaN gives 0; integer to integer wraps;
//!   to `Bool` is `!= 0`; float to a narrower float rounds to nearest even.
//! - `Select` evaluates both sides where that is safe; a load in the side not taken may be skipped, so a
//!   guard around an out-of-bounds index is legal.
//!
//! Nodes are immutable and shared ([`std::sync::Arc`]); equality is structural.

mod equality;
mod ops;

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use cranelift_entity::entity_impl;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tilewright_dtype::DType;

pub use ops::{BinaryOp, CompareOp, UnaryOp};

/// A variable of a [`crate::Func`]: a symbolic size, a loop counter or a block's iteration variable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Var(u32);
entity_impl!(Var, "v");

/// A buffer of a [`crate::Func`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Buffer(u32);
entity_impl!(Buffer, "b");

/// A shared, immutable, typed scalar expression.
#[derive(Clone)]
pub struct Expr(Arc<ExprNode>);

/// The shared nodes that searches of expressions which have nodes in common have met.
#[derive(Default)]
pub(crate) struct Visited(FxHashSet<*const ExprNode>);

/// What became of the shared nodes of expressions that are rewritten in the same way, each beside the node, which it keeps alive.
#[derive(Default)]
pub(crate) struct Rewritten(FxHashMap<*const ExprNode, (Expr, Expr)>);

struct ExprNode {
    dtype: DType,
    /// Nodes as a tree, saturating.
    n_nodes: u32,
    hash: u64,
    kind: ExprKind,
}

/// The node of an [`Expr`].
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ExprKind {
    /// An integer or truth-value constant (0 or 1 for `Bool`; unsigned values as their bit pattern).
    Int(i64),
    /// A float constant: the bits of the value as `f64`, exactly representable in the expression's type.
    Float(u64),
    /// A variable, always `I64`.
    Var(Var),
    /// One operand, same type (except the tests, which give `Bool`).
    Unary(UnaryOp, Expr),
    /// Two operands of the same type as the result.
    Binary(BinaryOp, Expr, Expr),
    /// Two operands of equal type, giving `Bool`; any comparison but `Ne` with a NaN is false.
    Compare(CompareOp, Expr, Expr),
    /// `if condition { on_true } else { on_false }`.
    Select(Expr, Expr, Expr),
    /// Value conversion to the expression's type.
    Cast(Expr),
    /// Reinterpretation of the bits as the expression's type, of the same size.
    Bitcast(Expr),
    /// `a * b + c` rounded once; floats only.
    Fma(Expr, Expr, Expr),
    /// The element of a buffer at the indices (one `I64` a dimension).
    Load(Buffer, Vec<Expr>),
}

impl ExprKind {
    /// Calls `visit` on the operands.
    fn for_each_operand(&self, visit: &mut dyn FnMut(&Expr)) {
        match self {
            ExprKind::Int(_) | ExprKind::Float(_) | ExprKind::Var(_) => {}
            ExprKind::Unary(_, a) | ExprKind::Cast(a) | ExprKind::Bitcast(a) => visit(a),
            ExprKind::Binary(_, a, b) | ExprKind::Compare(_, a, b) => {
                visit(a);
                visit(b);
            }
            ExprKind::Select(a, b, c) | ExprKind::Fma(a, b, c) => {
                visit(a);
                visit(b);
                visit(c);
            }
            ExprKind::Load(_, indices) => indices.iter().for_each(visit),
        }
    }
}

impl Expr {
    /// A node of the given type. Prefer the named constructors, which check operand types.
    pub fn new(dtype: DType, kind: ExprKind) -> Expr {
        let mut hasher = rustc_hash::FxHasher::default();
        dtype.hash(&mut hasher);
        kind.hash(&mut hasher);
        let mut n_nodes = 1u32;
        kind.for_each_operand(&mut |operand| n_nodes = n_nodes.saturating_add(operand.n_nodes()));
        Expr(Arc::new(ExprNode { dtype, n_nodes, hash: hasher.finish(), kind }))
    }

    /// How many nodes the expression has when shared ones count once for each use: its size as text. At most `u32::MAX`.
    pub fn n_nodes(&self) -> u32 {
        self.0.n_nodes
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// The node.
    pub fn kind(&self) -> &ExprKind {
        &self.0.kind
    }

    /// An index constant.
    pub fn int(value: i64) -> Expr {
        Expr::new(DType::I64, ExprKind::Int(value))
    }

    /// A truth value.
    pub fn bool(value: bool) -> Expr {
        Expr::new(DType::Bool, ExprKind::Int(value as i64))
    }

    /// A constant of any numeric type from an integer; a float type takes the nearest value.
    pub fn int_of(dtype: DType, value: i64) -> Expr {
        if dtype.is_float() {
            Expr::float_of(dtype, value as f64)
        } else {
            Expr::new(dtype, ExprKind::Int(wrap(dtype, value)))
        }
    }

    /// A float constant rounded to the type (`F32`, `F64`, `F16`, `BF16`).
    pub fn float_of(dtype: DType, value: f64) -> Expr {
        assert!(dtype.is_float(), "float constant of type {dtype}");
        let rounded = match dtype {
            DType::F32 => value as f32 as f64,
            DType::F16 => half::f16::from_f64(value).to_f64(),
            DType::BF16 => half::bf16::from_f64(value).to_f64(),
            _ => value,
        };
        Expr::new(dtype, ExprKind::Float(rounded.to_bits()))
    }

    /// An `F32` constant.
    pub fn f32(value: f32) -> Expr {
        Expr::new(DType::F32, ExprKind::Float((value as f64).to_bits()))
    }

    /// The zero of a type.
    pub fn zero(dtype: DType) -> Expr {
        Expr::int_of(dtype, 0)
    }

    /// The least value of a type: minus infinity for floats, the smallest integer otherwise.
    pub fn lowest(dtype: DType) -> Expr {
        match dtype {
            _ if dtype.is_float() => Expr::float_of(dtype, f64::NEG_INFINITY),
            _ if dtype.is_signed() => Expr::new(dtype, ExprKind::Int(i64::MIN >> (64 - dtype.bits()))),
            _ => Expr::new(dtype, ExprKind::Int(0)),
        }
    }

    /// The greatest value of a type: infinity for floats, the largest integer otherwise.
    pub fn highest(dtype: DType) -> Expr {
        match dtype {
            DType::Bool => Expr::bool(true),
            _ if dtype.is_float() => Expr::float_of(dtype, f64::INFINITY),
            _ if dtype.is_signed() => Expr::new(dtype, ExprKind::Int(i64::MAX >> (64 - dtype.bits()))),
            _ => Expr::new(dtype, ExprKind::Int((u64::MAX >> (64 - dtype.bits())) as i64)),
        }
    }

    /// A variable.
    pub fn var(var: Var) -> Expr {
        Expr::new(DType::I64, ExprKind::Var(var))
    }

    /// One-operand operation.
    pub fn unary(op: UnaryOp, a: Expr) -> Expr {
        let dtype = if op == UnaryOp::IsNan { DType::Bool } else { a.dtype() };
        Expr::new(dtype, ExprKind::Unary(op, a))
    }

    /// Two-operand operation; folds index constants and the identities of sums and products.
    pub fn binary(op: BinaryOp, a: Expr, b: Expr) -> Expr {
        assert_eq!(a.dtype(), b.dtype(), "operands of {} differ in type: {a:?} and {b:?}", op.name());
        if a.dtype() == DType::I64 {
            if let (Some(x), Some(y)) = (a.as_int(), b.as_int())
                && let Some(value) = fold_index(op, x, y)
            {
                return Expr::int(value);
            }
            match (op, a.as_int(), b.as_int()) {
                (BinaryOp::Add, Some(0), _) | (BinaryOp::Mul, Some(1), _) => return b,
                (BinaryOp::Add | BinaryOp::Sub, _, Some(0)) => return a,
                (BinaryOp::Mul | BinaryOp::Div | BinaryOp::FloorDiv, _, Some(1)) => return a,
                (BinaryOp::Mul, Some(0), _) => return a,
                (BinaryOp::Mul, _, Some(0)) => return b,
                (BinaryOp::Rem | BinaryOp::FloorMod, _, Some(1)) => return Expr::int(0),
                _ => {}
            }
        }
        let dtype = a.dtype();
        Expr::new(dtype, ExprKind::Binary(op, a, b))
    }

    /// Comparison, giving `Bool`; folds index constants.
    pub fn compare(op: CompareOp, a: Expr, b: Expr) -> Expr {
        assert_eq!(a.dtype(), b.dtype(), "operands of {} differ in type: {a:?} and {b:?}", op.symbol());
        if a.dtype() == DType::I64
            && let (Some(x), Some(y)) = (a.as_int(), b.as_int())
        {
            return Expr::bool(match op {
                CompareOp::Eq => x == y,
                CompareOp::Ne => x != y,
                CompareOp::Lt => x < y,
                CompareOp::Le => x <= y,
                CompareOp::Gt => x > y,
                CompareOp::Ge => x >= y,
            });
        }
        Expr::new(DType::Bool, ExprKind::Compare(op, a, b))
    }

    /// `if condition { on_true } else { on_false }`; folds a constant condition.
    pub fn select(condition: Expr, on_true: Expr, on_false: Expr) -> Expr {
        assert_eq!(condition.dtype(), DType::Bool, "condition {condition:?} is not a truth value");
        assert_eq!(on_true.dtype(), on_false.dtype(), "sides differ in type: {on_true:?} and {on_false:?}");
        match condition.as_int() {
            Some(0) => on_false,
            Some(_) => on_true,
            None => Expr::new(on_true.dtype(), ExprKind::Select(condition, on_true, on_false)),
        }
    }

    /// Value conversion; the operand itself where the type is already right.
    pub fn cast(self, dtype: DType) -> Expr {
        if self.dtype() == dtype { self } else { Expr::new(dtype, ExprKind::Cast(self)) }
    }

    /// Reinterpretation of the bits as a type of the same size.
    pub fn bitcast(self, dtype: DType) -> Expr {
        assert_eq!(self.dtype().bytes(), dtype.bytes(), "bitcast of {} to {dtype}", self.dtype());
        if self.dtype() == dtype { self } else { Expr::new(dtype, ExprKind::Bitcast(self)) }
    }

    /// `a * b + c` rounded once for floats, the plain wrapping expression for integers.
    pub fn fma(a: Expr, b: Expr, c: Expr) -> Expr {
        assert!(a.dtype() == b.dtype() && b.dtype() == c.dtype(), "operands of fma differ in type");
        if a.dtype().is_float() { Expr::new(a.dtype(), ExprKind::Fma(a, b, c)) } else { a * b + c }
    }

    /// The element of a buffer of type `dtype`.
    pub fn load(dtype: DType, buffer: Buffer, indices: Vec<Expr>) -> Expr {
        Expr::new(dtype, ExprKind::Load(buffer, indices))
    }

    /// The value of an integer or `Bool` constant.
    pub fn as_int(&self) -> Option<i64> {
        match self.kind() {
            ExprKind::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// The value of a float constant.
    pub fn as_float(&self) -> Option<f64> {
        match self.kind() {
            ExprKind::Float(bits) => Some(f64::from_bits(*bits)),
            _ => None,
        }
    }

    /// The variable, if the expression is one.
    pub fn as_var(&self) -> Option<Var> {
        match self.kind() {
            ExprKind::Var(var) => Some(*var),
            _ => None,
        }
    }

    /// Whether two handles share one node: a cheap "unchanged" test.
    pub fn same(&self, other: &Expr) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Calls `visit` on the direct operands.
    pub fn for_each_operand(&self, mut visit: impl FnMut(&Expr)) {
        self.kind().for_each_operand(&mut visit);
    }

    /// Whether the outermost operation is an elementary function, which code generators do not have.
    pub fn is_intrinsic(&self) -> bool {
        match self.kind() {
            ExprKind::Unary(op, _) => op.is_intrinsic(),
            ExprKind::Binary(op, ..) => op.is_intrinsic(),
            ExprKind::Int(_)
            | ExprKind::Float(_)
            | ExprKind::Var(_)
            | ExprKind::Compare(..)
            | ExprKind::Select(..)
            | ExprKind::Cast(_)
            | ExprKind::Bitcast(_)
            | ExprKind::Fma(..)
            | ExprKind::Load(..) => false,
        }
    }

    /// Calls `visit` on the expression and all sub-expressions, outermost first; a shared node once.
    pub fn walk(&self, visit: &mut impl FnMut(&Expr)) {
        self.any(&mut |e| {
            visit(e);
            false
        });
    }

    /// Whether any sub-expression (or the expression) satisfies `test`; a shared node is tested once.
    pub fn any(&self, test: &mut impl FnMut(&Expr) -> bool) -> bool {
        self.search(&mut Visited::default(), test)
    }

    /// The same, but for nodes that a search with the same set has tested before.
    pub(crate) fn search(&self, visited: &mut Visited, test: &mut dyn FnMut(&Expr) -> bool) -> bool {
        // Only shared nodes can be met again.
        if Arc::strong_count(&self.0) > 1 && !self.is_leaf() && !visited.0.insert(Arc::as_ptr(&self.0)) {
            return false;
        }
        let mut found = test(self);
        if !found {
            self.for_each_operand(|operand| found = found || operand.search(visited, test));
        }
        found
    }

    fn is_leaf(&self) -> bool {
        matches!(self.kind(), ExprKind::Int(_) | ExprKind::Float(_) | ExprKind::Var(_))
    }

    /// Whether the variable occurs.
    pub fn uses(&self, var: Var) -> bool {
        self.any(&mut |e| e.as_var() == Some(var))
    }

    /// The same node over other operands; the node itself where no operand changes.
    pub fn map_operands(&self, mut map: impl FnMut(&Expr) -> Expr) -> Expr {
        self.map_each_operand(&mut map)
    }

    fn map_each_operand(&self, map: &mut dyn FnMut(&Expr) -> Expr) -> Expr {
        match self.kind() {
            ExprKind::Int(_) | ExprKind::Float(_) | ExprKind::Var(_) => self.clone(),
            ExprKind::Unary(op, a) => {
                let x = map(a);
                if x.same(a) { self.clone() } else { Expr::unary(*op, x) }
            }
            ExprKind::Cast(a) => {
                let x = map(a);
                if x.same(a) { self.clone() } else { x.cast(self.dtype()) }
            }
            ExprKind::Bitcast(a) => {
                let x = map(a);
                if x.same(a) { self.clone() } else { x.bitcast(self.dtype()) }
            }
            ExprKind::Binary(op, a, b) => {
                let (x, y) = (map(a), map(b));
                if x.same(a) && y.same(b) { self.clone() } else { Expr::binary(*op, x, y) }
            }
            ExprKind::Compare(op, a, b) => {
                let (x, y) = (map(a), map(b));
                if x.same(a) && y.same(b) { self.clone() } else { Expr::compare(*op, x, y) }
            }
            ExprKind::Select(a, b, c) => {
                let (x, y, z) = (map(a), map(b), map(c));
                if x.same(a) && y.same(b) && z.same(c) { self.clone() } else { Expr::select(x, y, z) }
            }
            ExprKind::Fma(a, b, c) => {
                let (x, y, z) = (map(a), map(b), map(c));
                if x.same(a) && y.same(b) && z.same(c) { self.clone() } else { Expr::fma(x, y, z) }
            }
            ExprKind::Load(buffer, indices) => {
                let mapped: Vec<Expr> = indices.iter().map(map).collect();
                if mapped.iter().zip(indices).all(|(new, old)| new.same(old)) {
                    self.clone()
                } else {
                    Expr::load(self.dtype(), *buffer, mapped)
                }
            }
        }
    }

    /// Rewrites bottom-up: `rewrite` sees each node with its operands already rewritten and returns a
    /// replacement or `None` to keep it. Shared nodes are rewritten once and stay shared.
    pub fn rewrite(&self, rewrite: &mut impl FnMut(&Expr) -> Option<Expr>) -> Expr {
        self.rewrite_with(&mut Rewritten::default(), rewrite)
    }

    /// The same, where nodes that other expressions share with this one may have been rewritten before.
    pub(crate) fn rewrite_with(
        &self,
        done: &mut Rewritten,
        rewrite: &mut dyn FnMut(&Expr) -> Option<Expr>,
    ) -> Expr {
        let shared = Arc::strong_count(&self.0) > 1 && !self.is_leaf();
        if shared && let Some((_, known)) = done.0.get(&Arc::as_ptr(&self.0)) {
            return known.clone();
        }
        let rebuilt = self.map_each_operand(&mut |operand| operand.rewrite_with(done, rewrite));
        let result = rewrite(&rebuilt).unwrap_or(rebuilt);
        if shared {
            done.0.insert(Arc::as_ptr(&self.0), (self.clone(), result.clone()));
        }
        result
    }

    /// The same expression with equal sub-expressions as one shared node, also with those that were shared before among `known`.
    pub fn share(&self, known: &mut FxHashSet<Expr>) -> Expr {
        self.rewrite(&mut |e| match known.get(e) {
            Some(shared) => Some(shared.clone()),
            None => {
                known.insert(e.clone());
                None
            }
        })
    }

    /// Replaces variables by what `value` returns for them.
    pub fn substitute(&self, value: &impl Fn(Var) -> Option<Expr>) -> Expr {
        self.rewrite(&mut |e| e.as_var().and_then(value))
    }

    /// Replaces one variable.
    pub fn substitute_var(&self, var: Var, value: &Expr) -> Expr {
        self.substitute(&|v| (v == var).then(|| value.clone()))
    }

    /// Lesser of two, the second if unordered.
    pub fn min(self, other: Expr) -> Expr {
        Expr::binary(BinaryOp::Min, self, other)
    }

    /// Greater of two, the second if unordered.
    pub fn max(self, other: Expr) -> Expr {
        Expr::binary(BinaryOp::Max, self, other)
    }

    /// Quotient rounded toward minus infinity.
    pub fn floor_div(self, other: Expr) -> Expr {
        Expr::binary(BinaryOp::FloorDiv, self, other)
    }

    /// Remainder with the divisor's sign.
    pub fn floor_mod(self, other: Expr) -> Expr {
        Expr::binary(BinaryOp::FloorMod, self, other)
    }

    /// Quotient rounded toward plus infinity, of a non-negative dividend and a positive constant divisor.
    pub fn ceil_div(self, divisor: i64) -> Expr {
        (self + Expr::int(divisor - 1)).floor_div(Expr::int(divisor))
    }

    /// Logical or bitwise and; folds constant truth values.
    pub fn and(self, other: Expr) -> Expr {
        match (self.dtype(), self.as_int(), other.as_int()) {
            (DType::Bool, Some(1), _) | (DType::Bool, _, Some(0)) => other,
            (DType::Bool, Some(0), _) | (DType::Bool, _, Some(1)) => self,
            _ => Expr::binary(BinaryOp::And, self, other),
        }
    }

    /// Logical or bitwise or; folds constant truth values.
    pub fn or(self, other: Expr) -> Expr {
        match (self.dtype(), self.as_int(), other.as_int()) {
            (DType::Bool, Some(0), _) | (DType::Bool, _, Some(1)) => other,
            (DType::Bool, Some(1), _) | (DType::Bool, _, Some(0)) => self,
            _ => Expr::binary(BinaryOp::Or, self, other),
        }
    }

    /// Less than.
    pub fn lt(self, other: Expr) -> Expr {
        Expr::compare(CompareOp::Lt, self, other)
    }

    /// Less or equal.
    pub fn le(self, other: Expr) -> Expr {
        Expr::compare(CompareOp::Le, self, other)
    }

    /// Greater or equal.
    pub fn ge(self, other: Expr) -> Expr {
        Expr::compare(CompareOp::Ge, self, other)
    }

    /// Greater than.
    pub fn gt(self, other: Expr) -> Expr {
        Expr::compare(CompareOp::Gt, self, other)
    }

    /// Equality as an expression (not Rust's structural `==`).
    pub fn equals(self, other: Expr) -> Expr {
        Expr::compare(CompareOp::Eq, self, other)
    }
}

/// Wraps a value to the width of an integer type, sign- or zero-extended to 64 bits.
pub fn wrap(dtype: DType, value: i64) -> i64 {
    let spare = 64 - dtype.bits().clamp(1, 64) as u32;
    match dtype {
        DType::Bool => (value != 0) as i64,
        _ if dtype.is_signed() => (value << spare) >> spare,
        _ => (((value as u64) << spare) >> spare) as i64,
    }
}

/// `x op y` on indices, or `None` where the value is not defined by exact integer arithmetic.
fn fold_index(op: BinaryOp, x: i64, y: i64) -> Option<i64> {
    match op {
        BinaryOp::Add => x.checked_add(y),
        BinaryOp::Sub => x.checked_sub(y),
        BinaryOp::Mul => x.checked_mul(y),
        BinaryOp::Div => x.checked_div(y),
        BinaryOp::Rem => x.checked_rem(y),
        BinaryOp::FloorDiv => (y > 0).then(|| x.div_euclid(y)),
        BinaryOp::FloorMod => (y > 0).then(|| x.rem_euclid(y)),
        BinaryOp::Min => Some(x.min(y)),
        BinaryOp::Max => Some(x.max(y)),
        BinaryOp::And => Some(x & y),
        BinaryOp::Or => Some(x | y),
        BinaryOp::Xor => Some(x ^ y),
        BinaryOp::Shl => (0..64).contains(&y).then(|| x << y),
        BinaryOp::Shr => (0..64).contains(&y).then(|| x >> y),
        BinaryOp::Pow | BinaryOp::Atan2 | BinaryOp::Fmod => None,
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident),*) => {$(
        impl std::ops::$trait for Expr {
            type Output = Expr;
            fn $method(self, other: Expr) -> Expr {
                Expr::binary(BinaryOp::$op, self, other)
            }
        }
        impl std::ops::$trait<i64> for Expr {
            type Output = Expr;
            fn $method(self, other: i64) -> Expr {
                let other = Expr::int_of(self.dtype(), other);
                Expr::binary(BinaryOp::$op, self, other)
            }
        }
    )*};
}
operators!(Add add Add, Sub sub Sub, Mul mul Mul, Div div Div);

impl std::ops::Neg for Expr {
    type Output = Expr;
    fn neg(self) -> Expr {
        Expr::unary(UnaryOp::Neg, self)
    }
}

impl From<Var> for Expr {
    fn from(var: Var) -> Expr {
        Expr::var(var)
    }
}

impl From<i64> for Expr {
    fn from(value: i64) -> Expr {
        Expr::int(value)
    }
}

/// As a tree: nodes that are shared are written once for each use.
impl Serialize for Expr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.0.dtype, &self.0.kind).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Expr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Expr, D::Error> {
        let (dtype, kind) = Deserialize::deserialize(deserializer)?;
        Ok(Expr::new(dtype, kind))
    }
}
