//! Resolves relocatable objects into one flat, position-independent code image.
//!
//! Code generators emit ELF objects; artifacts hold images: the text of all objects, then their read-only data,
//! with every reference resolved. All references inside an image are relative, so that the loader maps it
//! at any page and changes nothing. What would need a system linker is an error here: an image has no writable
//! data, no absolute addresses and no undefined symbols, because a kernel calls nothing.

mod embed;
mod library;
mod reloc;
mod shared;

use object::elf::RelocationType;
use object::read::{File, Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionIndex, SymbolIndex};
use object::{
    Architecture, BinaryFormat, ObjectKind, RelocationFlags, SectionFlags, SectionKind, SymbolSection,
};
use rustc_hash::FxHashMap;
use thiserror::Error;

pub use embed::{EmbedError, Embedding, Machine, embed};
pub use library::{Library, LibraryError, archive};
use reloc::Reference;

/// Largest alignment that a section may ask for: images are mapped at page boundaries.
const PAGE: u64 = 4096;

/// Read-only data starts on a cache line of its own, so that no line is both fetched and loaded.
const DATA_ALIGN: u64 = 64;

/// A flat code image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Text, then read-only data.
    pub bytes: Vec<u8>,
    /// Offset of each entry, in the order asked for.
    pub entries: Vec<u64>,
    /// Alignment that the start of the image must have, in bytes.
    pub align: u64,
}

/// A reference from an image to the weights, which lie outside of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Outside {
    /// Its place in the image.
    at: u64,
    /// Type of the relocation.
    kind: RelocationType,
    to: To,
}

/// What a reference that leaves the image names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    /// The start of the weights, and bytes from there.
    Weights(i64),
    /// The place in the image of the instruction that has the upper half of the same reference.
    Upper(u64),
}

/// A reference to a symbol that no object defines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Undefined {
    /// The function that refers to it; empty if the reference is from data.
    pub from: String,
    /// The symbol.
    pub symbol: String,
}

/// Objects that cannot be made an image.
#[derive(Debug, Error)]
pub enum LinkError {
    /// Not an object file that can be read.
    #[error("object {index}: {error}")]
    Object {
        /// Index of the object.
        index: usize,
        /// Why.
        error: object::Error,
    },
    /// Another kind of file, another architecture than the first object, or one without relocation rules here.
    #[error(
        "object {index}: expected a relocatable ELF object for x86-64, 64-bit or 32-bit ARM or 64-bit RISC-V, all for the same; found {found}"
    )]
    Format {
        /// Index of the object.
        index: usize,
        /// What it is.
        found: String,
    },
    /// A section that an image cannot hold: writable or thread-local data, or one over-aligned.
    #[error("section {name:?}: {problem}")]
    Section {
        /// Its name.
        name: String,
        /// Why not.
        problem: &'static str,
    },
    /// References to symbols that no object defines: all of them, sorted.
    #[error("a kernel must call nothing, but {}", describe(.0))]
    Undefined(Vec<Undefined>),
    /// A symbol that two objects define.
    #[error("symbol {0:?} is defined twice")]
    Duplicate(String),
    /// Entries that no object defines.
    #[error("no object defines the entries {0:?}")]
    MissingEntries(Vec<String>),
    /// A relocation that only a dynamic linker could resolve, or that is not known.
    #[error("relocation {kind} against {symbol:?} is not position-independent or not supported")]
    Relocation {
        /// Type, by its number in the ELF supplement of the architecture.
        kind: String,
        /// The symbol referred to.
        symbol: String,
    },
    /// A reference whose target is out of the instruction's reach, or not aligned as it needs.
    #[error("reference to {symbol:?} is out of range")]
    Range {
        /// The symbol referred to.
        symbol: String,
    },
}

