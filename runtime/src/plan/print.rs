//! The text form of plans, for people, file tests and error reports. By the feature `text` it is parsed back.
//!
//! A line is an entry of a table:
//!
//! ```text
//! arena 0 bytes, weights 12 bytes
//! threads stay awake
//! input "x": f32[batch = s0, s1] in b0
//! output "list" at 1 in h0
//! s0 = dim 0 of input 0
//! s0 "batch" in 1..=8 step 1
//! block 0: s7 bytes
//! device arena 64 bytes
//! device block 0: s7 bytes
//! b1: f32[s0, s1], s7 bytes, block 0
//! b2: f32[s0, s1], s7 bytes, device block 0
//! h0: seq(f32[*])
//! k0: double(read align 4, write align 4; 0 sizes)
//! k1: half(read align 4, write align 4; 0 sizes) on device
//! 0: call k0 double(b0, b1) tasks s3 x s4 @ "node"
//! 1: guard s0 <= s1 "too many" @ "node"
//! 2: h0; s5 = host 3(b0, _) attrs 0a0b
//! ```
//!
//! Texts have no table of their own. What has no entry is shown by its number (`t9`).

use core::fmt::{self, Display, Formatter, Write};

use super::{Access, Place, Plan, PlanOp, SizeDef, SizeId, Space, TensorSpec, TextId, ValueSpec};

impl Display for Plan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "arena {} bytes, weights {} bytes", self.arena.bytes, self.weight_bytes)?;
        if self.keep_awake {
            writeln!(f, "threads stay awake")?;
        }
        specs(f, "input", &self.inputs)?;
        specs(f, "output", &self.outputs)?;
        value_specs(f, "input", &self.value_inputs)?;
        value_specs(f, "output", &self.value_outputs)?;
        for (i, def) in self.sizes.iter().enumerate() {
            write!(f, "s{i} = ")?;
            size(f, *def)?;
            f.write_char('\n')?;
        }
        for bounds in &self.bounds {
            write!(f, "{} {:?} in {}..", bounds.size, bounds.name, bounds.min)?;
            bounds.max.map_or(Ok(()), |max| write!(f, "={max}"))?;
            writeln!(f, " step {}", bounds.step)?;
        }
        for (i, size) in self.arena.blocks.iter().enumerate() {
            writeln!(f, "block {i}: {size} bytes")?;
        }
        if self.device_arena.bytes > 0 {
            writeln!(f, "device arena {} bytes", self.device_arena.bytes)?;
        }
        for (i, size) in self.device_arena.blocks.iter().enumerate() {
            writeln!(f, "device block {i}: {size} bytes")?;
        }
        for (i, def) in self.buffers.iter().enumerate() {
            write!(f, "b{i}: {}[", def.dtype)?;
            list(f, &def.shape)?;
            write!(f, "], {} bytes, {}", def.size_bytes, prefix(def.space))?;
            place(f, def.place)?;
            f.write_char('\n')?;
        }
        for (i, ty) in self.values.iter().enumerate() {
            writeln!(f, "h{i}: {ty}")?;
        }
        for (i, kernel) in self.kernels.iter().enumerate() {
            write!(f, "k{i}: {}(", Name(&kernel.name))?;
            for (i, param) in kernel.params.iter().enumerate() {
                let access = match param.access {
                    Access::Read => "read",
                    Access::Write => "write",
                };
                write!(f, "{}{access} align {}", if i == 0 { "" } else { ", " }, param.align)?;
            }
            let place = if kernel.space == Space::Device { " on device" } else { "" };
            writeln!(f, "; {} sizes){place}", kernel.n_sizes)?;
        }
        for (i, instr) in self.instrs.iter().enumerate() {
            write!(f, "{i}: ")?;
            operation(f, self, &instr.op)?;
            if self.texts.get(instr.provenance.index()).is_none_or(|nodes| !nodes.is_empty()) {
                write!(f, " @ ")?;
                text(f, self, instr.provenance)?;
            }
            f.write_char('\n')?;
        }
        Ok(())
    }
}

/// A name, quoted where it is no word.
struct Name<'a>(&'a str);

impl Display for Name<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if !self.0.is_empty() && self.0.chars().all(is_word) {
            f.write_str(self.0)
        } else {
            write!(f, "{:?}", self.0)
        }
    }
}

fn text(f: &mut Formatter<'_>, plan: &Plan, id: TextId) -> fmt::Result {
    match plan.texts.get(id.index()) {
        Some(text) => write!(f, "{text:?}"),
        None => write!(f, "{id}"),
    }
}

fn list(f: &mut Formatter<'_>, items: &[impl Display]) -> fmt::Result {
    for (i, item) in items.iter().enumerate() {
        write!(f, "{}{item}", if i == 0 { "" } else { ", " })?;
    }
    Ok(())
}

