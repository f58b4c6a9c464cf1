//! The function that runs a model.

use std::collections::HashMap;

use cranelift_codegen::Context;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    self, AbiParam, FuncRef, GlobalValue, InstBuilder, MemFlagsData, Signature, StackSlot, StackSlotData,
    StackSlotKind, Type, types,
};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_module::{DataId, FuncId, Linkage, Module};
use cranelift_object::ObjectModule;
use tilewright_machine::{Address, Base, Check, CodegenError, RunFunction, RunStep};

use crate::error::internal;

/// Bytes that a copy moves at a time.
const WORD: u64 = 8;

/// Adds the function to a module.
pub(crate) fn define(function: &RunFunction, module: &mut ObjectModule) -> Result<(), CodegenError> {
    let kernel = kernel_signature(module);
    let mut kernels: HashMap<&str, FuncId> = HashMap::new();
    for step in &function.steps {
        if let RunStep::Call { kernel: name, .. } = step {
            // Hidden symbols are reached without a table of addresses.
            let id = module.declare_function(name, Linkage::Hidden, &kernel).map_err(internal)?;
            kernels.insert(name, id);
        }
    }
    let weights = module.declare_data(&function.weights, Linkage::Hidden, false, false).map_err(internal)?;
    let mut context = Context::new();
    context.func.signature = Signature::new(module.isa().default_call_conv());
    context.func.signature.params = vec![AbiParam::new(types::I64); 3];
    context.func.signature.returns = vec![AbiParam::new(types::I32)];
    let id = module
        .declare_function(&function.symbol, Linkage::Export, &context.func.signature)
        .map_err(internal)?;
    let mut builder_context = FunctionBuilderContext::new();
    let mut builder = FunctionBuilder::new(&mut context.func, &mut builder_context);
    let mut run = Run::new(&mut builder, function, module, &kernels, weights);
    run.body(function)?;
    builder.seal_all_blocks();
    builder.finalize(module.isa().frontend_config());
    module.define_function(id, &mut context).map_err(|error| internal(format!("{error:?}")))
}

fn kernel_signature(module: &ObjectModule) -> Signature {
    let mut signature = Signature::new(module.isa().default_call_conv());
    signature.params = vec![AbiParam::new(types::I64); 4];
    signature
}

struct Run<'a, 'f> {
    builder: &'a mut FunctionBuilder<'f>,
    /// The function's arguments.
    inputs: ir::Value,
    outputs: ir::Value,
    workspace: ir::Value,
    weights: GlobalValue,
    kernels: HashMap<&'a str, FuncRef>,
    /// The buffers of a call.
    buffers: StackSlot,
    /// Its sizes.
    sizes: StackSlot,
}

