//! Shared libraries, without a linker: all references of an image are relative, so that nothing is left to resolve.
//!
//! Three segments, each at the addresses of its bytes in the file, moved on by a page each so that none shares a page with another:
//! what is only read (tables of the dynamic linker, weights), the code, and the dynamic table, into which the dynamic linker writes.
//! The format is that of "System V ABI, chapter 5: Program Loading and Dynamic Linking".

use object::elf::{self, SectionFlags};
use object::write::StringId;
use object::write::elf::{FileHeader, ProgramHeader, SectionHeader, SectionIndex, Sym, Writer};
use object::{Architecture, Endianness};

use crate::library::{Library, LibraryError};
use crate::reloc::section::Relocations;
use crate::reloc::{Problem, Reference};
use crate::{Outside, To, problem_of};

/// Weights start on a cache line of their own.
const WEIGHT_ALIGN: u64 = 64;

/// Start of the code in the file: instructions that count in pages need one.
const CODE_ALIGN: u64 = 4096;

/// Entries of the dynamic table: name, hash table, strings, symbols, sizes of these two, end.
const N_DYNAMIC: usize = 7;

/// Largest pages that a machine may have.
const fn page(architecture: Architecture) -> u64 {
    match architecture {
        Architecture::Aarch64 => 1 << 16,
        _ => 1 << 12,
    }
}

/// Whether addresses have 64 bits.
fn is_64(architecture: Architecture) -> bool {
    architecture != Architecture::Arm
}

/// Places in the file.
struct Layout {
    page: u64,
    hash: u64,
    dynsym: u64,
    dynstr: u64,
    weights: u64,
    /// End of what is only read.
    constant_end: u64,
    text: u64,
    dynamic: u64,
    end: u64,
}

impl Layout {
    fn text_address(&self) -> u64 {
        self.text + self.page
    }

    fn dynamic_address(&self) -> u64 {
        self.dynamic + 2 * self.page
    }
}

impl Library {
    /// A shared library that is found by `soname`.
    ///
    /// # Errors
    /// [`LibraryError`].
    pub fn shared(&self, weights: &[u8], soname: &str) -> Result<Vec<u8>, LibraryError> {
        write(self, weights, soname)
    }
}

fn write(library: &Library, weights: &[u8], soname: &str) -> Result<Vec<u8>, LibraryError> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(Endianness::Little, is_64(library.architecture), &mut bytes);
    let symbol = writer.add_dynamic_string(library.symbol.as_bytes());
    let name = writer.add_dynamic_string(soname.as_bytes());
    let sections = [b".rodata".as_slice(), b".text"].map(|section| writer.add_section_name(section));
    writer.reserve_file_header();
    writer.reserve_program_headers(5);
    writer.reserve_dynamic_symbol_index();
    let hash = writer.reserve_hash(1, 2);
    let dynsym = writer.reserve_dynsym();
    let dynstr = writer.reserve_dynstr()?;
    let weights_at = writer.reserve(weights.len() as u64, WEIGHT_ALIGN);
    let constant_end = writer.reserved_len();
    let text = writer.reserve(library.image.bytes.len() as u64, CODE_ALIGN);
    let dynamic = writer.reserve_dynamic(N_DYNAMIC);
    let layout = Layout {
        page: page(library.architecture),
        hash,
        dynsym,
        dynstr,
        weights: weights_at,
        constant_end,
        text,
        dynamic,
        end: writer.reserved_len(),
    };
    let text_section = reserve_sections(&mut writer)?;

    write_headers(&mut writer, library, &layout)?;
    let exported = |index| (index == 1).then(|| elf::hash(library.symbol.as_bytes()));
    writer.write_hash(1, 2, exported);
    writer.write_null_dynamic_symbol();
    writer.write_dynamic_symbol(&Sym {
        section: Some(text_section.0),
        st_name: writer.dynamic_string_offset(Some(symbol)),
        st_info: elf::SymbolInfo::new(elf::STB_GLOBAL, elf::STT_FUNC),
        st_other: elf::SymbolOther::default(),
        st_shndx: elf::SymbolSection::default(),
        st_value: layout.text_address() + library.entry,
        st_size: library.image.bytes.len() as u64 - library.entry,
    });
    writer.write_dynstr();
    writer.pad_until(layout.weights);
    writer.write(weights);
    writer.pad_until(layout.text);
    writer.write(&code(library, &layout)?);
    write_dynamic(&mut writer, &layout, name, is_64(library.architecture))?;
    writer.write_shstrtab();
    write_sections(&mut writer, sections, library, weights.len() as u64, &layout);
    Ok(bytes)
}

/// The code, with its references to the weights.
fn code(library: &Library, layout: &Layout) -> Result<Vec<u8>, LibraryError> {
    let mut code = library.image.bytes.clone();
    let weights = layout.weights as i64 - layout.text_address() as i64;
    let mut relocations = Relocations::new(library.architecture);
    let problem = |problem, kind| problem_of(problem, kind, "weights".to_owned());
    for &Outside { at, kind, to } in &library.references {
        let target = match to {
            To::Weights(addend) => weights + addend,
            To::Upper(upper) => upper as i64,
        };
        let applied = relocations.apply(kind, Reference { at, target }, &mut code);
        applied.map_err(|error| problem(error, kind))?;
    }
    match relocations.finish(&mut code).first() {
        Some((kind, _)) => Err(problem(Problem::Kind, *kind).into()),
        None => Ok(code),
    }
}