fn specs(f: &mut Formatter<'_>, what: &str, specs: &[TensorSpec]) -> fmt::Result {
    for spec in specs {
        write!(f, "{what} {:?}: {}[", spec.name, spec.dtype)?;
        for (i, dim) in spec.dims.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            dim.name.as_ref().map_or(Ok(()), |name| write!(f, "{} = ", Name(name)))?;
            write!(f, "{}", dim.size)?;
        }
        writeln!(f, "] in {}", spec.buffer)?;
    }
    Ok(())
}

fn value_specs(f: &mut Formatter<'_>, what: &str, specs: &[ValueSpec]) -> fmt::Result {
    for ValueSpec { name, position, value } in specs {
        writeln!(f, "{what} {name:?} at {position} in {value}")?;
    }
    Ok(())
}

fn size(f: &mut Formatter<'_>, def: SizeDef) -> fmt::Result {
    match def {
        SizeDef::Const(value) => write!(f, "{value}"),
        SizeDef::InputDim { input, axis } => write!(f, "dim {axis} of input {input}"),
        SizeDef::Add(a, b) => write!(f, "{a} + {b}"),
        SizeDef::Sub(a, b) => write!(f, "{a} - {b}"),
        SizeDef::Mul(a, b) => write!(f, "{a} * {b}"),
        SizeDef::FloorDiv(a, b) => write!(f, "floordiv({a}, {b})"),
        SizeDef::CeilDiv(a, b) => write!(f, "ceildiv({a}, {b})"),
        SizeDef::Mod(a, b) => write!(f, "mod({a}, {b})"),
        SizeDef::Min(a, b) => write!(f, "min({a}, {b})"),
        SizeDef::Max(a, b) => write!(f, "max({a}, {b})"),
        SizeDef::Computed => f.write_str("computed"),
    }
}

fn prefix(space: Space) -> &'static str {
    match space {
        Space::Host => "",
        Space::Device => "device ",
    }
}

fn place(f: &mut Formatter<'_>, place: Place) -> fmt::Result {
    match place {
        Place::Input(i) => write!(f, "input {i}"),
        Place::Output(i) => write!(f, "output {i}"),
        Place::Weight { offset, len } => write!(f, "weights at {offset} ({len} bytes)"),
        Place::Arena { offset } => write!(f, "arena at {offset}"),
        Place::Block(block) => write!(f, "block {block}"),
        Place::Dynamic => f.write_str("dynamic"),
        Place::Alias { buffer, byte_offset } => write!(f, "alias of {buffer} at {byte_offset}"),
    }
}

fn operation(f: &mut Formatter<'_>, plan: &Plan, op: &PlanOp) -> fmt::Result {
    match op {
        PlanOp::Call { kernel, buffers, sizes, rounds, per_round, in_order } => {
            write!(f, "call {kernel}")?;
            plan.kernels.get(kernel.index()).map_or(Ok(()), |kernel| write!(f, " {}", Name(&kernel.name)))?;
            f.write_str("(")?;
            arguments(f, buffers, sizes)?;
            write!(f, ") tasks {rounds} x {per_round}{}", if *in_order { " in order" } else { "" })
        }
        PlanOp::Host { op, attrs, inputs, outputs, sizes_out } => {
            arguments(f, outputs, sizes_out)?;
            let is_bare = outputs.is_empty() && sizes_out.is_empty();
            write!(f, "{}= host {op}(", if is_bare { "" } else { " " })?;
            list(f, inputs)?;
            f.write_str(if attrs.is_empty() { ")" } else { ") attrs " })?;
            attrs.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
        }
        PlanOp::Alloc { buffer } => write!(f, "alloc {buffer}"),
        PlanOp::Grow { buffer } => write!(f, "grow {buffer}"),
        PlanOp::Free { buffer } => write!(f, "free {buffer}"),
        PlanOp::ReadSize { buffer, element, slot } => write!(f, "{slot} = {buffer}[{element}]"),
        PlanOp::ScaleSize { size, buffer, element, slot } => {
            write!(f, "{slot} = floor({size} * {buffer}[{element}])")
        }
        PlanOp::WriteSize { buffer, element, value } => write!(f, "{buffer}[{element}] = {value}"),
        PlanOp::SetSize { slot, value } => write!(f, "{slot} = {value}"),
        PlanOp::ReadDim { value, axis, slot } => write!(f, "{slot} = dim {axis} of {value}"),
        PlanOp::CopyValue { from, to } => write!(f, "{to} = {from}"),
        PlanOp::Copy { from, to } => write!(f, "copy {from} to {to}"),
        PlanOp::Guard { lhs, cmp, rhs, message } => {
            write!(f, "guard {lhs} {} {rhs} ", cmp.symbol())?;
            text(f, plan, *message)
        }
        PlanOp::BranchIfZero { slot, target } => write!(f, "branch if {slot} == 0 to {target}"),
        PlanOp::Jump { target } => write!(f, "jump to {target}"),
    }
}

fn arguments(f: &mut Formatter<'_>, buffers: &[impl Display], sizes: &[SizeId]) -> fmt::Result {
    list(f, buffers)?;
    if !sizes.is_empty() {
        f.write_str("; ")?;
        list(f, sizes)?;
    }
    Ok(())
}
