//! `tilewright targets`: what this build can compile for.

use serde_json::json;
use tilewright_driver::runtime::isa::Isa;
use tilewright_driver::{CodegenKind, Machine, Options, isa, machine};

use crate::failure::{Exit, Failure};
use crate::output;

/// Arguments of the verb.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Whether a code generator is part of this build.
pub(crate) fn is_built(codegen: CodegenKind) -> bool {
    match codegen {
        CodegenKind::Llvm => Options::best_codegen() == CodegenKind::Llvm,
        CodegenKind::Cranelift | CodegenKind::C => true,
    }
}

struct Target {
    name: &'static str,
    meaning: &'static str,
    description: String,
    runs_here: bool,
}

/// The verb.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let host = Machine::host();
    let target = |(name, meaning): (&'static str, &'static str)| {
        let machine: Machine = name.parse().map_err(|error| Failure::new(Exit::Internal, error))?;
        Ok(Target {
            name,
            meaning,
            description: machine.to_string(),
            runs_here: host.runs_code_for(&machine),
        })
    };
    let targets = machine::names().map(target).collect::<Result<Vec<Target>, Failure>>()?;
    let codegens: Vec<(CodegenKind, bool)> =
        CodegenKind::ALL.map(|codegen| (codegen, is_built(codegen))).to_vec();
    if args.json {
        let targets: Vec<_> = targets
            .iter()
            .map(|t| json!({"name": t.name, "meaning": t.meaning, "machine": t.description, "runs_here": t.runs_here}))
            .collect();
        let codegens: Vec<_> =
            codegens.iter().map(|(codegen, built)| json!({"name": codegen.name(), "built": built})).collect();
        return output::print_json(&json!({"targets": targets, "codegens": codegens}));
    }
    let rows: Vec<_> = targets
        .iter()
        .map(|t| {
            let here = if t.runs_here { "" } else { "; does not run here" };
            (t.name.to_string(), format!("{}{here}", t.meaning))
        })
        .collect();
    let generators: Vec<_> = codegens
        .iter()
        .map(|(codegen, built)| {
            (
                codegen.name().to_string(),
                if *built { "in this build" } else { "not in this build" }.to_string(),
            )
        })
        .collect();
    output::print(&format!(
        "Machines (--target NAME, or NAME+FEATURE~FEATURE to add and remove features):\n{}\
         This machine is\n  {host}\nCode generators (--codegen NAME):\n{}",
        output::table(&rows),
        output::table(&generators),
    ))
}

/// Whether a machine runs code for another.
pub(crate) fn runs_code_for(there: &Isa, machine: &Machine) -> bool {
    let needs = isa(machine);
    needs.arch == there.arch && needs.features.iter().all(|feature| there.features.contains(feature))
}

/// The machine with a name, and most features, whose code runs on all of these.
pub(crate) fn best_machine(there: &[Isa]) -> Option<&'static str> {
    let features = |name: &str| {
        let machine = name.parse::<Machine>().ok()?;
        there.iter().all(|there| runs_code_for(there, &machine)).then(|| isa(&machine).features.len())
    };
    let names = machine::names().map(|(name, _)| name).filter(|name| *name != "cpu");
    // The first of those with most features: to the loader, the others are the same.
    let best = names
        .filter_map(|name| Some((features(name)?, name)))
        .reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.map(|(_, name)| name)
}
