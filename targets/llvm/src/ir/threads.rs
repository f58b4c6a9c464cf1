//! What the threads of a block do on a GPU: who they are, and how they work together.

use std::collections::HashSet;
use std::fmt::Write;

use tilewright_dtype::DType;
use tilewright_machine::{CodegenError, Gpu};
use tilewright_te::kernel::{Inst, Kernel, KernelLocal, MemRef, Threads, Value};

use super::function::Function;
use super::{Isa, Metadata, PlaceInfo, invalid, unsupported};

/// An axis of a block: lanes are `x`, warps `y`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Axis {
    Lane,
    Warp,
}

/// Global memory.
const GLOBAL: u32 = 1;
/// Memory that the threads of a block share.
const SHARED: u32 = 3;

/// Most bytes of one asynchronous copy.
const MOST_COPIED: u64 = 16;
/// Fewest.
const LEAST_COPIED: u64 = 4;

/// Elements that a loop carries from which on a thread is given as many registers as leave room for [`RESIDENT_WARPS`]. ptxas, not told, spares
/// some, at the price of multiply-adds whose operands lie in one bank: on an H100 products ran at 0.86 of the speed.
const MANY: u32 = 64;
/// Warps of such threads that a multiprocessor is to have room for at the same time: with 168 registers each.
const RESIDENT_WARPS: u32 = 12;
/// Fewer, where these registers are not enough: with 255 each.
const FEWER_RESIDENT_WARPS: u32 = 8;
/// Registers of such a thread beside the elements it carries and the addresses it copies from: the factors of two steps and the counters of loops.
const OTHER_REGISTERS: u32 = 72;

/// What a thread keeps in registers all through a loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Kept {
    /// Elements that the loop carries.
    carried: u32,
    /// Addresses that it copies from, but for those at a constant distance from others.
    addresses: u32,
}

impl Kept {
    /// Warps that a multiprocessor is to have room for: so many that the threads' registers hold what they keep. An address takes two registers,
    /// and what decides whether anything is copied from there another one, or two where extents are open.
    fn resident_warps(self, has_open_extents: bool) -> u32 {
        let of_address = if has_open_extents { 4 } else { 3 };
        let needed = self.carried + of_address * self.addresses + OTHER_REGISTERS;
        let given = Gpu::REGISTERS_PER_MULTIPROCESSOR / (RESIDENT_WARPS * Gpu::LANES) / 8 * 8;
        if needed < given { RESIDENT_WARPS } else { FEWER_RESIDENT_WARPS }
    }
}

/// What a thread keeps in the loop that carries the most elements.
fn kept(kernel: &Kernel, insts: &[Inst]) -> Kept {
    let of = |inst: &Inst| match inst {
        Inst::Loop { carried, body, .. } => {
            let carried = carried.iter().map(|carried| kernel.values[carried.param].lanes).sum();
            let mut addresses = HashSet::new();
            copied_from(body, &mut addresses);
            kept(kernel, body).max(Kept { carried, addresses: addresses.len() as u32 })
        }
        Inst::If { then_body, else_body, .. } => kept(kernel, then_body).max(kept(kernel, else_body)),
        _ => Kept::default(),
    };
    insts.iter().map(of).max().unwrap_or_default()
}

/// Adds the indices that copies read at, but for constant offsets.
fn copied_from(insts: &[Inst], indices: &mut HashSet<(MemRef, Value)>) {
    for inst in insts {
        match inst {
            Inst::CopyAsync { from, index, .. } => {
                indices.insert((*from, *index));
            }
            Inst::Loop { body, .. } => copied_from(body, indices),
            Inst::If { then_body, else_body, .. } => {
                copied_from(then_body, indices);
                copied_from(else_body, indices);
            }
            _ => {}
        }
    }
}

