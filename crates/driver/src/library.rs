//! A model as a library for other people's builds: `--emit static`, `shared`, `c` and `c-header`.
//!
//! Where every extent is known and nothing is decided while the model runs, the plan becomes straight code ([`straight`]) by the code
//! generator that made the kernels: one function, `NAME_run`, and the weights as constants. Else the library is the artifact with a runtime
//! that runs it ([`inside`]).

mod header;
mod inside;
mod inside_header;
pub(crate) mod straight;

use std::path::{Path, PathBuf};

use tilewright_image::Image;
use tilewright_machine::{Base, CodegenKind, RunFunction, Target};
use tilewright_run::files;
use tilewright_runtime::artifact::linked::LinkedFacts;
use tilewright_runtime::artifact::{ImageDef, Needs, Pieces};
use tilewright_runtime::plan::Plan;

use crate::artifact::{Artifact, Level};
use crate::error::{CompileError, LibraryError};
pub use straight::Obstacle;

use header::{Header, Operand};
use inside::Inside;
use inside_header::InsideHeader;
use straight::{Straight, straight};

/// A model as a library.
#[derive(Debug)]
pub struct Library {
    name: String,
    code: Code,
    weights: Vec<u8>,
    header: String,
    target: String,
    workspace_bytes: Option<u64>,
}

/// What runs the model.
#[derive(Debug)]
enum Code {
    /// Machine code.
    Machine(tilewright_image::Library),
    /// A program in C: what comes before the weights, and what comes after.
    C(String, String),
    /// The artifact with a runtime.
    Inside(Inside),
}

impl Artifact {
    /// The model as a library whose function is `NAME_run`.
    ///
    /// # Errors
    /// [`LibraryError`] as [`CompileError::Library`]: a name that C does not take, what no library has; and what code generators say.
    pub fn library(&self, name: &str) -> Result<Library, CompileError> {
        check_name(name)?;
        let (level, image) = match (&self.levels[..], &self.manifest.images[..]) {
            ([level], [image]) => (level, image),
            _ => return Err(LibraryError::Several.into()),
        };
        if level.plan.needs_device() {
            return Err(LibraryError::Device.into());
        }
        let target: Target = self.manifest.target.parse()?;
        let kernels = kernel_names(level, &image.program.entries)?;
        let [symbol, weights] = ["run", "weights"].map(|what| format!("{name}_{what}"));
        let is_text = !target.codegen.kind.makes_machine_code();
        let straight = match straight(&level.plan, &kernels, [&symbol, &weights], is_text) {
            Ok(straight) => straight,
            Err(obstacles) if is_text => return Err(LibraryError::NotStraight(obstacles).into()),
            Err(obstacles) => return self.with_runtime_inside(name, (level, image), &target, obstacles),
        };
        let code = match is_text {
            true => c_code(level, &straight.function)?,
            false => machine_code(level, &kernels, &image.program.entries, &straight.function, &target)?,
        };
        let weights = self.weight_bytes()?;
        let made_for = format!("{} by {}", image.target, target.codegen.kind);
        let header = header(name, &self.manifest.model, &made_for, level, &straight, weights.len() as u64);
        let (name, target) = (name.to_owned(), self.manifest.target.clone());
        Ok(Library { name, code, weights, header, target, workspace_bytes: Some(straight.workspace_bytes) })
    }

    /// The model as a library with a runtime inside, for the sake of what is in the way of straight code.
    fn with_runtime_inside(
        &self,
        name: &str,
        (level, image): (&Level, &ImageDef),
        target: &Target,
        mut obstacles: Vec<Obstacle>,
    ) -> Result<Library, CompileError> {
        if obstacles.iter().any(|obstacle| !obstacle.is_for_the_runtime()) {
            obstacles.retain(|obstacle| !obstacle.is_for_the_runtime());
            return Err(LibraryError::NotInside(obstacles).into());
        }
        let arch = target.machine.arch;
        let address = u64::from(arch.pointer_bits()) / 8;
        let plans: [(&Plan, &[Plan]); 1] = [(&level.plan, &level.specialised)];
        // The runtime in a library reads no names.
        let needs = Needs::of_level(&self.manifest, &plans, 0, address as usize, false);
        let artifact = self.to_bytes()?;
        let facts = LinkedFacts::of(artifact.len() as u64, &needs, &level.plan, address);
        let header = InsideHeader {
            name,
            model: &self.manifest.model,
            target: &format!("{} by {}", image.target, target.codegen.kind),
            plan: &level.plan,
            facts,
            needs,
            obstacles: &obstacles,
        };
        Ok(Library {
            name: name.to_owned(),
            header: header.text(),
            weights: self.weight_bytes()?,
            target: self.manifest.target.clone(),
            workspace_bytes: needs.tensors,
            code: Code::Inside(Inside {
                artifact,
                code_bytes: level.code.len() as u64,
                facts,
                arch,
                runtime: None,
            }),
        })
    }

