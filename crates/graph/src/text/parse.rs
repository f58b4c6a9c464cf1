//! Parsing a graph.

use rustc_hash::FxHashMap;

use super::reader::{ParseError, Reader};
use crate::graph::{Graph, Provenance};
use crate::guard::{Comparison, Guard};
use crate::ids::{RegionId, ValueId};
use crate::infer;
use crate::op::{Attr, Op};
use crate::symbol::{Range, SymbolKind, SymbolTable};

/// No graph has more regions; a number above it is a typing error.
const MAX_REGIONS: u32 = 1 << 16;

/// Reads what [`super::print`] prints. The graph is well formed as a text but not verified.
pub fn parse(text: &str) -> Result<Graph, ParseError> {
    let mut symbols = SymbolTable::default();
    let reader = Reader::new(text, &mut symbols);
    let mut parser = Parser { reader, graph: Graph::default(), values: FxHashMap::default(), n_regions: 1 };
    parser.graph()?;
    let mut graph = parser.graph;
    graph.symbols = symbols;
    infer::follow_elements(&mut graph);
    Ok(graph)
}

struct Parser<'a> {
    reader: Reader<'a>,
    graph: Graph,
    values: FxHashMap<String, ValueId>,
    n_regions: u32,
}

impl Parser<'_> {
    fn graph(&mut self) -> Result<(), ParseError> {
        self.reader.expect("graph")?;
        self.graph.name = self.reader.name()?;
        self.reader.expect("{")?;
        while !self.reader.eat("}") {
            if self.reader.eat("meta") {
                let key = self.reader.string()?;
                let value = self.reader.string()?;
                self.graph.metadata.insert(key, value);
            } else if self.reader.eat("sym") {
                self.symbol()?;
            } else if self.reader.eat("guard") {
                self.guard()?;
            } else {
                self.region()?;
            }
        }
        if self.reader.at_end() { Ok(()) } else { Err(self.reader.error("text after the graph")) }
    }

    fn symbol(&mut self) -> Result<(), ParseError> {
        let name = self.reader.name()?;
        let kind = match self.reader.word()? {
            "input" => SymbolKind::Input,
            "computed" => SymbolKind::Computed,
            other => return Err(self.reader.error(format!("`{other}` is no kind of symbol"))),
        };
        if self.reader.symbols.find(&name).is_some() {
            return Err(self.reader.error(format!("symbol `{name}` is declared twice")));
        }
        let symbol = self.reader.symbols.intern(&name, kind);
        let digits = self.reader.digits()?;
        self.reader.expect("..")?;
        let hi = if self.reader.eat("*") { None } else { Some(self.reader.digits()?) };
        self.reader.expect(":")?;
        let step = self.reader.digits()?;
        if step == 0 {
            return Err(self.reader.error("the step of a range is at least 1"));
        }
        self.reader.symbols.set_range(symbol, Range { lo: digits, hi, step });
        Ok(())
    }

    fn guard(&mut self) -> Result<(), ParseError> {
        let region = <RegionId as Attr>::read(&mut self.reader)?;
        self.ensure_region(region)?;
        let left = self.reader.dim()?;
        let comparison = if self.reader.eat("==") {
            Comparison::Equal
        } else {
            self.reader.expect("<=")?;
            Comparison::AtMost
        };
        let right = self.reader.dim()?;
        let message = self.reader.string()?;
        self.graph.guards.push(Guard { left, comparison, right, region, message });
        Ok(())
    }

    /// Makes sure the region exists: bodies may be named before they are written.
    fn ensure_region(&mut self, region: RegionId) -> Result<(), ParseError> {
        if region.as_u32() >= MAX_REGIONS {
            return Err(self.reader.error("region number out of range"));
        }
        while self.n_regions <= region.as_u32() {
            self.graph.add_region();
            self.n_regions += 1;
        }
        Ok(())
    }

    fn region(&mut self) -> Result<(), ParseError> {
        let word = self.reader.word()?;
        let number = word.strip_prefix("region").and_then(|digits| digits.parse().ok());
        let region = number.map(RegionId::from_u32).ok_or_else(|| self.reader.error("expected a region"))?;
        self.ensure_region(region)?;
        self.reader.expect("(")?;
        while !self.reader.eat(")") {
            if !self.graph.region(region).params.is_empty() {
                self.reader.expect(",")?;
            }
            let (label, name, ty) = self.definition()?;
            let value = self.graph.add_param(region, name.as_deref(), ty);
            self.values.insert(label, value);
        }
        self.reader.expect("{")?;
        while !self.reader.eat("return") {
            self.node(region)?;
        }
        let mut results = Vec::new();
        let mut names = Vec::new();
        while !self.reader.eat("}") {
            if !results.is_empty() {
                self.reader.expect(",")?;
            }
            results.push(self.reference()?);
            if self.reader.eat("as ") {
                names.push(self.reader.name()?);
            }
        }
        self.graph.set_results(region, results);
        self.graph.set_result_names(region, names);
        Ok(())
    }

    fn definition(&mut self) -> Result<(String, Option<String>, crate::types::Type), ParseError> {
        self.reader.expect("%")?;
        let label = self.reader.word()?.to_owned();
        if self.values.contains_key(&label) {
            return Err(self.reader.error(format!("%{label} is defined twice")));
        }
        let name = if self.reader.peek(":") { None } else { Some(self.reader.name()?) };
        self.reader.expect(":")?;
        Ok((label, name, self.reader.ty()?))
    }

    fn reference(&mut self) -> Result<ValueId, ParseError> {
        self.reader.expect("%")?;
        let label = self.reader.word()?;
        self.values
            .get(label)
            .copied()
            .ok_or_else(|| self.reader.error(format!("%{label} is not defined above")))
    }

    fn node(&mut self, region: RegionId) -> Result<(), ParseError> {
        let mut definitions = Vec::new();
        while !self.reader.eat("=") {
            if !definitions.is_empty() {
                self.reader.expect(",")?;
            }
            definitions.push(self.definition()?);
        }
        let op = Op::read(&mut self.reader)?;
        for inner in op.regions() {
            self.ensure_region(inner)?;
        }
        self.reader.expect("(")?;
        let mut inputs = Vec::new();
        while !self.reader.eat(")") {
            if !inputs.is_empty() {
                self.reader.expect(",")?;
            }
            inputs.push(if self.reader.eat("_") { None } else { Some(self.reference()?) });
        }
        let mut names = Vec::new();
        if self.reader.eat("@") {
            names.push(self.reader.string()?);
            while self.reader.eat(",") {
                names.push(self.reader.string()?);
            }
        }
        let parts: Vec<Provenance> = names.iter().map(|name| Provenance::named(name)).collect();
        let types = definitions.iter().map(|(_, _, ty)| ty.clone()).collect();
        let node = self.graph.append_typed(region, op, inputs, types, Provenance::merge(&parts));
        for ((label, name, _), value) in definitions.into_iter().zip(self.graph.node(node).outputs.clone()) {
            if let Some(name) = name {
                self.graph.set_name(value, &name);
            }
            self.values.insert(label, value);
        }
        Ok(())
    }
}
