//! Kernels: the vector and register form that code generators consume.
//!
//! A [`Kernel`] is a straight structured program over typed SSA values: scalars and vectors of any number of
//! lanes. Buffers are flat; every access names an element index. There are no calls, no allocation, and no
//! intrinsics (`crate::math` has expanded them), so that a code generator is a translation of some thirty
//! operations, and two generators that translate them faithfully produce the same bits.
//!
//! Semantics of operations are those of `crate::expr`, lane by lane. In addition:
//! - A value is defined before it is used, in the same list or an enclosing one; loop parameters and results
//!   are the only way for a value to leave a loop's or a branch's body.
//! - `Bool` scalars and vectors hold 0 or 1 a lane; in memory a byte.
//! - `Load` reads `lanes` consecutive elements from `index + offset`, `Store` writes them. With a mask, lanes
//!   whose mask is false are not accessed (loaded as 0). `Gather` and `Scatter` take one index a lane; a
//!   scatter writes lanes in order.
//! - Loads and stores are aligned to the element only, unless the buffer's `align` and a constant index say
//!   more. Distinct buffers never alias.
//!
//! All threads of a task run its body. They share parameters and shared arrays; values and local arrays are each
//! thread's own. What one thread writes, another sees after the next barrier, and not before. Two threads that access
//! the same element between two barriers, one of them writing, are a race: a defect of the kernel.

mod multiples;
mod ranges;
pub(crate) mod uniform;
mod verify;

use cranelift_entity::{PrimaryMap, entity_impl};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use tilewright_dtype::DType;

use crate::expr::{BinaryOp, CompareOp, Expr, UnaryOp, Var};

/// A value of a [`Kernel`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Value(u32);
entity_impl!(Value, "%");

pub use self::ranges::Range;
pub use self::uniform::Varies;

/// One entry point: the tasks of one parallel loop, or a serial program as a single task.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Symbol name.
    pub name: String,
    /// Buffer parameters, in the order of the argument array.
    pub buffers: Vec<KernelBuffer>,
    /// Arrays of each thread's own, on the stack.
    pub locals: Vec<KernelLocal>,
    /// Threads of a task.
    pub threads: Threads,
    /// Arrays that the threads of a task share; every task has its own.
    pub shared: Vec<KernelLocal>,
    /// Symbolic extents passed as arguments; `grid` speaks of them.
    pub sizes: Vec<KernelSize>,
    /// Number of tasks, over `sizes`' variables.
    pub grid: TaskGrid,
    /// Types of all values.
    pub values: PrimaryMap<Value, Type>,
    /// The program of one task.
    pub task: Value,
    /// The instructions; `task` is bound to the number of the task.
    pub body: Vec<Inst>,
}

impl Kernel {
    /// How many instructions a task performs: loops with open bounds counted once, and both sides of branches.
    pub fn instructions_of_task(&self) -> f64 {
        fn count(insts: &[Inst], constants: &mut FxHashMap<Value, i64>) -> f64 {
            let mut sum = 0.0;
            for inst in insts {
                sum += match inst {
                    Inst::Let { result, op: KernelOp::Int(value) } => {
                        constants.insert(*result, *value);
                        0.0
                    }
                    Inst::Let { .. }
                    | Inst::Store { .. }
                    | Inst::Scatter { .. }
                    | Inst::Prefetch { .. }
                    | Inst::Barrier
                    | Inst::CopyAsync { .. }
                    | Inst::CommitCopies
                    | Inst::WaitCopies { .. } => 1.0,
                    Inst::Loop { begin, end, body, .. } => {
                        let extent =
                            constants.get(end).zip(constants.get(begin)).map(|(end, begin)| end - begin);
                        extent.unwrap_or(1).max(0) as f64 * count(body, constants)
                    }
                    Inst::If { then_body, else_body, .. } => {
                        count(then_body, constants) + count(else_body, constants)
                    }
                };
            }
            sum
        }
        count(&self.body, &mut FxHashMap::default())
    }
}

