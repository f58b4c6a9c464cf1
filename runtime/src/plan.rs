//! The execution plan: a flat list of instructions over planned buffers and named sizes.
//!
//! A plan is what the compiler hands to the runtime beside code and weights. It is plain data (serde) and
//! says everything the executor needs: how sizes follow from the dims of the inputs, where each buffer
//! lives, and which kernels run in which order. [`Plan::validate`] proves that no index in it is out of range;
//! the executor relies on that and checks only what depends on the sizes of a run.
//!
//! # Sizes
//! A size slot holds an `i64`. Slots other than [`SizeDef::Computed`] are evaluated from lower slots; those
//! that do not depend on a computed slot are *early*: evaluated once per set of input dims, before the first
//! instruction. The others are *late*: writing a computed slot re-evaluates, in order, every slot that
//! depends on it. A slot whose arithmetic fails (overflow, division by zero, an operand not yet written) is
//! *undefined*, which is an error only where the slot is used, so that a branch not taken costs nothing.
//!
//! # Memory
//! Buffers of the arena lie in one allocation: first the static region with offsets chosen by the compiler, then
//! the blocks, whose sizes are known once the input dims are. Every base is a multiple of [`ALIGN`].
//! Contents of arena, dynamic and output buffers are unspecified until written.
//!
//! # Devices
//! A buffer lies in one [`Space`]: on the host or on a device beside it. There is an arena for each. A kernel runs in a space, and all
//! its buffers are of that; what is not a kernel takes buffers of the host, but for memory management and [`PlanOp::Copy`], the only way from
//! one space to the other.
//!
//! # Host values
//! What no buffer can hold (sequences, optionals, strings, tensors whose rank is data) is a *host value*, which only host
//! operators look into. Values are shared and never changed; a run begins with none but those of the inputs.

mod ids;
#[cfg(feature = "text")]
mod parse;
mod print;
#[cfg(not(feature = "names"))]
mod unnamed;
mod validate;
mod value;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use tilewright_dtype::DType;

pub use ids::{ALIGN, BufferId, HostId, KernelId, SizeId, TextId};
#[cfg(feature = "text")]
pub use parse::ParseError;
pub use validate::{Fault, PlanError, Site};
pub use value::{MAX_NESTING, Nesting, Operand, ValueSpec, ValueType};

/// How a size slot gets its value. Operands are slots with a lower index; arithmetic is checked `i64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SizeDef {
    /// A number known at compile time.
    Const(i64),
    /// The extent of one axis of an input, as given at run time.
    InputDim {
        /// Index into [`Plan::inputs`].
        input: u32,
        /// Axis of that input.
        axis: u32,
    },
    /// Sum.
    Add(SizeId, SizeId),
    /// Difference.
    Sub(SizeId, SizeId),
    /// Product.
    Mul(SizeId, SizeId),
    /// Quotient rounded towards minus infinity; undefined for a divisor of 0.
    FloorDiv(SizeId, SizeId),
    /// Quotient rounded towards plus infinity; undefined for a divisor of 0.
    CeilDiv(SizeId, SizeId),
    /// Remainder of [`SizeDef::FloorDiv`], with the sign of the divisor.
    Mod(SizeId, SizeId),
    /// The smaller.
    Min(SizeId, SizeId),
    /// The larger.
    Max(SizeId, SizeId),
    /// Written by instructions: [`PlanOp::ReadSize`], [`PlanOp::ReadDim`], [`PlanOp::SetSize`] or a host operator. Undefined before.
    Computed,
}

impl SizeDef {
    /// The slots it is computed from.
    pub fn operands(self) -> Option<(SizeId, SizeId)> {
        match self {
            SizeDef::Const(_) | SizeDef::InputDim { .. } | SizeDef::Computed => None,
            SizeDef::Add(a, b)
            | SizeDef::Sub(a, b)
            | SizeDef::Mul(a, b)
            | SizeDef::FloorDiv(a, b)
            | SizeDef::CeilDiv(a, b)
            | SizeDef::Mod(a, b)
            | SizeDef::Min(a, b)
            | SizeDef::Max(a, b) => Some((a, b)),
        }
    }
}

/// Whose memory a buffer is in, and who runs a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Space {
    /// The processor.
    #[default]
    Host,
    /// The device beside it.
    Device,
}

impl Space {
    /// The other one.
    pub const fn other(self) -> Space {
        match self {
            Space::Host => Space::Device,
            Space::Device => Space::Host,
        }
    }
}

