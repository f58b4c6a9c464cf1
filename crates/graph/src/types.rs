//! Types of values: tensors with symbolic shapes, sequences, optionals.

use std::fmt;

use tilewright_dtype::DType;

use crate::dim::Dim;
use crate::symbol::SymbolTable;

/// The extents of a tensor, outermost first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// Known rank; each extent a constant or a symbolic expression.
    Ranked(Vec<Dim>),
    /// Not even the rank is known.
    Unranked,
}

impl Shape {
    /// The shape with the given known extents.
    pub fn fixed(extents: &[usize]) -> Shape {
        Shape::Ranked(extents.iter().map(|&extent| Dim::from(extent)).collect())
    }

    /// The shape of a scalar.
    pub fn scalar() -> Shape {
        Shape::Ranked(Vec::new())
    }

    /// The extents, if the rank is known.
    pub fn dims(&self) -> Option<&[Dim]> {
        match self {
            Shape::Ranked(dims) => Some(dims),
            Shape::Unranked => None,
        }
    }

    /// Number of axes, if known.
    pub fn rank(&self) -> Option<usize> {
        self.dims().map(<[Dim]>::len)
    }

    /// The extents, if all are constants.
    pub fn as_fixed(&self) -> Option<Vec<usize>> {
        self.dims()?.iter().map(|dim| usize::try_from(dim.as_const()?).ok()).collect()
    }

    /// Number of elements, if the rank is known.
    pub fn elements(&self) -> Option<Dim> {
        self.dims().map(Dim::product)
    }
}

impl From<Vec<Dim>> for Shape {
    fn from(dims: Vec<Dim>) -> Shape {
        Shape::Ranked(dims)
    }
}

/// Element type and shape of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub shape: Shape,
}

impl TensorType {
    /// A tensor type of known rank.
    pub fn new(dtype: DType, dims: Vec<Dim>) -> TensorType {
        TensorType { dtype, shape: Shape::Ranked(dims) }
    }

    /// A tensor type with constant extents.
    pub fn fixed(dtype: DType, extents: &[usize]) -> TensorType {
        TensorType { dtype, shape: Shape::fixed(extents) }
    }
}

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// A tensor (of strings too: their dtype is [`DType::String`]).
    Tensor(TensorType),
    /// A list of values of one type.
    Sequence(Box<Type>),
    /// A value or nothing.
    Optional(Box<Type>),
}

impl Type {
    /// Replaces every extent.
    pub fn map_dims(&mut self, map: &mut dyn FnMut(&Dim) -> Dim) {
        match self {
            Type::Tensor(TensorType { shape: Shape::Ranked(dims), .. }) => {
                dims.iter_mut().for_each(|dim| *dim = map(dim));
            }
            Type::Tensor(TensorType { shape: Shape::Unranked, .. }) => {}
            Type::Sequence(inner) | Type::Optional(inner) => inner.map_dims(map),
        }
    }

    /// The tensor type, if this is one.
    pub fn as_tensor(&self) -> Option<&TensorType> {
        match self {
            Type::Tensor(tensor) => Some(tensor),
            Type::Sequence(_) | Type::Optional(_) => None,
        }
    }

    /// The type as the text form prints it: `f32[batch, 3]`, `seq(f32[2])`, `opt(i64[*])`.
    pub fn display<'a>(&'a self, symbols: &'a SymbolTable) -> impl fmt::Display + 'a {
        DisplayType { ty: self, symbols }
    }
}

impl From<TensorType> for Type {
    fn from(tensor: TensorType) -> Type {
        Type::Tensor(tensor)
    }
}

struct DisplayType<'a> {
    ty: &'a Type,
    symbols: &'a SymbolTable,
}

impl fmt::Display for DisplayType<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = |ty| DisplayType { ty, symbols: self.symbols };
        match self.ty {
            Type::Sequence(element) => write!(f, "seq({})", inner(element)),
            Type::Optional(element) => write!(f, "opt({})", inner(element)),
            Type::Tensor(TensorType { dtype, shape: Shape::Unranked }) => write!(f, "{dtype}[*]"),
            Type::Tensor(TensorType { dtype, shape: Shape::Ranked(dims) }) => {
                write!(f, "{dtype}[")?;
                for (axis, dim) in dims.iter().enumerate() {
                    let separator = if axis == 0 { "" } else { ", " };
                    write!(f, "{separator}{}", dim.display(self.symbols))?;
                }
                f.write_str("]")
            }
        }
    }
}