/// Gives the index of the section of code.
fn reserve_sections(writer: &mut Writer<'_>) -> Result<SectionIndex, LibraryError> {
    writer.reserve_null_section_index();
    writer.reserve_hash_section_index();
    writer.reserve_dynsym_section_index();
    writer.reserve_dynstr_section_index();
    writer.reserve_section_index();
    let text = writer.reserve_section_index();
    writer.reserve_dynamic_section_index();
    writer.reserve_shstrtab_section_index();
    writer.reserve_shstrtab()?;
    writer.reserve_section_headers();
    Ok(text)
}

fn write_headers(writer: &mut Writer<'_>, library: &Library, layout: &Layout) -> Result<(), LibraryError> {
    writer.write_file_header(&FileHeader {
        os_abi: elf::ELFOSABI_NONE,
        abi_version: 0,
        e_type: elf::ET_DYN,
        e_machine: match library.architecture {
            Architecture::Aarch64 => elf::EM_AARCH64,
            Architecture::Arm => elf::EM_ARM,
            Architecture::Riscv64 => elf::EM_RISCV,
            _ => elf::EM_X86_64,
        },
        e_entry: 0,
        e_flags: library.flags,
    })?;
    writer.write_align_program_headers();
    let mut segment = |p_type, p_flags, p_offset: u64, address: u64, end: u64, p_align| {
        let bytes = end - p_offset;
        writer.write_program_header(&ProgramHeader {
            p_type,
            p_flags,
            p_offset,
            p_vaddr: address,
            p_paddr: address,
            p_filesz: bytes,
            p_memsz: bytes,
            p_align,
        });
    };
    let Layout { page, constant_end, text, dynamic, end, .. } = *layout;
    let text_end = text + library.image.bytes.len() as u64;
    segment(elf::PT_LOAD, elf::PF_R, 0, 0, constant_end, page);
    segment(elf::PT_LOAD, elf::PF_R | elf::PF_X, text, layout.text_address(), text_end, page);
    segment(elf::PT_LOAD, elf::PF_R | elf::PF_W, dynamic, layout.dynamic_address(), end, page);
    segment(elf::PT_DYNAMIC, elf::PF_R | elf::PF_W, dynamic, layout.dynamic_address(), end, 8);
    segment(elf::PT_GNU_STACK, elf::PF_R | elf::PF_W, 0, 0, 0, 16);
    Ok(())
}

fn write_dynamic(
    writer: &mut Writer<'_>,
    layout: &Layout,
    soname: StringId,
    is_64: bool,
) -> Result<(), LibraryError> {
    writer.write_align_dynamic();
    writer.write_dynamic_string(elf::DT_SONAME, soname)?;
    writer.write_dynamic(elf::DT_HASH, layout.hash)?;
    writer.write_dynamic(elf::DT_STRTAB, layout.dynstr)?;
    writer.write_dynamic(elf::DT_SYMTAB, layout.dynsym)?;
    let strings = u64::from(writer.dynstr_len());
    let symbol_bytes = match is_64 {
        true => size_of::<elf::Sym64<Endianness>>(),
        false => size_of::<elf::Sym32<Endianness>>(),
    };
    writer.write_dynamic(elf::DT_STRSZ, strings)?;
    writer.write_dynamic(elf::DT_SYMENT, symbol_bytes as u64)?;
    writer.write_dynamic(elf::DT_NULL, 0)?;
    Ok(())
}

fn write_sections(
    writer: &mut Writer<'_>,
    [constants, text]: [StringId; 2],
    library: &Library,
    weight_bytes: u64,
    layout: &Layout,
) {
    let section = |writer: &mut Writer<'_>, name, sh_flags: SectionFlags, address, offset, size, align| {
        let sh_name = writer.section_name_offset(Some(name));
        writer.write_section_header(&SectionHeader {
            sh_name,
            sh_type: elf::SHT_PROGBITS,
            sh_flags,
            sh_addr: address,
            sh_offset: offset,
            sh_size: size,
            sh_link: 0,
            sh_info: 0,
            sh_addralign: align,
            sh_entsize: 0,
        });
    };
    writer.write_null_section_header();
    writer.write_hash_section_header(layout.hash);
    writer.write_dynsym_section_header(layout.dynsym, 1);
    writer.write_dynstr_section_header(layout.dynstr);
    section(writer, constants, elf::SHF_ALLOC, layout.weights, layout.weights, weight_bytes, WEIGHT_ALIGN);
    let flags = elf::SHF_ALLOC | elf::SHF_EXECINSTR;
    let bytes = library.image.bytes.len() as u64;
    section(writer, text, flags, layout.text_address(), layout.text, bytes, library.image.align);
    writer.write_dynamic_section_header(layout.dynamic_address());
    writer.write_shstrtab_section_header();
}
