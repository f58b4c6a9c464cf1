//! Functions and control flow.

use std::fmt::Write;

use cranelift_entity::SecondaryMap;
use tilewright_dtype::DType;
use tilewright_machine::CodegenError;
use tilewright_te::kernel::{
    Carried, Inst, Join, Kernel, KernelBuffer, KernelOp, MemRef, Range, Threads, Type, Value,
};

use super::{Isa, Metadata, PlaceInfo, invalid, lane, unsupported, vector};

/// A kernel's function in the making.
pub(super) struct Function<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) isa: Isa<'a>,
    pub(super) out: &'a mut String,
    pub(super) buffers: Vec<PlaceInfo>,
    pub(super) locals: Vec<PlaceInfo>,
    pub(super) shared: Vec<PlaceInfo>,
    pub(super) sizes: Vec<String>,
    /// What a value is called: a register or a constant.
    operands: SecondaryMap<Value, Option<String>>,
    /// Values that are one integer constant in every lane.
    constants: SecondaryMap<Value, Option<i64>>,
    /// Exponents of powers of two that values are multiples of.
    pub(super) multiples: SecondaryMap<Value, u32>,
    /// Bounds of what is computed without wrapping.
    pub(super) ranges: SecondaryMap<Value, Option<Range>>,
    /// Lanes that have been taken out of vectors.
    pub(super) extracted: SecondaryMap<Value, Option<(Value, u32)>>,
    /// The last square that has been transposed.
    pub(super) square: Option<Square>,
    /// Whether it calls a function that divides.
    pub(super) divides: bool,
    /// Label of the block being filled.
    pub(super) block: String,
    n_temporaries: usize,
    n_blocks: usize,
}

/// A square whose rows are vectors, and its columns.
pub(super) struct Square {
    pub(super) rows: Vec<Value>,
    /// The block where it was transposed: what follows there may use the columns.
    pub(super) block: String,
    pub(super) columns: Vec<String>,
}

/// Writes the function of `kernel` to `out`.
pub(super) fn translate(
    kernel: &Kernel,
    isa: Isa<'_>,
    metadata: &mut Metadata,
    out: &mut String,
) -> Result<(), CodegenError> {
    let is_symbol = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$');
    if kernel.name.is_empty() || !kernel.name.chars().all(is_symbol) {
        return Err(invalid(kernel, "its name is not a symbol"));
    }
    kernel.verify().map_err(|faults| invalid(kernel, faults.join("; ")))?;
    // Most processors compute with 64 bits at a time, and all align accesses of vectors by themselves.
    let (multiples, ranges) = match isa {
        Isa::Processor(_) if isa.is_32_bit() => (SecondaryMap::new(), kernel.ranges()),
        Isa::Processor(_) => (SecondaryMap::new(), SecondaryMap::new()),
        Isa::Gpu(_) => (kernel.multiples(), kernel.ranges()),
    };
    let mut function = Function {
        kernel,
        isa,
        out,
        buffers: Vec::new(),
        locals: Vec::new(),
        shared: Vec::new(),
        sizes: Vec::new(),
        operands: SecondaryMap::new(),
        constants: SecondaryMap::new(),
        multiples,
        ranges,
        extracted: SecondaryMap::new(),
        square: None,
        divides: false,
        block: "entry".to_owned(),
        n_temporaries: 0,
        n_blocks: 0,
    };
    match isa {
        Isa::Processor(_) => {
            function.prologue(metadata)?;
            function.tasks()?;
        }
        Isa::Gpu(gpu) => function.block_of_threads(gpu, metadata)?,
    }
    function.out.push_str("}\n\n");
    function.add_divisions(&mut metadata.functions);
    Ok(())
}