    /// The weights of all levels.
    fn weight_bytes(&self) -> Result<Vec<u8>, CompileError> {
        let mut bytes = Vec::with_capacity(self.weights.total());
        let gathered = self.weights.each(&mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        });
        if gathered.is_err() {
            self.weights.check()?;
        }
        gathered.map_err(|error| CompileError::internal("weights", error))?;
        Ok(bytes)
    }
}

pub(crate) fn check_name(name: &str) -> Result<(), LibraryError> {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    match starts && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        true => Ok(()),
        false => Err(LibraryError::Name(name.to_owned())),
    }
}

/// What the run function calls each kernel of the plan by.
fn kernel_names<'a>(level: &'a Level, entries: &[u64]) -> Result<Vec<&'a str>, CompileError> {
    if level.symbols.is_empty() {
        return Ok(level.plan.kernels.iter().map(|kernel| kernel.name.as_str()).collect());
    }
    let names = entries.iter().map(|&entry| level.symbols.get(entry as usize).map(String::as_str));
    names.collect::<Option<_>>().ok_or_else(|| CompileError::internal("library", "a kernel has no text"))
}

/// The artifact's image with the function that calls its kernels.
fn machine_code(
    level: &Level,
    kernels: &[&str],
    entries: &[u64],
    function: &RunFunction,
    target: &Target,
) -> Result<Code, CompileError> {
    let run = match target.codegen.kind {
        CodegenKind::Llvm => tilewright_llvm::compile_run(function, target)?,
        CodegenKind::Cranelift => tilewright_cranelift::compile_run(function, target)?,
        CodegenKind::C => return Err(CompileError::NoMachineCode { target: target.to_string() }),
    };
    let image = Image { bytes: level.code.clone(), entries: entries.to_vec(), align: level.code_align };
    let RunFunction { symbol, weights, .. } = function;
    let library = tilewright_image::Library::new(image, kernels, &run.object, symbol, weights);
    Ok(Code::Machine(library.map_err(|error| CompileError::internal("library", error))?))
}

/// The text of the kernels, and of the function that calls them.
fn c_code(level: &Level, function: &RunFunction) -> Result<Code, CompileError> {
    let kernels = str::from_utf8(&level.code).map_err(|error| CompileError::internal("library", error))?;
    let run = tilewright_c::run_function(function);
    Ok(Code::C(tilewright_c::prelude([kernels, run.as_str()]) + kernels, run))
}

fn header(
    name: &str,
    model: &str,
    target: &str,
    level: &Level,
    straight: &Straight,
    weight_bytes: u64,
) -> String {
    let align = |base: Base| {
        let check = straight.function.checks.iter().find(|check| check.base == base);
        check.map_or(1, |check| check.align)
    };
    let inputs = level.plan.inputs.iter().zip(&straight.inputs).zip(0..);
    let inputs = inputs.map(|((spec, extents), i)| Operand { spec, extents, align: align(Base::Input(i)) });
    let outputs = level.plan.outputs.iter().zip(&straight.outputs).zip(0..);
    let outputs =
        outputs.map(|((spec, extents), i)| Operand { spec, extents, align: align(Base::Output(i)) });
    let header = Header {
        name,
        model,
        target,
        inputs: inputs.collect(),
        outputs: outputs.collect(),
        workspace_bytes: straight.workspace_bytes,
        workspace_align: align(Base::Workspace),
        weight_bytes,
    };
    header.text()
}

impl Library {
    /// The header's text.
    pub fn header(&self) -> &str {
        &self.header
    }

