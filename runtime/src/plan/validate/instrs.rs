//! Validation of instructions: they read what there is, and write what may be written.

use tilewright_dtype::{DType, Kind};

use super::{Fault, Site, Validator};
use crate::plan::{Access, BufferId, Instr, KernelId, Operand, Place, PlanOp, Space};

impl Validator<'_> {
    pub(super) fn instrs(&mut self) {
        for (i, Instr { op, provenance }) in self.plan.instrs.iter().enumerate() {
            let site = Site::Instr(i as u32);
            self.text(site, *provenance);
            self.instr(site, op);
        }
    }

    fn instr(&mut self, site: Site, op: &PlanOp) {
        match op {
            PlanOp::Call { kernel, buffers, sizes, rounds, per_round, in_order } => {
                for &size in sizes.iter().chain([rounds, per_round]) {
                    self.size(site, size);
                }
                self.call(site, *kernel, buffers, sizes.len());
                let space = self.plan.kernels.get(kernel.index()).map(|def| def.space);
                if *in_order && space == Some(Space::Device) {
                    self.fail(site, Fault::InOrder);
                }
            }
            PlanOp::Host { op: _, attrs: _, inputs, outputs, sizes_out } => {
                self.host(site, inputs, outputs);
                for &slot in sizes_out {
                    self.computed_size(site, slot);
                }
            }
            PlanOp::Alloc { buffer } | PlanOp::Grow { buffer } | PlanOp::Free { buffer } => {
                self.dynamic(site, *buffer)
            }
            PlanOp::ReadSize { buffer, element: _, slot } => {
                self.computed_size(site, *slot);
                self.buffer(site, *buffer);
                let is_integer = |dtype: DType| match dtype.kind() {
                    Kind::Bool | Kind::Int | Kind::UInt => true,
                    Kind::Float | Kind::String => false,
                };
                self.element(site, *buffer, is_integer);
            }
            PlanOp::ScaleSize { size, buffer, element: _, slot } => {
                self.computed_size(site, *slot);
                self.size(site, *size);
                self.buffer(site, *buffer);
                self.element(site, *buffer, |dtype| dtype == DType::F32);
            }
            PlanOp::WriteSize { buffer, element: _, value } => {
                self.size(site, *value);
                self.written(site, *buffer);
                self.element(site, *buffer, |dtype| matches!(dtype, DType::I64 | DType::I32));
            }
            PlanOp::SetSize { slot, value } => {
                self.computed_size(site, *slot);
                self.size(site, *value);
            }
            PlanOp::ReadDim { value, axis: _, slot } => {
                self.computed_size(site, *slot);
                self.value(site, *value);
            }
            PlanOp::CopyValue { from, to } => {
                self.value(site, *from);
                self.value(site, *to);
            }
            PlanOp::Copy { from, to } => {
                self.buffer(site, *from);
                self.written(site, *to);
            }
            PlanOp::Guard { lhs, cmp: _, rhs, message } => {
                self.size(site, *lhs);
                self.size(site, *rhs);
                self.text(site, *message);
            }
            PlanOp::BranchIfZero { slot, target } => {
                self.size(site, *slot);
                self.target(site, *target);
            }
            PlanOp::Jump { target } => self.target(site, *target),
        }
    }

    /// A call agrees with the kernel's signature.
    fn call(&mut self, site: Site, kernel: KernelId, buffers: &[BufferId], n_sizes: usize) {
        let plan = self.plan;
        let Some(def) = plan.kernels.get(kernel.index()) else {
            self.missing(site, format_args!("{kernel}"));
            return;
        };
        let expected = def.params.len();
        if buffers.len() != expected {
            self.fail(site, Fault::Arity { what: "buffers", expected, given: buffers.len() });
        }
        let expected = def.n_sizes as usize;
        if n_sizes != expected {
            self.fail(site, Fault::Arity { what: "sizes", expected, given: n_sizes });
        }
        for (&buffer, param) in buffers.iter().zip(&def.params) {
            self.in_space(site, buffer, def.space);
            match param.access {
                Access::Read => _ = self.buffer(site, buffer),
                Access::Write => self.written(site, buffer),
            }
        }
    }

    /// A host operator reads what there is and writes what may be written.
    fn host(&mut self, site: Site, inputs: &[Operand], outputs: &[Operand]) {
        for &input in inputs {
            match input {
                Operand::Absent => {}
                Operand::Buffer(buffer) => {
                    self.buffer(site, buffer);
                    self.in_space(site, buffer, Space::Host);
                }
                Operand::Value(value) => self.value(site, value),
            }
        }
        for &output in outputs {
            match output {
                Operand::Absent => {}
                Operand::Buffer(buffer) => {
                    self.written(site, buffer);
                    self.in_space(site, buffer, Space::Host);
                }
                Operand::Value(value) => self.value(site, value),
            }
        }
    }

    /// An element that an instruction reads or writes as a number is on the host, of one of the types it can handle.
    fn element(&mut self, site: Site, buffer: BufferId, is_handled: impl Fn(DType) -> bool) {
        self.in_space(site, buffer, Space::Host);
        if let Some(dtype) = self.plan.buffers.get(buffer.index()).map(|def| def.dtype)
            && !is_handled(dtype)
        {
            self.fail(site, Fault::DType(dtype));
        }
    }

    fn root(&self, mut id: BufferId) -> Place {
        loop {
            match self.plan.buffers[id.index()].place {
                Place::Alias { buffer, .. } => id = buffer,
                place => return place,
            }
        }
    }

    fn written(&mut self, site: Site, id: BufferId) {
        if !self.buffer(site, id) {
            return;
        }
        match self.root(id) {
            Place::Input(_) | Place::Weight { .. } => self.fail(site, Fault::ReadOnly(id)),
            Place::Output(_)
            | Place::Arena { .. }
            | Place::Block(_)
            | Place::Dynamic
            | Place::Alias { .. } => {}
        }
    }

    fn dynamic(&mut self, site: Site, id: BufferId) {
        if !self.buffer(site, id) {
            return;
        }
        let def = &self.plan.buffers[id.index()];
        let ok = match def.place {
            Place::Dynamic => true,
            Place::Output(_) => self.late[def.size_bytes.index()],
            Place::Input(_)
            | Place::Weight { .. }
            | Place::Arena { .. }
            | Place::Block(_)
            | Place::Alias { .. } => false,
        };
        if !ok {
            self.fail(site, Fault::NotDynamic(id));
        }
    }

    fn target(&mut self, site: Site, target: u32) {
        if target as usize > self.plan.instrs.len() {
            self.missing(site, format_args!("instruction {target}"));
        }
    }
}