impl Function<'_> {
    fn prologue(&mut self, metadata: &mut Metadata) -> Result<(), CodegenError> {
        let kernel = self.kernel;
        if kernel.threads != Threads::ONE || !kernel.shared.is_empty() {
            return Err(unsupported(kernel, "a task of several threads"));
        }
        let _ = write!(
            self.out,
            "define void @{}(ptr noalias readonly captures(none) %buffers, \
             ptr noalias readonly captures(none) %sizes, i64 %task_begin, i64 %task_end) #0 {{\nentry:\n",
            kernel.name
        );
        let scopes = metadata.buffer_scopes(kernel);
        for (i, (buffer, scopes)) in kernel.buffers.iter().zip(scopes).enumerate() {
            self.check_buffer(buffer)?;
            let slot = self.def(format!("getelementptr ptr, ptr %buffers, i64 {i}"));
            let align = metadata.align(buffer.align);
            let pointer = self.def(format!(
                "load ptr, ptr {slot}, !nonnull !0, !noundef !0, !align !{align}, !invariant.load !0"
            ));
            self.buffers.push(PlaceInfo {
                pointer,
                space: 0,
                dtype: buffer.dtype,
                align: u64::from(buffer.align),
                scopes,
                invariant: PlaceInfo::is_invariant(buffer.access),
            });
        }
        for i in 0..kernel.sizes.len() {
            let slot = self.def(format!("getelementptr i64, ptr %sizes, i64 {i}"));
            let size = self.def(format!("load i64, ptr {slot}, !noundef !0, !invariant.load !0"));
            self.sizes.push(size);
        }
        self.local_arrays()
    }

    pub(super) fn check_buffer(&self, buffer: &KernelBuffer) -> Result<(), CodegenError> {
        self.memory_type(buffer.dtype)?;
        match buffer.align.is_power_of_two() {
            true => Ok(()),
            false => {
                let reason = format!("buffer `{}` is aligned to {}", buffer.name, buffer.align);
                Err(invalid(self.kernel, reason))
            }
        }
    }

    /// Arrays on the stack.
    pub(super) fn local_arrays(&mut self) -> Result<(), CodegenError> {
        for local in &self.kernel.locals {
            let element = self.memory_type(local.dtype)?;
            let pointer = self.def(format!("alloca [{} x {element}], align 64", local.len));
            self.locals.push(PlaceInfo {
                pointer,
                space: 0,
                dtype: local.dtype,
                align: 64,
                scopes: String::new(),
                invariant: false,
            });
        }
        Ok(())
    }

    /// The loop over the tasks, with the kernel's body inside.
    fn tasks(&mut self) -> Result<(), CodegenError> {
        let kernel = self.kernel;
        self.check_task()?;
        let some = self.def("icmp slt i64 %task_begin, %task_end".to_owned());
        let (head, done) = (self.label("task"), self.label("done"));
        let _ = writeln!(self.out, "  br i1 {some}, label %{head}, label %{done}");
        self.start(&head);
        let task = self.temporary();
        let next = "%next_task";
        let phi = self.reserve_line();
        self.define(kernel.task, task.clone());
        self.body(&kernel.body)?;
        let _ = writeln!(self.out, "  {next} = add nsw i64 {task}, 1");
        let more = self.def(format!("icmp slt i64 {next}, %task_end"));
        let _ = writeln!(self.out, "  br i1 {more}, label %{head}, label %{done}");
        let latch = self.block.clone();
        self.fill_line(phi, &format!("  {task} = phi i64 [ %task_begin, %entry ], [ {next}, %{latch} ]\n"));
        self.start(&done);
        self.out.push_str("  ret void\n");
        Ok(())
    }

    pub(super) fn check_task(&self) -> Result<(), CodegenError> {
        match self.ty(self.kernel.task)? == Type::scalar(DType::I64) {
            true => Ok(()),
            false => Err(invalid(self.kernel, "the task is not an i64")),
        }
    }

    pub(super) fn body(&mut self, insts: &[Inst]) -> Result<(), CodegenError> {
        insts.iter().try_for_each(|inst| self.inst(inst))
    }

    fn inst(&mut self, inst: &Inst) -> Result<(), CodegenError> {
        match inst {
            Inst::Let { result, op } => self.bind(*result, op),
            Inst::Store { place, index, offset, value, mask } => {
                self.store(*place, *index, *offset, *value, *mask)
            }
            Inst::Scatter { place, indices, offset, value, mask } => {
                self.scatter(*place, *indices, *offset, *value, *mask)
            }
            Inst::Prefetch { place, index, offset } => self.prefetch(*place, *index, *offset),
            Inst::Barrier | Inst::CopyAsync { .. } | Inst::CommitCopies | Inst::WaitCopies { .. } => {
                self.cooperate(inst)
            }
            Inst::Loop { var, begin, end, carried, body } => {
                self.counted_loop(*var, *begin, *end, carried, body)
            }
            Inst::If { condition, then_body, else_body, joins } => {
                self.branch(*condition, then_body, else_body, joins)
            }
        }
    }

    fn bind(&mut self, result: Value, op: &KernelOp) -> Result<(), CodegenError> {
        self.constants[result] = match op {
            KernelOp::Int(value) => Some(*value),
            KernelOp::Splat(scalar) => self.constants[*scalar],
            KernelOp::Float(_)
            | KernelOp::Size(_)
            | KernelOp::Warp
            | KernelOp::Lane
            | KernelOp::Shuffle { .. }
            | KernelOp::Iota
            | KernelOp::Extract(..)
            | KernelOp::Concat(_)
            | KernelOp::Slice(..)
            | KernelOp::Unary(..)
            | KernelOp::Binary(..)
            | KernelOp::Compare(..)
            | KernelOp::Select(..)
            | KernelOp::Cast(_)
            | KernelOp::Bitcast(_)
            | KernelOp::Fma(..)
            | KernelOp::Load { .. }
            | KernelOp::Gather { .. } => None,
        };
        let operand = self.op(result, op)?;
        self.define(result, operand);
        Ok(())
    }

    /// A loop tested at its end, entered only if it runs at all.
    fn counted_loop(
        &mut self,
        var: Value,
        begin: Value,
        end: Value,
        carried: &[Carried],
        body: &[Inst],
    ) -> Result<(), CodegenError> {
        let runs = match (self.constant(begin), self.constant(end)) {
            (Some(begin), Some(end)) => Some(begin < end),
            _ => None,
        };
        let inits = carried.iter().map(|c| self.operand(c.init)).collect::<Result<Vec<_>, _>>()?;
        if runs == Some(false) {
            for (c, init) in carried.iter().zip(inits) {
                self.define(c.result, init);
            }
            return Ok(());
        }
        let counts_narrow = self.isa.is_32_bit() && self.counts_in_32_bits(begin, end);
        let (mut begin, mut end) = (self.operand(begin)?, self.operand(end)?);
        if counts_narrow {
            [begin, end] = [begin, end].map(|bound| self.def(format!("trunc i64 {bound} to i32")));
        }
        let count = if counts_narrow { "i32" } else { "i64" };
        let (head, exit) = (self.label("loop"), self.label("exit"));
        let before = self.block.clone();
        if runs == Some(true) {
            let _ = writeln!(self.out, "  br label %{head}");
        } else {
            let some = self.def(format!("icmp slt {count} {begin}, {end}"));
            let _ = writeln!(self.out, "  br i1 {some}, label %{head}, label %{exit}");
        }
        self.start(&head);
        let phis = self.reserve_line();
        let counter = self.temporary();
        for c in carried {
            let param = self.temporary();
            self.define(c.param, param);
        }
        // Behind the phis.
        let number = if counts_narrow { self.temporary() } else { counter.clone() };
        self.define(var, number.clone());
        self.body(body)?;
        let next_counter = self.def(format!("add nsw {count} {counter}, 1"));
        let more = self.def(format!("icmp ne {count} {next_counter}, {end}"));
        let _ = writeln!(self.out, "  br i1 {more}, label %{head}, label %{exit}");
        let latch = self.block.clone();
        let mut heads =
            format!("  {counter} = phi {count} [ {begin}, %{before} ], [ {next_counter}, %{latch} ]\n");
        let mut nexts = Vec::new();
        for (c, init) in carried.iter().zip(&inits) {
            let (ty, param, next) = (self.text_type(c.param)?, self.operand(c.param)?, self.operand(c.next)?);
            let _ = writeln!(heads, "  {param} = phi {ty} [ {init}, %{before} ], [ {next}, %{latch} ]");
            nexts.push(next);
        }
        if counts_narrow {
            let _ = writeln!(heads, "  {number} = sext i32 {counter} to i64");
        }
        self.fill_line(phis, &heads);
        self.start(&exit);
        for ((c, init), next) in carried.iter().zip(&inits).zip(nexts) {
            let ty = self.text_type(c.result)?;
            let skipped = if runs == Some(true) { String::new() } else { format!("[ {init}, %{before} ], ") };
            let result = self.def(format!("phi {ty} {skipped}[ {next}, %{latch} ]"));
            self.define(c.result, result);
        }
        Ok(())
    }

    /// Whether bounds of a loop, and so its counter, are known to be numbers of 32 bits.
    fn counts_in_32_bits(&self, begin: Value, end: Value) -> bool {
        let narrow = Range::of_type(DType::I32);
        let fits =
            |bound: Value| self.ranges[bound].zip(narrow).is_some_and(|(range, all)| range.is_within(all));
        fits(begin) && fits(end)
    }

    fn branch(
        &mut self,
        condition: Value,
        then_body: &[Inst],
        else_body: &[Inst],
        joins: &[Join],
    ) -> Result<(), CodegenError> {
        let condition = self.operand(condition)?;
        let (on_true, on_false, after) = (self.label("then"), self.label("else"), self.label("join"));
        let _ = writeln!(self.out, "  br i1 {condition}, label %{on_true}, label %{on_false}");
        let mut sides = Vec::new();
        for (label, body) in [(&on_true, then_body), (&on_false, else_body)] {
            self.start(label);
            self.body(body)?;
            let _ = writeln!(self.out, "  br label %{after}");
            sides.push(self.block.clone());
        }
        self.start(&after);
        for join in joins {
            let ty = self.text_type(join.result)?;
            let (a, b) = (self.operand(join.then_value)?, self.operand(join.else_value)?);
            let result = self.def(format!("phi {ty} [ {a}, %{} ], [ {b}, %{} ]", sides[0], sides[1]));
            self.define(join.result, result);
        }
        Ok(())
    }

    /// A fresh register holding what `instruction` computes.
    pub(super) fn def(&mut self, instruction: String) -> String {
        let name = self.temporary();
        let _ = writeln!(self.out, "  {name} = {instruction}");
        name
    }

    /// An instruction without a result.
    pub(super) fn effect(&mut self, instruction: String) {
        let _ = writeln!(self.out, "  {instruction}");
    }

    /// A register for what is defined next. Registers are numbered in the order of their definitions, as LLVM wants them where they have
    /// no names: it keeps no table of names for these.
    fn temporary(&mut self) -> String {
        self.n_temporaries += 1;
        format!("%{}", self.n_temporaries - 1)
    }

    fn label(&mut self, what: &str) -> String {
        self.n_blocks += 1;
        format!("{what}{}", self.n_blocks)
    }

    fn start(&mut self, label: &str) {
        let _ = writeln!(self.out, "{label}:");
        self.block = label.to_owned();
    }

    /// Remembers a place in the text for phis that are only known once the loop's body is written.
    fn reserve_line(&self) -> usize {
        self.out.len()
    }

    fn fill_line(&mut self, at: usize, text: &str) {
        self.out.insert_str(at, text);
    }

    pub(super) fn define(&mut self, value: Value, operand: String) {
        self.operands[value] = Some(operand);
    }

    /// The text that refers to a value.
    pub(super) fn operand(&self, value: Value) -> Result<String, CodegenError> {
        self.operands[value]
            .clone()
            .ok_or_else(|| invalid(self.kernel, format!("{value} is used before it is defined")))
    }

    /// The integer that the value is in every lane, where it is one.
    pub(super) fn constant(&self, value: Value) -> Option<i64> {
        self.constants[value]
    }

    /// The type of a value.
    pub(super) fn ty(&self, value: Value) -> Result<Type, CodegenError> {
        let ty = *self
            .kernel
            .values
            .get(value)
            .ok_or_else(|| invalid(self.kernel, format!("{value} does not exist")))?;
        if ty.lanes == 0 {
            return Err(invalid(self.kernel, format!("{value} has no lanes")));
        }
        Ok(ty)
    }

    /// LLVM's type of a value.
    pub(super) fn text_type(&self, value: Value) -> Result<String, CodegenError> {
        let ty = self.ty(value)?;
        Ok(vector(self.lane(ty.dtype)?, ty.lanes))
    }

    /// LLVM's type of one lane in registers.
    pub(super) fn lane(&self, dtype: DType) -> Result<&'static str, CodegenError> {
        lane(dtype).ok_or_else(|| unsupported(self.kernel, format!("values of type {dtype}")))
    }

    /// LLVM's type of one element in memory.
    pub(super) fn memory_type(&self, dtype: DType) -> Result<&'static str, CodegenError> {
        Ok(if dtype == DType::Bool { "i8" } else { self.lane(dtype)? })
    }

    /// The `i`-th symbolic extent.
    pub(super) fn size(&self, i: u32) -> Result<String, CodegenError> {
        self.sizes
            .get(i as usize)
            .cloned()
            .ok_or_else(|| invalid(self.kernel, format!("there is no extent {i}")))
    }

    /// The buffer or local array.
    pub(super) fn place(&self, place: MemRef) -> Result<PlaceInfo, CodegenError> {
        let info = match place {
            MemRef::Param(i) => self.buffers.get(i as usize),
            MemRef::Local(i) => self.locals.get(i as usize),
            MemRef::Shared(i) => self.shared.get(i as usize),
        };
        info.cloned().ok_or_else(|| invalid(self.kernel, format!("there is no {place:?}")))
    }
}
