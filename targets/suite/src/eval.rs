//! What a kernel means: an evaluator that does one lane of one operation at a time.
//!
//! Values are bit patterns, zero-extended to 64 bits. Out-of-bounds accesses and undefined values are errors
//! of the kernel, reported as text. All threads of a task run in step, instruction by instruction; accesses that must not
//! be so between two barriers (`races`) are errors too, whatever they give in this order. So are waits that are missing:
//! an asynchronous copy writes when its thread waits for it, and until then nobody may touch where it goes.

mod arithmetic;
mod races;

use std::ops::Range;

use cranelift_entity::SecondaryMap;
use tilewright_dtype::DType;
use tilewright_te::kernel::{
    Carried, Inst, Join, Kernel, KernelLocal, KernelOp, MemRef, Threads, Type, Value,
};

use self::arithmetic::{binary, cast, compare, fma, unary};
pub use self::arithmetic::{from_float, from_int, is_nan, show};
use self::races::{Access, Races};

/// Runs tasks of a kernel on buffers.
///
/// # Errors
/// The first access out of bounds, use of an undefined value, or operation that its type has not; of several threads the
/// first race, missing wait, or barrier and shuffle that not all of them reach.
pub fn run(kernel: &Kernel, buffers: &mut [Vec<u8>], sizes: &[i64], tasks: Range<i64>) -> Result<(), String> {
    let Threads { warps, lanes } = kernel.threads;
    let names: Vec<(u32, u32)> =
        (0..warps).flat_map(|warp| (0..lanes).map(move |lane| (warp, lane))).collect();
    for task in tasks {
        let threads = names.iter().map(|&(warp, lane)| {
            let locals = kernel.locals.iter().map(|local| array(local, 0)).collect();
            let mut values: SecondaryMap<Value, Vec<u64>> = SecondaryMap::new();
            values[kernel.task] = vec![task as u64];
            Thread { warp, lane, locals, values, copies: Vec::new(), groups: Vec::new() }
        });
        // What is in shared arrays at first is nothing to rely on.
        let shared = kernel.shared.iter().map(|shared| array(shared, 0xa5)).collect();
        let races = (kernel.threads != Threads::ONE || !kernel.shared.is_empty()).then(Races::default);
        let mut state =
            State { kernel, buffers, shared, sizes, threads: threads.collect(), races, at: String::new() };
        let all: Vec<usize> = (0..names.len()).collect();
        state.body(&kernel.body, &all)?;
    }
    Ok(())
}

fn array(of: &KernelLocal, byte: u8) -> Vec<u8> {
    vec![byte; of.len as usize * of.dtype.bytes()]
}

/// One thread of the task.
struct Thread {
    warp: u32,
    lane: u32,
    locals: Vec<Vec<u8>>,
    values: SecondaryMap<Value, Vec<u64>>,
    /// Copies that are in no group yet.
    copies: Vec<Copy>,
    /// Groups of copies under way, the oldest first.
    groups: Vec<Vec<Copy>>,
}

/// What an asynchronous copy will write.
struct Copy {
    to: MemRef,
    first: i64,
    elements: Vec<u64>,
    at: String,
}

struct State<'a> {
    kernel: &'a Kernel,
    buffers: &'a mut [Vec<u8>],
    shared: Vec<Vec<u8>>,
    sizes: &'a [i64],
    threads: Vec<Thread>,
    /// What threads did to what they share since the last barrier, where there are several.
    races: Option<Races>,
    /// What is being done, for messages.
    at: String,
}

