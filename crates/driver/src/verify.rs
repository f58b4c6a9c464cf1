//! A compiled model against the interpreter, or against outputs that are known.

use std::path::PathBuf;

use tilewright_onnx::OnnxModel;
use tilewright_onnx::proto::ValueInfoProto;
use tilewright_run::compare::{Distance, Tolerance, compare};
use tilewright_run::noise::noise;
use tilewright_run::{LoadOptions, Named, files};
use tilewright_runtime::Value;

use crate::compile::Compiled;
use crate::compiler::{Compiler, Source};
use crate::engine::{Engine, Interpreter};
use crate::error::Error;
use crate::options::CompileObserver;
use crate::stack::on_own_stack;

/// What a model is run on, and what its outputs must agree with.
#[derive(Clone)]
pub struct VerifyOptions {
    inputs: Inputs,
    against: Against,
    tolerance: Tolerance,
    runs: u32,
    load: LoadOptions,
}

#[derive(Clone)]
enum Inputs {
    Noise,
    Values(Named),
    Files(PathBuf),
}

#[derive(Clone)]
enum Against {
    Reference,
    Values(Named),
    Files(PathBuf),
    Engine(Engine),
}

/// What a verification finds.
#[derive(Clone, Debug, PartialEq)]
pub struct Verification {
    /// The verdict on each output, in the model's order.
    pub outputs: Vec<Verdict>,
    /// The first tensor of the model, in the order of its nodes, that differs from the interpreter's where all are made outputs.
    /// Outputs tell that something is wrong; this tells where. It is looked for where an output differs, and found where such a model
    /// compiles.
    pub first_difference: Option<Verdict>,
    /// The first run, counted from 1, that gave other bits than the first one.
    pub other_run: Option<u32>,
}

/// How a tensor compares with what it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Its name.
    pub name: String,
    /// The distance, or what is different.
    pub result: Result<Distance, String>,
}

impl Default for VerifyOptions {
    fn default() -> VerifyOptions {
        VerifyOptions::new()
    }
}

impl VerifyOptions {
    /// One run on seeded noise against the interpreter, within 10⁻³ of each element and 10⁻⁴ of the largest magnitude of an output.
    pub fn new() -> VerifyOptions {
        VerifyOptions {
            inputs: Inputs::Noise,
            against: Against::Reference,
            tolerance: Tolerance { relative: 1e-3, absolute: 1e-4 },
            runs: 1,
            load: LoadOptions::new(),
        }
    }

    /// Runs on these inputs.
    #[must_use]
    pub fn inputs(self, inputs: Named) -> VerifyOptions {
        VerifyOptions { inputs: Inputs::Values(inputs), ..self }
    }

    /// Runs on inputs of files, as [`files::read_inputs`] reads them.
    #[must_use]
    pub fn inputs_from(self, path: impl Into<PathBuf>) -> VerifyOptions {
        VerifyOptions { inputs: Inputs::Files(path.into()), ..self }
    }

    /// Compares with these outputs: by name, or by position where none has a name of the model's.
    #[must_use]
    pub fn against(self, outputs: Named) -> VerifyOptions {
        VerifyOptions { against: Against::Values(outputs), ..self }
    }

    /// Compares with outputs of files, as [`files::read_outputs`] reads them.
    #[must_use]
    pub fn against_files(self, path: impl Into<PathBuf>) -> VerifyOptions {
        VerifyOptions { against: Against::Files(path.into()), ..self }
    }

    /// Compares with what another model makes of the same inputs.
    #[must_use]
    pub fn against_model(self, model: Engine) -> VerifyOptions {
        VerifyOptions { against: Against::Engine(model), ..self }
    }

    /// How far outputs may be apart.
    #[must_use]
    pub fn tolerance(self, tolerance: Tolerance) -> VerifyOptions {
        VerifyOptions { tolerance, ..self }
    }

    /// How often the model runs, at least once: each run must give the same bits.
    #[must_use]
    pub fn runs(self, runs: u32) -> VerifyOptions {
        VerifyOptions { runs, ..self }
    }

    /// How the model is loaded once it is compiled.
    #[must_use]
    pub fn load(self, load: LoadOptions) -> VerifyOptions {
        VerifyOptions { load, ..self }
    }

    /// Runs a model that is there already, and compares its outputs. How these options load a model does not matter.
    ///
    /// # Errors
    /// As [`Compiler::verify`]; [`Error::NoReference`] where they say nothing of what to compare with.
    pub fn verify(&self, model: &Engine) -> Result<Verification, Error> {
        self.check(model, &self.inputs.for_model(model)?, None)
    }

    fn check(
        &self,
        ours: &Engine,
        inputs: &Named,
        reference: Option<&Interpreter>,
    ) -> Result<Verification, Error> {
        let outputs = ours.run(inputs)?;
        let other_run = first_other_run(ours, inputs, &outputs, self.runs)?;
        let expected = match (&self.against, reference) {
            (Against::Reference, Some(reference)) => reference.run(inputs)?,
            (Against::Reference, None) => return Err(Error::NoReference),
            (Against::Values(outputs), _) => outputs.clone(),
            (Against::Files(path), _) => files::read_outputs(path, &ours.outputs())?,
            (Against::Engine(other), _) => other.run(inputs)?,
        };
        let outputs = judge(&expected, &outputs, self.tolerance)?;
        Ok(Verification { outputs, first_difference: None, other_run })
    }
}

impl Inputs {
    fn for_model(&self, model: &Engine) -> Result<Named, Error> {
        match self {
            Inputs::Noise => Ok(noise(&model.inputs())?),
            Inputs::Values(inputs) => Ok(inputs.clone()),
            Inputs::Files(path) => Ok(files::read_inputs(path, &model.inputs())?),
        }
    }
}