/// Tasks of a kernel, numbered round by round. Threads share the tasks of a round, and a thread keeps its part in every
/// round: what one task of a part leaves in a core's cache, those of other rounds find there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskGrid {
    /// Number of rounds.
    pub rounds: Expr,
    /// Tasks of a round.
    pub per_round: Expr,
    /// Whether a round begins only when the one before has ended: its tasks read what those have written.
    pub in_order: bool,
}

impl TaskGrid {
    /// A single task.
    pub fn single() -> TaskGrid {
        TaskGrid { rounds: Expr::int(1), per_round: Expr::int(1), in_order: false }
    }
}

/// Threads of a task, all of which run its body: `warps` times `lanes`. Lanes of a warp run in step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Threads {
    /// Number of warps.
    pub warps: u32,
    /// Threads of a warp.
    pub lanes: u32,
}

impl Threads {
    /// A single thread: what processors have.
    pub const ONE: Threads = Threads { warps: 1, lanes: 1 };

    /// Number of threads.
    pub const fn count(self) -> u32 {
        self.warps * self.lanes
    }
}

/// A symbolic extent of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelSize {
    /// The variable of the function the kernel comes from.
    pub var: Var,
    /// Its name there.
    pub name: String,
}

/// A buffer parameter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KernelBuffer {
    /// Name for dumps.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// What the kernel does to it.
    pub access: Access,
    /// Alignment of the first element in bytes, as guaranteed by the caller.
    pub align: u32,
}

/// What a kernel does to a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Only loads.
    Read,
    /// Only stores.
    Write,
    /// Loads and stores.
    ReadWrite,
}

/// An array of a thread or of a task, 64-byte aligned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KernelLocal {
    /// Name for dumps.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Number of elements.
    pub len: u64,
}

/// A buffer parameter, local or shared array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemRef {
    /// Index into [`Kernel::buffers`].
    Param(u32),
    /// Index into [`Kernel::locals`].
    Local(u32),
    /// Index into [`Kernel::shared`].
    Shared(u32),
}

/// Element type and number of lanes; one lane is a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Type {
    /// Element type.
    pub dtype: DType,
    /// Number of lanes, at least 1.
    pub lanes: u32,
}

/// An instruction.
#[derive(Clone, Debug)]
pub enum Inst {
    /// `result = op`.
    Let {
        /// The value defined.
        result: Value,
        /// How it is computed.
        op: KernelOp,
    },
    /// Writes the lanes of `value` to consecutive elements from `index + offset`.
    Store {
        /// Where.
        place: MemRef,
        /// Element index, a scalar `I64`.
        index: Value,
        /// Added to the index.
        offset: i64,
        /// What; its element type is the buffer's.
        value: Value,
        /// Lanes to write (a `Bool` vector), all if absent.
        mask: Option<Value>,
    },
    /// Writes lane `i` of `value` to element `indices[i] + offset`, in lane order.
    Scatter {
        /// Where.
        place: MemRef,
        /// Element indices, a vector of `I64`.
        indices: Value,
        /// Added to every index.
        offset: i64,
        /// What.
        value: Value,
        /// Lanes to write, all if absent.
        mask: Option<Value>,
    },
    /// Asks for the cache line of element `index + offset`, which may lie outside of the buffer: a hint without
    /// effect on values.
    Prefetch {
        /// Where, a parameter.
        place: MemRef,
        /// Element index, a scalar `I64`.
        index: Value,
        /// Added to the index.
        offset: i64,
    },
    /// Waits until all threads of the task have arrived: each sees what the others wrote before it.
    Barrier,
    /// Begins to copy `elements` consecutive elements of a parameter to a shared array. They are there when the thread
    /// has waited for the copy's group, and for other threads after the next barrier.
    CopyAsync {
        /// Where to, a shared array.
        to: MemRef,
        /// Element index there, a scalar `I64`.
        to_index: Value,
        /// Added to that index.
        to_offset: i64,
        /// Where from, a parameter of the same element type.
        from: MemRef,
        /// Element index there, a scalar `I64`.
        index: Value,
        /// Added to the index.
        offset: i64,
        /// How many.
        elements: u32,
        /// A scalar `Bool`: if false nothing is read, and zeros are written.
        mask: Option<Value>,
    },
    /// Makes a group of this thread's copies that are in none.
    CommitCopies,
    /// Waits for all groups of this thread's copies but the `pending` youngest.
    WaitCopies {
        /// How many groups may be under way.
        pending: u32,
    },
    /// `for var in begin..end`, with values carried from iteration to iteration.
    Loop {
        /// The counter, a scalar `I64`, counting by 1.
        var: Value,
        /// First value of the counter.
        begin: Value,
        /// The loop ends before this value; runs nothing if not above `begin`.
        end: Value,
        /// Loop-carried values.
        carried: Vec<Carried>,
        /// The instructions of one iteration.
        body: Vec<Inst>,
    },
    /// `if condition { then_body } else { else_body }`.
    If {
        /// A scalar `Bool`.
        condition: Value,
        /// Run if true.
        then_body: Vec<Inst>,
        /// Run if false.
        else_body: Vec<Inst>,
        /// Values that leave the branches.
        joins: Vec<Join>,
    },
}

