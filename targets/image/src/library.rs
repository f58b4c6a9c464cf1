//! An image and the weights it works on as a library of other people's builds: an object, an archive or a shared library.
//!
//! The library defines one symbol, the function that runs the model. It refers to none, and a linker has to do nothing but
//! to put the function and the weights somewhere.

use std::io::Cursor;

use ar_archive_writer::{ArchiveKind, DEFAULT_OBJECT_READER, NewArchiveMember, write_archive_to_stream};
use object::elf;
use object::read::{File, Object as _};
use object::write::{Object, Relocation, SectionId, Symbol, SymbolId, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, FileFlags, RelocationFlags, SectionKind, SymbolFlags, SymbolKind,
    SymbolScope,
};
use thiserror::Error;

use crate::{Image, LinkError, Outside, To, append};

/// Weights start at a multiple of this, in bytes.
const WEIGHT_ALIGN: u64 = 64;

/// The code of a model with a function that runs it.
#[derive(Debug)]
pub struct Library {
    pub(crate) architecture: Architecture,
    /// The binary interface, in an object's header.
    pub(crate) flags: elf::FileFlags,
    /// The exported function.
    pub(crate) symbol: String,
    /// Its place in the image.
    pub(crate) entry: u64,
    /// Code and its constants.
    pub(crate) image: Image,
    /// Where the code refers to the weights.
    pub(crate) references: Vec<Outside>,
}

/// Why a library cannot be written.
#[derive(Debug, Error)]
pub enum LibraryError {
    /// The code cannot refer to the weights: it and they are too far apart.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The format has no way to say it.
    #[error(transparent)]
    Format(#[from] object::write::Error),
    /// Writing failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl Library {
    /// Adds a function to an image: `run` is the object that defines `symbol`, calls `kernels` by their names, whose places are the image's
    /// entries, and refers to `weights`.
    ///
    /// # Errors
    /// As [`link`](crate::link).
    pub fn new(
        mut image: Image,
        kernels: &[&str],
        run: &[u8],
        symbol: &str,
        weights: &str,
    ) -> Result<Library, LinkError> {
        let file = File::parse(run).map_err(|error| LinkError::Object { index: 0, error })?;
        let architecture = file.architecture();
        let flags = match file.flags() {
            FileFlags::Elf { e_flags, .. } => e_flags,
            _ => elf::FileFlags::default(),
        };
        let known: Vec<(&str, u64)> = kernels.iter().copied().zip(image.entries.iter().copied()).collect();
        let (entries, references) = append(&mut image, &[run], &[symbol], &known, Some(weights))?;
        let entry = entries.first().copied().unwrap_or_default();
        Ok(Library { architecture, flags, symbol: symbol.to_owned(), entry, image, references })
    }

    /// Bytes of code, with the constants in it.
    pub fn code_bytes(&self) -> usize {
        self.image.bytes.len()
    }

    /// A relocatable object.
    ///
    /// # Errors
    /// [`LibraryError`].
    pub fn object(&self, weights: &[u8]) -> Result<Vec<u8>, LibraryError> {
        let mut object = Object::new(BinaryFormat::Elf, self.architecture, Endianness::Little);
        object.flags = FileFlags::Elf { os_abi: elf::ELFOSABI_NONE, abi_version: 0, e_flags: self.flags };
        let text = format!(".text.{}", self.symbol).into_bytes();
        let text = object.add_section(Vec::new(), text, SectionKind::Text);
        object.set_section_data(text, self.image.bytes.as_slice(), self.image.align);
        let constants = format!(".rodata.{}", self.symbol).into_bytes();
        let constants = object.add_section(Vec::new(), constants, SectionKind::ReadOnlyData);
        object.set_section_data(constants, weights, WEIGHT_ALIGN);
        // Without it, linkers take the code for such that wants an executable stack.
        object.add_section(Vec::new(), b".note.GNU-stack".to_vec(), SectionKind::Other);
        let size = self.image.bytes.len() as u64 - self.entry;
        self.define(
            &mut object,
            (&self.symbol, SymbolScope::Dynamic, SymbolKind::Text),
            text,
            self.entry,
            size,
        );
        let name = format!("{}.weights", self.symbol);
        let size = weights.len() as u64;
        let weights =
            self.define(&mut object, (&name, SymbolScope::Compilation, SymbolKind::Data), constants, 0, size);
        for &Outside { at, kind, to } in &self.references {
            let (symbol, addend) = match to {
                To::Weights(addend) => (weights, addend),
                To::Upper(upper) => {
                    let name = format!(".Lupper{upper}");
                    let label = (name.as_str(), SymbolScope::Compilation, SymbolKind::Label);
                    (self.define(&mut object, label, text, upper, 0), 0)
                }
            };
            let flags = RelocationFlags::Elf { r_type: kind };
            object.add_relocation(text, Relocation { offset: at, symbol, addend, flags })?;
        }
        Ok(object.write()?)
    }

    fn define(
        &self,
        object: &mut Object<'_>,
        (name, scope, kind): (&str, SymbolScope, SymbolKind),
        section: SectionId,
        value: u64,
        size: u64,
    ) -> SymbolId {
        let (name, section) = (name.as_bytes().to_vec(), SymbolSection::Section(section));
        object.add_symbol(Symbol {
            name,
            value,
            size,
            kind,
            scope,
            weak: false,
            section,
            flags: SymbolFlags::None,
        })
    }

    /// An archive of that object, with an index; `name` is the object's in it.
    ///
    /// # Errors
    /// [`LibraryError`].
    pub fn archive(&self, weights: &[u8], name: &str) -> Result<Vec<u8>, LibraryError> {
        archive(&self.object(weights)?, name)
    }
}

/// An archive of an object that is called `name` in it, with an index.
///
/// # Errors
/// [`LibraryError`].
pub fn archive(object: &[u8], name: &str) -> Result<Vec<u8>, LibraryError> {
    let member = NewArchiveMember::new(object, &DEFAULT_OBJECT_READER, name.to_owned());
    let mut archive = Cursor::new(Vec::new());
    write_archive_to_stream(&mut archive, &[member], ArchiveKind::Gnu, false, None)?;
    Ok(archive.into_inner())
}
