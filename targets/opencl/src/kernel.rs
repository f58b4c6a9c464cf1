//! Kernels and control flow.

use std::fmt::Write;

use cranelift_entity::SecondaryMap;
use tilewright_dtype::DType;
use tilewright_te::kernel::{Access, Carried, Inst, Kernel, KernelOp, MemRef, Threads, Value, Varies};

use crate::error::PrintError;
use crate::types::symbol;
use crate::{expr, types};

struct Printer<'a> {
    kernel: &'a Kernel,
    varies: SecondaryMap<Value, Varies>,
    /// Statements so far.
    body: String,
    /// Spaces before a statement.
    indent: usize,
    /// Whether what is being printed may be run by some warps only.
    is_divergent: bool,
    /// Element types for which there is an array to shuffle through.
    shuffled: Vec<DType>,
    /// Whether there was a barrier in the loop that is being printed.
    has_barrier: bool,
}

/// Appends the kernel to a program.
pub(crate) fn print(kernel: &Kernel, out: &mut String) -> Result<(), PrintError> {
    let invalid =
        |faults: Vec<String>| PrintError::Invalid { kernel: kernel.name.clone(), reason: faults.join("; ") };
    kernel.verify().map_err(invalid)?;
    let mut printer = Printer {
        kernel,
        varies: kernel.varies(),
        body: String::new(),
        indent: 2,
        is_divergent: false,
        shuffled: Vec::new(),
        has_barrier: false,
    };
    printer.list(&kernel.body)?;
    let Threads { warps, lanes } = kernel.threads;
    let mut params = Vec::new();
    for (i, buffer) in kernel.buffers.iter().enumerate() {
        let constant = if buffer.access == Access::Read { "const " } else { "" };
        params.push(format!("__global {constant}{} *b{i}", printer.in_memory(buffer.dtype)?));
    }
    params.extend((0..kernel.sizes.len()).map(|i| format!("long s{i}")));
    params.push("long task_begin".to_owned());
    let _ = write!(
        out,
        "__kernel __attribute__((reqd_work_group_size({lanes}, {warps}, 1)))\nvoid {}({}) {{\n",
        symbol(&kernel.name),
        params.join(", ")
    );
    for (i, local) in kernel.locals.iter().enumerate() {
        let _ = writeln!(out, "  {} l{i}[{}];", printer.in_memory(local.dtype)?, local.len.max(1));
    }
    for (i, shared) in kernel.shared.iter().enumerate() {
        let _ = writeln!(out, "  __local {} h{i}[{}];", printer.in_memory(shared.dtype)?, shared.len.max(1));
    }
    for dtype in &printer.shuffled {
        let ty = printer.in_memory(*dtype)?;
        let _ = writeln!(out, "  __local {ty} shuffled_{ty}[{}];", kernel.threads.count());
    }
    let _ = writeln!(out, "  const long v{} = task_begin + (long)get_group_id(0);", kernel.task.as_u32());
    out.push_str(&printer.body);
    out.push_str("}\n\n");
    Ok(())
}