/// A value carried by a loop.
#[derive(Clone, Copy, Debug)]
pub struct Carried {
    /// Its value before the first iteration (defined outside).
    pub init: Value,
    /// Its value inside the body.
    pub param: Value,
    /// Its value for the next iteration (defined inside, or any value in scope).
    pub next: Value,
    /// Its value after the loop.
    pub result: Value,
}

/// A value chosen by a branch.
#[derive(Clone, Copy, Debug)]
pub struct Join {
    /// The value where the condition holds.
    pub then_value: Value,
    /// The value where it does not.
    pub else_value: Value,
    /// The name of either after the branch.
    pub result: Value,
}

/// How a value is computed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KernelOp {
    /// An integer or `Bool` constant in every lane.
    Int(i64),
    /// A float constant in every lane, as the bits of an `f64`.
    Float(u64),
    /// The `i`-th symbolic extent, a scalar `I64`.
    Size(u32),
    /// The index of this thread's warp, a scalar `I64`.
    Warp,
    /// The index of this thread among the lanes of its warp, a scalar `I64`.
    Lane,
    /// The value that another lane of the same warp has. All lanes of the warp do it together.
    Shuffle {
        /// What.
        value: Value,
        /// Which lane's, a scalar `I64` taken modulo the number of lanes.
        from: Value,
    },
    /// 0, 1, 2, ... in the lanes of an integer vector.
    Iota,
    /// A scalar in every lane.
    Splat(Value),
    /// One lane of a vector.
    Extract(Value, u32),
    /// Lanes of the operands, all of one scalar-or-vector element type, one after the other.
    Concat(Vec<Value>),
    /// `lanes` consecutive lanes of a vector from the given one.
    Slice(Value, u32),
    /// One operand.
    Unary(UnaryOp, Value),
    /// Two operands.
    Binary(BinaryOp, Value, Value),
    /// Comparison, giving `Bool` lanes.
    Compare(CompareOp, Value, Value),
    /// Lane-wise choice; the condition has the lanes of the sides or one.
    Select(Value, Value, Value),
    /// Value conversion of every lane.
    Cast(Value),
    /// Reinterpretation of every lane.
    Bitcast(Value),
    /// `a * b + c` rounded once.
    Fma(Value, Value, Value),
    /// Consecutive elements from `index + offset`.
    Load {
        /// Where.
        place: MemRef,
        /// Element index, a scalar `I64`.
        index: Value,
        /// Added to the index.
        offset: i64,
        /// Lanes to read, all if absent.
        mask: Option<Value>,
    },
    /// One element a lane.
    Gather {
        /// Where.
        place: MemRef,
        /// Element indices, a vector of `I64`.
        indices: Value,
        /// Added to every index.
        offset: i64,
        /// Lanes to read, all if absent.
        mask: Option<Value>,
    },
}

impl Type {
    /// A scalar type.
    pub const fn scalar(dtype: DType) -> Type {
        Type { dtype, lanes: 1 }
    }

    /// A vector type.
    pub const fn vector(dtype: DType, lanes: u32) -> Type {
        Type { dtype, lanes }
    }
}

impl std::fmt::Display for Type {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.lanes == 1 { write!(f, "{}", self.dtype) } else { write!(f, "{}x{}", self.dtype, self.lanes) }
    }
}

