//! Kernels and control flow.

use std::fmt::Write;

use cranelift_entity::SecondaryMap;
use tilewright_dtype::DType;
use tilewright_machine::CodegenError;
use tilewright_te::expr::wrap;
use tilewright_te::kernel::{Access, Carried, Inst, Join, Kernel, KernelOp, MemRef, Range, Threads, Value};

use crate::error::{invalid, unsupported};
use crate::expr::{self, Known};
use crate::live::{Live, part_of};
use crate::types;

/// Who may call a kernel's function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linkage {
    /// The same text only, so that a program exports nothing but its run function.
    Internal,
    /// Anybody.
    External,
}

/// Columns that a line of several declarations or stores may have.
const WIDTH: usize = 110;

struct Printer<'a> {
    kernel: &'a Kernel,
    live: Live,
    /// Bounds of scalar integers whose operations do not overflow.
    ranges: SecondaryMap<Value, Option<Range>>,
    /// What each lane is called, of values that have been printed: a variable or a constant.
    names: SecondaryMap<Value, Vec<String>>,
    /// Values that are one integer constant in every lane.
    constants: SecondaryMap<Value, Option<i64>>,
    /// Values whose variables are their own, with the loop of whose iterations these hold them.
    owners: SecondaryMap<Value, Option<u32>>,
    /// The innermost loop that is being printed; that over tasks is the first.
    in_loop: u32,
    n_loops: u32,
    /// Statements so far.
    body: String,
    /// Spaces before a statement.
    indent: usize,
    /// Which buffers, extents and local arrays the statements name.
    used_buffers: Vec<bool>,
    used_sizes: Vec<bool>,
    used_locals: Vec<bool>,
}

/// Appends the function of a kernel.
pub(crate) fn print(kernel: &Kernel, linkage: Linkage, out: &mut String) -> Result<(), CodegenError> {
    check(kernel)?;
    let task = format!("v{}", kernel.task.as_u32());
    let mut printer = Printer {
        kernel,
        live: Live::new(kernel),
        ranges: kernel.ranges(),
        names: SecondaryMap::new(),
        constants: SecondaryMap::new(),
        owners: SecondaryMap::new(),
        in_loop: 0,
        n_loops: 1,
        body: String::new(),
        indent: 4,
        used_buffers: vec![false; kernel.buffers.len()],
        used_sizes: vec![false; kernel.sizes.len()],
        used_locals: vec![false; kernel.locals.len()],
    };
    printer.names[kernel.task] = vec![task.clone()];
    printer.list(&kernel.body)?;
    let storage = match linkage {
        Linkage::Internal => "static ",
        Linkage::External => "",
    };
    let parameters = "void *const *buffers, const int64_t *sizes, int64_t task_begin, int64_t task_end";
    let symbol = types::symbol(&kernel.name);
    if linkage == Linkage::External {
        // Compilers may be asked to warn of functions that no header declares.
        let _ = writeln!(out, "void {symbol}({parameters});");
    }
    let _ = writeln!(out, "{storage}void {symbol}({parameters}) {{");
    for (i, buffer) in kernel.buffers.iter().enumerate().filter(|(i, _)| printer.used_buffers[*i]) {
        let constant = if buffer.access == Access::Read { "const " } else { "" };
        let ty = printer.in_memory(buffer.dtype)?;
        let _ =
            writeln!(out, "  {constant}{ty} *restrict b{i} = buffers[{i}]; /* {} */", comment(&buffer.name));
    }
    for (i, size) in kernel.sizes.iter().enumerate().filter(|(i, _)| printer.used_sizes[*i]) {
        let _ = writeln!(out, "  const int64_t s{i} = sizes[{i}]; /* {} */", comment(&size.name));
    }
    for (name, used) in [("buffers", &printer.used_buffers), ("sizes", &printer.used_sizes)] {
        if !used.contains(&true) {
            let _ = writeln!(out, "  (void){name};");
        }
    }
    let _ = writeln!(out, "  for (int64_t {task} = task_begin; {task} < task_end; ++{task}) {{");
    for (i, local) in kernel.locals.iter().enumerate().filter(|(i, _)| printer.used_locals[*i]) {
        let _ = writeln!(out, "    {} l{i}[{}];", printer.in_memory(local.dtype)?, local.len.max(1));
    }
    out.push_str(&printer.body);
    out.push_str("  }\n}\n\n");
    Ok(())
}

