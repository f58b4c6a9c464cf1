//! The header of a library with a runtime inside: what it needs to be given, and what its functions return.

use std::fmt::Write;

use tilewright_runtime::artifact::Needs;
use tilewright_runtime::artifact::linked::LinkedFacts;
use tilewright_runtime::plan::{ALIGN, DimSpec, Plan, TensorSpec};

use super::Obstacle;
use super::header::{comment, element};

/// What the header tells.
pub(super) struct InsideHeader<'a> {
    pub(super) name: &'a str,
    /// The model's name, for people.
    pub(super) model: &'a str,
    /// What the code is for.
    pub(super) target: &'a str,
    pub(super) plan: &'a Plan,
    pub(super) facts: LinkedFacts,
    pub(super) needs: Needs,
    /// Why there is a runtime.
    pub(super) obstacles: &'a [Obstacle],
}

/// What functions return: the numbers of `Status` in `runtime/embed`.
const STATUSES: &[(&str, &str)] = &[
    ("OK", "It succeeded."),
    ("NULL", "An address is null."),
    ("MISALIGNED", "An address is not a multiple of what it has to be."),
    ("MEMORY", "The memory for the model, or the workspace, has too few bytes."),
    ("EXTENTS", "The model takes no inputs of these extents."),
    (
        "ROOM",
        "An output has more bytes than there is room for: `bytes` and `extents` say what it has. Outputs with room are written.",
    ),
    (
        "CONDITION",
        "A condition does not hold under which the model was compiled; a node of the model cannot take such values or extents.",
    ),
    ("CLOSED", "The memory holds no model: open it first."),
    ("BUSY", "Another call is at work with this memory, or too many calls are at work."),
    ("DEFECT", "A defect of the library."),
];

