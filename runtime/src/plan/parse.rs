//! Parsing of plans: the inverse of printing.
//!
//! A plan is a line an entry, in any order of tables; entries of a table are numbered and stand in order. `//` begins a comment.
//! A text that parses is a plan, but perhaps no sound one: [`Plan::validate`] says.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use thiserror::Error;
use tilewright_dtype::DType;

use super::{
    Access, BufferDef, BufferId, Cmp, DimSpec, HostId, Instr, KernelDef, KernelId, KernelParam, MAX_NESTING,
    Nesting, Op, Operand, Place, Plan, SizeBounds, SizeDef, SizeId, TensorSpec, TextId, ValueSpec, ValueType,
};

/// A text that is no plan: where and why.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}, column {column}: {reason}")]
pub struct ParseError {
    /// Line, counted from 1.
    pub line: usize,
    /// Column, counted from 1.
    pub column: usize,
    /// What is wrong.
    pub reason: String,
}

type Result<T> = core::result::Result<T, ParseError>;

impl FromStr for Plan {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Plan> {
        let mut plan = Plan::default();
        for (index, whole) in text.lines().enumerate() {
            let mut line = Line { number: index + 1, whole, at: 0 };
            line.skip_space();
            if !line.is_at_end() {
                line.entry(&mut plan)?;
                line.end()?;
            }
        }
        Ok(plan)
    }
}

/// One line being read.
struct Line<'a> {
    number: usize,
    whole: &'a str,
    /// Bytes read.
    at: usize,
}

impl<'a> Line<'a> {
    fn fail<T>(&self, reason: impl fmt::Display) -> Result<T> {
        let column = self.whole.get(..self.at).map_or(0, |read| read.chars().count()) + 1;
        Err(ParseError { line: self.number, column, reason: reason.to_string() })
    }