/// Planned memory of a space.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ArenaDef {
    /// Bytes of the static region.
    pub bytes: u64,
    /// Sizes in bytes of the blocks after it; early slots.
    pub blocks: Vec<SizeId>,
}

/// Where the bytes of a buffer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Place {
    /// Memory of the caller on the host, read only. Index into [`Plan::inputs`].
    Input(u32),
    /// Memory of an output, on the host. Index into [`Plan::outputs`]. If its size is late, it needs an [`PlanOp::Alloc`],
    /// an [`PlanOp::Grow`] or a host operator that allocates it before it is used.
    Output(u32),
    /// A range of the weights section, read only. A device has a copy of them.
    Weight {
        /// First byte, a multiple of [`ALIGN`].
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// The static region of the arena. The size must be early.
    Arena {
        /// First byte, a multiple of [`ALIGN`].
        offset: u64,
    },
    /// A block of the arena, sized once the input dims are known: index into [`ArenaDef::blocks`]. The size must be early.
    Block(u32),
    /// Memory from [`PlanOp::Alloc`], [`PlanOp::Grow`] or a host operator, kept for reuse by the session.
    Dynamic,
    /// Part of another buffer in the same space: slices, concatenation in place, reshapes.
    Alias {
        /// The buffer it is part of; chains end at a buffer that is no alias.
        buffer: BufferId,
        /// First byte within that buffer.
        byte_offset: SizeId,
    },
}

/// One buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BufferDef {
    /// Element type.
    pub dtype: DType,
    /// Slot holding its size in bytes, padding included.
    pub size_bytes: SizeId,
    /// Logical dims, for host operators and observers; the product times the element size is at most `size_bytes`.
    pub shape: Vec<SizeId>,
    /// Whose memory.
    pub space: Space,
    /// Where it is.
    pub place: Place,
}

/// What a kernel does with a buffer parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Access {
    /// Only reads: the only access allowed to inputs and weights.
    Read,
    /// Writes, and may read.
    Write,
}

/// One buffer parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KernelParam {
    /// Alignment in bytes that the code assumes: a power of two up to [`ALIGN`].
    pub align: u32,
    /// What it does with the buffer.
    pub access: Access,
}

/// Signature of a kernel; the code is in the images, at the same index of their entry tables.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KernelDef {
    /// Symbol name, unique in the plan.
    #[cfg_attr(not(feature = "names"), serde(deserialize_with = "unnamed::text"))]
    pub name: String,
    /// Buffer parameters in order.
    pub params: Vec<KernelParam>,
    /// Number of symbolic extents it takes.
    pub n_sizes: u32,
    /// Who runs it.
    pub space: Space,
}

/// A comparison of two sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Cmp {
    /// `lhs == rhs`
    Eq,
    /// `lhs != rhs`
    Ne,
    /// `lhs < rhs`
    Lt,
    /// `lhs <= rhs`
    Le,
}

impl Cmp {
    /// Whether the comparison is true of two values.
    pub const fn holds(self, lhs: i64, rhs: i64) -> bool {
        match self {
            Cmp::Eq => lhs == rhs,
            Cmp::Ne => lhs != rhs,
            Cmp::Lt => lhs < rhs,
            Cmp::Le => lhs <= rhs,
        }
    }

    /// The sign in messages.
    pub const fn symbol(self) -> &'static str {
        match self {
            Cmp::Eq => "==",
            Cmp::Ne => "!=",
            Cmp::Lt => "<",
            Cmp::Le => "<=",
        }
    }
}

