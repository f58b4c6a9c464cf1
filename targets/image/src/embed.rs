//! An artifact in the object of a runtime: one object, whose functions have the names of a library.

use object::build::elf::{Builder, SectionData};
use object::elf;
use thiserror::Error;

/// Machines as objects number them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine(elf::Machine);

impl Machine {
    /// x86-64.
    pub const X86_64: Machine = Machine(elf::EM_X86_64);
    /// ARM of 64 bits.
    pub const AARCH64: Machine = Machine(elf::EM_AARCH64);
    /// ARM of 32 bits.
    pub const ARM: Machine = Machine(elf::EM_ARM);
    /// RISC-V.
    pub const RISCV: Machine = Machine(elf::EM_RISCV);
}

/// What becomes of the names in a runtime's object, and of what it refers to.
pub struct Embedding<'a> {
    /// What the object must be for.
    pub machine: Machine,
    /// What is executable, from a boundary of pages on, by its symbol.
    pub code: (&'a str, &'a [u8]),
    /// What is only read, likewise.
    pub constants: (&'a str, &'a [u8]),
    /// Functions, and what they are to be called.
    pub functions: &'a [(&'a str, String)],
}

/// Why there is no such object.
#[derive(Debug, Error)]
pub enum EmbedError {
    /// Not an object, or one that cannot be written again.
    #[error(transparent)]
    Format(#[from] object::build::Error),
    /// An object for another machine.
    #[error("it is for machine {found} in the numbers of ELF, and the model for {expected}")]
    Machine {
        /// Of the object.
        found: u16,
        /// Of the model.
        expected: u16,
    },
    /// A symbol that the runtime's object of this version has.
    #[error("it has no symbol {0}: another version of Tilewright made it, or it is no runtime")]
    Symbol(String),
}

/// Boundaries of pages, which code counts in.
const PAGE: u64 = 4096;

/// Puts code and constants into a runtime's object, and gives its functions their names. All other names that it defines are its own.
///
/// # Errors
/// [`EmbedError`].
pub fn embed(runtime: &[u8], embedding: &Embedding<'_>) -> Result<Vec<u8>, EmbedError> {
    let Embedding { machine, code, constants, functions } = embedding;
    let mut builder = Builder::read(runtime)?;
    let (found, expected) = (builder.header.e_machine, machine.0);
    if found != expected {
        return Err(EmbedError::Machine { found: found.0, expected: expected.0 });
    }
    for symbol in &mut builder.symbols {
        if symbol.section.is_some() && symbol.st_bind() != elf::STB_LOCAL {
            symbol.set_st_info(elf::STB_LOCAL, symbol.st_type());
        }
    }
    for (from, to) in *functions {
        let found = builder.symbols.iter_mut().find(|symbol| *symbol.name == *from.as_bytes());
        let symbol = found.ok_or_else(|| EmbedError::Symbol((*from).to_owned()))?;
        symbol.name = to.clone().into_bytes().into();
        symbol.set_st_info(elf::STB_GLOBAL, elf::STT_FUNC);
        symbol.st_other = elf::SymbolOther::default();
    }
    let read = (elf::SHF_ALLOC, 8, ".rodata");
    let executed = (elf::SHF_ALLOC | elf::SHF_EXECINSTR, PAGE, ".text");
    for ((name, bytes), (flags, align, kind)) in [(code, executed), (constants, read)] {
        let section = builder.sections.add();
        section.name = format!("{kind}.{name}").into_bytes().into();
        section.sh_type = elf::SHT_PROGBITS;
        section.sh_flags = flags;
        section.sh_addralign = align;
        section.data = SectionData::Data((*bytes).into());
        let section = section.id();
        let found = builder.symbols.iter_mut().find(|symbol| *symbol.name == *name.as_bytes());
        let symbol = found.ok_or_else(|| EmbedError::Symbol((*name).to_owned()))?;
        symbol.section = Some(section);
        symbol.st_value = 0;
        symbol.st_size = bytes.len() as u64;
        symbol.set_st_info(elf::STB_LOCAL, elf::STT_OBJECT);
        symbol.st_other = elf::SymbolOther::default();
    }
    let mut object = Vec::new();
    builder.write(&mut object)?;
    Ok(object)
}
