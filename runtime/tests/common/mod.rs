//! What the tests share: plans built by hand and kernels without a compiler.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(unsafe_code, reason = "kernels are unsafe functions")]

use std::sync::Arc;

use tilewright_dtype::DType;
use tilewright_runtime::artifact::{Contents, ImageDef, Level, Manifest, ProgramDef};
use tilewright_runtime::plan::{
    Access, BufferDef, BufferId, DimSpec, Instr, KernelDef, KernelId, KernelParam, Place, Plan, PlanOp,
    SizeDef, SizeId, Space, TensorSpec, TextId,
};
use tilewright_runtime::{AlignedBuf, Bytes, HostOps, KernelFn, Kernels, Model, NoHostOps};

/// Builds a plan piece by piece.
#[derive(Default)]
pub(crate) struct Builder {
    pub(crate) plan: Plan,
    pub(crate) kernels: Vec<KernelFn>,
}

impl Builder {
    pub(crate) fn size(&mut self, def: SizeDef) -> SizeId {
        self.plan.sizes.push(def);
        SizeId(self.plan.sizes.len() as u32 - 1)
    }

    pub(crate) fn constant(&mut self, value: i64) -> SizeId {
        self.size(SizeDef::Const(value))
    }

    pub(crate) fn text(&mut self, text: &str) -> TextId {
        self.plan.texts.push(text.into());
        TextId(self.plan.texts.len() as u32 - 1)
    }

    /// A buffer whose bytes are the product of the dims and the element size.
    pub(crate) fn buffer(&mut self, dtype: DType, shape: &[SizeId], place: Place) -> BufferId {
        let mut size_bytes = self.constant(dtype.bytes() as i64);
        for &dim in shape {
            size_bytes = self.size(SizeDef::Mul(size_bytes, dim));
        }
        self.plan.buffers.push(BufferDef {
            dtype,
            size_bytes,
            shape: shape.to_vec(),
            space: Space::Host,
            place,
        });
        BufferId(self.plan.buffers.len() as u32 - 1)
    }

    fn spec(name: &str, dtype: DType, shape: &[SizeId], dims: &[&str], buffer: BufferId) -> TensorSpec {
        let dim = |(&size, name): (&SizeId, &&str)| DimSpec {
            name: (!name.is_empty()).then(|| name.to_string()),
            size,
        };
        TensorSpec { name: name.into(), dtype, dims: shape.iter().zip(dims).map(dim).collect(), buffer }
    }

    /// An input; `dims` are the symbolic names of its axes, empty for none.
    pub(crate) fn input(&mut self, name: &str, dtype: DType, shape: &[SizeId], dims: &[&str]) -> BufferId {
        let buffer = self.buffer(dtype, shape, Place::Input(self.plan.inputs.len() as u32));
        self.plan.inputs.push(Self::spec(name, dtype, shape, dims, buffer));
        buffer
    }

    pub(crate) fn output(&mut self, name: &str, dtype: DType, shape: &[SizeId]) -> BufferId {
        let buffer = self.buffer(dtype, shape, Place::Output(self.plan.outputs.len() as u32));
        self.plan.outputs.push(Self::spec(name, dtype, shape, &vec![""; shape.len()], buffer));
        buffer
    }

    /// A kernel; `params` has an `r` for each buffer that is read and a `w` for each that is written.
    pub(crate) fn kernel(&mut self, name: &str, params: &str, n_sizes: u32, code: KernelFn) -> KernelId {
        let access = |param| if param == 'w' { Access::Write } else { Access::Read };
        let params = params.chars().map(|param| KernelParam { align: 4, access: access(param) }).collect();
        self.plan.kernels.push(KernelDef { name: name.into(), params, n_sizes, space: Space::Host });
        self.kernels.push(code);
        KernelId(self.plan.kernels.len() as u32 - 1)
    }

    /// Appends an instruction that comes from node `node`; returns its index.
    pub(crate) fn op(&mut self, node: &str, op: PlanOp) -> u32 {
        let provenance = self.text(node);
        self.plan.instrs.push(Instr { op, provenance });
        self.plan.instrs.len() as u32 - 1
    }

    pub(crate) fn call(&mut self, kernel: KernelId, buffers: &[BufferId], sizes: &[SizeId], tasks: SizeId) {
        let name = self.plan.kernels[kernel.index()].name.clone();
        let (buffers, sizes, rounds) = (buffers.to_vec(), sizes.to_vec(), self.constant(1));
        self.op(&name, PlanOp::Call { kernel, buffers, sizes, rounds, per_round: tasks, in_order: false });
    }

    pub(crate) fn model(self) -> Model {
        self.model_with(&[], Arc::new(NoHostOps))
    }

    pub(crate) fn model_with(self, weights: &[u8], host: Arc<dyn HostOps>) -> Model {
        let kernels = Kernels::new(self.kernels, None);
        let weights = Bytes::new(weights.to_vec());
        // SAFETY: the tests' kernels do what their plans say.
        unsafe { Model::assemble(Manifest::default(), self.plan, kernels, weights, host) }
            .expect("a sound model")
    }
}

/// `out[i] = 2 * in[i]` for `f32`, one element a task.
pub(crate) unsafe extern "C" fn double(buffers: *const *mut u8, _sizes: *const i64, begin: i64, end: i64) {
    for i in begin as usize..end as usize {
        // SAFETY: by the plan, both buffers have an element for each task.
        unsafe {
            let (source, target) = (*buffers, *buffers.add(1));
            *target.cast::<f32>().add(i) = 2.0 * *source.cast::<f32>().add(i);
        }
    }
}

