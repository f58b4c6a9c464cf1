//! Mutants of the ONNX suites' models: one field of one model changed, the same for the same seed and round.

use std::path::{Path, PathBuf};

use prost::Message;
use tilewright_driver::onnx::proto::{ModelProto, TensorProto};

use super::fields;
use super::random::Random;

/// The suites whose models are small.
const SUITES: [&str; 4] = ["node", "simple", "pytorch-operator", "pytorch-converted"];

/// Integer inputs of at most so many elements become constants in half of the mutants: shapes, axes and indices.
const MOST_ELEMENTS: i64 = 16;

/// The models of the suites.
pub(crate) struct Suites {
    /// A folder a case.
    cases: Vec<PathBuf>,
    /// The operators of all cases.
    operators: Vec<String>,
}

/// A model with one field changed.
pub(crate) struct Mutant {
    /// The case and the field.
    pub(crate) what: String,
    /// Its file.
    pub(crate) bytes: Vec<u8>,
}

impl Suites {
    /// The suites as `cargo xtask conformance` lays them out below `dir`.
    pub(crate) fn open(dir: &Path) -> std::io::Result<Suites> {
        let mut cases = Vec::new();
        for suite in SUITES {
            for entry in std::fs::read_dir(dir.join(suite))? {
                cases.push(entry?.path());
            }
        }
        cases.sort();
        let mut operators = Vec::new();
        for case in &cases {
            let model = read(case)?;
            operators.extend(
                model.graph.iter().flat_map(|graph| &graph.node).filter_map(|node| node.op_type.clone()),
            );
        }
        operators.sort();
        operators.dedup();
        Ok(Suites { cases, operators })
    }

    /// The mutant of a round.
    pub(crate) fn mutate(&self, seed: u64, round: u64) -> std::io::Result<Mutant> {
        let mut random =
            Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ round.wrapping_mul(0xd134_2543_de82_ef95));
        let case = &self.cases[random.below(self.cases.len())];
        let mut model = read(case)?;
        if random.below(2) == 0 {
            fix_integers(&mut model, case);
        }
        let field = fields::mutate(&mut model, &mut random, &self.operators);
        let name = case.file_name().unwrap_or_default().to_string_lossy();
        Ok(Mutant { what: format!("{name}: {field}"), bytes: model.encode_to_vec() })
    }
}

fn read(case: &Path) -> std::io::Result<ModelProto> {
    let bytes = std::fs::read(case.join("model.onnx"))?;
    ModelProto::decode(bytes.as_slice()).map_err(std::io::Error::other)
}

/// Makes constants of small integer inputs, with the suite's values.
fn fix_integers(model: &mut ModelProto, case: &Path) {
    let Some(graph) = &mut model.graph else { return };
    let given = graph.initializer.iter().map(|tensor| tensor.name().to_string()).collect::<Vec<_>>();
    let mut position = 0;
    graph.input.retain(|input| {
        if given.iter().any(|name| name == input.name()) {
            return true;
        }
        let file = case.join("test_data_set_0").join(format!("input_{position}.pb"));
        position += 1;
        let tensor = std::fs::read(file).ok().and_then(|bytes| TensorProto::decode(bytes.as_slice()).ok());
        // By TensorProto.DataType: int32 and int64. The sequences among the inputs do not decode to such.
        let small = |tensor: &TensorProto| {
            matches!(tensor.data_type(), 6 | 7)
                && tensor.dims.iter().product::<i64>() <= MOST_ELEMENTS
                && matches!(
                    input.r#type.as_ref().and_then(|ty| ty.value.as_ref()),
                    Some(tilewright_driver::onnx::proto::type_proto::Value::TensorType(_))
                )
        };
        match tensor.filter(small) {
            Some(mut tensor) => {
                tensor.name = input.name.clone();
                graph.initializer.push(tensor);
                false
            }
            None => true,
        }
    });
}