fn describe(undefined: &[Undefined]) -> String {
    let one = |reference: &Undefined| match reference.from.as_str() {
        "" => format!("data refers to {}", reference.symbol),
        from => format!("{from} calls {}", reference.symbol),
    };
    undefined.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Offset of each kept section in the image, by object and section.
type Placed = FxHashMap<(usize, SectionIndex), u64>;

/// Makes an image of ELF objects; `entries` are the symbols whose offsets are wanted.
///
/// The result depends on the objects and their order alone.
///
/// # Errors
/// When an object is not relocatable ELF for one supported architecture, or needs what an image has not.
pub fn link(objects: &[impl AsRef<[u8]>], entries: &[impl AsRef<str>]) -> Result<Image, LinkError> {
    let mut image = Image { bytes: Vec::new(), entries: Vec::new(), align: DATA_ALIGN };
    let (found, _) = append(&mut image, objects, entries, &[], None)?;
    image.entries = found;
    Ok(image)
}

/// Appends objects to an image, which they know by `symbols`, and gives the offsets of `entries` and the references to `outside`.
fn append(
    image: &mut Image,
    objects: &[impl AsRef<[u8]>],
    entries: &[impl AsRef<str>],
    symbols: &[(&str, u64)],
    outside: Option<&str>,
) -> Result<(Vec<u64>, Vec<Outside>), LinkError> {
    let files = parse(objects)?;
    let mut placed = Placed::default();
    place(&files, Part::Text, image, &mut placed)?;
    place(&files, Part::Data, image, &mut placed)?;
    let globals = globals(&files, &placed, symbols)?;
    let references = relocate(&files, &globals, &placed, outside, &mut image.bytes)?;

    let find = |name: &str| globals.get(name).copied().ok_or_else(|| name.to_owned());
    let found: Vec<Result<u64, String>> = entries.iter().map(|name| find(name.as_ref())).collect();
    let missing: Vec<String> = found.iter().filter_map(|entry| entry.clone().err()).collect();
    if !missing.is_empty() {
        return Err(LinkError::MissingEntries(missing));
    }
    Ok((found.into_iter().flatten().collect(), references))
}

fn parse<'a>(objects: &'a [impl AsRef<[u8]>]) -> Result<Vec<File<'a>>, LinkError> {
    let mut files: Vec<File<'a>> = Vec::with_capacity(objects.len());
    for (index, object) in objects.iter().enumerate() {
        let file = File::parse(object.as_ref()).map_err(|error| LinkError::Object { index, error })?;
        let supported = matches!(
            file.architecture(),
            Architecture::X86_64 | Architecture::Aarch64 | Architecture::Arm | Architecture::Riscv64
        );
        let same = files.first().is_none_or(|first| first.architecture() == file.architecture());
        let relocatable = file.format() == BinaryFormat::Elf && file.kind() == ObjectKind::Relocatable;
        if !(supported && same && relocatable && file.is_little_endian()) {
            let found = format!("{:?} {:?}, {:?}", file.format(), file.kind(), file.architecture());
            return Err(LinkError::Format { index, found });
        }
        files.push(file);
    }
    Ok(files)
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Text,
    Data,
}

/// What a section is to an image; `None` for what is not loaded, and for tables of unwinders and notes.
fn part<'a>(section: &impl ObjectSection<'a>) -> Result<Option<Part>, LinkError> {
    let name = section.name().unwrap_or("");
    let loaded = match section.flags() {
        SectionFlags::Elf { sh_flags, .. } => sh_flags.0 & object::elf::SHF_ALLOC.0 != 0,
        _ => false,
    };
    let tables = [".eh_frame", ".gcc_except_table", ".ARM.exidx", ".ARM.extab"];
    let unwinding = tables.into_iter().any(|table| name.starts_with(table));
    if !loaded || unwinding || section.size() == 0 {
        return Ok(None);
    }
    match section.kind() {
        SectionKind::Text => Ok(Some(Part::Text)),
        SectionKind::ReadOnlyData | SectionKind::ReadOnlyString => Ok(Some(Part::Data)),
        SectionKind::Note => Ok(None),
        _ => Err(LinkError::Section { name: name.to_owned(), problem: "an image has no writable data" }),
    }
}

