//! Functions and control flow.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    self, AbiParam, AliasRegionData, Block, BlockArg, InstBuilder, MemFlagsData, Signature, StackSlotData,
    StackSlotKind, types,
};
use cranelift_codegen::isa::TargetIsa;
use cranelift_entity::SecondaryMap;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use tilewright_dtype::DType;
use tilewright_machine::{CodegenError, Target};
use tilewright_te::kernel::{Access, Carried, Inst, Join, Kernel, KernelOp, MemRef, Threads, Type, Value};

use crate::error::{invalid, unsupported};
use crate::lanes::{Lanes, lane_of};

/// A kernel's function in the making.
pub(crate) struct Function<'a, 'f> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) target: &'a Target,
    pub(crate) builder: FunctionBuilder<'f>,
    buffers: Vec<PlaceInfo>,
    locals: Vec<PlaceInfo>,
    sizes: Vec<ir::Value>,
    values: SecondaryMap<Value, Option<Lanes>>,
    /// Values that are one integer constant in every lane.
    constants: SecondaryMap<Value, Option<i64>>,
}

/// What is known of a buffer or local array.
#[derive(Clone, Copy)]
pub(crate) struct PlaceInfo {
    pub(crate) pointer: ir::Value,
    pub(crate) dtype: DType,
    pub(crate) flags: MemFlagsData,
    /// Where lanes that are masked off go, if any access is masked.
    pub(crate) nowhere: Option<Nowhere>,
}

/// Addresses for lanes that are masked off.
#[derive(Clone, Copy)]
pub(crate) struct Nowhere {
    /// Eight zero bytes.
    pub(crate) zeros: ir::Value,
    /// Eight bytes that are written and never read.
    pub(crate) sink: ir::Value,
}

/// Fills `function` with the code of `kernel`.
pub(crate) fn translate(
    kernel: &Kernel,
    target: &Target,
    isa: &dyn TargetIsa,
    function: &mut ir::Function,
    context: &mut FunctionBuilderContext,
) -> Result<(), CodegenError> {
    kernel.verify().map_err(|faults| invalid(kernel, faults.join("; ")))?;
    if kernel.threads != Threads::ONE {
        return Err(unsupported(kernel, "a task of several threads"));
    }
    let mut signature = Signature::new(isa.default_call_conv());
    signature.params = vec![AbiParam::new(types::I64); 4];
    function.signature = signature;
    let mut builder = FunctionBuilder::new(function, context);
    let entry = builder.create_block();
    builder.append_block_params_for_function_params(entry);
    builder.switch_to_block(entry);
    let mut translation = Function {
        kernel,
        target,
        builder,
        buffers: Vec::new(),
        locals: Vec::new(),
        sizes: Vec::new(),
        values: SecondaryMap::new(),
        constants: SecondaryMap::new(),
    };
    translation.prologue(entry)?;
    translation.tasks(entry)?;
    let Function { mut builder, .. } = translation;
    builder.seal_all_blocks();
    builder.finalize(isa.frontend_config());
    Ok(())
}

impl Function<'_, '_> {
    fn prologue(&mut self, entry: Block) -> Result<(), CodegenError> {
        let kernel = self.kernel;
        let params = self.builder.block_params(entry).to_vec();
        let masked = masked_places(&kernel.body);
        let arguments = MemFlagsData::trusted().with_readonly().with_can_move();
        for (i, buffer) in kernel.buffers.iter().enumerate() {
            self.lane_type(buffer.dtype)?;
            let pointer = self.builder.ins().load(types::I64, arguments, params[0], 8 * i as i32);
            let region = self.region(i);
            let flags = match buffer.access {
                Access::Read => region.with_readonly(),
                Access::Write | Access::ReadWrite => region,
            };
            let nowhere = masked.contains(&MemRef::Param(i as u32)).then(|| self.new_nowhere(region));
            self.buffers.push(PlaceInfo { pointer, dtype: buffer.dtype, flags, nowhere });
        }
        for i in 0..kernel.sizes.len() {
            let size = self.builder.ins().load(types::I64, arguments, params[1], 8 * i as i32);
            self.sizes.push(size);
        }
        for (i, local) in kernel.locals.iter().enumerate() {
            self.lane_type(local.dtype)?;
            let bytes = local
                .len
                .checked_mul(local.dtype.bytes() as u64)
                .and_then(|bytes| u32::try_from(bytes).ok())
                .filter(|bytes| *bytes <= 1 << 30)
                .ok_or_else(|| unsupported(kernel, format!("local `{}` of over 1 GiB", local.name)))?;
            let pointer = self.stack(bytes, 6);
            let flags = self.region(kernel.buffers.len() + i);
            let nowhere = masked.contains(&MemRef::Local(i as u32)).then(|| self.new_nowhere(flags));
            self.locals.push(PlaceInfo { pointer, dtype: local.dtype, flags, nowhere });
        }
        Ok(())
    }