impl<'a, 'f> Run<'a, 'f> {
    fn new(
        builder: &'a mut FunctionBuilder<'f>,
        function: &RunFunction,
        module: &mut ObjectModule,
        kernels: &HashMap<&'a str, FuncId>,
        weights: DataId,
    ) -> Run<'a, 'f> {
        let entry = builder.create_block();
        builder.append_block_params_for_function_params(entry);
        builder.switch_to_block(entry);
        let params = builder.block_params(entry).to_vec();
        let weights = module.declare_data_in_func(weights, builder.func);
        let kernels = kernels
            .iter()
            .map(|(name, id)| (*name, module.declare_func_in_func(*id, builder.func)))
            .collect();
        let lengths = function.steps.iter().map(|step| match step {
            RunStep::Call { buffers, sizes, .. } => [buffers.len(), sizes.len()],
            RunStep::Copy { .. } => [0, 0],
        });
        let most = lengths.fold([1, 1], |[a, b], [c, d]| [a.max(c), b.max(d)]);
        let [buffers, sizes] = most.map(|n| {
            builder.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, 8 * n as u32, 3))
        });
        let [inputs, outputs, workspace] = [params[0], params[1], params[2]];
        Run { builder, inputs, outputs, workspace, weights, kernels, buffers, sizes }
    }

    fn body(&mut self, function: &RunFunction) -> Result<(), CodegenError> {
        self.check(&function.checks);
        for step in &function.steps {
            match step {
                RunStep::Call { kernel, buffers, sizes, tasks } => {
                    self.call(kernel, buffers, sizes, *tasks)?
                }
                RunStep::Copy { from, to, bytes } => self.copy(*from, *to, *bytes),
            }
        }
        let done = self.builder.ins().iconst(types::I32, 0);
        self.builder.ins().return_(&[done]);
        Ok(())
    }

    /// Leaves the function where an address is null or odd.
    fn check(&mut self, checks: &[Check]) {
        if checks.is_empty() {
            return;
        }
        let (refuse, run) = (self.builder.create_block(), self.builder.create_block());
        for Check { base, align } in checks {
            let pointer = self.base(*base);
            let rest = self.builder.ins().band_imm_s(pointer, align.max(&1).cast_signed() - 1);
            let is_odd = self.builder.ins().icmp_imm_s(IntCC::NotEqual, rest, 0);
            let is_null = self.builder.ins().icmp_imm_s(IntCC::Equal, pointer, 0);
            let bad = self.builder.ins().bor(is_odd, is_null);
            let next = self.builder.create_block();
            self.builder.ins().brif(bad, refuse, &[], next, &[]);
            self.builder.switch_to_block(next);
        }
        self.builder.ins().jump(run, &[]);
        self.builder.switch_to_block(refuse);
        let refused = self.builder.ins().iconst(types::I32, 1);
        self.builder.ins().return_(&[refused]);
        self.builder.switch_to_block(run);
    }

    fn call(
        &mut self,
        kernel: &str,
        buffers: &[Address],
        sizes: &[i64],
        tasks: i64,
    ) -> Result<(), CodegenError> {
        let unknown = || internal(format!("`{kernel}` is not declared"));
        let callee = self.kernels.get(kernel).copied().ok_or_else(unknown)?;
        for (i, buffer) in buffers.iter().enumerate() {
            let pointer = self.address(*buffer);
            self.builder.ins().stack_store(types::I64, pointer, self.buffers, 8 * i as i32);
        }
        for (i, size) in sizes.iter().enumerate() {
            let size = self.builder.ins().iconst(types::I64, *size);
            self.builder.ins().stack_store(types::I64, size, self.sizes, 8 * i as i32);
        }
        let buffers = self.builder.ins().stack_addr(types::I64, self.buffers, 0);
        let sizes = self.builder.ins().stack_addr(types::I64, self.sizes, 0);
        let [begin, end] = [0, tasks].map(|task| self.builder.ins().iconst(types::I64, task));
        self.builder.ins().call(callee, &[buffers, sizes, begin, end]);
        Ok(())
    }

    /// Words, then the bytes that are left. Nothing is known of the addresses' alignment.
    fn copy(&mut self, from: Address, to: Address, bytes: u64) {
        let (from, to) = (self.address(from), self.address(to));
        let words = bytes / WORD * WORD;
        self.copy_units(from, to, (types::I64, WORD), [0, words]);
        self.copy_units(from, to, (types::I8, 1), [words, bytes]);
    }

    fn copy_units(
        &mut self,
        from: ir::Value,
        to: ir::Value,
        (ty, unit): (Type, u64),
        [first, end]: [u64; 2],
    ) {
        if first == end {
            return;
        }
        let (head, done) = (self.builder.create_block(), self.builder.create_block());
        let at = self.builder.append_block_param(head, types::I64);
        let start = self.builder.ins().iconst(types::I64, first.cast_signed());
        self.builder.ins().jump(head, &[start.into()]);
        self.builder.switch_to_block(head);
        let flags = MemFlagsData::new().with_notrap();
        let source = self.builder.ins().iadd(from, at);
        let value = self.builder.ins().load(ty, flags, source, 0);
        let target = self.builder.ins().iadd(to, at);
        self.builder.ins().store(flags, value, target, 0);
        let next = self.builder.ins().iadd_imm_s(at, unit.cast_signed());
        let more = self.builder.ins().icmp_imm_s(IntCC::NotEqual, next, end.cast_signed());
        self.builder.ins().brif(more, head, &[next.into()], done, &[]);
        self.builder.switch_to_block(done);
    }

    fn address(&mut self, Address { base, offset }: Address) -> ir::Value {
        let base = self.base(base);
        match offset {
            0 => base,
            offset => self.builder.ins().iadd_imm_s(base, offset.cast_signed()),
        }
    }

    fn base(&mut self, base: Base) -> ir::Value {
        let (list, i) = match base {
            Base::Workspace => return self.workspace,
            Base::Weights => return self.builder.ins().symbol_value(types::I64, self.weights),
            Base::Input(i) => (self.inputs, i),
            Base::Output(i) => (self.outputs, i),
        };
        let flags = MemFlagsData::trusted().with_readonly();
        self.builder.ins().load(types::I64, flags, list, 8 * i as i32)
    }
}
