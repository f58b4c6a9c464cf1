//! What of a model is not supported, as data.

use std::fmt;

use tilewright_lower::{self as lower, Anchor};
use tilewright_onnx::import::{Fault, Origin, Origins};

/// The step of a compilation that has no way on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// Import of ONNX operators.
    Import,
    /// Operators as tensor expressions.
    Lower,
    /// Machine code of kernels.
    Codegen,
    /// Memory and the list of instructions.
    Plan,
    /// The interpreter, which the results of `verify` are compared with.
    Interpreter,
}

impl Stage {
    /// The name of the stage.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Import => "import",
            Stage::Lower => "lower",
            Stage::Codegen => "codegen",
            Stage::Plan => "plan",
            Stage::Interpreter => "interpreter",
        }
    }
}

/// A thing that a valid model asks for and that is not supported.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Gap {
    /// The step that refuses it.
    pub stage: Stage,
    /// The operator, as the model writes it; that of the graph where no node of the model stands behind it, and empty for
    /// the model as a whole.
    pub operator: String,
    /// The domain of the operator's set; empty for that of ONNX.
    pub domain: String,
    /// The version of the set that the model imports; 0 where it imports none, or none is known.
    pub opset: i64,
    /// The name of the node, or of the value; of nodes that became one, all names with `+` between.
    pub node: String,
    /// Why it is not supported.
    pub reason: String,
    /// What to try; may be empty.
    pub hint: String,
}

impl Gap {
    /// What import refuses.
    pub(crate) fn of_fault(fault: Fault) -> Gap {
        let Fault { origin, node, reason, advice: hint, .. } = fault;
        Gap::of_origin(Stage::Import, origin, node, reason).with_hint(hint)
    }

    /// What lowering or the plan refuses.
    pub(crate) fn of_graph(stage: Stage, gap: lower::Gap, origins: &Origins) -> Gap {
        let lower::Gap { anchor, op, nodes, operands, reason } = gap;
        let types = operands.join(", ");
        let reason = match anchor {
            Anchor::Node(_) if operands.is_empty() => reason,
            Anchor::Node(_) => format!("{reason} (its operands are {types})"),
            Anchor::Value(_) => format!("{reason} (the value is {types})"),
        };
        Gap::of_node(stage, op, &nodes, reason, origins)
    }

    /// What a code generator refuses of a kernel, or of all of them (`*`). The node is the kernel, as long as nothing tells what
    /// that is of.
    pub(crate) fn of_kernel(generator: &str, kernel: &str, what: &str) -> Gap {
        let (node, reason) = match kernel {
            "*" => ("", format!("{generator} has no code for the target: {what}")),
            kernel => (kernel, format!("{generator} has no code for it on the target: {what}")),
        };
        let hint = "try another target or code generator";
        Gap::of_origin(Stage::Codegen, Origin::default(), node.to_string(), reason).with_hint(hint)
    }

    /// A gap at nodes of the model that became one of the graph, with the operator `op` there.
    pub(crate) fn of_node(
        stage: Stage,
        op: &str,
        names: &[String],
        reason: String,
        origins: &Origins,
    ) -> Gap {
        let of_graph = || Origin { operator: op.to_string(), ..Origin::default() };
        let origin = origins.find(names.iter().map(String::as_str), op).cloned().unwrap_or_else(of_graph);
        Gap::of_origin(stage, origin, names.join("+"), reason)
    }

    /// A gap of a kernel as one of the nodes that it computes. One of the whole target stays as it is.
    pub(crate) fn at(self, op: &str, names: &[String], origins: &Origins) -> Gap {
        match self.node.is_empty() {
            true => self,
            false => Gap::of_node(self.stage, op, names, self.reason, origins).with_hint(self.hint),
        }
    }

    fn of_origin(stage: Stage, origin: Origin, node: String, reason: String) -> Gap {
        let Origin { operator, domain, opset } = origin;
        Gap { stage, operator, domain, opset, node, reason, hint: String::new() }
    }

    /// The gap with advice.
    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Gap {
        Gap { hint: hint.into(), ..self }
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Gap { operator, domain, opset, node, reason, hint, .. } = self;
        if !operator.is_empty() {
            let separator = if domain.is_empty() { "" } else { "::" };
            write!(f, "{domain}{separator}{operator} ")?;
        }
        if *opset != 0 {
            write!(f, "(opset {opset}) ")?;
        }
        if !node.is_empty() {
            write!(f, "`{node}`: ")?;
        }
        f.write_str(reason)?;
        if !hint.is_empty() {
            write!(f, "; {hint}")?;
        }
        Ok(())
    }
}

/// Gaps as an error lists them.
pub(crate) struct List<'a>(pub(crate) &'a [Gap]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [gap] => write!(f, "the model cannot be compiled: {gap}"),
            gaps => {
                write!(f, "the model cannot be compiled, for {} reasons:", gaps.len())?;
                gaps.iter().try_for_each(|gap| write!(f, "\n  {gap}"))
            }
        }
    }
}