/// What an instruction does. Jump targets are instruction indices; the index one past the end ends the run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PlanOp {
    /// Runs the tasks of a kernel, which are numbered round by round; none when either number is 0.
    Call {
        /// The kernel.
        kernel: KernelId,
        /// Its buffers, in the order of [`KernelDef::params`].
        buffers: Vec<BufferId>,
        /// Its symbolic extents.
        sizes: Vec<SizeId>,
        /// Number of rounds, like the next a function of extents and target alone.
        rounds: SizeId,
        /// Tasks of a round. Threads share them, and each keeps its part in every round.
        per_round: SizeId,
        /// Whether a round begins only when the one before has ended; on a host alone.
        in_order: bool,
    },
    /// Runs a host operator of the registry given to the loader. It sets `sizes_out`, and allocates the
    /// outputs whose size is late; the other outputs are allocated already.
    Host {
        /// Code of the operator in the registry.
        op: u16,
        /// Attributes, in the operator's own encoding.
        attrs: Vec<u8>,
        /// Operands.
        inputs: Vec<Operand>,
        /// Results.
        outputs: Vec<Operand>,
        /// Computed slots that the operator writes.
        sizes_out: Vec<SizeId>,
    },
    /// Gives a dynamic buffer (or a late output) storage of the present value of its size slot; contents unspecified.
    Alloc {
        /// The buffer.
        buffer: BufferId,
    },
    /// Like [`PlanOp::Alloc`], but keeps the bytes it has; capacity grows geometrically, so that a loop may append.
    Grow {
        /// The buffer.
        buffer: BufferId,
    },
    /// Ends the use of a dynamic buffer; its memory may serve a later [`PlanOp::Alloc`].
    Free {
        /// The buffer.
        buffer: BufferId,
    },
    /// Reads an element of an integer or Boolean buffer into a computed slot.
    ReadSize {
        /// The buffer.
        buffer: BufferId,
        /// Index of the element.
        element: u32,
        /// The computed slot.
        slot: SizeId,
    },
    /// Multiplies a size by an element of an `f32` buffer in binary32, and writes the product, rounded towards
    /// minus infinity, into a computed slot.
    ScaleSize {
        /// The size.
        size: SizeId,
        /// The buffer of the factor.
        buffer: BufferId,
        /// Index of the factor.
        element: u32,
        /// The computed slot.
        slot: SizeId,
    },
    /// Writes the value of a slot to an element of an `i64` or `i32` buffer.
    WriteSize {
        /// The buffer.
        buffer: BufferId,
        /// Index of the element.
        element: u32,
        /// The slot read.
        value: SizeId,
    },
    /// Assigns to a computed slot, for counters of loops: the value is read before the slot is written.
    SetSize {
        /// The computed slot.
        slot: SizeId,
        /// The slot read.
        value: SizeId,
    },
    /// Reads an extent of a host value that is a tensor into a computed slot.
    ReadDim {
        /// The value.
        value: HostId,
        /// Axis of it.
        axis: u32,
        /// The computed slot.
        slot: SizeId,
    },
    /// Lets a host value be another one.
    CopyValue {
        /// Source.
        from: HostId,
        /// Destination.
        to: HostId,
    },
    /// Copies the bytes of a buffer, also from one space to the other; both have the same size.
    Copy {
        /// Source.
        from: BufferId,
        /// Destination.
        to: BufferId,
    },
    /// Ends the run with an error unless `lhs cmp rhs`. Guards at the head of the list are checked before
    /// memory is laid out, so that their message comes before any error that follows from the same cause.
    Guard {
        /// Left side.
        lhs: SizeId,
        /// Comparison.
        cmp: Cmp,
        /// Right side.
        rhs: SizeId,
        /// What the user is told.
        message: TextId,
    },
    /// Jumps when the slot is 0.
    BranchIfZero {
        /// The condition.
        slot: SizeId,
        /// Where to.
        target: u32,
    },
    /// Jumps.
    Jump {
        /// Where to.
        target: u32,
    },
}

/// One instruction with the names it speaks by.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Instr {
    /// What it does.
    pub op: PlanOp,
    /// The nodes of the user's model it comes from, for profiles and errors.
    pub provenance: TextId,
}

/// One axis of an input or output.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DimSpec {
    /// Symbolic name (`batch`), if the model gives one.
    #[cfg_attr(not(feature = "names"), serde(deserialize_with = "unnamed::optional"))]
    pub name: Option<String>,
    /// Its extent. An input's dims must equal these slots, which are early.
    pub size: SizeId,
}

/// An input or output of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TensorSpec {
    /// Name in the model.
    #[cfg_attr(not(feature = "names"), serde(deserialize_with = "unnamed::text"))]
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Axes, outermost first.
    pub dims: Vec<DimSpec>,
    /// The buffer that holds it: placed at [`Place::Input`] or [`Place::Output`] with this index.
    pub buffer: BufferId,
}

/// Values a size may have, from the model or from `--dim NAME=LO..HI`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SizeBounds {
    /// An early slot.
    pub size: SizeId,
    /// What the user calls it.
    #[cfg_attr(not(feature = "names"), serde(deserialize_with = "unnamed::text"))]
    pub name: String,
    /// Smallest value.
    pub min: i64,
    /// Largest value, inclusive.
    pub max: Option<i64>,
    /// The value minus `min` is a multiple of this; 1 or more.
    pub step: i64,
}

