//! What can be wrong with a model's graph: every fault is collected, so that one error lists them all.

use std::fmt;

use super::origin::Origin;

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// No operator of that name is known.
    UnknownOperator,
    /// The model imports an operator set or version that is not known, or none for a domain that it uses.
    UnknownOpset,
    /// A node has an attribute that its operator does not have in this version.
    UnknownAttribute,
    /// The operator is known, but not in this form.
    Unsupported,
    /// Nodes depend on one another in a circle.
    Cycle,
    /// A name is used that nothing defines.
    DanglingInput,
    /// A name is defined twice.
    DuplicateName,
    /// A node has too few or too many inputs or outputs.
    Arity,
    /// Operand types do not fit, or contradict what the model declares.
    Type,
    /// An attribute, tensor or declaration is malformed.
    Malformed,
    /// An import option contradicts the model.
    Option,
    /// The model is too large or too deeply nested.
    Limit,
}

impl FaultKind {
    /// Whether a valid model can have the fault, for want of support.
    pub fn is_unsupported(self) -> bool {
        use FaultKind::*;
        match self {
            UnknownOperator | UnknownOpset | UnknownAttribute | Unsupported => true,
            Cycle | DanglingInput | DuplicateName | Arity | Type | Malformed | Option | Limit => false,
        }
    }
}

/// One thing that keeps a model from being imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What kind of thing it is.
    pub kind: FaultKind,
    /// The operator; that of faults of the graph itself has no name.
    pub origin: Origin,
    /// Name of the node, or of the value at fault.
    pub node: String,
    /// What is wrong.
    pub reason: String,
    /// What to try; may be empty.
    pub advice: String,
}

impl Fault {
    /// A fault of the graph itself.
    pub(super) fn of_value(kind: FaultKind, value: &str, reason: String) -> Fault {
        Fault { kind, origin: Origin::default(), node: value.to_owned(), reason, advice: String::new() }
    }

    /// The same as a warning: the fault is in a branch of the node `label`, which fails where a run takes it.
    pub(super) fn of_failing_branch(self, label: &str) -> Fault {
        let reason = format!("{} (a run that takes this branch of `{label}` fails)", self.reason);
        Fault { reason, ..self }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.origin.operator.is_empty() {
            write!(f, "{} ", self.origin)?;
        }
        if !self.node.is_empty() {
            write!(f, "`{}`: ", self.node)?;
        }
        f.write_str(&self.reason)?;
        if !self.advice.is_empty() {
            write!(f, "; {}", self.advice)?;
        }
        Ok(())
    }
}

/// Everything that keeps a model from being imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportErrors {
    /// The faults, in the order of the model's nodes; never empty.
    pub faults: Vec<Fault>,
}

impl ImportErrors {
    /// Whether the model may well be valid: all faults are want of support.
    pub fn is_unsupported(&self) -> bool {
        self.faults.iter().all(|fault| fault.kind.is_unsupported())
    }

    /// Whether the fault is that of an option alone.
    pub fn is_option(&self) -> bool {
        self.faults.iter().all(|fault| fault.kind == FaultKind::Option)
    }

    /// Whether a limit was met, and nothing worse.
    pub fn is_limit(&self) -> bool {
        self.faults.iter().all(|fault| fault.kind == FaultKind::Limit)
    }
}

impl fmt::Display for ImportErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.faults.as_slice() {
            [fault] => write!(f, "the model cannot be imported: {fault}"),
            faults => {
                write!(f, "the model cannot be imported, for {} reasons:", faults.len())?;
                faults.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
            }
        }
    }
}

impl std::error::Error for ImportErrors {}

/// Why a node cannot be converted; the importer adds the place.
#[derive(Clone, Debug)]
pub(crate) struct Reason {
    pub(crate) kind: FaultKind,
    pub(crate) message: String,
    pub(crate) advice: &'static str,
}

impl Reason {
    pub(crate) fn new(kind: FaultKind, message: impl Into<String>) -> Reason {
        Reason { kind, message: message.into(), advice: "" }
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Reason {
        Reason::new(FaultKind::Unsupported, message)
    }

    pub(crate) fn malformed(message: impl Into<String>) -> Reason {
        Reason::new(FaultKind::Malformed, message)
    }

    pub(crate) fn arity(message: impl Into<String>) -> Reason {
        Reason::new(FaultKind::Arity, message)
    }

    pub(crate) fn ty(message: impl Into<String>) -> Reason {
        Reason::new(FaultKind::Type, message)
    }

    pub(crate) fn advise(mut self, advice: &'static str) -> Reason {
        self.advice = advice;
        self
    }
}

pub(crate) type Result<T> = std::result::Result<T, Reason>;