impl InsideHeader<'_> {
    /// The header's text.
    pub(super) fn text(&self) -> String {
        let (name, upper) = (self.name, self.name.to_uppercase());
        let mut out = String::new();
        self.introduction(&mut out);
        // Writing to a string cannot fail.
        _ = write!(
            out,
            "#ifndef TILEWRIGHT_{upper}_H\n#define TILEWRIGHT_{upper}_H\n\n#include <stdint.h>\n\n\
             #ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n\
             /* What functions return. */\n"
        );
        for (code, (status, meaning)) in STATUSES.iter().enumerate() {
            _ = writeln!(out, "#define {upper}_{status} {code} /* {meaning} */");
        }
        for (kind, specs) in [("INPUT", &self.plan.inputs), ("OUTPUT", &self.plan.outputs)] {
            _ = writeln!(out, "\n#define {upper}_{kind}S {}", specs.len());
            for (i, spec) in specs.iter().enumerate() {
                self.operand(&mut out, &format!("{upper}_{kind}_{i}"), spec);
            }
        }
        _ = write!(
            out,
            "\n/* Extents that the structs have room for. */\n#define {upper}_RANK {rank}\n\n\
             /* An input: dense, row-major elements at a multiple of {upper}_ALIGN, and its extents, outermost first. */\n\
             typedef struct {{\n  const void *data;\n  uint64_t extents[{upper}_RANK];\n}} {name}_input;\n\n\
             /* An output: where its elements go, and how many bytes there are for it. The library sets the other fields: the bytes that it\n\
             \x20* has, and its extents; UINT64_MAX where only a run tells. */\n\
             typedef struct {{\n  void *data;\n  uint64_t room;\n  uint64_t bytes;\n  uint64_t extents[{upper}_RANK];\n}} {name}_output;\n\n\
             /* Alignment of inputs, of the model's memory, and of the workspace. */\n\
             #define {upper}_ALIGN {ALIGN}\n\n\
             /* Bytes of memory for the model. */\n#define {upper}_MODEL_BYTES {model_bytes}\n\n",
            rank = self.facts.rank,
            model_bytes = self.facts.model_bytes,
        );
        self.functions(&mut out);
        out.push_str("#ifdef __cplusplus\n}\n#endif\n\n#endif\n");
        out
    }

    fn introduction(&self, out: &mut String) {
        let name = self.name;
        _ = write!(
            out,
            "/* {model}, compiled by Tilewright {version} for {target}.\n *\n\
             \x20* There is a runtime in this library, since the model is no straight code:\n",
            model = comment(self.model),
            version = env!("CARGO_PKG_VERSION"),
            target = comment(self.target),
        );
        for obstacle in self.obstacles {
            _ = writeln!(out, " *   - {}", comment(&obstacle.to_string()));
        }
        _ = write!(
            out,
            " * All memory is the caller's. {name}_open puts the model into some, once. {name}_sizes tells what inputs of some extents take and\n\
             \x20* give. {name}_run runs the model on the thread that calls it. Functions ask the system for nothing, and call memcpy, memmove,\n\
             \x20* memset, memcmp and bcmp alone. Several threads may call them at once, each with a model and a workspace of its own.\n"
        );
        let mut named: Vec<String> = Vec::new();
        for dim in self.plan.inputs.iter().flat_map(|spec| &spec.dims) {
            if self.fixed(dim).is_none() {
                let text = self.bounds(dim);
                if !named.contains(&text) {
                    named.push(text);
                }
            }
        }
        if !named.is_empty() {
            _ = writeln!(out, " *\n * Open extents of inputs: {}.", comment(&named.join("; ")));
        }
        out.push_str(" */\n");
    }

    fn functions(&self, out: &mut String) {
        let (name, upper) = (self.name, self.name.to_uppercase());
        if let Some(bytes) = self.needs.tensors {
            _ = write!(out, "/* Bytes of workspace. */\n#define {upper}_WORKSPACE_BYTES {bytes}\n\n");
        }
        let more = match self.plan.sizes_memory() {
            true => {
                " A run may need more, since\n * it sizes some of its memory while it runs; with too little it returns _MEMORY."
            }
            false => "",
        };
        let [inputs, outputs] = [("INPUTS", self.plan.inputs.len()), ("OUTPUTS", self.plan.outputs.len())]
            .map(|(kind, n)| if n == 0 { String::new() } else { format!("{upper}_{kind}") });
        _ = write!(
            out,
            "/* Puts the model into memory, of which it keeps {upper}_MODEL_BYTES for as long as it is used. There is nothing to close: who uses\n\
             \x20* it no more may use the memory for something else. */\n\
             int32_t {name}_open(void *model, uint64_t bytes);\n\n\
             /* Sets `workspace_bytes`, and bytes and extents of the outputs, to what a run on inputs of these extents takes and gives. Reads no\n\
             \x20* elements.{more} */\n\
             int32_t {name}_sizes(void *model, const {name}_input inputs[{inputs}], {name}_output outputs[{outputs}], uint64_t *workspace_bytes);\n\n\
             /* Runs the model. Inputs, outputs, model and workspace overlap nothing but inputs one another. The workspace's contents need not be\n\
             \x20* kept from one run to the next. Unless it returns {upper}_OK or {upper}_ROOM, no output was written. */\n\
             int32_t {name}_run(void *model, const {name}_input inputs[{inputs}], {name}_output outputs[{outputs}], void *workspace,\n\
             \x20                uint64_t workspace_bytes);\n\n"
        );
    }

    fn operand(&self, out: &mut String, prefix: &str, spec: &TensorSpec) {
        let fixed: Vec<Option<u64>> = spec.dims.iter().map(|dim| self.fixed(dim)).collect();
        let extent = |(dim, fixed): (&DimSpec, &Option<u64>)| match (fixed, &dim.name) {
            (Some(extent), _) => format!("[{extent}]"),
            (None, Some(name)) => format!("[{name}]"),
            (None, None) => "[?]".to_owned(),
        };
        let extents: String = spec.dims.iter().zip(&fixed).map(extent).collect();
        _ = write!(
            out,
            "\n/* {:?}: {} {} */\n#define {prefix}_TYPE {}\n#define {prefix}_RANK {}\n",
            comment(&spec.name),
            spec.dtype,
            comment(&extents),
            element(spec.dtype),
            spec.dims.len(),
        );
        if let Some(extents) = fixed.into_iter().collect::<Option<Vec<u64>>>() {
            let bytes = extents.iter().product::<u64>() * spec.dtype.bytes() as u64;
            _ = writeln!(out, "#define {prefix}_BYTES {bytes}");
        }
    }

    fn fixed(&self, dim: &DimSpec) -> Option<u64> {
        let sizes = self.plan.fixed_sizes();
        u64::try_from((*sizes.get(dim.size.index())?)?).ok()
    }

    /// An open extent with its bounds.
    fn bounds(&self, dim: &DimSpec) -> String {
        let bounds = self.plan.bounds.iter().find(|bounds| bounds.size == dim.size);
        let name =
            dim.name.as_deref().or(bounds.map(|bounds| bounds.name.as_str())).unwrap_or("one without a name");
        let Some(bounds) = bounds else { return format!("{name}, of any extent") };
        let steps = if bounds.step == 1 { String::new() } else { format!(" in steps of {}", bounds.step) };
        match bounds.max {
            Some(max) => format!("{name}, from {} to {max}{steps}", bounds.min),
            None => format!("{name}, from {} on{steps}", bounds.min),
        }
    }
}
