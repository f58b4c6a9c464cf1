//! Parsing of instructions.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::line::{Line, Result};
use crate::plan::{BufferId, Cmp, HostId, KernelId, Operand, Plan, PlanOp, SizeId, TextId};

impl Line<'_> {
    /// A text in quotes, or the number of one that the plan does not have.
    pub(super) fn text(&mut self, plan: &mut Plan) -> Result<TextId> {
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

    pub(super) fn op(&mut self, plan: &mut Plan) -> Result<PlanOp> {
        if self.take("call") {
            return self.call(plan);
        }
        if self.take("alloc") {
            return Ok(PlanOp::Alloc { buffer: self.buffer()? });
        }
        if self.take("grow") {
            return Ok(PlanOp::Grow { buffer: self.buffer()? });
        }
        if self.take("free") {
            return Ok(PlanOp::Free { buffer: self.buffer()? });
        }
        if self.take("copy") {
            let from = self.buffer()?;
            self.expect("to")?;
            return Ok(PlanOp::Copy { from, to: self.buffer()? });
        }
        if self.take("guard") {
            let lhs = self.size()?;
            // The longer sign first.
            let all = [Cmp::Eq, Cmp::Ne, Cmp::Le, Cmp::Lt];
            let Some(cmp) = all.into_iter().find(|cmp| self.take(cmp.symbol())) else {
                return self.fail(format!("expected a comparison, found {}", self.next()));
            };
            let rhs = self.size()?;
            return Ok(PlanOp::Guard { lhs, cmp, rhs, message: self.text(plan)? });
        }
        if self.take("branch") {
            self.expect("if")?;
            let slot = self.size()?;
            self.expect("==")?;
            self.expect("0")?;
            self.expect("to")?;
            return Ok(PlanOp::BranchIfZero { slot, target: self.number()? });
        }
        if self.take("jump") {
            self.expect("to")?;
            return Ok(PlanOp::Jump { target: self.number()? });
        }
        self.assignment()
    }

    /// `call k0 NAME(b0, b1; s2) tasks s3 x s4`; the name is that of the kernel, if there is one.
    fn call(&mut self, plan: &Plan) -> Result<PlanOp> {
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
        let per_round = self.size()?;
        let in_order = self.take("in");
        if in_order {
            self.expect("order")?;
        }
        Ok(PlanOp::Call { kernel, buffers, sizes, rounds, per_round, in_order })
    }

    /// What has a result in front: `s0 = ..`, `b0[1] = ..`, `h0 = h1`, `b0, h1; s2 = host 3(..)`.
    fn assignment(&mut self) -> Result<PlanOp> {
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
    fn plain_assignment(&mut self) -> Result<Option<PlanOp>> {
        if let Some(slot) = self.try_id("s")?.map(SizeId) {
            self.expect("=")?;
            if self.take("dim") {
                let axis = self.number()?;
                self.expect("of")?;
                return Ok(Some(PlanOp::ReadDim { value: self.host()?, axis, slot }));
            }
            if self.take("floor") {
                self.expect("(")?;
                let size = self.size()?;
                self.expect("*")?;
                let buffer = self.buffer()?;
                let element = self.element()?;
                self.expect(")")?;
                return Ok(Some(PlanOp::ScaleSize { size, buffer, element, slot }));
            }
            if let Some(value) = self.try_id("s")? {
                return Ok(Some(PlanOp::SetSize { slot, value: SizeId(value) }));
            }
            let buffer = self.buffer()?;
            return Ok(Some(PlanOp::ReadSize { buffer, element: self.element()?, slot }));
        }
        if let Some(to) = self.try_id("h")? {
            if !self.take("=") {
                return Ok(None);
            }
            let from = self.try_id("h")?;
            return Ok(from.map(|from| PlanOp::CopyValue { from: HostId(from), to: HostId(to) }));
        }
        if let Some(buffer) = self.try_id("b")? {
            if !self.rest().starts_with('[') {
                return Ok(None);
            }
            let element = self.element()?;
            self.expect("=")?;
            return Ok(Some(PlanOp::WriteSize { buffer: BufferId(buffer), element, value: self.size()? }));
        }
        Ok(None)
    }

    fn host_call(&mut self) -> Result<PlanOp> {
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
        Ok(PlanOp::Host { op, attrs, inputs, outputs, sizes_out })
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
pub(super) fn intern(plan: &mut Plan, text: String) -> TextId {
    let known = plan.texts.iter().position(|known| *known == text);
    let index = known.unwrap_or_else(|| {
        plan.texts.push(text);
        plan.texts.len() - 1
    });
    TextId(index as u32)
}
