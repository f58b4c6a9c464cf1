//! The bytecode: instructions over lane registers, in a tree of loops.

use tilewright_dtype::DType;

use crate::expr::{BinaryOp, CompareOp, UnaryOp};

use super::watch::WatchedLoop;

/// Precision of floats during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The semantics: every operation rounds to its type.
    Exact,
    /// Every float is an `f64`, outputs included.
    Double,
}

/// Lanes of a register: iterations of a lane loop that run together.
pub(super) const LANES: usize = 128;

/// Register file that holds a type: one a storage class, so that a register is a flat array of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Class {
    /// `i64`: integers and truth values.
    Int,
    /// `f32`: floats up to 32 bits in exact mode.
    Single,
    /// `f64`: `F64`, and every float in double mode.
    Double,
}

/// A register of the class that its instruction implies.
pub(super) type Reg = u32;

/// `dst = op`, for one lane or for all active ones.
#[derive(Clone, Debug)]
pub(super) struct Inst {
    pub(super) dst: Reg,
    pub(super) lanes: bool,
    pub(super) op: InterpOp,
}

#[derive(Clone, Debug)]
pub(super) enum InterpOp {
    IntConst(i64),
    FloatConst(Class, f64),
    /// A one-lane register in every lane.
    Splat(Class, Reg),
    IntUnary(UnaryOp, DType, Reg),
    IntBinary(BinaryOp, bool, Reg, Reg),
    IntCompare(CompareOp, bool, Reg, Reg),
    /// Wraps to the width of an integer type.
    Wrap(DType, Reg),
    FloatUnary(Class, UnaryOp, Reg),
    FloatBinary(Class, BinaryOp, Reg, Reg),
    FloatCompare(Class, CompareOp, Reg, Reg),
    Fma(Class, Reg, Reg, Reg),
    IsNan(Class, Reg),
    /// Rounds to the nearest value of a narrower float type.
    Round(Class, DType, Reg),
    Select(Class, Reg, Reg, Reg),
    /// Integer to float; the flag is set for `U64`.
    IntToFloat(Class, bool, Reg),
    /// Float of a class to an integer type.
    FloatToInt(Class, DType, Reg),
    SingleToDouble(Reg),
    /// Rounds a double to a type of class `Single`.
    DoubleToSingle(DType, Reg),
    /// The bits of a float of the type, zero-extended.
    ToBits(Class, DType, Reg),
    /// The float of the type with these bits.
    FromBits(Class, DType, Reg),
    Load(Class, Box<Access>),
    /// Stores `value`, a register of the class, with all active lanes.
    Store(Class, Box<Access>, Reg),
    /// Accumulates all active lanes into one element.
    Fold(Box<Fold>),
}

/// `element = element step value`, lane after lane.
#[derive(Clone, Debug)]
pub(super) struct Fold {
    pub(super) class: Class,
    pub(super) access: Access,
    pub(super) step: Step,
    /// The operands of a lane; a binary step has one, twice.
    pub(super) values: [Reg; 2],
}

/// How a fold combines the element so far with a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The operation, and whether the element is its first operand.
    Binary(BinaryOp, bool),
    /// `value * value + element`, rounded once.
    Fma,
}

/// An element (or a lane vector of elements) of a buffer.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub(super) buffer: usize,
    pub(super) indices: Vec<Index>,
    /// Lanes that take part, all if absent; the flag says whether the register has a value a lane.
    pub(super) mask: Option<(Reg, bool)>,
}

/// Index along one dimension.
#[derive(Clone, Copy, Debug)]
pub(super) enum Index {
    /// `rest + step * lane variable`, with a one-lane register.
    Affine { rest: Reg, step: i64 },
    /// A value a lane.
    Lanes(Reg),
}

/// Control structure.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// Iterations one after the other.
    Loop {
        var: Reg,
        extent: Reg,
        fresh: Vec<usize>,
        /// Where iterations may run at the same time, for a run that is watched.
        watched: Option<WatchedLoop>,
        prologue: Vec<Inst>,
        body: Vec<Node>,
    },
    /// Iterations in chunks of up to [`LANES`]; `var` has a value a lane.
    Lanes { var: Reg, extent: Reg, prologue: Vec<Inst>, body: Vec<Node> },
    /// One block.
    Block(Box<BlockCode>),
}

/// A block: `prologue`, then unless `guard` is 0 the `init` where due, then `body`.
#[derive(Clone, Debug)]
pub(super) struct BlockCode {
    /// Index into the program's block names.
    pub(super) name: usize,
    pub(super) prologue: Vec<Inst>,
    pub(super) guard: Option<Reg>,
    pub(super) init: Option<(Reg, Vec<Inst>)>,
    pub(super) body: Vec<Inst>,
}

/// A top-level statement: instructions for constants and sizes, then its loops.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    pub(super) prologue: Vec<Inst>,
    pub(super) body: Vec<Node>,
    /// For each class, whether each register has a value a lane.
    pub(super) registers: [Vec<bool>; 3],
    /// Registers that hold the sizes.
    pub(super) sizes: Vec<Reg>,
}
