//! Pieces of LLVM IR as text: metadata, types, constants; and what goes wrong while it is written.

use std::fmt::Write;

use tilewright_dtype::DType;
use tilewright_machine::{CodegenError, CodegenKind};
use tilewright_te::kernel::{Access, Kernel, Type};

/// What stands at the end of the module: numbered metadata nodes, and functions.
pub(super) struct Metadata {
    pub(super) text: String,
    /// Functions that the kernels of the module share.
    pub(super) functions: String,
    count: usize,
}

impl Metadata {
    /// Starts with `!0`, the empty node that flags such as `!nonnull` refer to.
    pub(super) fn new() -> Metadata {
        Metadata { text: "!0 = !{}\n".to_owned(), functions: String::new(), count: 1 }
    }

    pub(super) fn node(&mut self, content: &str) -> usize {
        let id = self.count;
        self.count += 1;
        let _ = writeln!(self.text, "!{id} = {content}");
        id
    }

    /// What is attached to the accesses of each buffer: its own alias scope, the others' as not aliased.
    pub(super) fn buffer_scopes(&mut self, kernel: &Kernel) -> Vec<String> {
        let domain = self.node(&format!("distinct !{{!{}}}", self.count));
        let scopes: Vec<usize> = kernel
            .buffers
            .iter()
            .map(|_| self.node(&format!("distinct !{{!{}, !{domain}}}", self.count)))
            .collect();
        let list = |scopes: &mut dyn Iterator<Item = &usize>| {
            let names: Vec<String> = scopes.map(|scope| format!("!{scope}")).collect();
            format!("!{{{}}}", names.join(", "))
        };
        (0..scopes.len())
            .map(|i| {
                let own = self.node(&list(&mut scopes[i..=i].iter()));
                let others = scopes.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, scope)| scope);
                let others = self.node(&list(&mut { others }));
                format!(", !alias.scope !{own}, !noalias !{others}")
            })
            .collect()
    }

    /// The alignment of a loaded pointer.
    pub(super) fn align(&mut self, bytes: u32) -> usize {
        self.node(&format!("!{{i64 {bytes}}}"))
    }
}

/// What is known of a buffer or local array of the function being translated.
#[derive(Clone)]
pub(super) struct PlaceInfo {
    pub(super) pointer: String,
    /// LLVM's address space: 0 on processors and for a thread's own arrays, 1 for global and 3 for shared memory of GPUs.
    pub(super) space: u32,
    pub(super) dtype: DType,
    pub(super) align: u64,
    /// Alias metadata for any access.
    pub(super) scopes: String,
    /// Whether loads always see the same bytes.
    pub(super) invariant: bool,
}

impl PlaceInfo {
    /// LLVM's type of pointers into it.
    pub(super) fn ptr(&self) -> String {
        if self.space == 0 { "ptr".to_owned() } else { format!("ptr addrspace({})", self.space) }
    }

    pub(super) fn is_invariant(access: Access) -> bool {
        match access {
            Access::Read => true,
            Access::Write | Access::ReadWrite => false,
        }
    }
}

/// LLVM's type of one lane in registers, or nothing for types that must have been expanded before.
pub(super) fn lane(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Bool => "i1",
        DType::I8 | DType::U8 => "i8",
        DType::I16 | DType::U16 => "i16",
        DType::I32 | DType::U32 => "i32",
        DType::I64 | DType::U64 => "i64",
        DType::F32 => "float",
        DType::F64 => "double",
        DType::F16
        | DType::BF16
        | DType::F8E4M3FN
        | DType::F8E4M3FNUZ
        | DType::F8E5M2
        | DType::F8E5M2FNUZ
        | DType::F8E8M0
        | DType::F4E2M1
        | DType::I4
        | DType::U4
        | DType::I2
        | DType::U2
        | DType::String => return None,
    })
}

/// `lane`, or a vector of so many.
pub(super) fn vector(lane: &str, lanes: u32) -> String {
    if lanes == 1 { lane.to_owned() } else { format!("<{lanes} x {lane}>") }
}

/// The suffix of an overloaded intrinsic's name: `f32`, `v16i8`.
pub(super) fn suffix(lane: &str, lanes: u32) -> String {
    let lane = match lane {
        "float" => "f32",
        "double" => "f64",
        integer => integer,
    };
    if lanes == 1 { lane.to_owned() } else { format!("v{lanes}{lane}") }
}

/// A constant in every lane.
pub(super) fn splat(lane: &str, lanes: u32, value: &str) -> String {
    if lanes == 1 { value.to_owned() } else { format!("splat ({lane} {value})") }
}

pub(super) fn unsupported(kernel: &Kernel, what: impl Into<String>) -> CodegenError {
    CodegenError::Unsupported { codegen: CodegenKind::Llvm, kernel: kernel.name.clone(), what: what.into() }
}

pub(super) fn invalid(kernel: &Kernel, reason: impl Into<String>) -> CodegenError {
    CodegenError::InvalidKernel { kernel: kernel.name.clone(), reason: reason.into() }
}

/// Whether an integer type's bits are the same as another's of the same width.
pub(super) fn same_bits(a: Type, b: Type) -> bool {
    a.dtype.bytes() == b.dtype.bytes() && a.lanes == b.lanes
}