/// Refuses what is no kernel, and what C cannot say.
fn check(kernel: &Kernel) -> Result<(), CodegenError> {
    let is_symbol = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$');
    if kernel.name.is_empty() || !kernel.name.chars().all(is_symbol) {
        return Err(invalid(kernel, "its name is not a symbol"));
    }
    kernel.verify().map_err(|faults| invalid(kernel, faults.join("; ")))?;
    if kernel.threads != Threads::ONE || !kernel.shared.is_empty() {
        return Err(unsupported(kernel, "a task of several threads"));
    }
    let arrays = kernel.buffers.iter().map(|buffer| buffer.dtype);
    let arrays = arrays.chain(kernel.locals.iter().map(|local| local.dtype));
    for dtype in arrays.chain(kernel.values.values().map(|ty| ty.dtype)) {
        if types::name(dtype).is_none() {
            return Err(unsupported(kernel, format!("values of type {dtype}")));
        }
    }
    Ok(())
}

/// A name as part of a comment, which it must not end.
fn comment(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect()
}

impl Printer<'_> {
    fn list(&mut self, insts: &[Inst]) -> Result<(), CodegenError> {
        insts.iter().try_for_each(|inst| self.inst(inst))
    }

    fn nested(&mut self, insts: &[Inst]) -> Result<(), CodegenError> {
        self.indent += 2;
        let result = self.list(insts);
        self.indent -= 2;
        result
    }

    fn line(&mut self, text: &str) {
        let _ = writeln!(self.body, "{:1$}{text}", "", self.indent);
    }

    /// As many of the parts on a line as fit: after `first`, with `between` in between and `last` after each line.
    fn lines(&mut self, first: &str, parts: &[String], between: &str, last: &str) {
        let mut line = String::new();
        for part in parts {
            if !line.is_empty() && self.indent + line.len() + between.len() + part.len() > WIDTH {
                self.line(&format!("{line}{last}"));
                line.clear();
            }
            line.push_str(if line.is_empty() { first } else { between });
            line.push_str(part);
        }
        if !line.is_empty() {
            self.line(&format!("{line}{last}"));
        }
    }

    fn ty(&self, dtype: DType) -> Result<&'static str, CodegenError> {
        types::name(dtype).ok_or_else(|| unsupported(self.kernel, format!("values of type {dtype}")))
    }

    fn in_memory(&self, dtype: DType) -> Result<&'static str, CodegenError> {
        types::in_memory(dtype).ok_or_else(|| unsupported(self.kernel, format!("values of type {dtype}")))
    }

    fn lanes(&self, value: Value) -> u32 {
        self.kernel.values[value].lanes
    }

    fn dtype(&self, value: Value) -> DType {
        self.kernel.values[value].dtype
    }

    /// The lanes of a value that are read.
    fn live(&self, value: Value) -> Vec<u32> {
        (0..self.lanes(value)).filter(|lane| self.live.has(value, *lane)).collect()
    }

    /// What a lane is called; a scalar is the same in every lane.
    fn lane(&self, value: Value, lane: u32) -> &str {
        let names = &self.names[value];
        names.get(if names.len() == 1 { 0 } else { lane as usize }).map_or("", String::as_str)
    }

    /// A name for each lane of a value.
    fn variables(&self, value: Value) -> Vec<String> {
        let name = format!("v{}", value.as_u32());
        match self.lanes(value) {
            1 => vec![name],
            lanes => (0..lanes).map(|lane| format!("{name}_{lane}")).collect(),
        }
    }

    /// Declares variables for the lanes of a value that are read, with what `initial` gives for each.
    fn declare(
        &mut self,
        value: Value,
        initial: impl Fn(&Self, u32) -> Option<String>,
    ) -> Result<(), CodegenError> {
        let ty = self.ty(self.dtype(value))?;
        let variables = self.variables(value);
        let declared = |&lane: &u32| match initial(self, lane) {
            Some(text) => format!("{} = {text}", variables[lane as usize]),
            None => variables[lane as usize].clone(),
        };
        let parts: Vec<String> = self.live(value).iter().map(declared).collect();
        self.lines(&format!("{ty} "), &parts, ", ", ";");
        self.names[value] = variables;
        self.owners[value] = Some(self.in_loop);
        Ok(())
    }

    fn inst(&mut self, inst: &Inst) -> Result<(), CodegenError> {
        match inst {
            Inst::Let { result, op } => self.bind(*result, op)?,
            Inst::Store { place, index, offset, value, mask } => {
                self.stores(*value, *mask, |printer, lane| {
                    printer.element(*place, *index, 0, offset.wrapping_add(i64::from(lane)))
                });
            }
            Inst::Scatter { place, indices, offset, value, mask } => {
                self.stores(*value, *mask, |printer, lane| printer.element(*place, *indices, lane, *offset));
            }
            // A hint.
            Inst::Prefetch { .. } => {}
            Inst::Barrier | Inst::CopyAsync { .. } | Inst::CommitCopies | Inst::WaitCopies { .. } => {
                return Err(unsupported(self.kernel, "a barrier or copy of a task of several threads"));
            }
            Inst::Loop { var, begin, end, carried, body } => {
                self.counted([*var, *begin, *end], carried, body)?;
            }
            Inst::If { condition, then_body, else_body, joins } => {
                self.branch(*condition, [then_body, else_body], joins)?;
            }
        }
        Ok(())
    }

    /// A loop over the values of a variable from `begin` to `end`, exclusive. What it carries has one variable inside and after it.
    fn counted(
        &mut self,
        [var, begin, end]: [Value; 3],
        carried: &[Carried],
        body: &[Inst],
    ) -> Result<(), CodegenError> {
        let inside = self.n_loops;
        self.n_loops += 1;
        for c in carried {
            // What nothing else reads in this iteration of the loop around may change: nests carry their sums in the same variables.
            if self.owners[c.init] == Some(self.in_loop) && self.live.is_used_once(c.init) {
                self.names[c.result] = self.names[c.init].clone();
                self.owners[c.result] = Some(self.in_loop);
            } else {
                self.declare(c.result, |printer, lane| Some(printer.lane(c.init, lane).to_owned()))?;
            }
            self.names[c.param] = self.names[c.result].clone();
            self.owners[c.param] = Some(inside);
        }
        let outside = std::mem::replace(&mut self.in_loop, inside);
        self.names[var] = self.variables(var);
        let [name, from, to] = [var, begin, end].map(|value| self.lane(value, 0).to_owned());
        self.line(&format!("for (int64_t {name} = {from}; {name} < {to}; ++{name}) {{"));
        self.nested(body)?;
        self.indent += 2;
        self.carry(carried)?;
        self.indent -= 2;
        self.in_loop = outside;
        self.line("}");
        Ok(())
    }

    /// Gives what a loop carries its next values, all at once.
    fn carry(&mut self, carried: &[Carried]) -> Result<(), CodegenError> {
        let of_loop: std::collections::HashSet<&String> =
            carried.iter().flat_map(|c| &self.names[c.result]).collect();
        let mut sets = Vec::new();
        let mut kept = Vec::new();
        for c in carried {
            let ty = self.ty(self.dtype(c.result))?;
            for lane in self.live(c.result) {
                let (to, from) = (self.lane(c.result, lane), self.lane(c.next, lane).to_owned());
                if to == from {
                    continue;
                }
                // The next value may be what another variable of the loop had in this iteration.
                if of_loop.contains(&from) {
                    kept.push(format!("{ty} n_{to} = {from};"));
                    sets.push(format!("{to} = n_{to};"));
                } else {
                    sets.push(format!("{to} = {from};"));
                }
            }
        }
        self.lines("", &kept, " ", "");
        self.lines("", &sets, " ", "");
        Ok(())
    }

    fn branch(
        &mut self,
        condition: Value,
        [then_body, else_body]: [&[Inst]; 2],
        joins: &[Join],
    ) -> Result<(), CodegenError> {
        for join in joins {
            self.declare(join.result, |_, _| None)?;
        }
        self.line(&format!("if ({}) {{", self.lane(condition, 0)));
        self.nested(then_body)?;
        joins.iter().for_each(|join| self.set(join.result, join.then_value));
        if !else_body.is_empty() || !joins.is_empty() {
            self.line("} else {");
            self.nested(else_body)?;
            joins.iter().for_each(|join| self.set(join.result, join.else_value));
        }
        self.line("}");
        Ok(())
    }

    /// Sets the variables of a value that is declared, at the end of a block.
    fn set(&mut self, value: Value, to: Value) {
        let sets: Vec<String> = self
            .live(value)
            .into_iter()
            .map(|lane| format!("{} = {};", self.lane(value, lane), self.lane(to, lane)))
            .collect();
        self.indent += 2;
        self.lines("", &sets, " ", "");
        self.indent -= 2;
    }

    /// The element of a place at an index.
    fn element(&mut self, place: MemRef, index: Value, lane: u32, offset: i64) -> String {
        let array = match place {
            MemRef::Param(i) => {
                self.used_buffers[i as usize] = true;
                format!("b{i}")
            }
            MemRef::Local(i) => {
                self.used_locals[i as usize] = true;
                format!("l{i}")
            }
            MemRef::Shared(i) => format!("h{i}"),
        };
        let index_text = self.lane(index, lane);
        match (self.constants[index], offset) {
            (Some(index), _) => format!("{array}[{}]", types::int(DType::I64, index.wrapping_add(offset))),
            (None, 0) => format!("{array}[{index_text}]"),
            (None, 1..) => format!("{array}[{index_text} + {}]", types::int(DType::I64, offset)),
            (None, _) => {
                format!("{array}[{index_text} - {}]", types::int(DType::I64, offset.wrapping_neg()))
            }
        }
    }

    /// Assigns the lanes of a value to elements.
    fn stores(&mut self, value: Value, mask: Option<Value>, element: impl Fn(&mut Self, u32) -> String) {
        let mut sets = Vec::new();
        for lane in 0..self.lanes(value) {
            let to = element(self, lane);
            let text = format!("{to} = {};", self.lane(value, lane));
            match mask {
                Some(mask) => self.line(&format!("if ({}) {text}", self.lane(mask, lane))),
                None => sets.push(text),
            }
        }
        self.lines("", &sets, " ", "");
    }

    /// Gives the lanes of a result names, by declarations where they are not others' or constants.
    fn bind(&mut self, result: Value, op: &KernelOp) -> Result<(), CodegenError> {
        let lanes = self.live(result);
        if lanes.is_empty() {
            return Ok(());
        }
        self.constants[result] = match op {
            KernelOp::Int(value) => Some(wrap(self.dtype(result), *value)),
            KernelOp::Splat(a) => self.constants[*a],
            _ => None,
        };
        if let Some(names) = self.renamed(result, op) {
            self.names[result] = names;
            return Ok(());
        }
        let mut texts = vec![None; self.lanes(result) as usize];
        for lane in lanes {
            let text = self.op(result, op, lane);
            let text =
                text.ok_or_else(|| unsupported(self.kernel, format!("{op:?} of {}", self.dtype(result))))?;
            texts[lane as usize] = Some(text);
        }
        self.declare(result, |_, lane| texts[lane as usize].clone())
    }

    /// What lanes are called that need no variables of their own.
    fn renamed(&mut self, result: Value, op: &KernelOp) -> Option<Vec<String>> {
        let dtype = self.dtype(result);
        let lanes = 0..self.lanes(result);
        let of = |printer: &Self, value: Value, lane: u32| printer.lane(value, lane).to_owned();
        Some(match op {
            KernelOp::Int(value) => vec![types::int(dtype, *value)],
            KernelOp::Float(bits) => vec![types::float(dtype, f64::from_bits(*bits))],
            KernelOp::Size(i) => {
                self.used_sizes[*i as usize] = true;
                vec![format!("s{i}")]
            }
            KernelOp::Iota => lanes.map(|lane| types::int(dtype, i64::from(lane))).collect(),
            KernelOp::Splat(a) => vec![of(self, *a, 0)],
            KernelOp::Extract(a, lane) => vec![of(self, *a, *lane)],
            KernelOp::Slice(a, first) => lanes.map(|lane| of(self, *a, first + lane)).collect(),
            KernelOp::Concat(parts) => lanes
                .map(|lane| part_of(self.kernel, parts, lane))
                .map(|part| part.map_or_else(String::new, |(part, lane)| of(self, part, lane)))
                .collect(),
            _ => return None,
        })
    }

    /// One lane of what an operation gives.
    fn op(&mut self, result: Value, op: &KernelOp, lane: u32) -> Option<String> {
        let dtype = self.dtype(result);
        Some(match op {
            KernelOp::Unary(op, a) => expr::unary(*op, self.dtype(*a), self.lane(*a, lane))?,
            KernelOp::Binary(op, a, b) => {
                let known = self.known(result, *a, *b);
                expr::binary(*op, dtype, self.lane(*a, lane), self.lane(*b, lane), known)?
            }
            KernelOp::Compare(op, a, b) => {
                let known = self.known(result, *a, *b);
                expr::compare(*op, self.dtype(*a), [self.lane(*a, lane), self.lane(*b, lane)], known)
            }
            KernelOp::Select(condition, a, b) => {
                let [condition, a, b] = [*condition, *a, *b].map(|value| self.lane(value, lane));
                format!("{condition} ? {a} : {b}")
            }
            KernelOp::Cast(a) => expr::cast(self.dtype(*a), dtype, self.lane(*a, lane))?,
            KernelOp::Bitcast(a) => expr::bitcast(self.dtype(*a), dtype, self.lane(*a, lane))?,
            KernelOp::Fma(a, b, c) => {
                let name = if dtype == DType::F32 { "fmaf" } else { "fma" };
                let [a, b, c] = [*a, *b, *c].map(|value| self.lane(value, lane));
                format!("{name}({a}, {b}, {c})")
            }
            KernelOp::Load { place, index, offset, mask } => {
                let at = self.element(*place, *index, 0, offset.wrapping_add(i64::from(lane)));
                self.loaded(dtype, at, *mask, lane)
            }
            KernelOp::Gather { place, indices, offset, mask } => {
                let at = self.element(*place, *indices, lane, *offset);
                self.loaded(dtype, at, *mask, lane)
            }
            // Other lanes of a warp, and what has a name already.
            KernelOp::Warp
            | KernelOp::Lane
            | KernelOp::Shuffle { .. }
            | KernelOp::Int(_)
            | KernelOp::Float(_)
            | KernelOp::Size(_)
            | KernelOp::Iota
            | KernelOp::Splat(_)
            | KernelOp::Extract(..)
            | KernelOp::Slice(..)
            | KernelOp::Concat(_) => return None,
        })
    }

    fn known(&self, result: Value, a: Value, b: Value) -> Known {
        let is_constant = |value: Value| self.constants[value].is_some();
        Known {
            // Two constants are of type `int`, which may be narrower.
            fits: self.ranges[result].is_some() && !(is_constant(a) && is_constant(b)),
            is_natural: self.ranges[a].is_some_and(|range| range.least >= 0),
            left: self.constants[a],
            right: self.constants[b],
        }
    }

    fn loaded(&self, dtype: DType, element: String, mask: Option<Value>, lane: u32) -> String {
        let value = if dtype == DType::Bool { format!("{element} != 0") } else { element };
        match mask {
            Some(mask) => format!("{} ? {value} : 0", self.lane(mask, lane)),
            None => value,
        }
    }
}