    fn rest(&self) -> &'a str {
        self.whole.get(self.at..).unwrap_or("")
    }

    /// What comes next, for messages.
    fn next(&self) -> String {
        if self.is_at_end() { "the end".into() } else { format!("`{}`", self.rest()) }
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn is_at_end(&self) -> bool {
        self.rest().is_empty() || self.rest().starts_with("//")
    }

    fn end(&self) -> Result<()> {
        if self.is_at_end() { Ok(()) } else { self.fail(format!("expected the end, found {}", self.next())) }
    }

    /// Takes a symbol or word, if it is next. A word ends where letters do.
    fn take(&mut self, what: &str) -> bool {
        let Some(after) = self.rest().strip_prefix(what) else { return false };
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if what.ends_with(is_word) && after.starts_with(is_word) {
            return false;
        }
        self.at += what.len();
        self.skip_space();
        true
    }

    fn expect(&mut self, what: &str) -> Result<()> {
        if self.take(what) { Ok(()) } else { self.fail(format!("expected `{what}`, found {}", self.next())) }
    }

    /// Letters, digits and `_`.
    fn word(&mut self) -> Result<&'a str> {
        let rest = self.rest();
        let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        if length == 0 {
            return self.fail(format!("expected a word, found {}", self.next()));
        }
        self.at += length;
        self.skip_space();
        Ok(&rest[..length])
    }

    fn number<T: FromStr>(&mut self) -> Result<T> {
        let rest = self.rest();
        let sign = usize::from(rest.starts_with('-'));
        let digits = rest[sign..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - sign);
        match rest[..sign + digits].parse() {
            Ok(number) => {
                self.at += sign + digits;
                self.skip_space();
                Ok(number)
            }
            Err(_) if digits == 0 => self.fail(format!("expected a number, found {}", self.next())),
            Err(_) => self.fail(format!("`{}` is out of range", &rest[..sign + digits])),
        }
    }

    /// A letter and a number: `s3`.
    fn id(&mut self, prefix: &str) -> Result<u32> {
        match self.try_id(prefix)? {
            Some(id) => Ok(id),
            None => self.fail(format!("expected `{prefix}` and a number, found {}", self.next())),
        }
    }

    fn try_id(&mut self, prefix: &str) -> Result<Option<u32>> {
        let Some(after) = self.rest().strip_prefix(prefix) else { return Ok(None) };
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let is_word = after[digits..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        if digits == 0 || is_word {
            return Ok(None);
        }
        self.at += prefix.len();
        self.number().map(Some)
    }

    fn size(&mut self) -> Result<SizeId> {
        self.id("s").map(SizeId)
    }

    fn buffer(&mut self) -> Result<BufferId> {
        self.id("b").map(BufferId)
    }

    fn host(&mut self) -> Result<HostId> {
        self.id("h").map(HostId)
    }

    fn dtype(&mut self) -> Result<DType> {
        let start = self.at;
        let word = self.word()?;
        word.parse().or_else(|_| {
            self.at = start;
            self.fail(format!("`{word}` is no element type"))
        })
    }

    /// A text in quotes, with the escapes of Rust.
    fn quoted(&mut self) -> Result<String> {
        let start = self.at;
        let mut text = String::new();
        let mut chars = self.rest().char_indices();
        if chars.next().is_none_or(|first| first.1 != '"') {
            return self.fail(format!("expected a text in quotes, found {}", self.next()));
        }
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.at = start + at + 1;
                    self.skip_space();
                    return Ok(text);
                }
                '\\' => match chars.next().map(|next| next.1) {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some('r') => text.push('\r'),
                    Some('0') => text.push('\0'),
                    Some('u') => {
                        let digits = chars.by_ref().map(|next| next.1).skip(1).take_while(|c| *c != '}');
                        let code = u32::from_str_radix(&digits.collect::<String>(), 16).ok();
                        match code.and_then(char::from_u32) {
                            Some(c) => text.push(c),
                            None => return self.fail("a text with an escape that is no character"),
                        }
                    }
                    Some(other) => text.push(other),
                    None => break,
                },
                other => text.push(other),
            }
        }
        self.fail("a text without an end")
    }

    /// A name: a word, or a text in quotes.
    fn name(&mut self) -> Result<String> {
        if self.rest().starts_with('"') { self.quoted() } else { self.word().map(ToOwned::to_owned) }
    }

    /// Items with commas between, up to the closing symbol, which is taken.
    fn list<T>(&mut self, close: &str, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = Vec::new();
        while !self.take(close) {
            if !items.is_empty() {
                self.expect(",")?;
            }
            items.push(item(self)?);
        }
        Ok(items)
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
            plan.arena_bytes = self.number()?;
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
            self.is_next("block", number, plan.blocks.len())?;
            self.expect(":")?;
            plan.blocks.push(self.size()?);
            return self.expect("bytes");
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
        Ok(BufferDef { dtype, size_bytes, shape, place: self.place()? })
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
        Ok(KernelDef { name, params, n_sizes })
    }

    /// A text in quotes, or the number of one that the plan does not have.
    fn text(&mut self, plan: &mut Plan) -> Result<TextId> {
        match self.try_id("t")? {
            Some(id) => Ok(TextId(id)),
            None => Ok(intern(plan, self.quoted()?)),
        }
    }

    fn operand(&mut self) -> Result<Operand> {
        if self.take("_") {
            return Ok(Operand::Absent);
        }
        match self.try_id("h")? {
            Some(value) => Ok(Operand::Value(HostId(value))),
            None => self.buffer().map(Operand::Buffer),
        }
    }

    /// `[ELEMENT]`.
    fn element(&mut self) -> Result<u32> {
        self.expect("[")?;
        let element = self.number()?;
        self.expect("]")?;
        Ok(element)
    }

    fn op(&mut self, plan: &mut Plan) -> Result<Op> {
        if self.take("call") {
            return self.call(plan);
        }
        if self.take("alloc") {
            return Ok(Op::Alloc { buffer: self.buffer()? });
        }
        if self.take("grow") {
            return Ok(Op::Grow { buffer: self.buffer()? });
        }
        if self.take("free") {
            return Ok(Op::Free { buffer: self.buffer()? });
        }
        if self.take("copy") {
            let from = self.buffer()?;
            self.expect("to")?;
            return Ok(Op::Copy { from, to: self.buffer()? });
        }
        if self.take("guard") {
            let lhs = self.size()?;
            // The longer sign first.
            let all = [Cmp::Eq, Cmp::Ne, Cmp::Le, Cmp::Lt];
            let Some(cmp) = all.into_iter().find(|cmp| self.take(cmp.symbol())) else {
                return self.fail(format!("expected a comparison, found {}", self.next()));
            };
            let rhs = self.size()?;
            return Ok(Op::Guard { lhs, cmp, rhs, message: self.text(plan)? });
        }
        if self.take("branch") {
            self.expect("if")?;
            let slot = self.size()?;
            self.expect("==")?;
            self.expect("0")?;
            self.expect("to")?;
            return Ok(Op::BranchIfZero { slot, target: self.number()? });
        }
        if self.take("jump") {
            self.expect("to")?;
            return Ok(Op::Jump { target: self.number()? });
        }
        self.assignment()
    }

    /// `call k0 NAME(b0, b1; s2) tasks s3 x s4`; the name is that of the kernel, if there is one.
    fn call(&mut self, plan: &Plan) -> Result<Op> {
        let kernel = KernelId(self.id("k")?);
        let known = plan.kernels.get(kernel.index()).map(|kernel| kernel.name.as_str());
        if !self.rest().starts_with('(') {
            let start = self.at;
            let name = self.name()?;
            if known != Some(name.as_str()) {
                self.at = start;
                return self.fail(format!("{kernel} is `{}`, not `{name}`", known.unwrap_or("")));
            }
        }
        self.expect("(")?;
        let (mut buffers, mut sizes) = (Vec::new(), Vec::new());
        while !self.take(")") {
            if self.take(";") {
                sizes = self.list(")", Line::size)?;
                break;
            }
            if !buffers.is_empty() {
                self.expect(",")?;
            }
            buffers.push(self.buffer()?);
        }
        self.expect("tasks")?;
        let rounds = self.size()?;
        self.expect("x")?;
        Ok(Op::Call { kernel, buffers, sizes, rounds, per_round: self.size()? })
    }

    /// What has a result in front: `s0 = ..`, `b0[1] = ..`, `h0 = h1`, `b0, h1; s2 = host 3(..)`.
    fn assignment(&mut self) -> Result<Op> {
        let start = self.at;
        let op = self.plain_assignment()?;
        match op {
            Some(op) => Ok(op),
            None => {
                self.at = start;
                self.host_call()
            }
        }
    }

    /// An assignment without `host`; nothing if it is none.
    fn plain_assignment(&mut self) -> Result<Option<Op>> {
        if let Some(slot) = self.try_id("s")?.map(SizeId) {
            self.expect("=")?;
            if self.take("dim") {
                let axis = self.number()?;
                self.expect("of")?;
                return Ok(Some(Op::ReadDim { value: self.host()?, axis, slot }));
            }
            if self.take("floor") {
                self.expect("(")?;
                let size = self.size()?;
                self.expect("*")?;
                let buffer = self.buffer()?;
                let element = self.element()?;
                self.expect(")")?;
                return Ok(Some(Op::ScaleSize { size, buffer, element, slot }));
            }
            if let Some(value) = self.try_id("s")? {
                return Ok(Some(Op::SetSize { slot, value: SizeId(value) }));
            }
            let buffer = self.buffer()?;
            return Ok(Some(Op::ReadSize { buffer, element: self.element()?, slot }));
        }
        if let Some(to) = self.try_id("h")? {
            if !self.take("=") {
                return Ok(None);
            }
            let from = self.try_id("h")?;
            return Ok(from.map(|from| Op::CopyValue { from: HostId(from), to: HostId(to) }));
        }
        if let Some(buffer) = self.try_id("b")? {
            if !self.rest().starts_with('[') {
                return Ok(None);
            }
            let element = self.element()?;
            self.expect("=")?;
            return Ok(Some(Op::WriteSize { buffer: BufferId(buffer), element, value: self.size()? }));
        }
        Ok(None)
    }

    fn host_call(&mut self) -> Result<Op> {
        let (mut outputs, mut sizes_out) = (Vec::new(), Vec::new());
        while !self.take("=") {
            if self.take(";") {
                sizes_out = self.list("=", Line::size)?;
                break;
            }
            if !outputs.is_empty() {
                self.expect(",")?;
            }
            outputs.push(self.operand()?);
        }
        self.expect("host")?;
        let op = self.number()?;
        self.expect("(")?;
        let inputs = self.list(")", Line::operand)?;
        let attrs = if self.take("attrs") { self.bytes()? } else { Vec::new() };
        Ok(Op::Host { op, attrs, inputs, outputs, sizes_out })
    }

    /// Bytes in hexadecimal.
    fn bytes(&mut self) -> Result<Vec<u8>> {
        let start = self.at;
        let digits = self.word()?;
        let pair = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
        match (0..digits.len()).step_by(2).map(pair).collect() {
            Some(bytes) => Ok(bytes),
            None => {
                self.at = start;
                self.fail(format!("`{digits}` are no bytes"))
            }
        }
    }
}

/// The number of a text.
fn intern(plan: &mut Plan, text: String) -> TextId {
    let known = plan.texts.iter().position(|known| *known == text);
    let index = known.unwrap_or_else(|| {
        plan.texts.push(text);
        plan.texts.len() - 1
    });
    TextId(index as u32)
}