    /// Stack slots for the masked-off lanes of one place. They belong to its region: one instruction reaches
    /// either.
    fn new_nowhere(&mut self, region: MemFlagsData) -> Nowhere {
        let (zeros, sink) = (self.stack(8, 3), self.stack(8, 3));
        let zero = self.builder.ins().iconst(types::I64, 0);
        self.builder.ins().store(region, zero, zeros, 0);
        Nowhere { zeros, sink }
    }

    /// Accesses to the memory region of that number: it overlaps no other, and no access traps.
    fn region(&mut self, number: usize) -> MemFlagsData {
        let data = AliasRegionData { user_id: number as u32, description: "buffer".into() };
        let region = self.builder.func.dfg.alias_regions.insert(data);
        MemFlagsData::new().with_notrap().with_alias_region(Some(region))
    }

    fn stack(&mut self, bytes: u32, align_shift: u8) -> ir::Value {
        let data = StackSlotData::new(StackSlotKind::ExplicitSlot, bytes, align_shift);
        let slot = self.builder.create_sized_stack_slot(data);
        self.builder.ins().stack_addr(types::I64, slot, 0)
    }

    /// The loop over the tasks, with the kernel's body inside.
    fn tasks(&mut self, entry: Block) -> Result<(), CodegenError> {
        let kernel = self.kernel;
        if self.ty(kernel.task)? != Type::scalar(DType::I64) {
            return Err(invalid(kernel, "the task is not an i64"));
        }
        let params = self.builder.block_params(entry).to_vec();
        let (begin, end) = (params[2], params[3]);
        let (head, done) = (self.builder.create_block(), self.builder.create_block());
        let task = self.builder.append_block_param(head, types::I64);
        let some = self.builder.ins().icmp(IntCC::SignedLessThan, begin, end);
        self.builder.ins().brif(some, head, &[begin.into()], done, &[]);
        self.builder.switch_to_block(head);
        self.define(kernel.task, scalar(types::I64, task));
        self.body(&kernel.body)?;
        let next = self.builder.ins().iadd_imm_s(task, 1);
        let more = self.builder.ins().icmp(IntCC::SignedLessThan, next, end);
        self.builder.ins().brif(more, head, &[next.into()], done, &[]);
        self.builder.switch_to_block(done);
        self.builder.ins().return_(&[]);
        Ok(())
    }

    fn body(&mut self, insts: &[Inst]) -> Result<(), CodegenError> {
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
            // Cranelift has no such instruction.
            Inst::Prefetch { .. } => Ok(()),
            Inst::Barrier | Inst::CopyAsync { .. } | Inst::CommitCopies | Inst::WaitCopies { .. } => {
                Err(unsupported(self.kernel, "cooperation of threads"))
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
        let value = self.op(self.ty(result)?, op)?;
        self.define(result, value);
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
            (Some(begin), Some(end)) => begin < end,
            _ => false,
        };
        let (begin, end) = (self.value(begin)?.scalar(), self.value(end)?.scalar());
        let (head, exit) = (self.builder.create_block(), self.builder.create_block());
        let counter = self.builder.append_block_param(head, types::I64);
        let mut inits = vec![begin];
        for c in carried {
            inits.extend(self.block_parts(c.init)?);
        }
        if runs {
            self.builder.ins().jump(head, &arguments(&inits));
        } else {
            let some = self.builder.ins().icmp(IntCC::SignedLessThan, begin, end);
            self.builder.ins().brif(some, head, &arguments(&inits), exit, &arguments(&inits[1..]));
        }
        self.builder.switch_to_block(head);
        self.define(var, scalar(types::I64, counter));
        for c in carried {
            self.block_params(head, c.param)?;
        }
        self.body(body)?;
        let next = self.builder.ins().iadd_imm_s(counter, 1);
        let mut nexts = vec![next];
        for c in carried {
            nexts.extend(self.block_parts(c.next)?);
        }
        let more = self.builder.ins().icmp(IntCC::SignedLessThan, next, end);
        self.builder.ins().brif(more, head, &arguments(&nexts), exit, &arguments(&nexts[1..]));
        self.builder.switch_to_block(exit);
        for c in carried {
            self.block_params(exit, c.result)?;
        }
        Ok(())
    }