/// `out[i] = a[i] + b[i]` for `f32` over `sizes[0]` elements, a serial kernel.
pub(crate) unsafe extern "C" fn add(buffers: *const *mut u8, sizes: *const i64, _begin: i64, _end: i64) {
    // SAFETY: by the plan, the three buffers have `sizes[0]` elements.
    unsafe {
        for i in 0..*sizes as usize {
            let [a, b] = [0, 1].map(|buffer| *(*buffers.add(buffer)).cast::<f32>().add(i));
            *(*buffers.add(2)).cast::<f32>().add(i) = a + b;
        }
    }
}

/// Machine code of [`double`].
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
pub(crate) const DOUBLE: &[u8] = &[
    0x4c, 0x8b, 0x07,                         //    mov   r8, [rdi]
    0x4c, 0x8b, 0x4f, 0x08,                   //    mov   r9, [rdi + 8]
    0x48, 0x39, 0xca,                         // 1: cmp   rdx, rcx
    0x7d, 0x15,                               //    jge   2f
    0xf3, 0x41, 0x0f, 0x10, 0x04, 0x90,       //    movss xmm0, [r8 + 4 * rdx]
    0xf3, 0x0f, 0x58, 0xc0,                   //    addss xmm0, xmm0
    0xf3, 0x41, 0x0f, 0x11, 0x04, 0x91,       //    movss [r9 + 4 * rdx], xmm0
    0x48, 0xff, 0xc2,                         //    inc   rdx
    0xeb, 0xe6,                               //    jmp   1b
    0xc3,                                     // 2: ret
];

/// Machine code of [`double`].
#[cfg(target_arch = "aarch64")]
#[rustfmt::skip]
pub(crate) const DOUBLE: &[u8] = &[
    0x04, 0x00, 0x40, 0xf9, //    ldr  x4, [x0]
    0x05, 0x04, 0x40, 0xf9, //    ldr  x5, [x0, 8]
    0x5f, 0x00, 0x03, 0xeb, // 1: cmp  x2, x3
    0xca, 0x00, 0x00, 0x54, //    b.ge 2f
    0x80, 0x78, 0x62, 0xbc, //    ldr  s0, [x4, x2, lsl 2]
    0x00, 0x28, 0x20, 0x1e, //    fadd s0, s0, s0
    0xa0, 0x78, 0x22, 0xbc, //    str  s0, [x5, x2, lsl 2]
    0x42, 0x04, 0x00, 0x91, //    add  x2, x2, 1
    0xfa, 0xff, 0xff, 0x17, //    b    1b
    0xc0, 0x03, 0x5f, 0xd6, // 2: ret
];

/// A plan with an open batch, a temporary, and weights that are a second output: `y = 4 * x`, `w = weights`.
pub(crate) fn demo_plan() -> Builder {
    demo_plan_for(SizeDef::InputDim { input: 0, axis: 0 })
}

/// The plan for a batch of some size.
pub(crate) fn demo_plan_for(batch: SizeDef) -> Builder {
    let mut b = Builder::default();
    let batch = b.size(batch);
    let three = b.constant(3);
    let x = b.input("x", DType::F32, &[batch, three], &["batch", ""]);
    let temporary = b.buffer(DType::F32, &[batch, three], Place::Block(0));
    b.plan.arena.blocks.push(b.plan.buffers[temporary.index()].size_bytes);
    let y = b.output("y", DType::F32, &[batch, three]);
    let w = b.buffer(DType::F32, &[three], Place::Weight { offset: 0, len: 12 });
    b.plan.weight_bytes = 12;
    let w_out = b.output("w", DType::F32, &[three]);
    let tasks = b.size(SizeDef::Mul(batch, three));
    let kernel = b.kernel("double", "rw", 0, double);
    b.call(kernel, &[x, temporary], &[], tasks);
    b.call(kernel, &[temporary, y], &[], tasks);
    b.op("w", PlanOp::Copy { from: w, to: w_out });
    b
}

/// The weights of [`demo_plan`].
pub(crate) fn demo_weights() -> Vec<u8> {
    [1.0f32, 2.0, 3.0].iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// What is noted of a program whose only kernel is at the start of the image.
pub(crate) fn one_kernel() -> ProgramDef {
    ProgramDef { entries: vec![0], ..ProgramDef::default() }
}

pub(crate) fn demo_manifest() -> Manifest {
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    Manifest {
        model: "demo".into(),
        compiler: "test".into(),
        images: vec![ImageDef { triple, program: one_kernel(), ..ImageDef::default() }],
        ..Manifest::default()
    }
}

/// The bytes of an artifact of [`demo_plan`] with machine code for this machine.
pub(crate) fn demo_artifact() -> AlignedBuf {
    let (manifest, plan, weights) = (demo_manifest(), demo_plan().plan, demo_weights());
    let (first, second) = weights.split_at(8);
    let levels = [Level { plan: &plan, specialised: &[], image: DOUBLE, device_code: None }];
    let contents = Contents { manifest: &manifest, levels: &levels, weights: &[first, second] };
    contents.to_bytes().expect("contents that can be written")
}

/// A small generator of pseudo-random numbers (xorshift64*), so that failures repeat.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize) % bound
    }
}
