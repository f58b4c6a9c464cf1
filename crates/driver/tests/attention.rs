//! Attention in blocks with a running maximum: wherever it can be chosen, it computes attention within the numerics contract,
//! measured against double precision.

#[path = "common/algorithms.rs"]
mod algorithms;

use algorithms::{CONTRACT, by_every_algorithm, error, model, noise, targets};
use tilewright_driver::onnx::OnnxModel;
use tilewright_driver::runtime::TensorView;
use tilewright_driver::{CodegenKind, Compiled, Numerics, Options, Target, compile_model};

/// Attention, with queries, keys and values as inputs.
#[derive(Clone, Copy, Debug)]
struct Case {
    batch: usize,
    /// Heads of queries, and of keys and values.
    heads: [usize; 2],
    queries: usize,
    keys: usize,
    /// Elements of a head.
    size: usize,
    seen: Seen,
    /// What a query gets that sees no key.
    unseen: f64,
    softcap: f64,
    /// Whether queries come by positions, `[batch, position, head, element]`, and results go so.
    is_by_positions: bool,
}

/// Which keys a query sees.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Seen {
    All,
    /// In each batch entry those before its last few.
    Prefix,
    /// Those that an operand has no minus infinity for, which differ from query to query; the first query sees none.
    Masked,
    /// Those up to its own position.
    Causal,
}

const CASE: Case = Case {
    batch: 1,
    heads: [2, 2],
    queries: 64,
    keys: 128,
    size: 32,
    seen: Seen::All,
    unseen: 0.0,
    softcap: 0.0,
    is_by_positions: false,
};

/// What a case is computed from.
struct Tensors {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    mask: Vec<f32>,
}

impl Case {
    fn dims(&self) -> [[usize; 4]; 4] {
        let Case { batch, heads: [heads, kv_heads], queries, keys, size, seen, .. } = *self;
        let mask = match seen {
            Seen::Prefix => [batch, 1, 1, keys],
            Seen::All | Seen::Masked | Seen::Causal => [1, 1, queries, keys],
        };
        [[batch, heads, queries, size], [batch, kv_heads, keys, size], [batch, kv_heads, keys, size], mask]
    }

    /// The extents of queries as they come.
    fn query_dims(&self) -> [usize; 4] {
        let [batch, heads, queries, size] = self.dims()[0];
        if self.is_by_positions { [batch, queries, heads, size] } else { [batch, heads, queries, size] }
    }

    /// Where the first element of a query, or of its result, lies.
    fn query_at(&self, batch: usize, head: usize, row: usize) -> usize {
        let Case { heads: [heads, _], queries, size, is_by_positions, .. } = *self;
        let row = if is_by_positions {
            (batch * queries + row) * heads + head
        } else {
            (batch * heads + head) * queries + row
        };
        row * size
    }

    fn tensors(&self) -> Tensors {
        let [q, k, v, mask] = self.dims().map(|dims| dims.iter().product::<usize>());
        let keys = self.keys;
        // Scores of some units, so that maxima grow from block to block.
        let scaled = |values: Vec<f32>| values.into_iter().map(|x| 6.0 * x).collect();
        let mask = match self.seen {
            Seen::All | Seen::Causal => vec![0.0; mask],
            Seen::Prefix => (0..mask)
                .map(|i| if i % keys + 5 + i / keys >= keys { f32::NEG_INFINITY } else { 0.0 })
                .collect(),
            Seen::Masked => {
                let hides = |i: usize| i < keys || (i * 7 + i / keys).is_multiple_of(11);
                let noise = noise(mask, 4).into_iter().enumerate();
                noise.map(|(i, x)| if hides(i) { f32::NEG_INFINITY } else { x }).collect()
            }
        };
        Tensors { q: scaled(noise(q, 1)), k: noise(k, 2), v: noise(v, 3), mask }
    }

