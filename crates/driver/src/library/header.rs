//! The header of a library: what a C or C++ program includes to run the model.

use std::fmt::Write;

use tilewright_dtype::DType;
use tilewright_runtime::plan::TensorSpec;

/// What the header tells.
pub(super) struct Header<'a> {
    pub(super) name: &'a str,
    /// The model's name, for people.
    pub(super) model: &'a str,
    /// What the code is for.
    pub(super) target: &'a str,
    pub(super) inputs: Vec<Operand<'a>>,
    pub(super) outputs: Vec<Operand<'a>>,
    pub(super) workspace_bytes: u64,
    pub(super) workspace_align: u64,
    pub(super) weight_bytes: u64,
}

/// An input or output.
pub(super) struct Operand<'a> {
    pub(super) spec: &'a TensorSpec,
    pub(super) extents: &'a [u64],
    pub(super) align: u64,
}

impl Operand<'_> {
    fn bytes(&self) -> u64 {
        self.extents.iter().product::<u64>() * self.spec.dtype.bytes() as u64
    }
}

/// The type of an element in C: the bits of floats that C has not.
pub(super) const fn element(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool | DType::U8 => "uint8_t",
        DType::I8 => "int8_t",
        DType::I16 => "int16_t",
        DType::I32 => "int32_t",
        DType::I64 => "int64_t",
        DType::U16 | DType::F16 | DType::BF16 => "uint16_t",
        DType::U32 => "uint32_t",
        DType::U64 => "uint64_t",
        DType::F32 => "float",
        DType::F64 => "double",
        _ => "uint8_t",
    }
}

impl Header<'_> {
    /// The header's text.
    pub(super) fn text(&self) -> String {
        let (name, upper) = (self.name, self.name.to_uppercase());
        let mut out = String::new();
        // Writing to a string cannot fail.
        _ = write!(
            out,
            "/* {model}, compiled by Tilewright {version} for {target}.\n\
             \x20*\n\
             \x20* {name}_run runs the model on the thread that calls it. It needs {workspace} bytes of workspace, has {weights} bytes of constants,\n\
             \x20* allocates nothing and calls nothing. Any number of threads may call it at once, each with memory of its own.\n\
             \x20*/\n\
             #ifndef TILEWRIGHT_{upper}_H\n\
             #define TILEWRIGHT_{upper}_H\n\n\
             #include <stdint.h>\n\n\
             #ifdef __cplusplus\n\
             extern \"C\" {{\n\
             #endif\n",
            model = comment(self.model),
            version = env!("CARGO_PKG_VERSION"),
            target = comment(self.target),
            workspace = self.workspace_bytes,
            weights = self.weight_bytes,
        );
        for (kind, operands) in [("INPUT", &self.inputs), ("OUTPUT", &self.outputs)] {
            _ = writeln!(out, "\n#define {upper}_{kind}S {}", operands.len());
            for (i, operand) in operands.iter().enumerate() {
                self.operand(&mut out, &format!("{upper}_{kind}_{i}"), operand);
            }
        }
        let [inputs, outputs] =
            [("INPUTS", &self.inputs), ("OUTPUTS", &self.outputs)].map(|(kind, operands)| {
                if operands.is_empty() { String::new() } else { format!("{upper}_{kind}") }
            });
        _ = write!(
            out,
            "\n/* Memory for values in between. Its contents need not be kept from one run to the next. */\n\
             #define {upper}_WORKSPACE_BYTES {bytes}\n\
             #define {upper}_WORKSPACE_ALIGN {align}\n\n\
             /* Runs the model. `inputs` has the address of each input, `outputs` of each output: dense, row-major tensors that do not\n\
             \x20* overlap each other or the workspace, each at a multiple of its _ALIGN. Returns 0, or 1 where an address is null or no\n\
             \x20* such multiple; then nothing was written. */\n\
             int32_t {name}_run(const void *const inputs[{inputs}], void *const outputs[{outputs}], void *workspace);\n\n\
             #ifdef __cplusplus\n\
             }}\n\
             #endif\n\n\
             #endif\n",
            bytes = self.workspace_bytes,
            align = self.workspace_align,
        );
        out
    }

    fn operand(&self, out: &mut String, prefix: &str, operand: &Operand<'_>) {
        let extents: String = operand.extents.iter().map(|extent| format!("[{extent}]")).collect();
        let spec = operand.spec;
        _ = write!(
            out,
            "\n/* {:?}: {} {extents} */\n#define {prefix}_TYPE {}\n#define {prefix}_BYTES {}\n#define {prefix}_ALIGN {}\n",
            comment(&spec.name),
            spec.dtype,
            element(spec.dtype),
            operand.bytes(),
            operand.align,
        );
    }
}

/// A text that does not end the comment it stands in.
pub(super) fn comment(text: &str) -> String {
    text.replace("*/", "* /").replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_end_comments() {
        assert_eq!(comment("a */ int main\n/*"), "a * / int main /*");
    }
}