/// The execution plan of one model. See the [module](self) for the meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Plan {
    /// Size slots; operands before users.
    pub sizes: Vec<SizeDef>,
    /// Constraints on sizes, checked before the first instruction.
    pub bounds: Vec<SizeBounds>,
    /// Buffers.
    pub buffers: Vec<BufferDef>,
    /// The arena on the host.
    pub arena: ArenaDef,
    /// The arena on the device.
    pub device_arena: ArenaDef,
    /// Bytes of the weights section.
    pub weight_bytes: u64,
    /// Whether the time between kernels counts: threads had better stay awake during a run, and between runs that follow one another
    /// soon, and what is asked of a device had better be recorded as graphs.
    pub keep_awake: bool,
    /// Kernels called.
    pub kernels: Vec<KernelDef>,
    /// Inputs that are tensors, in the model's order.
    pub inputs: Vec<TensorSpec>,
    /// Outputs that are tensors, in the model's order.
    pub outputs: Vec<TensorSpec>,
    /// Types of the host values.
    pub values: Vec<ValueType>,
    /// Inputs that are host values, in the model's order.
    pub value_inputs: Vec<ValueSpec>,
    /// Outputs that are host values, in the model's order.
    pub value_outputs: Vec<ValueSpec>,
    /// Instructions.
    pub instrs: Vec<Instr>,
    /// Strings referred to by [`TextId`].
    pub texts: Vec<String>,
}

/// By hand: what is derived frees each field that was read by code of its own where a later one is damaged, and is twice as large.
impl<'de> Deserialize<'de> for Plan {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Plan, D::Error> {
        from.deserialize_tuple(N_FIELDS, Reader)
    }
}

/// Fields of a [`Plan`].
const N_FIELDS: usize = 15;

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Plan;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plan")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut fields: A) -> Result<Plan, A::Error> {
        let mut plan = Plan::default();
        // All of them, in order.
        let Plan {
            sizes,
            bounds,
            buffers,
            arena,
            device_arena,
            weight_bytes,
            keep_awake,
            kernels,
            inputs,
            outputs,
            values,
            value_inputs,
            value_outputs,
            instrs,
            #[cfg(feature = "names")]
            texts,
            #[cfg(not(feature = "names"))]
                texts: _,
        } = &mut plan;
        next(&mut fields, sizes)?;
        next(&mut fields, bounds)?;
        next(&mut fields, buffers)?;
        next(&mut fields, arena)?;
        next(&mut fields, device_arena)?;
        next(&mut fields, weight_bytes)?;
        next(&mut fields, keep_awake)?;
        next(&mut fields, kernels)?;
        next(&mut fields, inputs)?;
        next(&mut fields, outputs)?;
        next(&mut fields, values)?;
        next(&mut fields, value_inputs)?;
        next(&mut fields, value_outputs)?;
        next(&mut fields, instrs)?;
        #[cfg(feature = "names")]
        next(&mut fields, texts)?;
        #[cfg(not(feature = "names"))]
        next(&mut fields, &mut unnamed::List)?;
        Ok(plan)
    }
}

/// Reads the next field.
fn next<'de, A: SeqAccess<'de>, T: Deserialize<'de>>(fields: &mut A, field: &mut T) -> Result<(), A::Error> {
    *field = fields.next_element()?.ok_or_else(|| A::Error::invalid_length(0, &Reader))?;
    Ok(())
}

impl Plan {
    /// Whether runs have memory besides arena and outputs, or outputs, whose bytes are known only while the model runs.
    pub fn sizes_memory(&self) -> bool {
        self.instrs.iter().any(|instr| matches!(instr.op, PlanOp::Alloc { .. } | PlanOp::Grow { .. }))
    }

    /// For each size slot, whether it depends on a computed slot.
    /// The plan's operands must be in range, as [`Plan::validate`] proves.
    pub fn late_sizes(&self) -> Vec<bool> {
        let mut late: Vec<bool> = Vec::with_capacity(self.sizes.len());
        for def in &self.sizes {
            let is = match def.operands() {
                None => matches!(def, SizeDef::Computed),
                Some((a, b)) => late[a.index()] || late[b.index()],
            };
            late.push(is);
        }
        late
    }

    /// The arena of a space.
    pub fn arena_in(&self, space: Space) -> &ArenaDef {
        match space {
            Space::Host => &self.arena,
            Space::Device => &self.device_arena,
        }
    }

    /// Whether anything of it is on a device.
    pub fn needs_device(&self) -> bool {
        self.buffers
            .iter()
            .map(|def| def.space)
            .chain(self.kernels.iter().map(|def| def.space))
            .any(|s| s == Space::Device)
    }

    /// A string of the table; empty for an id out of range.
    pub fn text(&self, id: TextId) -> &str {
        self.texts.get(id.index()).map_or("", String::as_str)
    }
}
