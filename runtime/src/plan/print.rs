//! The text form of plans, for people: `--dump-after plan`, golden tests, error reports. Not parsed back.

use core::fmt::{self, Display, Formatter, Write};

use super::{Access, Op, Place, Plan, SizeDef, SizeId, TensorSpec, ValueSpec};

impl Display for Plan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "arena {} bytes, weights {} bytes", self.arena_bytes, self.weight_bytes)?;
        if self.keep_awake {
            writeln!(f, "threads stay awake")?;
        }
        specs(f, "input", &self.inputs)?;
        specs(f, "output", &self.outputs)?;
        value_specs(f, self, "input", &self.value_inputs)?;
        value_specs(f, self, "output", &self.value_outputs)?;
        for (i, def) in self.sizes.iter().enumerate() {
            write!(f, "s{i} = ")?;
            size(f, self, *def)?;
            f.write_char('\n')?;
        }
        for bounds in &self.bounds {
            write!(f, "{} {:?} in {}..", bounds.size, bounds.name, bounds.min)?;
            bounds.max.map_or(Ok(()), |max| write!(f, "={max}"))?;
            writeln!(f, " step {}", bounds.step)?;
        }
        for (i, size) in self.blocks.iter().enumerate() {
            writeln!(f, "block {i}: {size} bytes")?;
        }
        for (i, def) in self.buffers.iter().enumerate() {
            write!(f, "b{i}: {}[", def.dtype)?;
            list(f, &def.shape)?;
            write!(f, "], {} bytes, ", def.size_bytes)?;
            place(f, def.place)?;
            f.write_char('\n')?;
        }
        for (i, ty) in self.values.iter().enumerate() {
            writeln!(f, "h{i}: {ty}")?;
        }
        for (i, kernel) in self.kernels.iter().enumerate() {
            write!(f, "k{i}: {}(", kernel.name)?;
            for (i, param) in kernel.params.iter().enumerate() {
                let access = match param.access {
                    Access::Read => "read",
                    Access::Write => "write",
                };
                write!(f, "{}{access} align {}", if i == 0 { "" } else { ", " }, param.align)?;
            }
            writeln!(f, "; {} sizes)", kernel.n_sizes)?;
        }
        for (i, instr) in self.instrs.iter().enumerate() {
            write!(f, "{i}: ")?;
            operation(f, self, &instr.op)?;
            let nodes = self.text(instr.provenance);
            writeln!(f, "{}{nodes}", if nodes.is_empty() { "" } else { "  // " })?;
        }
        Ok(())
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
            dim.name.as_ref().map_or(Ok(()), |name| write!(f, "{name} = "))?;
            write!(f, "{}", dim.size)?;
        }
        writeln!(f, "] in {}", spec.buffer)?;
    }
    Ok(())
}

fn value_specs(f: &mut Formatter<'_>, plan: &Plan, what: &str, specs: &[ValueSpec]) -> fmt::Result {
    for spec in specs {
        write!(f, "{what} {:?}", spec.name)?;
        plan.values.get(spec.value.index()).map_or(Ok(()), |ty| write!(f, ": {ty}"))?;
        writeln!(f, " in {}", spec.value)?;
    }
    Ok(())
}

fn size(f: &mut Formatter<'_>, plan: &Plan, def: SizeDef) -> fmt::Result {
    match def {
        SizeDef::Const(value) => write!(f, "{value}"),
        SizeDef::InputDim { input, axis } => {
            let name = plan.inputs.get(input as usize).map_or("", |spec| spec.name.as_str());
            write!(f, "dim {axis} of {name:?}")
        }
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

fn operation(f: &mut Formatter<'_>, plan: &Plan, op: &Op) -> fmt::Result {
    match op {
        Op::Call { kernel, buffers, sizes, rounds, per_round } => {
            let name = plan.kernels.get(kernel.index()).map_or("", |kernel| kernel.name.as_str());
            write!(f, "call {name}(")?;
            arguments(f, buffers, sizes)?;
            write!(f, ") tasks {rounds} x {per_round}")
        }
        Op::Host { op, attrs, inputs, outputs, sizes_out } => {
            arguments(f, outputs, sizes_out)?;
            write!(f, " = host {op}(")?;
            list(f, inputs)?;
            write!(f, ") attrs {} bytes", attrs.len())
        }
        Op::Alloc { buffer } => write!(f, "alloc {buffer}"),
        Op::Grow { buffer } => write!(f, "grow {buffer}"),
        Op::Free { buffer } => write!(f, "free {buffer}"),
        Op::ReadSize { buffer, element, slot } => write!(f, "{slot} = {buffer}[{element}]"),
        Op::ScaleSize { size, buffer, element, slot } => {
            write!(f, "{slot} = floor({size} * {buffer}[{element}])")
        }
        Op::WriteSize { buffer, element, value } => write!(f, "{buffer}[{element}] = {value}"),
        Op::SetSize { slot, value } => write!(f, "{slot} = {value}"),
        Op::ReadDim { value, axis, slot } => write!(f, "{slot} = dim {axis} of {value}"),
        Op::CopyValue { from, to } => write!(f, "{to} = {from}"),
        Op::Copy { from, to } => write!(f, "copy {from} to {to}"),
        Op::Guard { lhs, cmp, rhs, message } => {
            write!(f, "guard {lhs} {} {rhs} {:?}", cmp.symbol(), plan.text(*message))
        }
        Op::BranchIfZero { slot, target } => write!(f, "branch if {slot} == 0 to {target}"),
        Op::Jump { target } => write!(f, "jump to {target}"),
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
