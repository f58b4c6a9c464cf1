//! Parsing of plans: the inverse of printing.
//!
//! A plan is a line an entry, in any order of tables; entries of a table are numbered and stand in order. `//` begins a comment.
//! A text that parses is a plan, but perhaps no sound one: [`Plan::validate`] says.

mod instrs;
mod line;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::str::FromStr;

use instrs::intern;
pub use line::ParseError;
use line::{Line, Result};

use super::{
    Access, BufferDef, DimSpec, Instr, KernelDef, KernelParam, MAX_NESTING, Nesting, Place, Plan, SizeBounds,
    SizeDef, SizeId, Space, TensorSpec, ValueSpec, ValueType,
};

impl FromStr for Plan {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Plan> {
        let mut plan = Plan::default();
        for (index, whole) in text.lines().enumerate() {
            let mut line = Line::new(index + 1, whole);
            line.skip_space();
            if !line.is_at_end() {
                line.entry(&mut plan)?;
                line.end()?;
            }
        }
        Ok(plan)
    }
}

impl Line<'_> {
    /// After `device`: its arena, or a block of it.
    fn device_entry(&mut self, plan: &mut Plan) -> Result<()> {
        if self.take("arena") {
            plan.device_arena.bytes = self.number()?;
        } else {
            self.expect("block")?;
            let number = self.number()?;
            self.is_next("device block", number, plan.device_arena.blocks.len())?;
            self.expect(":")?;
            plan.device_arena.blocks.push(self.size()?);
        }
        self.expect("bytes")
    }

    /// Checks the number that an entry says it has.
    fn is_next(&self, what: &str, number: u32, len: usize) -> Result<()> {
        if number as usize == len {
            Ok(())
        } else {
            self.fail(format!("{what} {len} comes next, not {number}"))
        }
    }

    fn entry(&mut self, plan: &mut Plan) -> Result<()> {
        if self.take("arena") {
            plan.arena.bytes = self.number()?;
            self.expect("bytes")?;
            self.expect(",")?;
            self.expect("weights")?;
            plan.weight_bytes = self.number()?;
            return self.expect("bytes");
        }
        if self.take("threads") {
            self.expect("stay")?;
            plan.keep_awake = true;
            return self.expect("awake");
        }
        if self.take("input") {
            return self.spec(&mut plan.inputs, &mut plan.value_inputs);
        }
        if self.take("output") {
            return self.spec(&mut plan.outputs, &mut plan.value_outputs);
        }
        if self.take("block") {
            let number = self.number()?;
            self.is_next("block", number, plan.arena.blocks.len())?;
            self.expect(":")?;
            plan.arena.blocks.push(self.size()?);
            return self.expect("bytes");
        }
        if self.take("device") {
            return self.device_entry(plan);
        }
        if let Some(number) = self.try_id("s")? {
            return self.size_entry(plan, number);
        }
        if let Some(number) = self.try_id("b")? {
            self.is_next("buffer", number, plan.buffers.len())?;
            self.expect(":")?;
            let buffer = self.buffer_def()?;
            plan.buffers.push(buffer);
            return Ok(());
        }
        if let Some(number) = self.try_id("h")? {
            self.is_next("value", number, plan.values.len())?;
            self.expect(":")?;
            let ty = self.value_type()?;
            plan.values.push(ty);
            return Ok(());
        }
        if let Some(number) = self.try_id("k")? {
            self.is_next("kernel", number, plan.kernels.len())?;
            self.expect(":")?;
            let kernel = self.kernel()?;
            plan.kernels.push(kernel);
            return Ok(());
        }
        let number = self.number()?;
        self.is_next("instruction", number, plan.instrs.len())?;
        self.expect(":")?;
        let op = self.op(plan)?;
        let provenance = if self.take("@") { self.text(plan)? } else { intern(plan, String::new()) };
        plan.instrs.push(Instr { op, provenance });
        Ok(())
    }

    /// `"x": f32[batch = s0] in b0`, or `"x" at 0 in h0`.
    fn spec(&mut self, tensors: &mut Vec<TensorSpec>, values: &mut Vec<ValueSpec>) -> Result<()> {
        let name = self.quoted()?;
        if self.take("at") {
            let position = self.number()?;
            self.expect("in")?;
            values.push(ValueSpec { name, position, value: self.host()? });
            return Ok(());
        }
        self.expect(":")?;
        let dtype = self.dtype()?;
        self.expect("[")?;
        let dims = self.list("]", |line| {
            let start = line.at;
            let size = line.try_id("s")?;
            // A name may look like a size.
            if let (Some(size), false) = (size, line.rest().starts_with('=')) {
                return Ok(DimSpec { name: None, size: SizeId(size) });
            }
            line.at = start;
            let name = Some(line.name()?);
            line.expect("=")?;
            Ok(DimSpec { name, size: line.size()? })
        })?;
        self.expect("in")?;
        tensors.push(TensorSpec { name, dtype, dims, buffer: self.buffer()? });
        Ok(())
    }

    /// After `sN`: what the size is, or the bounds of it.
    fn size_entry(&mut self, plan: &mut Plan, number: u32) -> Result<()> {
        if self.take("=") {
            self.is_next("size", number, plan.sizes.len())?;
            let def = self.size_def()?;
            plan.sizes.push(def);
            return Ok(());
        }
        let name = self.quoted()?;
        self.expect("in")?;
        let min = self.number()?;
        let max = if self.take("..=") {
            Some(self.number()?)
        } else {
            self.expect("..")?;
            None
        };
        self.expect("step")?;
        plan.bounds.push(SizeBounds { size: SizeId(number), name, min, max, step: self.number()? });
        Ok(())
    }

    fn size_def(&mut self) -> Result<SizeDef> {
        type Make = fn(SizeId, SizeId) -> SizeDef;
        let infix: [(&str, Make); 3] = [("+", SizeDef::Add), ("-", SizeDef::Sub), ("*", SizeDef::Mul)];
        let calls: [(&str, Make); 5] = [
            ("floordiv", SizeDef::FloorDiv),
            ("ceildiv", SizeDef::CeilDiv),
            ("mod", SizeDef::Mod),
            ("min", SizeDef::Min),
            ("max", SizeDef::Max),
        ];
        if self.take("computed") {
            return Ok(SizeDef::Computed);
        }
        if self.take("dim") {
            let axis = self.number()?;
            self.expect("of")?;
            self.expect("input")?;
            return Ok(SizeDef::InputDim { input: self.number()?, axis });
        }
        if let Some((_, make)) = calls.into_iter().find(|(name, _)| self.take(name)) {
            self.expect("(")?;
            let a = self.size()?;
            self.expect(",")?;
            let b = self.size()?;
            self.expect(")")?;
            return Ok(make(a, b));
        }
        let Some(a) = self.try_id("s")? else { return self.number().map(SizeDef::Const) };
        match infix.into_iter().find(|(sign, _)| self.take(sign)) {
            Some((_, make)) => Ok(make(SizeId(a), self.size()?)),
            None => self.fail(format!("expected `+`, `-` or `*`, found {}", self.next())),
        }
    }

    fn buffer_def(&mut self) -> Result<BufferDef> {
        let dtype = self.dtype()?;
        self.expect("[")?;
        let shape = self.list("]", Line::size)?;
        self.expect(",")?;
        let size_bytes = self.size()?;
        self.expect("bytes")?;
        self.expect(",")?;
        let space = if self.take("device") { Space::Device } else { Space::Host };
        Ok(BufferDef { dtype, size_bytes, shape, space, place: self.place()? })
    }

    fn place(&mut self) -> Result<Place> {
        Ok(if self.take("input") {
            Place::Input(self.number()?)
        } else if self.take("output") {
            Place::Output(self.number()?)
        } else if self.take("weights") {
            self.expect("at")?;
            let offset = self.number()?;
            self.expect("(")?;
            let len = self.number()?;
            self.expect("bytes")?;
            self.expect(")")?;
            Place::Weight { offset, len }
        } else if self.take("arena") {
            self.expect("at")?;
            Place::Arena { offset: self.number()? }
        } else if self.take("block") {
            Place::Block(self.number()?)
        } else if self.take("dynamic") {
            Place::Dynamic
        } else if self.take("alias") {
            self.expect("of")?;
            let buffer = self.buffer()?;
            self.expect("at")?;
            Place::Alias { buffer, byte_offset: self.size()? }
        } else {
            return self.fail(format!("expected the place of a buffer, found {}", self.next()));
        })
    }

    fn value_type(&mut self) -> Result<ValueType> {
        let mut nesting = Vec::new();
        loop {
            let inner = if self.take("seq") {
                Nesting::Sequence
            } else if self.take("opt") {
                Nesting::Optional
            } else {
                break;
            };
            // One too many may be said, for the validator to refuse.
            if nesting.len() > MAX_NESTING {
                return self.fail("nested too deeply");
            }
            self.expect("(")?;
            nesting.push(inner);
        }
        let dtype = self.dtype()?;
        self.expect("[")?;
        let dims = if self.take("*") {
            self.expect("]")?;
            None
        } else {
            Some(self.list("]", |line| if line.take("?") { Ok(None) } else { line.number().map(Some) })?)
        };
        nesting.iter().try_for_each(|_| self.expect(")"))?;
        Ok(ValueType { nesting, dtype, dims })
    }

    fn kernel(&mut self) -> Result<KernelDef> {
        let name = self.name()?;
        self.expect("(")?;
        let mut params = Vec::new();
        while !self.take(";") {
            if !params.is_empty() {
                self.expect(",")?;
            }
            let access = if self.take("read") {
                Access::Read
            } else {
                self.expect("write")?;
                Access::Write
            };
            self.expect("align")?;
            params.push(KernelParam { align: self.number()?, access });
        }
        let n_sizes = self.number()?;
        self.expect("sizes")?;
        self.expect(")")?;
        let space = if self.take("on") {
            self.expect("device")?;
            Space::Device
        } else {
            Space::Host
        };
        Ok(KernelDef { name, params, n_sizes, space })
    }
}
