//! Code generators: what they make of a machine.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::TargetError;

/// A code generator for processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CodegenKind {
    /// `targets/llvm`.
    Llvm,
    /// `targets/cranelift`.
    Cranelift,
    /// `targets/c`: the text of a C program, and no machine code.
    C,
}

/// What a code generator can emit: schedules see this together with the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Codegen {
    /// Which generator.
    pub kind: CodegenKind,
    /// Widest vector instruction it emits, in bits.
    pub max_vector_bits: u32,
    /// Whether masked loads and stores are instructions; elsewhere they work lane by lane.
    pub masked_access: bool,
    /// Whether gathers are instructions where the machine has them; elsewhere they work lane by lane.
    pub gather: bool,
    /// Whether small constant-indexed local arrays become registers; if not, only SSA values do.
    pub scalar_replacement: bool,
    /// Whether values that a loop carries stay in their registers; if not, every iteration copies them, and short
    /// loops of a register tile's steps are worth unrolling.
    pub carries_in_place: bool,
    /// Whether a multiply-add by one lane of a vector is an instruction where the machine has it; elsewhere the lane is copied first.
    pub multiplies_by_lane: bool,
    /// Whether loads of vectors that lie side by side become one where the machine has such an instruction.
    pub joins_loads: bool,
    /// Whether prefetches become instructions; if not, they are left out.
    pub prefetch: bool,
}

impl CodegenKind {
    /// Every code generator.
    pub const ALL: [CodegenKind; 3] = [CodegenKind::Llvm, CodegenKind::Cranelift, CodegenKind::C];

    /// The name on the command line and in artifacts.
    pub const fn name(self) -> &'static str {
        match self {
            CodegenKind::Llvm => "llvm",
            CodegenKind::Cranelift => "cranelift",
            CodegenKind::C => "c",
        }
    }

    /// Whether it makes machine code, which artifacts hold and processes load.
    pub const fn makes_machine_code(self) -> bool {
        match self {
            CodegenKind::Llvm | CodegenKind::Cranelift => true,
            CodegenKind::C => false,
        }
    }

    /// What the generator can emit.
    pub const fn describe(self) -> Codegen {
        match self {
            CodegenKind::Llvm => Codegen {
                kind: self,
                max_vector_bits: 512,
                masked_access: true,
                gather: true,
                scalar_replacement: true,
                carries_in_place: true,
                multiplies_by_lane: true,
                joins_loads: true,
                prefetch: true,
            },
            CodegenKind::Cranelift => Codegen {
                kind: self,
                max_vector_bits: 128,
                masked_access: false,
                gather: false,
                scalar_replacement: false,
                carries_in_place: false,
                multiplies_by_lane: false,
                joins_loads: false,
                prefetch: false,
            },
            // Each lane is a variable in the text, so vectors are those of every processor that has any: tiles of wider ones
            // would be as much longer. Compilers keep variables and small arrays in registers as they can.
            CodegenKind::C => Codegen {
                kind: self,
                max_vector_bits: 128,
                masked_access: false,
                gather: false,
                scalar_replacement: true,
                carries_in_place: true,
                multiplies_by_lane: false,
                joins_loads: false,
                prefetch: false,
            },
        }
    }
}

impl fmt::Display for CodegenKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CodegenKind {
    type Err = TargetError;

    fn from_str(name: &str) -> Result<CodegenKind, TargetError> {
        CodegenKind::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| TargetError::UnknownCodegen { name: name.to_owned() })
    }
}