fn place(files: &[File<'_>], wanted: Part, image: &mut Image, placed: &mut Placed) -> Result<(), LinkError> {
    let mut first = true;
    for (index, file) in files.iter().enumerate() {
        for section in file.sections() {
            if part(&section)? != Some(wanted) {
                continue;
            }
            let align = section.align().max(1);
            if align > PAGE || !align.is_power_of_two() {
                let name = section.name().unwrap_or("").to_owned();
                return Err(LinkError::Section { name, problem: "alignment over a page" });
            }
            image.align = image.align.max(align);
            let align = if first { align.max(DATA_ALIGN) } else { align };
            first = false;
            // Between functions lies what traps: int3 on x86-64, ones on 32-bit ARM, zeros on the others.
            let filler = match (wanted, file.architecture()) {
                (Part::Text, Architecture::X86_64) => 0xcc,
                (Part::Text, Architecture::Arm) => 0xff,
                _ => 0,
            };
            let start = (image.bytes.len() as u64).next_multiple_of(align);
            image.bytes.resize(start as usize, filler);
            let data = section.data().map_err(|error| LinkError::Object { index, error })?;
            image.bytes.extend_from_slice(data);
            placed.insert((index, section.index()), start);
            if file.architecture() == Architecture::Aarch64 {
                // ADRP counts in pages of the address, so these must be pages of the image.
                image.align = PAGE;
            }
        }
    }
    Ok(())
}

fn globals<'a>(
    files: &[File<'a>],
    placed: &Placed,
    symbols: &[(&'a str, u64)],
) -> Result<FxHashMap<&'a str, u64>, LinkError> {
    let mut globals: FxHashMap<&str, u64> = symbols.iter().copied().collect();
    for (index, file) in files.iter().enumerate() {
        for symbol in file.symbols().filter(|symbol| symbol.is_definition() && symbol.is_global()) {
            let name = symbol.name().map_err(|error| LinkError::Object { index, error })?;
            let Some(offset) = offset_of(index, &symbol, placed) else { continue };
            if globals.insert(name, offset).is_some() {
                return Err(LinkError::Duplicate(name.to_owned()));
            }
        }
    }
    Ok(globals)
}

fn offset_of<'a>(index: usize, symbol: &impl ObjectSymbol<'a>, placed: &Placed) -> Option<u64> {
    let SymbolSection::Section(section) = symbol.section() else { return None };
    Some(placed.get(&(index, section))? + symbol.address())
}

fn relocate(
    files: &[File<'_>],
    globals: &FxHashMap<&str, u64>,
    placed: &Placed,
    outside: Option<&str>,
    bytes: &mut [u8],
) -> Result<Vec<Outside>, LinkError> {
    let mut undefined: Vec<Undefined> = Vec::new();
    let mut references: Vec<Outside> = Vec::new();
    for (index, file) in files.iter().enumerate() {
        let fail = |error| LinkError::Object { index, error };
        for section in file.sections() {
            let Some(&start) = placed.get(&(index, section.index())) else { continue };
            let mut relocations = reloc::section::Relocations::new(file.architecture());
            for (offset, relocation) in section.relocations() {
                let (name, target) = match relocation.target() {
                    RelocationTarget::Symbol(id) => {
                        let symbol = file.symbol_by_index(id).map_err(fail)?;
                        let name = symbol.name().map_err(fail)?.to_owned();
                        let local = offset_of(index, &symbol, placed);
                        let target = local.or_else(|| globals.get(name.as_str()).copied());
                        (name, target)
                    }
                    RelocationTarget::Section(id) => (String::new(), placed.get(&(index, id)).copied()),
                    _ => (String::new(), None),
                };
                let kind = match relocation.flags() {
                    RelocationFlags::Elf { r_type } => r_type,
                    other => return Err(LinkError::Relocation { kind: format!("{other:?}"), symbol: name }),
                };
                let (at, addend) = (start + offset, relocation.addend());
                let Some(target) = target else {
                    if outside == Some(name.as_str()) {
                        references.push(Outside { at, kind, to: To::Weights(addend) });
                        continue;
                    }
                    let from = function_at(file, section.index(), offset);
                    undefined.push(Undefined { from, symbol: name });
                    continue;
                };
                let place = Reference { at, target: target as i64 + addend };
                let applied = relocations.apply(kind, place, bytes);
                applied.map_err(|problem| problem_of(problem, kind, name))?;
            }
            for (kind, Reference { at, target }) in relocations.finish(bytes) {
                let upper = references.iter().find(|upper| i64::try_from(upper.at) == Ok(target));
                let Some(upper) = upper.map(|upper| upper.at) else {
                    let symbol = function_at(file, section.index(), at - start);
                    return Err(LinkError::Relocation { kind: format!("{kind:?}"), symbol });
                };
                references.push(Outside { at, kind, to: To::Upper(upper) });
            }
        }
    }
    if undefined.is_empty() {
        return Ok(references);
    }
    undefined.sort();
    undefined.dedup();
    Err(LinkError::Undefined(undefined))
}

/// As the error of a reference to a symbol.
fn problem_of(problem: reloc::Problem, kind: RelocationType, symbol: String) -> LinkError {
    match problem {
        reloc::Problem::Kind => LinkError::Relocation { kind: format!("{kind:?}"), symbol },
        reloc::Problem::Range => LinkError::Range { symbol },
    }
}

/// The name of the last defined symbol at or before an offset of a section.
fn function_at(file: &File<'_>, section: SectionIndex, offset: u64) -> String {
    let inside = |symbol: &(SymbolIndex, u64, &str)| symbol.1 <= offset && !symbol.2.is_empty();
    let symbols = file.symbols().filter(|symbol| symbol.section_index() == Some(section));
    let named = symbols.filter_map(|symbol| Some((symbol.index(), symbol.address(), symbol.name().ok()?)));
    named.filter(inside).max_by_key(|symbol| symbol.1).map_or(String::new(), |symbol| symbol.2.to_owned())
}

#[cfg(test)]
mod tests;
