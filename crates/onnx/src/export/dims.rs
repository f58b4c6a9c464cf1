//! Symbolic extents as shape arithmetic.

use tilewright_graph::Dim;
use tilewright_graph::dim::Atom;

use super::build::{int, ints};
use super::{Exporter, Result};

impl Exporter<'_> {
    /// A vector of extents: an initializer if all are constants, else nodes that compute it.
    pub(super) fn shape(&mut self, dims: &[Dim]) -> Result<String> {
        if let Some(values) = dims.iter().map(Dim::as_const).collect::<Option<Vec<i64>>>() {
            return Ok(self.ints(&values));
        }
        // Neighbouring constants share an initializer.
        let mut parts = Vec::new();
        let mut rest = dims;
        while !rest.is_empty() {
            let values: Vec<i64> = rest.iter().map_while(Dim::as_const).collect();
            if values.is_empty() {
                parts.push(self.extent(&rest[0])?);
                rest = &rest[1..];
            } else {
                rest = &rest[values.len()..];
                parts.push(self.ints(&values));
            }
        }
        match parts.as_slice() {
            [one] => Ok(one.clone()),
            parts => {
                let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
                Ok(self.emit("Concat", &parts, vec![int("axis", 0)]))
            }
        }
    }

    /// An extent as a vector of one element.
    pub(super) fn extent(&mut self, dim: &Dim) -> Result<String> {
        if let Some(value) = dim.as_const() {
            return Ok(self.ints(&[value]));
        }
        // What an outer body computed before is visible inside.
        if let Some(name) = self.bodies.iter().find_map(|body| body.extents.get(dim)) {
            return Ok(name.clone());
        }
        let mut sum: Option<String> = None;
        for summand in dim.summands() {
            let mut product: Option<String> = None;
            if summand.coefficient != 1 || summand.atoms.is_empty() {
                product = Some(self.ints(&[summand.coefficient]));
            }
            for atom in summand.atoms {
                let factor = self.atom(atom)?;
                product = Some(match product {
                    Some(product) => self.emit("Mul", &[&product, &factor], Vec::new()),
                    None => factor,
                });
            }
            let product = product.unwrap_or_default();
            sum = Some(match sum {
                Some(sum) => self.emit("Add", &[&sum, &product], Vec::new()),
                None => product,
            });
        }
        let name = sum.unwrap_or_default();
        if let Some(body) = self.bodies.last_mut() {
            body.extents.insert(dim.clone(), name.clone());
        }
        Ok(name)
    }

    fn atom(&mut self, atom: &Atom) -> Result<String> {
        let mut pair = |op_type: &str, pair: &(Dim, Dim)| -> Result<String> {
            let (a, b) = (self.extent(&pair.0)?, self.extent(&pair.1)?);
            Ok(self.emit(op_type, &[&a, &b], Vec::new()))
        };
        match atom {
            Atom::Symbol(symbol) => {
                let definition = self.definitions.get(symbol).copied();
                let name = &self.graph.symbols[*symbol].name;
                let (value, axis) =
                    definition.ok_or_else(|| format!("nothing defines the extent `{name}`"))?;
                let value = self.name(value);
                let (start, end) = (int("start", axis as i64), int("end", axis as i64 + 1));
                Ok(self.emit("Shape", &[&value], vec![start, end]))
            }
            Atom::Mod(operands) => pair("Mod", operands),
            Atom::Min(operands) => pair("Min", operands),
            Atom::Max(operands) => pair("Max", operands),
            Atom::FloorDiv(operands) => {
                // ONNX division truncates; without the remainder both round alike.
                let rest = pair("Mod", operands)?;
                let (a, b) = (self.extent(&operands.0)?, self.extent(&operands.1)?);
                let multiple = self.emit("Sub", &[&a, &rest], Vec::new());
                Ok(self.emit("Div", &[&multiple, &b], Vec::new()))
            }
        }
    }

    /// Removes the axis of a vector of one element.
    pub(super) fn as_scalar(&mut self, vector: &str) -> String {
        let shape = self.ints(&[]);
        self.emit("Reshape", &[vector, &shape], vec![])
    }

    /// The permutation attribute that exchanges the last two of `rank` axes.
    pub(super) fn transposed(&mut self, x: &str, rank: usize) -> Result<String> {
        if rank < 2 {
            return Err("a vector cannot be transposed".to_owned());
        }
        let mut perm: Vec<i64> = (0..rank as i64).collect();
        perm.swap(rank - 1, rank - 2);
        Ok(self.emit("Transpose", &[x], vec![ints("perm", &perm)]))
    }
}