    fn model(&self) -> OnnxModel {
        let [q, k, v, mask] = self.dims().map(|dims| format!("f32{dims:?}"));
        let has_mask = matches!(self.seen, Seen::Prefix | Seen::Masked);
        let operand = if has_mask { ", %m" } else { "" };
        let causal = if self.seen == Seen::Causal { "causal=true" } else { "causal=false" };
        let Case { softcap, unseen, .. } = *self;
        let unseen_is_nan = unseen.is_nan();
        let attention = format!("Attention[{causal}, softcap={softcap}, unseen_is_nan={unseen_is_nan}]");
        let body = if self.is_by_positions {
            let swap = "Transpose[perm=[0, 2, 1, 3]]";
            let given = format!("f32{:?}", self.query_dims());
            format!(
                "region0(%q q: {given}, %k k: {k}, %v v: {v}, %m m: {mask}) {{
                   %h: {q} = {swap}(%q)
                   %a: {q} = {attention}(%h, %k, %v{operand})
                   %o: {given} = {swap}(%a)"
            )
        } else {
            format!(
                "region0(%q q: {q}, %k k: {k}, %v v: {v}, %m m: {mask}) {{
                   %o: {q} = {attention}(%q, %k, %v{operand})"
            )
        };
        let text = format!("graph attention {{ {body}\n return %o as y }} }}");
        model(&text, &[])
    }

    /// The result in double precision, by the definition.
    fn expected(&self, tensors: &Tensors) -> Vec<f64> {
        let Case { batch, heads: [heads, kv_heads], queries, keys, size, seen, unseen, softcap, .. } = *self;
        let mut result = vec![0.0; batch * heads * queries * size];
        let rows = (0..batch).flat_map(|b| (0..heads).map(move |h| (b, h)));
        for ((b, h), row) in rows.flat_map(|at| (0..queries).map(move |row| (at, row))) {
            let kv = b * kv_heads + h * kv_heads / heads;
            let at = self.query_at(b, h, row);
            let q = &tensors.q[at..][..size];
            let of_key = |x: &[f32], key: usize| x[(kv * keys + key) * size..][..size].to_vec();
            let score = |key: usize| {
                let terms = q.iter().zip(of_key(&tensors.k, key)).map(|(&a, b)| f64::from(a) * f64::from(b));
                let score = terms.sum::<f64>() / (size as f64).sqrt();
                let score = if softcap == 0.0 { score } else { softcap * (score / softcap).tanh() };
                match seen {
                    Seen::All => score,
                    Seen::Prefix => score + f64::from(tensors.mask[b * keys + key]),
                    Seen::Masked => score + f64::from(tensors.mask[row * keys + key]),
                    Seen::Causal if key > row => f64::NEG_INFINITY,
                    Seen::Causal => score,
                }
            };
            let scores: Vec<f64> = (0..keys).map(score).collect();
            let max = scores.iter().fold(f64::NEG_INFINITY, |max, &x| max.max(x));
            let weight = |x: &f64| if max == f64::NEG_INFINITY { 0.0 } else { (x - max).exp() };
            let weights: Vec<f64> = scores.iter().map(weight).collect();
            let sum: f64 = weights.iter().sum();
            for element in 0..size {
                let value = |key: usize| weights[key] * f64::from(of_key(&tensors.v, key)[element]);
                let total: f64 = (0..keys).map(value).sum();
                result[at + element] = if sum == 0.0 { unseen } else { total / sum };
            }
        }
        result
    }

    fn run(&self, tensors: &Tensors, compiled: &Compiled) -> Vec<f32> {
        let [_, k, v, mask] = &self.dims();
        let q = &self.query_dims();
        let Tensors { q: queries, k: keys, v: values, mask: given } = tensors;
        let views = [(q, queries), (k, keys), (v, values), (mask, given)];
        algorithms::run(compiled, &views.map(|(dims, values)| TensorView::of(dims, values)))
    }
}

