//! `tilewright compile --emit static|shared|c|c-header`: a model as a library for C programs.

use std::path::{Path, PathBuf};

use serde_json::json;
use tilewright_driver::{CodegenKind, CompileError, Library, LibraryError};

use crate::failure::Failure;
use crate::model;
use crate::options::CompileArgs;
use crate::output;
use crate::progress::Progress;

/// What is written of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// An archive, and the header.
    Static,
    /// A shared library, and the header.
    Shared,
    /// A program in C, and the header.
    C,
    /// The header.
    Header,
}

/// What is asked for.
pub(crate) struct Request<'a> {
    pub(crate) model: &'a Path,
    pub(crate) options: &'a CompileArgs,
    pub(crate) output: Option<&'a Path>,
    pub(crate) name: Option<&'a str>,
    /// The runtime's object, for a library that has one inside.
    pub(crate) runtime: Option<&'a Path>,
    pub(crate) json: bool,
}

/// Compiles the model and writes the library's files.
pub(crate) fn write(request: &Request<'_>, form: Form) -> Result<(), Failure> {
    let name = request.name.map_or_else(|| name_of(request.model), str::to_owned);
    let (main, header) = paths(request.output, &name, form);
    if [&main, &header].into_iter().any(|path| crate::source::is_same_file(path, request.model)) {
        let message = format!("{} would be overwritten by what is made of it", request.model.display());
        return Err(Failure::usage(message));
    }
    let mut progress = Progress::new(&request.options.dump_after);
    let mut compiler = model::compiler(request.model, request.options)?;
    if form == Form::C {
        if request.options.codegen().is_some_and(|kind| kind != CodegenKind::C) {
            return Err(Failure::from(CompileError::from(LibraryError::MachineCode)));
        }
        compiler = compiler.codegen(CodegenKind::C);
    }
    let library = compiler.library_with(request.model, &name, &mut progress);
    let finished = progress.finish();
    let library = library.map_err(|error| Failure::from(error).about(request.model))?;
    let library = library.runtime(request.runtime.map(Path::to_path_buf));
    finished?;
    let bytes = match form {
        Form::Static => library.write_static(&main)?,
        Form::Shared => library.write_shared(&main)?,
        Form::C => library.write_c(&main)?,
        Form::Header => 0,
    };
    let header_bytes = library.write_header(&header)?;
    if request.json {
        return output::print_json(&json!({
            "model": request.model.display().to_string(),
            "library": (form != Form::Header).then(|| main.display().to_string()),
            "library_bytes": bytes,
            "header": header.display().to_string(),
            "header_bytes": header_bytes,
            "function": format!("{name}_run"),
            "code_bytes": library.code_bytes(),
            "weight_bytes": library.weight_bytes(),
            "workspace_bytes": library.workspace_bytes(),
            "model_bytes": library.model_bytes(),
            "target": library.target(),
            "compile_s": progress.elapsed().as_secs_f64(),
        }));
    }
    output::print(&report(
        request.model,
        &name,
        (form != Form::Header).then_some((&main, bytes)),
        &header,
        &library,
    ))
}

fn report(
    model: &Path,
    name: &str,
    main: Option<(&PathBuf, u64)>,
    header: &Path,
    library: &Library,
) -> String {
    let main = main.map(|(path, bytes)| format!("{} ({}), ", path.display(), output::bytes(bytes)));
    let workspace = library.workspace_bytes().map_or("by the inputs".to_string(), output::bytes);
    let inside =
        library.model_bytes().map(|model| format!("a runtime is inside: model {}, ", output::bytes(model)));
    format!(
        "{} -> {}{}: {name}_run\n{}code {}, weights {}, workspace {workspace}\n",
        model.display(),
        main.unwrap_or_default(),
        header.display(),
        inside.unwrap_or_default(),
        output::bytes(library.code_bytes()),
        output::bytes(library.weight_bytes()),
    )
}

/// The library's file, and its header beside it.
fn paths(output: Option<&Path>, name: &str, form: Form) -> (PathBuf, PathBuf) {
    let main = |default: String| output.map_or_else(|| PathBuf::from(default), Path::to_path_buf);
    let header = format!("{name}.h");
    match form {
        Form::Static => {
            let main = main(format!("lib{name}.a"));
            (main.clone(), main.with_file_name(header))
        }
        Form::Shared => {
            let main = main(format!("lib{name}.so"));
            (main.clone(), main.with_file_name(header))
        }
        Form::C => {
            let main = main(format!("{name}.c"));
            (main.clone(), main.with_file_name(header))
        }
        Form::Header => (main(header.clone()), main(header)),
    }
}

/// The model's file name as C takes names.
fn name_of(model: &Path) -> String {
    let stem = model.file_stem().unwrap_or_default().to_string_lossy();
    let name: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    match name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
        true => format!("_{name}"),
        false => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_become_names_of_c() {
        let name = |path: &str| name_of(Path::new(path));
        assert_eq!(name("models/resnet50-v1.7.onnx"), "resnet50_v1_7");
        assert_eq!(name("3dunet.onnx"), "_3dunet");
    }

    #[test]
    fn headers_lie_beside_libraries() {
        let (main, header) = paths(Some(Path::new("out/libnet.a")), "digits", Form::Static);
        assert_eq!((main, header), ("out/libnet.a".into(), "out/digits.h".into()));
        assert_eq!(paths(None, "digits", Form::Header).1, PathBuf::from("digits.h"));
    }
}