impl Inst {
    /// Calls `visit` on the operands: those that a loop or a branch takes from outside, not those inside of it.
    pub fn for_each_operand_mut(&mut self, mut visit: impl FnMut(&mut Value)) {
        match self {
            Inst::Let { result: _, op } => op.for_each_operand_mut(visit),
            Inst::Store { place: _, index, offset: _, value, mask } => {
                visit(index);
                visit(value);
                mask.iter_mut().for_each(visit);
            }
            Inst::Scatter { place: _, indices, offset: _, value, mask } => {
                visit(indices);
                visit(value);
                mask.iter_mut().for_each(visit);
            }
            Inst::Prefetch { place: _, index, offset: _ } => visit(index),
            Inst::Barrier | Inst::CommitCopies | Inst::WaitCopies { pending: _ } => {}
            Inst::CopyAsync {
                to: _,
                to_index,
                to_offset: _,
                from: _,
                index,
                offset: _,
                elements: _,
                mask,
            } => {
                visit(to_index);
                visit(index);
                mask.iter_mut().for_each(visit);
            }
            Inst::Loop { var: _, begin, end, carried, body: _ } => {
                visit(begin);
                visit(end);
                carried.iter_mut().for_each(|c| visit(&mut c.init));
            }
            Inst::If { condition, then_body: _, else_body: _, joins: _ } => visit(condition),
        }
    }
}

impl KernelOp {
    /// Calls `visit` on the operands, to rename them.
    pub fn for_each_operand_mut(&mut self, mut visit: impl FnMut(&mut Value)) {
        match self {
            KernelOp::Int(_)
            | KernelOp::Float(_)
            | KernelOp::Size(_)
            | KernelOp::Warp
            | KernelOp::Lane
            | KernelOp::Iota => {}
            KernelOp::Splat(a) | KernelOp::Extract(a, _) | KernelOp::Slice(a, _) => visit(a),
            KernelOp::Unary(_, a) | KernelOp::Cast(a) | KernelOp::Bitcast(a) => visit(a),
            KernelOp::Binary(_, a, b)
            | KernelOp::Compare(_, a, b)
            | KernelOp::Shuffle { value: a, from: b } => {
                visit(a);
                visit(b);
            }
            KernelOp::Select(a, b, c) | KernelOp::Fma(a, b, c) => {
                visit(a);
                visit(b);
                visit(c);
            }
            KernelOp::Concat(parts) => parts.iter_mut().for_each(visit),
            KernelOp::Load { place: _, index, offset: _, mask } => {
                visit(index);
                mask.iter_mut().for_each(visit);
            }
            KernelOp::Gather { place: _, indices, offset: _, mask } => {
                visit(indices);
                mask.iter_mut().for_each(visit);
            }
        }
    }

    /// Calls `visit` on the operands.
    pub fn for_each_operand(&self, mut visit: impl FnMut(Value)) {
        match self {
            KernelOp::Int(_)
            | KernelOp::Float(_)
            | KernelOp::Size(_)
            | KernelOp::Warp
            | KernelOp::Lane
            | KernelOp::Iota => {}
            KernelOp::Splat(a) | KernelOp::Extract(a, _) | KernelOp::Slice(a, _) => visit(*a),
            KernelOp::Unary(_, a) | KernelOp::Cast(a) | KernelOp::Bitcast(a) => visit(*a),
            KernelOp::Binary(_, a, b)
            | KernelOp::Compare(_, a, b)
            | KernelOp::Shuffle { value: a, from: b } => {
                visit(*a);
                visit(*b);
            }
            KernelOp::Select(a, b, c) | KernelOp::Fma(a, b, c) => {
                visit(*a);
                visit(*b);
                visit(*c);
            }
            KernelOp::Concat(parts) => parts.iter().copied().for_each(visit),
            KernelOp::Load { index, mask, .. } => {
                visit(*index);
                mask.iter().copied().for_each(visit);
            }
            KernelOp::Gather { indices, mask, .. } => {
                visit(*indices);
                mask.iter().copied().for_each(visit);
            }
        }
    }
}
