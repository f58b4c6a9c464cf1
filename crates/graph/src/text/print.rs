//! Printing a graph.

use rustc_hash::FxHashMap;

use super::writer::Writer;
use crate::graph::Graph;
use crate::guard::Comparison;
use crate::ids::{NodeId, RegionId, ValueId};
use crate::op::AttrVisitor;
use crate::symbol::SymbolKind;

/// The whole graph; [`super::parse`] reads it back.
pub fn print(graph: &Graph) -> String {
    print_with(graph, usize::MAX)
}

/// Elements up to which people see those of a constant.
const FEW: usize = 64;

/// The graph for people: `...` stands for the elements of large constants, so it does not read back.
pub fn print_short(graph: &Graph) -> String {
    print_with(graph, FEW)
}

/// The graph without the elements of constants of more than `max_elements`.
fn print_with(graph: &Graph, max_elements: usize) -> String {
    let mut writer = Writer::new(&graph.symbols);
    writer.max_elements = max_elements;
    let regions = graph.live_regions();
    let region_numbers = regions.iter().enumerate().map(|(number, &region)| (region, number)).collect();
    let mut printer = Printer { graph, writer, numbers: FxHashMap::default(), region_numbers };
    printer.header();
    for region in regions {
        printer.region(region);
    }
    printer.writer.put("}\n");
    printer.writer.out
}

struct Printer<'a> {
    graph: &'a Graph,
    writer: Writer<'a>,
    numbers: FxHashMap<ValueId, usize>,
    region_numbers: FxHashMap<RegionId, usize>,
}

impl Printer<'_> {
    fn header(&mut self) {
        let writer = &mut self.writer;
        writer.put("graph ");
        writer.name(&self.graph.name);
        writer.put(" {\n");
        for (key, value) in &self.graph.metadata {
            writer.put("  meta ");
            writer.string(key);
            writer.put(" ");
            writer.string(value);
            writer.put("\n");
        }
        for (_, symbol) in self.graph.symbols.iter() {
            writer.put("  sym ");
            writer.name(&symbol.name);
            let kind = match symbol.kind {
                SymbolKind::Input => "input",
                SymbolKind::Computed => "computed",
            };
            writer.put(format_args!(" {kind} {}..", symbol.range.lo));
            match symbol.range.hi {
                Some(hi) => writer.put(hi),
                None => writer.put("*"),
            }
            writer.put(format_args!(":{}\n", symbol.range.step));
        }
        for guard in &self.graph.guards {
            // The region may be gone with the branch it was.
            let Some(region) = self.region_numbers.get(&guard.region) else { continue };
            writer.put(format_args!("  guard region{region} "));
            writer.put(guard.left.display(writer.symbols));
            writer.put(match guard.comparison {
                Comparison::Equal => " == ",
                Comparison::AtMost => " <= ",
            });
            writer.put(guard.right.display(writer.symbols));
            writer.put(" ");
            writer.string(&guard.message);
            writer.put("\n");
        }
    }

    fn define(&mut self, value: ValueId) {
        let number = self.numbers.len();
        self.numbers.insert(value, number);
        self.writer.put(format_args!("%{number}"));
        let value = self.graph.value(value);
        if let Some(name) = &value.name {
            self.writer.put(" ");
            self.writer.name(name);
        }
        self.writer.put(": ");
        self.writer.put(value.ty.display(&self.graph.symbols));
    }

    /// A value that is not defined above (the verifier complains about those) prints as its arena id.
    fn reference(&mut self, value: ValueId) {
        match self.numbers.get(&value) {
            Some(number) => self.writer.put(format_args!("%{number}")),
            None => self.writer.put(format_args!("%undefined_{value}")),
        }
    }

    fn region(&mut self, region: RegionId) {
        let data = self.graph.region(region);
        self.writer.put(format_args!("  region{}(", self.region_numbers[&region]));
        for (position, &param) in data.params.iter().enumerate() {
            self.writer.put(if position == 0 { "" } else { ", " });
            self.define(param);
        }
        self.writer.put(") {\n");
        for &node in &data.nodes {
            self.node(node);
        }
        self.writer.put("    return");
        for (position, &value) in data.results.iter().enumerate() {
            self.writer.put(if position == 0 { " " } else { ", " });
            self.reference(value);
            if let Some(name) = data.result_names.get(position) {
                self.writer.put(" as ");
                self.writer.name(name);
            }
        }
        self.writer.put("\n  }\n");
    }

    fn node(&mut self, node: NodeId) {
        let node = self.graph.node(node);
        self.writer.put("    ");
        for (position, &value) in node.outputs.iter().enumerate() {
            self.writer.put(if position == 0 { "" } else { ", " });
            self.define(value);
        }
        self.writer.put(if node.outputs.is_empty() { "= " } else { " = " });
        if node.op.regions().is_empty() {
            node.op.write(&mut self.writer);
        } else {
            let mut op = node.op.clone();
            op.visit(&mut Renumber(&self.region_numbers));
            op.write(&mut self.writer);
        }
        self.writer.put("(");
        for (position, value) in node.inputs.iter().enumerate() {
            self.writer.put(if position == 0 { "" } else { ", " });
            match value {
                Some(value) => self.reference(*value),
                None => self.writer.put("_"),
            }
        }
        self.writer.put(")");
        for (position, name) in node.provenance.names().enumerate() {
            self.writer.put(if position == 0 { " @ " } else { ", " });
            self.writer.string(name);
        }
        self.writer.put("\n");
    }
}

struct Renumber<'a>(&'a FxHashMap<RegionId, usize>);

impl AttrVisitor for Renumber<'_> {
    fn region(&mut self, region: &mut RegionId) {
        if let Some(&number) = self.0.get(region) {
            *region = RegionId::from_u32(number as u32);
        }
    }
}
