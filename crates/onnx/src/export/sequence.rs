//! Control flow, sequences, optionals and strings.

use tilewright_graph::op::{
    CaseAction, ConcatFromSequenceAttrs, IfAttrs, LoopAttrs, ScanAttrs, SplitToSequenceAttrs,
    StringNormalizerAttrs, StringSplitAttrs, TfIdfAttrs, TfIdfMode,
};
use tilewright_graph::{Guard, Type};

use super::build::{self, flag, ints, reals, size, sizes, text, texts, type_attribute, type_proto};
use super::elementwise::dtype_attr;
use super::{Exporter, Item, Result};

impl Exporter<'_> {
    pub(super) fn if_node(&mut self, item: &Item<'_>, attrs: &IfAttrs) -> Result<()> {
        let captures = &item.inputs[1..];
        let fails = |guard: &&Guard| {
            guard.never_holds() && [attrs.then_region, attrs.else_region].contains(&guard.region)
        };
        if let Some(guard) = self.graph.guards.iter().find(fails) {
            return Err(format!("a branch of it fails in every run: {}", guard.message));
        }
        let then_branch = self.subgraph(attrs.then_region, 0, captures)?;
        let else_branch = self.subgraph(attrs.else_region, 0, captures)?;
        let attributes =
            vec![build::graph("then_branch", then_branch), build::graph("else_branch", else_branch)];
        self.finish(item, "If", &[item.input(0)], attributes);
        Ok(())
    }

    pub(super) fn loop_node(&mut self, item: &Item<'_>, attrs: &LoopAttrs) -> Result<()> {
        let (own, captures) = item.inputs.split_at((2 + attrs.carried).min(item.inputs.len()));
        let body = self.subgraph(attrs.body, 2 + attrs.carried, captures)?;
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        self.finish(item, "Loop", &own, vec![build::graph("body", body)]);
        Ok(())
    }

    pub(super) fn scan(&mut self, item: &Item<'_>, attrs: &ScanAttrs) -> Result<()> {
        let formals = attrs.states + attrs.input_axes.len();
        let (own, captures) = item.inputs.split_at(formals.min(item.inputs.len()));
        let body = self.subgraph(attrs.body, formals, captures)?;
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        let ways = |ways: &[bool]| ways.iter().map(|&reversed| i64::from(reversed)).collect::<Vec<_>>();
        let attributes = vec![
            build::graph("body", body),
            size("num_scan_inputs", attrs.input_axes.len()),
            sizes("scan_input_axes", &attrs.input_axes),
            ints("scan_input_directions", &ways(&attrs.input_reversed)),
            sizes("scan_output_axes", &attrs.output_axes),
            ints("scan_output_directions", &ways(&attrs.output_reversed)),
        ];
        self.finish(item, "Scan", &own, attributes);
        Ok(())
    }

    pub(super) fn tf_idf(&mut self, item: &Item<'_>, attrs: &TfIdfAttrs) -> Result<()> {
        let mode = match attrs.mode {
            TfIdfMode::Tf => "TF",
            TfIdfMode::Idf => "IDF",
            TfIdfMode::TfIdf => "TFIDF",
        };
        let mut attributes = vec![
            text("mode", mode),
            size("min_gram_length", attrs.min_length),
            size("max_gram_length", attrs.max_length),
            size("max_skip_count", attrs.max_skip),
            sizes("ngram_counts", &attrs.counts),
            sizes("ngram_indexes", &attrs.indexes),
        ];
        if !attrs.pool_integers.is_empty() {
            attributes.push(ints("pool_int64s", &attrs.pool_integers));
        }
        if !attrs.pool_strings.is_empty() {
            attributes.push(texts("pool_strings", &attrs.pool_strings));
        }
        if !attrs.weights.is_empty() {
            attributes.push(reals("weights", &attrs.weights));
        }
        self.plain(item, "TfIdfVectorizer", attributes)
    }

    pub(super) fn sequence_empty(&mut self, item: &Item<'_>, element: &Type) -> Result<()> {
        match element {
            Type::Tensor(tensor) => {
                self.plain(item, "SequenceEmpty", vec![dtype_attr("dtype", tensor.dtype)])
            }
            Type::Sequence(_) | Type::Optional(_) => Err("the elements are not tensors".to_owned()),
        }
    }

    pub(super) fn optional(&mut self, item: &Item<'_>, ty: Option<&Type>) -> Result<()> {
        let ty = ty.map(|ty| type_attribute("type", type_proto(ty, &self.graph.symbols)));
        self.plain(item, "Optional", ty.into_iter().collect())
    }

    pub(super) fn split_to_sequence(&mut self, item: &Item<'_>, attrs: &SplitToSequenceAttrs) -> Result<()> {
        let attributes = vec![size("axis", attrs.axis), flag("keepdims", attrs.keep_dims)];
        self.plain(item, "SplitToSequence", attributes)
    }

    pub(super) fn concat_from_sequence(
        &mut self,
        item: &Item<'_>,
        attrs: &ConcatFromSequenceAttrs,
    ) -> Result<()> {
        let attributes = vec![size("axis", attrs.axis), flag("new_axis", attrs.new_axis)];
        self.plain(item, "ConcatFromSequence", attributes)
    }

    pub(super) fn string_split(&mut self, item: &Item<'_>, attrs: &StringSplitAttrs) -> Result<()> {
        let mut attributes = Vec::new();
        if !attrs.delimiter.is_empty() {
            attributes.push(text("delimiter", &attrs.delimiter));
        }
        attributes.extend(attrs.max_split.map(|most| size("maxsplit", most)));
        self.plain(item, "StringSplit", attributes)
    }

    pub(super) fn string_normalizer(&mut self, item: &Item<'_>, attrs: &StringNormalizerAttrs) -> Result<()> {
        let case = match attrs.case {
            CaseAction::None => "NONE",
            CaseAction::Lower => "LOWER",
            CaseAction::Upper => "UPPER",
        };
        let mut attributes =
            vec![text("case_change_action", case), flag("is_case_sensitive", attrs.case_sensitive)];
        if !attrs.stopwords.is_empty() {
            attributes.push(texts("stopwords", &attrs.stopwords));
        }
        self.plain(item, "StringNormalizer", attributes)
    }
}