    /// Bytes of code, with the constants in it; of a program in C, those of its text without the weights.
    pub fn code_bytes(&self) -> u64 {
        match &self.code {
            Code::Machine(library) => library.code_bytes() as u64,
            Code::C(before, after) => (before.len() + after.len()) as u64,
            Code::Inside(inside) => inside.code_bytes,
        }
    }

    /// Takes the runtime's object from a file, if the library has one inside. Else it is that of the folder which the variable
    /// `TILEWRIGHT_RUNTIMES` names, or of the folder `runtimes` beside that of the program.
    #[must_use]
    pub fn runtime(mut self, file: Option<PathBuf>) -> Library {
        if let Code::Inside(inside) = &mut self.code {
            inside.runtime = file;
        }
        self
    }

    /// Bytes of memory that the caller gives for the model, where there is a runtime inside.
    pub fn model_bytes(&self) -> Option<u64> {
        match &self.code {
            Code::Inside(inside) => Some(inside.facts.model_bytes),
            Code::Machine(_) | Code::C(..) => None,
        }
    }

    /// The target in full.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Bytes of weights.
    pub fn weight_bytes(&self) -> u64 {
        self.weights.len() as u64
    }

    /// Bytes of memory for values in between; nothing where the extents of inputs decide, or a run does.
    pub fn workspace_bytes(&self) -> Option<u64> {
        self.workspace_bytes
    }

    /// Writes an archive for linkers, whole or not at all; the number of bytes.
    ///
    /// # Errors
    /// [`LibraryError::Text`], where the code cannot refer to weights as large, and input/output errors. With a runtime inside, where that is
    /// not there or for another machine.
    pub fn write_static(&self, path: &Path) -> Result<u64, CompileError> {
        let member = format!("{}.o", self.name);
        let archive = match &self.code {
            Code::Machine(library) => library.archive(&self.weights, &member),
            Code::Inside(inside) => tilewright_image::archive(&inside.object(&self.name)?, &member),
            Code::C(..) => return Err(LibraryError::Text.into()),
        };
        write(path, &archive.map_err(limit)?)
    }

    /// Writes a shared library, whole or not at all; the number of bytes. Its name for the dynamic linker is that of the file.
    ///
    /// # Errors
    /// As [`Library::write_static`]. With a runtime inside, where there is no linker.
    pub fn write_shared(&self, path: &Path) -> Result<u64, CompileError> {
        let target: Target = self.target.parse()?;
        if !target.machine.arch.has_system() {
            return Err(LibraryError::NoSystem(target.machine.arch.to_string()).into());
        }
        let soname = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let library = match &self.code {
            Code::Machine(library) => library.shared(&self.weights, &soname).map_err(limit)?,
            Code::Inside(inside) => inside.shared(&self.name, &soname)?,
            Code::C(..) => return Err(LibraryError::Text.into()),
        };
        write(path, &library)
    }

    /// Writes a program in C99, whole or not at all; the number of bytes.
    ///
    /// # Errors
    /// [`LibraryError::MachineCode`], and input/output errors.
    pub fn write_c(&self, path: &Path) -> Result<u64, CompileError> {
        match &self.code {
            Code::Machine(_) | Code::Inside(_) => Err(LibraryError::MachineCode.into()),
            Code::C(before, after) => {
                let weights = match self.weights.is_empty() {
                    true => String::new(),
                    false => tilewright_c::weights(&format!("{}_weights", self.name), &self.weights),
                };
                write(path, [before, weights.as_str(), after].concat().as_bytes())
            }
        }
    }

    /// Writes the header, whole or not at all; the number of bytes.
    ///
    /// # Errors
    /// Input/output errors.
    pub fn write_header(&self, path: &Path) -> Result<u64, CompileError> {
        write(path, self.header.as_bytes())
    }
}

fn limit(error: tilewright_image::LibraryError) -> CompileError {
    CompileError::Limit(format!("no library of this size: {error}"))
}

fn write(path: &Path, bytes: &[u8]) -> Result<u64, CompileError> {
    let written = files::replace(path, |out| {
        std::io::Write::write_all(out, bytes)?;
        Ok(bytes.len() as u64)
    });
    written.map_err(|source| CompileError::Output { path: path.display().to_string(), source })
}