    fn branch(
        &mut self,
        condition: Value,
        then_body: &[Inst],
        else_body: &[Inst],
        joins: &[Join],
    ) -> Result<(), CodegenError> {
        let condition = self.value(condition)?.scalar();
        let [on_true, on_false, after] = [(); 3].map(|()| self.builder.create_block());
        self.builder.ins().brif(condition, on_true, &[], on_false, &[]);
        for (block, body, is_then) in [(on_true, then_body, true), (on_false, else_body, false)] {
            self.builder.switch_to_block(block);
            self.body(body)?;
            let mut parts = Vec::new();
            for join in joins {
                parts.extend(self.block_parts(if is_then { join.then_value } else { join.else_value })?);
            }
            self.builder.ins().jump(after, &arguments(&parts));
        }
        self.builder.switch_to_block(after);
        for join in joins {
            self.block_params(after, join.result)?;
        }
        Ok(())
    }

    /// A value as arguments of a block.
    fn block_parts(&mut self, value: Value) -> Result<Vec<ir::Value>, CodegenError> {
        let lanes = self.value(value)?;
        Ok(if lanes.mask { self.mask_as(&lanes, types::I8).parts } else { lanes.parts })
    }

    /// Parameters of a block for a value, and the value made of them.
    fn block_params(&mut self, block: Block, value: Value) -> Result<(), CodegenError> {
        let ty = self.ty(value)?;
        let lane = self.lane_type(ty.dtype)?;
        let types = self.part_types(lane, ty.lanes);
        let parts = types.into_iter().map(|ty| self.builder.append_block_param(block, ty)).collect();
        self.define(value, Lanes { lane, n: ty.lanes, mask: ty.dtype == DType::Bool, parts });
        Ok(())
    }

    fn define(&mut self, value: Value, lanes: Lanes) {
        self.values[value] = Some(lanes);
    }

    /// What a value is held in.
    pub(crate) fn value(&self, value: Value) -> Result<Lanes, CodegenError> {
        self.values[value]
            .clone()
            .ok_or_else(|| invalid(self.kernel, format!("{value} is used before it is defined")))
    }

    /// The integer that the value is in every lane, where it is one.
    pub(crate) fn constant(&self, value: Value) -> Option<i64> {
        self.constants[value]
    }

    /// The type of a value.
    pub(crate) fn ty(&self, value: Value) -> Result<Type, CodegenError> {
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

    /// The lane type of an element type.
    pub(crate) fn lane_type(&self, dtype: DType) -> Result<ir::Type, CodegenError> {
        lane_of(dtype).ok_or_else(|| unsupported(self.kernel, format!("values of type {dtype}")))
    }

    /// The `i`-th symbolic extent.
    pub(crate) fn size(&self, i: u32) -> Result<Lanes, CodegenError> {
        let size = self.sizes.get(i as usize);
        let size = size.ok_or_else(|| invalid(self.kernel, format!("there is no extent {i}")))?;
        Ok(scalar(types::I64, *size))
    }

    /// The buffer or local array.
    pub(crate) fn place(&self, place: MemRef) -> Result<PlaceInfo, CodegenError> {
        let info = match place {
            MemRef::Param(i) => self.buffers.get(i as usize),
            MemRef::Local(i) => self.locals.get(i as usize),
            MemRef::Shared(_) => return Err(unsupported(self.kernel, "shared arrays")),
        };
        info.copied().ok_or_else(|| invalid(self.kernel, format!("there is no {place:?}")))
    }
}

/// A value of one lane.
pub(crate) fn scalar(lane: ir::Type, value: ir::Value) -> Lanes {
    Lanes { lane, n: 1, mask: false, parts: vec![value] }
}

/// Values as arguments of a jump.
pub(crate) fn arguments(values: &[ir::Value]) -> Vec<BlockArg> {
    values.iter().map(|value| BlockArg::from(*value)).collect()
}

/// The buffers and local arrays with masked accesses.
fn masked_places(insts: &[Inst]) -> Vec<MemRef> {
    let mut places = Vec::new();
    for inst in insts {
        match inst {
            Inst::Let { op: KernelOp::Load { place, mask: Some(_), .. }, .. }
            | Inst::Let { op: KernelOp::Gather { place, mask: Some(_), .. }, .. }
            | Inst::Store { place, mask: Some(_), .. }
            | Inst::Scatter { place, mask: Some(_), .. } => places.push(*place),
            Inst::Let { .. }
            | Inst::Store { .. }
            | Inst::Scatter { .. }
            | Inst::Prefetch { .. }
            | Inst::Barrier
            | Inst::CopyAsync { .. }
            | Inst::CommitCopies
            | Inst::WaitCopies { .. } => {}
            Inst::Loop { body, .. } => places.extend(masked_places(body)),
            Inst::If { then_body, else_body, .. } => {
                places.extend(masked_places(then_body));
                places.extend(masked_places(else_body));
            }
        }
    }
    places
}