impl Function<'_> {
    /// The function that one thread runs: parameters are the buffers, the extents and the first task.
    pub(super) fn block_of_threads(
        &mut self,
        gpu: &Gpu,
        metadata: &mut Metadata,
    ) -> Result<(), CodegenError> {
        let kernel = self.kernel;
        self.check_limits(gpu)?;
        self.shared_arrays()?;
        let mut params = Vec::new();
        for (i, buffer) in kernel.buffers.iter().enumerate() {
            self.check_buffer(buffer)?;
            params.push(format!("ptr addrspace({GLOBAL}) align {} %b{i}", buffer.align));
        }
        for i in 0..kernel.sizes.len() {
            params.push(format!("i64 %s{i}"));
            self.sizes.push(format!("%s{i}"));
        }
        params.push("i64 %task_begin".to_owned());
        let Threads { warps, lanes } = kernel.threads;
        let kept = kept(kernel, &kernel.body);
        let together = kept.resident_warps(!kernel.sizes.is_empty()) / warps;
        let together = match kept.carried >= MANY && together > 1 {
            true => format!(" \"nvvm.minctasm\"=\"{together}\""),
            false => String::new(),
        };
        let _ = write!(
            self.out,
            "define ptx_kernel void @{}({}) #0 \"nvvm.reqntid\"=\"{lanes},{warps},1\"{together} {{\nentry:\n",
            self.isa.symbol(&kernel.name),
            params.join(", ")
        );
        let scopes = metadata.buffer_scopes(kernel);
        for (i, (buffer, scopes)) in kernel.buffers.iter().zip(scopes).enumerate() {
            self.buffers.push(PlaceInfo {
                pointer: format!("%b{i}"),
                space: GLOBAL,
                dtype: buffer.dtype,
                align: u64::from(buffer.align),
                scopes,
                invariant: PlaceInfo::is_invariant(buffer.access),
            });
        }
        self.local_arrays()?;
        self.check_task()?;
        let block = self.def("call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()".to_owned());
        let block = self.def(format!("zext i32 {block} to i64"));
        let task = self.def(format!("add nsw i64 %task_begin, {block}"));
        self.define(kernel.task, task);
        self.body(&kernel.body)?;
        self.out.push_str("  ret void\n");
        Ok(())
    }

    /// Refuses what a GPU could not launch.
    fn check_limits(&self, gpu: &Gpu) -> Result<(), CodegenError> {
        let Threads { warps, lanes } = self.kernel.threads;
        if lanes != 1 && lanes != Gpu::LANES {
            let what = format!("warps of {lanes} lanes; {gpu} has {}", Gpu::LANES);
            return Err(unsupported(self.kernel, what));
        }
        let threads = u64::from(warps) * u64::from(lanes);
        if threads > u64::from(Gpu::THREADS_PER_BLOCK) {
            let what = format!("{threads} threads of a task; {gpu} takes {}", Gpu::THREADS_PER_BLOCK);
            return Err(unsupported(self.kernel, what));
        }
        let bytes = shared_bytes(&self.kernel.shared);
        if bytes > u64::from(gpu.shared_per_block()) {
            let what = format!("{bytes} bytes of shared arrays; {gpu} has {}", gpu.shared_per_block());
            return Err(unsupported(self.kernel, what));
        }
        Ok(())
    }

    /// Arrays of the module, each the kernel's own; one array that the launch gives its size to where they are larger than a kernel may
    /// have without asking.
    fn shared_arrays(&mut self) -> Result<(), CodegenError> {
        let kernel = self.kernel;
        let is_dynamic = shared_bytes(&kernel.shared) > u64::from(Gpu::STATIC_SHARED);
        let name = self.isa.symbol(&kernel.name);
        let dynamic = format!("@{name}$shared");
        if is_dynamic {
            let _ = writeln!(
                self.out,
                "{dynamic} = external addrspace({SHARED}) global [0 x i8], align {SHARED_ALIGN}"
            );
        }
        let mut offset = 0;
        for (i, array) in kernel.shared.iter().enumerate() {
            let pointer = if is_dynamic {
                format!("getelementptr (i8, ptr addrspace({SHARED}) {dynamic}, i64 {offset})")
            } else {
                let (own, element) = (format!("@{name}$shared{i}"), self.memory_type(array.dtype)?);
                let _ = writeln!(
                    self.out,
                    "{own} = internal addrspace({SHARED}) global [{} x {element}] poison, align {SHARED_ALIGN}",
                    array.len
                );
                own
            };
            offset += padded_bytes(array);
            self.shared.push(PlaceInfo {
                pointer,
                space: SHARED,
                dtype: array.dtype,
                align: SHARED_ALIGN,
                scopes: String::new(),
                invariant: false,
            });
        }
        Ok(())
    }

    /// The place of the thread on an axis of its block.
    pub(super) fn thread_index(&mut self, axis: Axis) -> Result<String, CodegenError> {
        let Threads { warps, lanes } = self.kernel.threads;
        if matches!(self.isa, Isa::Processor(_)) {
            return Err(unsupported(self.kernel, "cooperation of threads"));
        }
        let (extent, axis) = match axis {
            Axis::Lane => (lanes, "x"),
            Axis::Warp => (warps, "y"),
        };
        let index =
            self.def(format!("call range(i32 0, {extent}) i32 @llvm.nvvm.read.ptx.sreg.tid.{axis}()"));
        Ok(self.def(format!("zext i32 {index} to i64")))
    }

    /// The value of another lane, in pieces of 32 bits.
    pub(super) fn shuffle(&mut self, value: Value, from: Value) -> Result<String, CodegenError> {
        if matches!(self.isa, Isa::Processor(_)) {
            return Err(unsupported(self.kernel, "cooperation of threads"));
        }
        let (ty, operand, from) = (self.ty(value)?, self.operand(value)?, self.operand(from)?);
        if self.kernel.threads.lanes == 1 {
            return Ok(operand);
        }
        let from = self.def(format!("trunc i64 {from} to i32"));
        if ty.lanes == 1 {
            return self.shuffle_lane(ty.dtype, &operand, &from);
        }
        let (text, lane) = (self.text_type(value)?, self.lane(ty.dtype)?);
        let mut result = "poison".to_owned();
        for i in 0..ty.lanes {
            let one = self.def(format!("extractelement {text} {operand}, i64 {i}"));
            let moved = self.shuffle_lane(ty.dtype, &one, &from)?;
            result = self.def(format!("insertelement {text} {result}, {lane} {moved}, i64 {i}"));
        }
        Ok(result)
    }

    fn shuffle_lane(&mut self, dtype: DType, operand: &str, from: &str) -> Result<String, CodegenError> {
        let lane = self.lane(dtype)?;
        let bits = if dtype == DType::Bool { 1 } else { 8 * dtype.bytes() };
        let integer = format!("i{bits}");
        let mut value = operand.to_owned();
        if dtype.is_float() {
            value = self.def(format!("bitcast {lane} {value} to {integer}"));
        }
        // All lanes take part, and the number of a lane counts modulo 32.
        let shuffled = |function: &mut Self, piece: &str| {
            function.def(format!(
                "call i32 @llvm.nvvm.shfl.sync.idx.i32(i32 -1, i32 {piece}, i32 {from}, i32 31)"
            ))
        };
        let mut moved = if bits == 64 {
            let low = self.def(format!("trunc i64 {value} to i32"));
            let high = self.def(format!("lshr i64 {value}, 32"));
            let high = self.def(format!("trunc i64 {high} to i32"));
            let [low, high] = [low, high].map(|piece| shuffled(self, &piece));
            let low = self.def(format!("zext i32 {low} to i64"));
            let high = self.def(format!("zext i32 {high} to i64"));
            let high = self.def(format!("shl i64 {high}, 32"));
            self.def(format!("or i64 {low}, {high}"))
        } else if bits < 32 {
            let wide = self.def(format!("zext {integer} {value} to i32"));
            let moved = shuffled(self, &wide);
            self.def(format!("trunc i32 {moved} to {integer}"))
        } else {
            shuffled(self, &value)
        };
        if dtype.is_float() {
            moved = self.def(format!("bitcast {integer} {moved} to {lane}"));
        }
        Ok(moved)
    }

    /// Barriers and asynchronous copies.
    pub(super) fn cooperate(&mut self, inst: &Inst) -> Result<(), CodegenError> {
        if matches!(self.isa, Isa::Processor(_)) {
            return Err(unsupported(self.kernel, "cooperation of threads"));
        }
        match inst {
            Inst::Barrier => self.effect("call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)".into()),
            Inst::CommitCopies => self.effect("call void @llvm.nvvm.cp.async.commit.group()".into()),
            Inst::WaitCopies { pending } => {
                self.effect(format!("call void @llvm.nvvm.cp.async.wait.group(i32 {pending})"));
            }
            Inst::CopyAsync { .. } => return self.copy_async(inst),
            Inst::Let { .. }
            | Inst::Store { .. }
            | Inst::Scatter { .. }
            | Inst::Prefetch { .. }
            | Inst::Loop { .. }
            | Inst::If { .. } => return Err(invalid(self.kernel, "no cooperation of threads")),
        }
        Ok(())
    }

    /// A copy in pieces as large as both addresses are aligned.
    fn copy_async(&mut self, inst: &Inst) -> Result<(), CodegenError> {
        let Inst::CopyAsync { to, to_index, to_offset, from, index, offset, elements, mask } = inst else {
            return Err(invalid(self.kernel, "no copy"));
        };
        let target = self.place(*to)?;
        let source = self.typed_place(*from, target.dtype)?;
        if !matches!(to, MemRef::Shared(_)) || !matches!(from, MemRef::Param(_)) {
            return Err(invalid(self.kernel, "a copy that is not from a parameter to a shared array"));
        }
        let size = target.dtype.bytes() as u64;
        let aligned = [(*to_index, *to_offset, &target), (*index, *offset, &source)]
            .map(|(index, offset, place)| self.known_alignment(index, offset, place));
        let (aligned, total) = (aligned[0].min(aligned[1]), u64::from(*elements) * size);
        let piece = MOST_COPIED.min(aligned).min(1 << total.trailing_zeros());
        if piece < LEAST_COPIED {
            let what = format!("an asynchronous copy of {total} bytes that are aligned to {aligned}");
            return Err(unsupported(self.kernel, what));
        }
        let to = self.address(&target, *to_index, *to_offset)?;
        let from = self.address(&source, *index, *offset)?;
        let mask = mask.map(|mask| self.operand(mask)).transpose()?;
        let read = mask.map(|mask| self.def(format!("select i1 {mask}, i32 {piece}, i32 0")));
        // What is 16 bytes long goes past L1.
        let cache = if piece == MOST_COPIED { "cg" } else { "ca" };
        let pointer = |space: u32, base: &str| format!("ptr addrspace({space}) {base}");
        for at in (0..total).step_by(piece as usize) {
            let [to, from] = [(&to, SHARED), (&from, GLOBAL)].map(|(base, space)| match at {
                0 => pointer(space, base),
                _ => {
                    let base = pointer(space, base);
                    pointer(space, &self.def(format!("getelementptr i8, {base}, i64 {at}")))
                }
            });
            let (suffix, read) = match &read {
                Some(read) => (".s", format!(", i32 {read}")),
                None => ("", String::new()),
            };
            self.effect(format!(
                "call void @llvm.nvvm.cp.async.{cache}.shared.global.{piece}{suffix}({to}, {from}{read})"
            ));
        }
        Ok(())
    }

    /// Bytes that the address of `index + offset` is known to be a multiple of.
    pub(super) fn known_alignment(&self, index: Value, offset: i64, place: &PlaceInfo) -> u64 {
        let of_index = 1u64 << self.multiples[index];
        let elements = of_index | offset.unsigned_abs();
        let elements = 1u64 << elements.trailing_zeros().min(62);
        elements.saturating_mul(place.dtype.bytes() as u64).min(place.align)
    }
}

/// Alignment of shared arrays in bytes.
const SHARED_ALIGN: u64 = 128;

fn padded_bytes(array: &KernelLocal) -> u64 {
    (array.len * array.dtype.bytes() as u64).next_multiple_of(SHARED_ALIGN)
}

/// Bytes of shared memory that a kernel with such shared arrays takes.
pub(crate) fn shared_bytes(arrays: &[KernelLocal]) -> u64 {
    arrays.iter().map(padded_bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::{FEWER_RESIDENT_WARPS, Kept, RESIDENT_WARPS};

    #[test]
    fn threads_that_keep_many_addresses_have_more_registers() {
        let warps = |addresses, open| Kept { carried: 64, addresses }.resident_warps(open);
        // A product of tiles, a convolution of 7 x 7, and one of 3 x 3 x 3 places.
        assert_eq!([2, 9].map(|addresses| warps(addresses, false)), [RESIDENT_WARPS; 2]);
        assert_eq!(warps(12, false), FEWER_RESIDENT_WARPS);
        // Open rows; open positions, of which each copy asks whether they are there.
        assert_eq!([5, 8].map(|addresses| warps(addresses, true)), [RESIDENT_WARPS, FEWER_RESIDENT_WARPS]);
    }
}