/// Computes cases by every algorithm, for every target.
fn check(cases: &[Case]) {
    for target in targets() {
        for case in cases {
            let tensors = case.tensors();
            let expected = case.expected(&tensors);
            let results = by_every_algorithm(&case.model(), &target, |compiled| case.run(&tensors, compiled));
            let names: Vec<&str> = results.iter().map(|(name, _)| name.as_str()).collect();
            // Two sizes of blocks of queries by one or two of keys, and the definition.
            let n_blocks = names.iter().filter(|name| name.starts_with("blocks")).count();
            let is_complete = [2, 4].contains(&n_blocks) && names.len() == n_blocks + 1;
            assert!(names[0].starts_with("blocks") && is_complete, "{case:?} for {target}: {names:?}");
            for (name, found) in &results {
                let error = error(found, &expected);
                assert!(error <= CONTRACT, "{case:?} by {name} for {target}: error {error:e}");
            }
        }
    }
}

#[test]
fn blocks_need_not_be_whole() {
    check(&[
        CASE,
        Case { queries: 1, keys: 1, ..CASE },
        Case { queries: 65, keys: 63, ..CASE },
        Case { batch: 3, queries: 31, keys: 129, size: 5, ..CASE },
        Case { queries: 7, keys: 300, size: 40, ..CASE },
    ]);
}

#[test]
fn keys_are_hidden() {
    for seen in [Seen::Prefix, Seen::Masked, Seen::Causal] {
        check(&[
            Case { batch: 2, seen, ..CASE },
            Case { batch: 2, queries: 70, keys: 70, seen, ..CASE },
            Case { queries: 200, keys: 200, softcap: 3.0, seen, ..CASE },
        ]);
    }
}

#[test]
fn a_query_that_sees_no_key_gets_what_a_softmax_gives() {
    // The model has two products and a softmax, which become attention again where scores are many.
    let masked = Case { queries: 256, keys: 256, seen: Seen::Masked, unseen: f64::NAN, ..CASE };
    assert!(masked.expected(&masked.tensors()).iter().any(|x| x.is_nan()));
    check(&[
        masked,
        Case { batch: 2, queries: 250, keys: 270, ..masked },
        Case { batch: 2, seen: Seen::Prefix, ..masked },
    ]);
}

#[test]
fn heads_share_keys_and_values() {
    check(&[
        Case { heads: [6, 2], queries: 40, ..CASE },
        Case { batch: 2, heads: [4, 1], seen: Seen::Causal, queries: 40, ..CASE },
    ]);
}

#[test]
fn queries_and_results_go_by_positions() {
    let packed = Case { heads: [6, 2], queries: 40, is_by_positions: true, ..CASE };
    check(&[
        packed,
        Case { batch: 3, queries: 70, keys: 70, size: 5, seen: Seen::Causal, ..packed },
        Case {
            batch: 2,
            heads: [2, 2],
            queries: 256,
            keys: 256,
            seen: Seen::Masked,
            unseen: f64::NAN,
            ..packed
        },
    ]);
}

/// What the blocks of queries use again and again stays in L1: of a small one there are fewer keys in a block.
#[test]
#[cfg_attr(not(feature = "llvm"), ignore = "the machine's description is one that LLVM makes code for")]
fn scores_stay_in_l1() {
    let case = Case { heads: [12, 12], queries: 512, keys: 512, size: 64, ..CASE };
    for (l1, keys) in [(32 << 10, 64), (64 << 10, 128)] {
        let machine = format!("x86-64-v3;l1d={l1}");
        let target = Target::parse(&machine, CodegenKind::Llvm).expect("a known target");
        let options = Options { target, ..Options::host(CodegenKind::Llvm) };
        let compiled = compile_model(&case.model(), &options, &mut ()).expect("an artifact");
        assert_eq!(algorithms::algorithm(&compiled), format!("blocks-32x{keys}"), "{machine}");
    }
}

#[test]
fn strict_numerics_keep_the_definition() {
    for target in targets() {
        let options = Options { numerics: Numerics::Strict, ..Options::for_target(target.clone()) };
        let compiled = compile_model(&CASE.model(), &options, &mut ()).expect("an artifact");
        assert_eq!(algorithms::algorithm(&compiled), algorithms::DIRECT, "{target}");
    }
}