impl Printer<'_> {
    fn list(&mut self, insts: &[Inst]) -> Result<(), PrintError> {
        insts.iter().try_for_each(|inst| self.inst(inst))
    }

    /// Instructions that are run only under a condition, or again and again, as a value has it.
    fn nested(&mut self, insts: &[Inst], decided_by: &[Value]) -> Result<(), PrintError> {
        let before = self.is_divergent;
        self.is_divergent |= decided_by.iter().any(|value| self.varies[*value] > Varies::Nowhere);
        self.indent += 2;
        let result = self.list(insts);
        self.indent -= 2;
        self.is_divergent = before;
        result
    }

    fn line(&mut self, text: &str) {
        let _ = writeln!(self.body, "{:1$}{text}", "", self.indent);
    }

    fn unsupported(&self, what: impl Into<String>) -> PrintError {
        PrintError::Unsupported { kernel: self.kernel.name.clone(), what: what.into() }
    }

    fn ty(&self, dtype: DType) -> Result<&'static str, PrintError> {
        types::name(dtype).ok_or_else(|| self.unsupported(format!("values of type {dtype}")))
    }

    fn in_memory(&self, dtype: DType) -> Result<&'static str, PrintError> {
        types::in_memory(dtype).ok_or_else(|| self.unsupported(format!("elements of type {dtype}")))
    }

    fn lanes(&self, value: Value) -> u32 {
        self.kernel.values[value].lanes
    }

    fn dtype(&self, value: Value) -> DType {
        self.kernel.values[value].dtype
    }

    /// The variable of a lane; a scalar is the same in every lane.
    fn lane(&self, value: Value, lane: u32) -> String {
        match self.lanes(value) {
            1 => format!("v{}", value.as_u32()),
            _ => format!("v{}_{lane}", value.as_u32()),
        }
    }

    fn inst(&mut self, inst: &Inst) -> Result<(), PrintError> {
        match inst {
            Inst::Let { result, op } => return self.bind(*result, op),
            Inst::Store { place, index, offset, value, mask } => {
                for lane in 0..self.lanes(*value) {
                    let at = self.element(*place, *index, 0, offset.wrapping_add(i64::from(lane)));
                    self.assign(&at, *value, lane, *mask);
                }
            }
            Inst::Scatter { place, indices, offset, value, mask } => {
                for lane in 0..self.lanes(*value) {
                    let at = self.element(*place, *indices, lane, *offset);
                    self.assign(&at, *value, lane, *mask);
                }
            }
            // A hint.
            Inst::Prefetch { .. } => {}
            Inst::Barrier => self.barrier("CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE"),
            Inst::CopyAsync { to, to_index, to_offset, from, index, offset, elements, mask } => {
                let condition = mask.map_or(String::new(), |mask| format!("{} ? ", self.lane(mask, 0)));
                let otherwise = if mask.is_some() { " : 0" } else { "" };
                for n in 0..i64::from(*elements) {
                    let to = self.element(*to, *to_index, 0, to_offset.wrapping_add(n));
                    let from = self.element(*from, *index, 0, offset.wrapping_add(n));
                    self.line(&format!("{to} = {condition}{from}{otherwise};"));
                }
            }
            // Copies are made at once.
            Inst::CommitCopies | Inst::WaitCopies { .. } => {}
            Inst::Loop { var, begin, end, carried, body } => {
                self.counted([*var, *begin, *end], carried, body)?;
            }
            Inst::If { condition, then_body, else_body, joins } => {
                for join in joins {
                    let ty = self.ty(self.dtype(join.result))?;
                    for lane in 0..self.lanes(join.result) {
                        self.line(&format!("{ty} {};", self.lane(join.result, lane)));
                    }
                }
                self.line(&format!("if ({}) {{", self.lane(*condition, 0)));
                self.nested(then_body, &[*condition])?;
                joins.iter().for_each(|join| self.set(join.result, join.then_value));
                self.line("} else {");
                self.nested(else_body, &[*condition])?;
                joins.iter().for_each(|join| self.set(join.result, join.else_value));
                self.line("}");
            }
        }
        Ok(())
    }

    fn barrier(&mut self, fences: &str) {
        self.line(&format!("barrier({fences});"));
        self.has_barrier = true;
    }

    /// A loop over the values of a variable from `begin` to `end`, exclusive.
    fn counted(
        &mut self,
        [var, begin, end]: [Value; 3],
        carried: &[Carried],
        body: &[Inst],
    ) -> Result<(), PrintError> {
        for c in carried {
            self.declare(c.result, |printer, lane| printer.lane(c.init, lane))?;
        }
        let (start, outside) = (self.body.len(), std::mem::take(&mut self.has_barrier));
        let [name, from, to] = [var, begin, end].map(|value| self.lane(value, 0));
        self.line(&format!("for (long {name} = {from}; {name} < {to}; ++{name}) {{"));
        self.indent += 2;
        for c in carried {
            self.declare(c.param, |printer, lane| printer.lane(c.result, lane))?;
        }
        self.indent -= 2;
        self.nested(body, &[begin, end])?;
        for c in carried {
            self.set(c.result, c.next);
        }
        self.line("}");
        if self.has_barrier {
            // All threads go through the loop, so they may wait here. PoCL 3.1 has all of them run a branch that comes right before such a
            // loop, whatever its condition.
            self.body.insert_str(start, &format!("{:1$}barrier(CLK_LOCAL_MEM_FENCE);\n", "", self.indent));
        }
        self.has_barrier |= outside;
        Ok(())
    }

    /// A variable for each lane of a value.
    fn declare(&mut self, value: Value, initial: impl Fn(&Self, u32) -> String) -> Result<(), PrintError> {
        let ty = self.ty(self.dtype(value))?;
        for lane in 0..self.lanes(value) {
            let text = format!("{ty} {} = {};", self.lane(value, lane), initial(self, lane));
            self.line(&text);
        }
        Ok(())
    }

    /// Sets the variables of a value that is declared, at the end of a block.
    fn set(&mut self, value: Value, to: Value) {
        for lane in 0..self.lanes(value) {
            let text = format!("  {} = {};", self.lane(value, lane), self.lane(to, lane));
            self.line(&text);
        }
    }

    fn element(&self, place: MemRef, index: Value, lane: u32, offset: i64) -> String {
        let array = match place {
            MemRef::Param(i) => format!("b{i}"),
            MemRef::Local(i) => format!("l{i}"),
            MemRef::Shared(i) => format!("h{i}"),
        };
        format!("{array}[{} + {}]", self.lane(index, lane), types::int(DType::I64, offset))
    }

    fn assign(&mut self, element: &str, value: Value, lane: u32, mask: Option<Value>) {
        let condition = mask.map_or(String::new(), |mask| format!("if ({}) ", self.lane(mask, lane)));
        self.line(&format!("{condition}{element} = {};", self.lane(value, lane)));
    }

    fn bind(&mut self, result: Value, op: &KernelOp) -> Result<(), PrintError> {
        if let KernelOp::Shuffle { value, from } = op {
            return self.shuffle(result, *value, *from);
        }
        let mut texts = Vec::new();
        for lane in 0..self.lanes(result) {
            let text = self.op(result, op, lane);
            texts.push(text.ok_or_else(|| self.unsupported(format!("{op:?} of {}", self.dtype(result))))?);
        }
        self.declare(result, |_, lane| texts[lane as usize].clone())
    }

    /// One lane of what an operation gives.
    fn op(&self, result: Value, op: &KernelOp, lane: u32) -> Option<String> {
        let dtype = self.dtype(result);
        Some(match op {
            KernelOp::Int(value) => types::int(dtype, *value),
            KernelOp::Float(bits) => types::float(dtype, f64::from_bits(*bits)),
            KernelOp::Size(i) => format!("s{i}"),
            KernelOp::Warp => "(long)get_local_id(1)".to_owned(),
            KernelOp::Lane => "(long)get_local_id(0)".to_owned(),
            KernelOp::Shuffle { .. } => return None,
            KernelOp::Iota => types::int(dtype, i64::from(lane)),
            KernelOp::Splat(a) => self.lane(*a, 0),
            KernelOp::Extract(a, n) => self.lane(*a, *n),
            KernelOp::Slice(a, first) => self.lane(*a, first + lane),
            KernelOp::Concat(parts) => {
                let mut before = 0;
                let part = parts.iter().find(|part| {
                    before += self.lanes(**part);
                    lane < before
                })?;
                self.lane(*part, lane + self.lanes(*part) - before)
            }
            KernelOp::Unary(op, a) => expr::unary(*op, self.dtype(*a), &self.lane(*a, lane))?,
            KernelOp::Binary(op, a, b) => {
                expr::binary(*op, dtype, &self.lane(*a, lane), &self.lane(*b, lane))?
            }
            KernelOp::Compare(op, a, b) => expr::compare(*op, &self.lane(*a, lane), &self.lane(*b, lane)),
            KernelOp::Select(condition, a, b) => {
                let [condition, a, b] = [*condition, *a, *b].map(|value| self.lane(value, lane));
                format!("({condition} ? {a} : {b})")
            }
            KernelOp::Cast(a) => expr::cast(self.dtype(*a), dtype, &self.lane(*a, lane))?,
            KernelOp::Bitcast(a) => expr::bitcast(self.dtype(*a), dtype, &self.lane(*a, lane))?,
            KernelOp::Fma(a, b, c) => {
                let [a, b, c] = [*a, *b, *c].map(|value| self.lane(value, lane));
                format!("fma({a}, {b}, {c})")
            }
            KernelOp::Load { place, index, offset, mask } => {
                let at = self.element(*place, *index, 0, offset.wrapping_add(i64::from(lane)));
                self.loaded(dtype, &at, *mask, lane)
            }
            KernelOp::Gather { place, indices, offset, mask } => {
                let at = self.element(*place, *indices, lane, *offset);
                self.loaded(dtype, &at, *mask, lane)
            }
        })
    }

    fn loaded(&self, dtype: DType, element: &str, mask: Option<Value>, lane: u32) -> String {
        let value = if dtype == DType::Bool { format!("{element} != 0") } else { element.to_owned() };
        match mask {
            Some(mask) => format!("({} ? {value} : 0)", self.lane(mask, lane)),
            None => value,
        }
    }

    /// Through local memory, with all threads of the task.
    fn shuffle(&mut self, result: Value, value: Value, from: Value) -> Result<(), PrintError> {
        let lanes = self.kernel.threads.lanes;
        if lanes > 1 && self.is_divergent {
            return Err(self.unsupported("a shuffle that not all warps of a task come to"));
        }
        let dtype = self.dtype(value);
        let ty = self.in_memory(dtype)?;
        if lanes > 1 && !self.shuffled.contains(&dtype) {
            self.shuffled.push(dtype);
        }
        let mut texts = Vec::new();
        for lane in 0..self.lanes(value) {
            let own = self.lane(value, lane);
            if lanes == 1 {
                texts.push(own);
                continue;
            }
            let moved = format!("{}_moved", self.lane(result, lane));
            self.line(&format!("shuffled_{ty}[get_local_id(1) * {lanes} + get_local_id(0)] = {own};"));
            self.barrier("CLK_LOCAL_MEM_FENCE");
            let from = format!("floormod_long({}, {lanes})", self.lane(from, 0));
            self.line(&format!("{ty} {moved} = shuffled_{ty}[get_local_id(1) * {lanes} + {from}];"));
            self.barrier("CLK_LOCAL_MEM_FENCE");
            texts.push(if dtype == DType::Bool { format!("{moved} != 0") } else { moved });
        }
        self.declare(result, |_, lane| texts[lane as usize].clone())
    }
}