impl Verification {
    /// Whether every output agrees, and every run gave the same bits.
    pub fn agrees(&self) -> bool {
        self.other_run.is_none() && self.outputs.iter().all(|output| output.result.is_ok())
    }
}

impl Compiler {
    /// Compiles a model, runs it here, and compares its outputs: with the interpreter's unless the options say otherwise.
    ///
    /// # Errors
    /// Where the model cannot be compiled, loaded or run, the interpreter does not run it, there are no inputs for it, or an output has
    /// nothing to be compared with. That outputs differ is no error.
    pub fn verify(&self, model: impl Into<Source>, options: &VerifyOptions) -> Result<Verification, Error> {
        self.verify_with(model, options, &mut ())
    }

    /// As [`Compiler::verify`], under the eyes of an observer of the compilation.
    ///
    /// # Errors
    /// As [`Compiler::verify`].
    pub fn verify_with(
        &self,
        model: impl Into<Source>,
        options: &VerifyOptions,
        observer: &mut (dyn CompileObserver + Send),
    ) -> Result<Verification, Error> {
        let source = model.into();
        on_own_stack(|| {
            let model = self.load(source, observer)?;
            let (ours, reference) = engines(self.compile_onnx(&model, observer)?, &options.load)?;
            let inputs = options.inputs.for_model(&ours)?;
            let is_against_reference = matches!(options.against, Against::Reference);
            let mut found = options.check(&ours, &inputs, Some(&reference))?;
            if is_against_reference && found.outputs.iter().any(|output| output.result.is_err()) {
                found.first_difference = self.first_difference(model, &inputs, options);
            }
            Ok(found)
        })
    }

    /// Compiles the model once more with every intermediate tensor as an output. Nothing where that model does not compile.
    fn first_difference(
        &self,
        mut model: OnnxModel,
        inputs: &Named,
        options: &VerifyOptions,
    ) -> Option<Verdict> {
        let graph = model.proto.graph.as_mut()?;
        let names: Vec<String> = graph
            .node
            .iter()
            .flat_map(|node| &node.output)
            .filter(|name| !name.is_empty())
            .cloned()
            .collect();
        for name in &names {
            if !graph.output.iter().any(|output| output.name() == name) {
                graph.output.push(ValueInfoProto { name: Some(name.clone()), ..ValueInfoProto::default() });
            }
        }
        let (ours, reference) = engines(self.compile_onnx(&model, &mut ()).ok()?, &options.load).ok()?;
        let ours = ours.run(inputs).ok()?;
        let verdicts = judge(&reference.run(inputs).ok()?, &ours, options.tolerance).ok()?;
        let differs =
            |name: &&String| verdicts.iter().find(|v| v.name == **name).filter(|v| v.result.is_err());
        names.iter().find_map(|name| differs(&name)).cloned()
    }
}

/// What was compiled, and the interpreter on the same graph, with the same seed.
fn engines(compiled: Compiled, load: &LoadOptions) -> Result<(Engine, Interpreter), Error> {
    let model = compiled.artifact.load_with(load)?;
    let reference = Interpreter::new(compiled.graph, model.seed());
    Ok((Engine::Compiled(model), reference))
}

/// The first run whose outputs differ in any bit from those of the first one, of so many.
fn first_other_run(ours: &Engine, inputs: &Named, outputs: &Named, runs: u32) -> Result<Option<u32>, Error> {
    for run in 2..=runs {
        if ours.run(inputs)? != *outputs {
            return Ok(Some(run));
        }
    }
    Ok(None)
}

/// The verdict on each of our outputs. They pair by name, or by position where the names are others.
fn judge(expected: &Named, ours: &Named, tolerance: Tolerance) -> Result<Vec<Verdict>, Error> {
    let by_name = |name: &str| expected.iter().find(|(other, _)| other == name);
    let by_position = expected.len() == ours.len() && ours.iter().all(|(name, _)| by_name(name).is_none());
    let pair = |(j, (name, value)): (usize, &(String, Value))| {
        let reference = if by_position { expected.get(j) } else { by_name(name) };
        let Some((_, reference)) = reference else {
            return Err(Error::Unpaired { output: name.clone() });
        };
        Ok(Verdict { name: name.clone(), result: compare(reference, value, tolerance) })
    };
    ours.iter().enumerate().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use tilewright_runtime::Tensor;

    use super::*;

    fn named(tensors: &[(&str, f32)]) -> Named {
        let value = |value| Tensor::new(&[], [value]).expect("a tensor").into();
        tensors.iter().map(|&(name, element)| (name.to_string(), value(element))).collect()
    }

    #[test]
    fn outputs_pair_by_name_else_by_position() {
        let ours = named(&[("a", 1.0), ("b", 2.0)]);
        let tolerance = Tolerance { relative: 1e-3, absolute: 1e-4 };
        let agree = |expected: &Named| {
            judge(expected, &ours, tolerance).expect("pairs").iter().all(|verdict| verdict.result.is_ok())
        };
        assert!(agree(&named(&[("b", 2.0), ("a", 1.0), ("c", 3.0)])));
        assert!(agree(&named(&[("x", 1.0), ("y", 2.0)])));
        assert!(!agree(&named(&[("x", 2.0), ("y", 1.0)])));
        let error = judge(&named(&[("a", 1.0)]), &ours, tolerance).expect_err("no pair");
        assert!(matches!(&error, Error::Unpaired { output } if output == "b"), "{error}");
    }
}
