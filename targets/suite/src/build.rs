//! Kernels by hand.

use cranelift_entity::PrimaryMap;
use tilewright_dtype::DType;
use tilewright_te::expr::{BinaryOp, CompareOp, UnaryOp, Var};
use tilewright_te::kernel::{
    Access, Carried, Inst, Join, Kernel, KernelBuffer, KernelLocal, KernelOp, KernelSize, MemRef, TaskGrid,
    Threads, Type, Value,
};

/// Builds a [`Kernel`] instruction by instruction.
#[derive(Debug)]
pub struct KernelBuilder {
    kernel: Kernel,
    /// The lists being filled, outermost first.
    open: Vec<Vec<Inst>>,
}

impl KernelBuilder {
    /// A kernel without buffers or instructions, of one task.
    pub fn new(name: impl Into<String>) -> KernelBuilder {
        let mut values = PrimaryMap::new();
        let task = values.push(Type::scalar(DType::I64));
        let kernel = Kernel {
            name: name.into(),
            buffers: Vec::new(),
            locals: Vec::new(),
            threads: Threads::ONE,
            shared: Vec::new(),
            sizes: Vec::new(),
            grid: TaskGrid::single(),
            values,
            task,
            body: Vec::new(),
        };
        KernelBuilder { kernel, open: vec![Vec::new()] }
    }

    /// The number of the task.
    pub fn task(&self) -> Value {
        self.kernel.task
    }

    /// A buffer parameter, aligned to 64 bytes.
    pub fn buffer(&mut self, name: &str, dtype: DType, access: Access) -> MemRef {
        self.kernel.buffers.push(KernelBuffer { name: name.to_owned(), dtype, access, align: 64 });
        MemRef::Param(self.kernel.buffers.len() as u32 - 1)
    }

    /// An array on the stack.
    pub fn local(&mut self, name: &str, dtype: DType, len: u64) -> MemRef {
        self.kernel.locals.push(KernelLocal { name: name.to_owned(), dtype, len });
        MemRef::Local(self.kernel.locals.len() as u32 - 1)
    }

    /// Gives tasks several threads.
    pub fn threads(&mut self, warps: u32, lanes: u32) {
        self.kernel.threads = Threads { warps, lanes };
    }

    /// An array that the threads of a task share.
    pub fn shared(&mut self, name: &str, dtype: DType, len: u64) -> MemRef {
        self.kernel.shared.push(KernelLocal { name: name.to_owned(), dtype, len });
        MemRef::Shared(self.kernel.shared.len() as u32 - 1)
    }

    /// A symbolic extent.
    pub fn size(&mut self, name: &str) -> Value {
        let number = self.kernel.sizes.len() as u32;
        self.kernel.sizes.push(KernelSize { var: Var::from_u32(number), name: name.to_owned() });
        self.let_(Type::scalar(DType::I64), KernelOp::Size(number))
    }

    /// The value of an operation.
    pub fn let_(&mut self, ty: Type, op: KernelOp) -> Value {
        let result = self.kernel.values.push(ty);
        self.push(Inst::Let { result, op });
        result
    }

    /// The type of a value.
    pub fn ty(&self, value: Value) -> Type {
        self.kernel.values[value]
    }

    /// An index constant.
    pub fn index(&mut self, value: i64) -> Value {
        self.let_(Type::scalar(DType::I64), KernelOp::Int(value))
    }

    /// An operation of one operand.
    pub fn unary(&mut self, op: UnaryOp, a: Value) -> Value {
        let ty = self.ty(a);
        let dtype = if op == UnaryOp::IsNan { DType::Bool } else { ty.dtype };
        self.let_(Type { dtype, ..ty }, KernelOp::Unary(op, a))
    }

    /// An operation of two operands.
    pub fn binary(&mut self, op: BinaryOp, a: Value, b: Value) -> Value {
        self.let_(self.ty(a), KernelOp::Binary(op, a, b))
    }

    /// `a + b`.
    pub fn add(&mut self, a: Value, b: Value) -> Value {
        self.binary(BinaryOp::Add, a, b)
    }