impl State<'_> {
    /// Instructions that some of the threads run, in step.
    fn body(&mut self, insts: &[Inst], active: &[usize]) -> Result<(), String> {
        insts.iter().try_for_each(|inst| self.inst(inst, active))
    }

    fn inst(&mut self, inst: &Inst, active: &[usize]) -> Result<(), String> {
        if self.races.is_some() {
            self.at = describe(inst);
        }
        match inst {
            Inst::Let { result, op: KernelOp::Shuffle { value, from } } => {
                self.shuffle(*result, *value, *from, active)?
            }
            Inst::Let { result, op } => {
                let ty = self.kernel.values[*result];
                for &thread in active {
                    let lanes = self.op(thread, ty, op)?;
                    if lanes.len() != ty.lanes as usize {
                        return Err(format!("{result} has {} lanes, its type is {ty}", lanes.len()));
                    }
                    self.threads[thread].values[*result] = lanes;
                }
            }
            Inst::Store { place, index, offset, value, mask } => {
                for &thread in active {
                    let first = self.scalar(thread, *index)? as i64 + offset;
                    let value = self.get(thread, *value)?;
                    let indices = (0..value.len() as i64).map(|i| first + i).collect();
                    self.write(thread, *place, indices, &value, *mask)?;
                }
            }
            Inst::Scatter { place, indices, offset, value, mask } => {
                for &thread in active {
                    let indices = self.get(thread, *indices)?.iter().map(|i| *i as i64 + offset).collect();
                    let value = self.get(thread, *value)?;
                    self.write(thread, *place, indices, &value, *mask)?;
                }
            }
            Inst::Prefetch { index, .. } => {
                active.iter().try_for_each(|&thread| self.scalar(thread, *index).map(drop))?;
            }
            Inst::Barrier => {
                if active.len() < self.threads.len() {
                    return Err(format!(
                        "{} of {} threads reach a barrier",
                        active.len(),
                        self.threads.len()
                    ));
                }
                self.races.iter_mut().for_each(Races::barrier);
            }
            Inst::CopyAsync { .. } => active.iter().try_for_each(|&thread| self.begin_copy(thread, inst))?,
            Inst::CommitCopies => {
                for &thread in active {
                    let group = std::mem::take(&mut self.threads[thread].copies);
                    self.threads[thread].groups.push(group);
                }
            }
            Inst::WaitCopies { pending } => {
                active.iter().try_for_each(|&thread| self.wait_for_copies(thread, *pending as usize))?;
            }
            Inst::Loop { var, begin, end, carried, body } => {
                self.counted_loop(*var, [*begin, *end], carried, body, active)?;
            }
            Inst::If { condition, then_body, else_body, joins } => {
                self.branch(*condition, [then_body, else_body], joins, active)?;
            }
        }
        Ok(())
    }

    /// In each iteration those threads take part that have so many.
    fn counted_loop(
        &mut self,
        var: Value,
        [begin, end]: [Value; 2],
        carried: &[Carried],
        body: &[Inst],
        active: &[usize],
    ) -> Result<(), String> {
        let mut left: Vec<(usize, Range<i64>)> = Vec::new();
        for &thread in active {
            left.push((thread, self.scalar(thread, begin)? as i64..self.scalar(thread, end)? as i64));
            for c in carried {
                let init = self.get(thread, c.init)?;
                self.threads[thread].values[c.result] = init;
            }
        }
        loop {
            let mut inside = Vec::new();
            for (thread, counter) in &mut left {
                let Some(i) = counter.next() else { continue };
                inside.push(*thread);
                let values = &mut self.threads[*thread].values;
                values[var] = vec![i as u64];
                for c in carried {
                    values[c.param] = values[c.result].clone();
                }
            }
            if inside.is_empty() {
                return Ok(());
            }
            self.body(body, &inside)?;
            for &thread in &inside {
                let nexts =
                    carried.iter().map(|c| self.get(thread, c.next)).collect::<Result<Vec<_>, _>>()?;
                for (c, next) in carried.iter().zip(nexts) {
                    self.threads[thread].values[c.result] = next;
                }
            }
        }
    }

    fn branch(
        &mut self,
        condition: Value,
        sides: [&[Inst]; 2],
        joins: &[Join],
        active: &[usize],
    ) -> Result<(), String> {
        let mut taking: [Vec<usize>; 2] = Default::default();
        for &thread in active {
            taking[usize::from(self.scalar(thread, condition)? == 0)].push(thread);
        }
        for (side, (body, threads)) in sides.into_iter().zip(&taking).enumerate() {
            if !threads.is_empty() {
                self.body(body, threads)?;
            }
            for &thread in threads {
                for join in joins {
                    let value =
                        self.get(thread, if side == 0 { join.then_value } else { join.else_value })?;
                    self.threads[thread].values[join.result] = value;
                }
            }
        }
        Ok(())
    }

    fn shuffle(&mut self, result: Value, value: Value, from: Value, active: &[usize]) -> Result<(), String> {
        let lanes = i64::from(self.kernel.threads.lanes);
        let mut given = Vec::new();
        for &thread in active {
            let own = &self.threads[thread];
            let lane = (self.scalar(thread, from)? as i64).rem_euclid(lanes) as u32;
            let other =
                active.iter().find(|&&t| (self.threads[t].warp, self.threads[t].lane) == (own.warp, lane));
            let other =
                other.ok_or_else(|| format!("{result} is shuffled from lane {lane}, which is elsewhere"))?;
            given.push((thread, self.get(*other, value)?));
        }
        if !active.len().is_multiple_of(lanes as usize) {
            return Err(format!("{result} is shuffled by {} threads", active.len()));
        }
        for (thread, value) in given {
            self.threads[thread].values[result] = value;
        }
        Ok(())
    }

    fn op(&mut self, thread: usize, ty: Type, op: &KernelOp) -> Result<Vec<u64>, String> {
        let all = |bits: u64| vec![bits; ty.lanes as usize];
        let get = |state: &Self, value: Value| state.get(thread, value);
        Ok(match op {
            KernelOp::Int(value) => all(from_int(ty.dtype, i128::from(*value))),
            KernelOp::Float(bits) => all(from_float(ty.dtype, f64::from_bits(*bits))),
            KernelOp::Size(i) => vec![*self.sizes.get(*i as usize).ok_or("no such extent")? as u64],
            KernelOp::Warp => vec![u64::from(self.threads[thread].warp)],
            KernelOp::Lane => vec![u64::from(self.threads[thread].lane)],
            KernelOp::Shuffle { .. } => return Err("a shuffle of one thread".into()),
            KernelOp::Iota => (0..ty.lanes).map(|i| from_int(ty.dtype, i128::from(i))).collect(),
            KernelOp::Splat(a) => all(self.scalar(thread, *a)?),
            KernelOp::Extract(a, lane) => vec![*get(self, *a)?.get(*lane as usize).ok_or("no such lane")?],
            KernelOp::Concat(parts) => {
                let mut lanes = Vec::new();
                for part in parts {
                    lanes.extend(get(self, *part)?);
                }
                lanes
            }
            KernelOp::Slice(a, first) => {
                let first = *first as usize;
                get(self, *a)?.get(first..first + ty.lanes as usize).ok_or("no such lanes")?.to_vec()
            }
            KernelOp::Unary(op, a) => {
                let dtype = self.kernel.values[*a].dtype;
                get(self, *a)?.into_iter().map(|x| unary(*op, dtype, x)).collect::<Result<_, _>>()?
            }
            KernelOp::Binary(op, a, b) => {
                let lanes = get(self, *a)?.into_iter().zip(get(self, *b)?);
                lanes.map(|(x, y)| binary(*op, ty.dtype, x, y)).collect::<Result<_, _>>()?
            }
            KernelOp::Compare(op, a, b) => {
                let dtype = self.kernel.values[*a].dtype;
                let lanes = get(self, *a)?.into_iter().zip(get(self, *b)?);
                lanes.map(|(x, y)| u64::from(compare(*op, dtype, x, y))).collect()
            }
            KernelOp::Select(condition, a, b) => {
                let condition = get(self, *condition)?;
                let lanes = get(self, *a)?.into_iter().zip(get(self, *b)?).enumerate();
                let chosen = |i: usize| condition[if condition.len() == 1 { 0 } else { i }] != 0;
                lanes.map(|(i, (x, y))| if chosen(i) { x } else { y }).collect()
            }
            KernelOp::Cast(a) => {
                let from = self.kernel.values[*a].dtype;
                get(self, *a)?.into_iter().map(|x| cast(from, ty.dtype, x)).collect()
            }
            KernelOp::Bitcast(a) => get(self, *a)?,
            KernelOp::Fma(a, b, c) => {
                let (x, y, z) = (get(self, *a)?, get(self, *b)?, get(self, *c)?);
                (0..x.len()).map(|i| fma(ty.dtype, x[i], y[i], z[i])).collect::<Result<_, _>>()?
            }
            KernelOp::Load { place, index, offset, mask } => {
                let first = self.scalar(thread, *index)? as i64 + offset;
                let indices = (0..i64::from(ty.lanes)).map(|i| first + i).collect();
                self.read(thread, *place, indices, *mask)?
            }
            KernelOp::Gather { place, indices, offset, mask } => {
                let indices = get(self, *indices)?.iter().map(|i| *i as i64 + offset).collect();
                self.read(thread, *place, indices, *mask)?
            }
        })
    }

    fn get(&self, thread: usize, value: Value) -> Result<Vec<u64>, String> {
        let lanes = &self.threads[thread].values[value];
        if lanes.is_empty() { Err(format!("{value} is not defined")) } else { Ok(lanes.clone()) }
    }

    fn scalar(&self, thread: usize, value: Value) -> Result<u64, String> {
        Ok(self.get(thread, value)?[0])
    }

    fn memory(&mut self, thread: usize, place: MemRef) -> &mut Vec<u8> {
        match place {
            MemRef::Param(i) => &mut self.buffers[i as usize],
            MemRef::Local(i) => &mut self.threads[thread].locals[i as usize],
            MemRef::Shared(i) => &mut self.shared[i as usize],
        }
    }

    fn element(&self, place: MemRef) -> (&str, DType) {
        let array = match place {
            MemRef::Param(i) => {
                let buffer = &self.kernel.buffers[i as usize];
                return (&buffer.name, buffer.dtype);
            }
            MemRef::Local(i) => &self.kernel.locals[i as usize],
            MemRef::Shared(i) => &self.kernel.shared[i as usize],
        };
        (&array.name, array.dtype)
    }

    fn active(&self, thread: usize, mask: Option<Value>, lanes: usize) -> Result<Vec<bool>, String> {
        match mask {
            Some(mask) => Ok(self.get(thread, mask)?.into_iter().map(|lane| lane != 0).collect()),
            None => Ok(vec![true; lanes]),
        }
    }

    /// Notes an access, where other threads may be in its way.
    fn note(&mut self, thread: usize, place: MemRef, index: i64, access: Access) -> Result<(), String> {
        let Some(races) = &mut self.races else { return Ok(()) };
        if matches!(place, MemRef::Local(_)) {
            return Ok(());
        }
        let at = std::mem::take(&mut self.at);
        let found = races.access(thread, place, index, access, &at);
        self.at = at;
        found.map_err(|conflict| {
            let who = |thread: usize| {
                let Thread { warp, lane, .. } = &self.threads[thread];
                format!("thread {warp}.{lane}")
            };
            let (name, _) = self.element(place);
            let (first, second) = (who(conflict.thread), who(thread));
            format!(
                "{} of element {index} of `{name}`: {} by {first}, {} by {second}",
                conflict.what, conflict.at, self.at
            )
        })
    }

    fn read(
        &mut self,
        thread: usize,
        place: MemRef,
        indices: Vec<i64>,
        mask: Option<Value>,
    ) -> Result<Vec<u64>, String> {
        let active = self.active(thread, mask, indices.len())?;
        let bytes = self.element(place).1.bytes();
        let mut elements = Vec::with_capacity(indices.len());
        for (index, active) in indices.into_iter().zip(active) {
            if !active {
                elements.push(0);
                continue;
            }
            let at = usize::try_from(index).map_err(|_| format!("load of element {index}"))? * bytes;
            let memory = self.memory(thread, place);
            let from = memory.get(at..at + bytes).ok_or_else(|| format!("load of element {index}"))?;
            elements.push(from.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte)));
            self.note(thread, place, index, Access::Read)?;
        }
        Ok(elements)
    }

    fn write(
        &mut self,
        thread: usize,
        place: MemRef,
        indices: Vec<i64>,
        value: &[u64],
        mask: Option<Value>,
    ) -> Result<(), String> {
        let active = self.active(thread, mask, indices.len())?;
        for ((index, bits), active) in indices.into_iter().zip(value).zip(active) {
            if active {
                self.note(thread, place, index, Access::Write)?;
                self.put(thread, place, index, *bits)?;
            }
        }
        Ok(())
    }

    fn put(&mut self, thread: usize, place: MemRef, index: i64, bits: u64) -> Result<(), String> {
        let bytes = self.element(place).1.bytes();
        let at = usize::try_from(index).map_err(|_| format!("store of element {index}"))? * bytes;
        let memory = self.memory(thread, place);
        let to = memory.get_mut(at..at + bytes).ok_or_else(|| format!("store of element {index}"))?;
        to.copy_from_slice(&bits.to_le_bytes()[..bytes]);
        Ok(())
    }

    fn begin_copy(&mut self, thread: usize, inst: &Inst) -> Result<(), String> {
        let Inst::CopyAsync { to, to_index, to_offset, from, index, offset, elements, mask } = inst else {
            return Ok(());
        };
        let copied = match mask.map_or(Ok(1), |mask| self.scalar(thread, mask))? {
            0 => vec![0; *elements as usize],
            _ => {
                let first = self.scalar(thread, *index)? as i64 + offset;
                self.read(thread, *from, (first..first + i64::from(*elements)).collect(), None)?
            }
        };
        let first = self.scalar(thread, *to_index)? as i64 + to_offset;
        for index in first..first + i64::from(*elements) {
            self.note(thread, *to, index, Access::BeginCopy)?;
        }
        let at = self.at.clone();
        self.threads[thread].copies.push(Copy { to: *to, first, elements: copied, at });
        Ok(())
    }

    fn wait_for_copies(&mut self, thread: usize, pending: usize) -> Result<(), String> {
        let n = self.threads[thread].groups.len().saturating_sub(pending);
        let done: Vec<Copy> = self.threads[thread].groups.drain(..n).flatten().collect();
        for Copy { to, first, elements, at } in done {
            self.at = at;
            for (index, bits) in (first..).zip(elements) {
                self.note(thread, to, index, Access::EndCopy)?;
                self.put(thread, to, index, bits)?;
            }
        }
        Ok(())
    }
}

/// An instruction in a message.
fn describe(inst: &Inst) -> String {
    match inst {
        Inst::Let { result, op: _ } => format!("load of {result}"),
        Inst::Store { value, .. } | Inst::Scatter { value, .. } => format!("store of {value}"),
        Inst::CopyAsync { to_index, .. } => format!("copy to {to_index}"),
        Inst::Prefetch { .. }
        | Inst::Barrier
        | Inst::CommitCopies
        | Inst::WaitCopies { .. }
        | Inst::Loop { .. }
        | Inst::If { .. } => String::new(),
    }
}
