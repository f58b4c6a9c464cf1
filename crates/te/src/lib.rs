//! Tensor expressions: what operators mean as index arithmetic, the loop nests that compute them, the
//! schedule primitives that rearrange those, and the kernel form that code generators consume.
//!
//! The crate knows nothing of graphs or of any code generator.
//!
//! Reading order: [`expr`] (scalar expressions and their semantics), [`func`] (functions of loop nests and
//! blocks), [`define`] (building functions from `compute` definitions), [`simplify`], [`schedule`],
//! [`math`] (expansion of intrinsics), [`flatten`] (functions to kernels), [`kernel`], [`interp`] (the
//! oracle), [`relayout`] (copies, run fast), [`text`], [`computation`] (what schedulers are given).
//! When two functions are the same is said by their digests ([`tilewright_digest::Canonical`]).

pub mod computation;
pub mod define;
pub mod expr;
pub mod flatten;
pub mod func;
mod identity;
pub mod interp;
pub mod kernel;
pub mod math;
pub mod relayout;
pub mod schedule;
pub mod simplify;
mod sizes;
pub mod text;
pub mod verify;

pub use computation::{Computation, Layout, Variant};
pub use expr::{BinaryOp, Buffer, CompareOp, Expr, ExprKind, UnaryOp, Var};
pub use func::{
    Block, BufferData, Func, Iter, IterKind, Loop, LoopKind, Scope, Stmt, Store, ThreadLevel, VarData,
    VarKind,
};