    /// `a * b` of indices, `b` constant.
    pub fn scaled(&mut self, a: Value, by: i64) -> Value {
        let by = self.index(by);
        self.binary(BinaryOp::Mul, a, by)
    }

    /// A comparison.
    pub fn compare(&mut self, op: CompareOp, a: Value, b: Value) -> Value {
        let lanes = self.ty(a).lanes;
        self.let_(Type::vector(DType::Bool, lanes), KernelOp::Compare(op, a, b))
    }

    /// A scalar in every lane.
    pub fn splat(&mut self, a: Value, lanes: u32) -> Value {
        let dtype = self.ty(a).dtype;
        self.let_(Type::vector(dtype, lanes), KernelOp::Splat(a))
    }

    /// A conversion.
    pub fn cast(&mut self, a: Value, dtype: DType) -> Value {
        let lanes = self.ty(a).lanes;
        self.let_(Type::vector(dtype, lanes), KernelOp::Cast(a))
    }

    /// A load of consecutive elements.
    pub fn load(&mut self, ty: Type, place: MemRef, index: Value, offset: i64) -> Value {
        self.let_(ty, KernelOp::Load { place, index, offset, mask: None })
    }

    /// A store of consecutive elements.
    pub fn store(&mut self, place: MemRef, index: Value, offset: i64, value: Value) {
        self.push(Inst::Store { place, index, offset, value, mask: None });
    }

    /// A store of the lanes that a mask selects.
    pub fn store_masked(&mut self, place: MemRef, index: Value, offset: i64, value: Value, mask: Value) {
        self.push(Inst::Store { place, index, offset, value, mask: Some(mask) });
    }

    /// Any instruction.
    pub fn push(&mut self, inst: Inst) {
        self.open.last_mut().expect("a list is open").push(inst);
    }

    /// A loop: `body` takes the counter and the carried values and returns their next values.
    pub fn loop_(
        &mut self,
        begin: Value,
        end: Value,
        inits: &[Value],
        body: impl FnOnce(&mut KernelBuilder, Value, &[Value]) -> Vec<Value>,
    ) -> Vec<Value> {
        let var = self.kernel.values.push(Type::scalar(DType::I64));
        let params: Vec<Value> =
            inits.iter().map(|init| self.kernel.values.push(self.kernel.values[*init])).collect();
        self.open.push(Vec::new());
        let nexts = body(self, var, &params);
        assert_eq!(nexts.len(), inits.len(), "a loop returns what it carries");
        let body = self.open.pop().expect("the loop's list is open");
        let results: Vec<Value> =
            inits.iter().map(|init| self.kernel.values.push(self.kernel.values[*init])).collect();
        let carried = (0..inits.len())
            .map(|i| Carried { init: inits[i], param: params[i], next: nexts[i], result: results[i] })
            .collect();
        self.push(Inst::Loop { var, begin, end, carried, body });
        results
    }

    /// A branch: both sides return the values that leave it.
    pub fn if_(
        &mut self,
        condition: Value,
        on_true: impl FnOnce(&mut KernelBuilder) -> Vec<Value>,
        on_false: impl FnOnce(&mut KernelBuilder) -> Vec<Value>,
    ) -> Vec<Value> {
        self.open.push(Vec::new());
        let then_values = on_true(self);
        let then_body = self.open.pop().expect("the list is open");
        self.open.push(Vec::new());
        let else_values = on_false(self);
        let else_body = self.open.pop().expect("the list is open");
        assert_eq!(then_values.len(), else_values.len(), "both sides return as many values");
        let joins: Vec<Join> = then_values
            .into_iter()
            .zip(else_values)
            .map(|(then_value, else_value)| {
                let result = self.kernel.values.push(self.kernel.values[then_value]);
                Join { then_value, else_value, result }
            })
            .collect();
        let results = joins.iter().map(|join| join.result).collect();
        self.push(Inst::If { condition, then_body, else_body, joins });
        results
    }

    /// The kernel.
    pub fn finish(mut self) -> Kernel {
        self.kernel.body = self.open.pop().expect("the outermost list is open");
        assert!(self.open.is_empty(), "every list is closed");
        self.kernel
    }
}
