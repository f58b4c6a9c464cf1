//! Attention in blocks of keys, with a running maximum.
//!
//! Queries are taken in blocks, and for each of these the keys in blocks, in order. Of the scores there is one block at a time. Each
//! query keeps its greatest score so far, the sum of the exponentials relative to that, and the values weighted by them; when a block
//! has a greater score, the latter two fade by the exponential of the difference. So memory grows with the number of positions, not
//! with its square.
//!
//! Where nothing is added to scores they are in units of ln 2, by the factor that queries have anyway: powers of 2 take fewer operations
//! than those of e.
//!
//! Queries are the innermost dimension of everything that a block works on: all of it goes by vectors of queries, the maximum and the sum too.
//!
//! Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022.

use tilewright_dtype::DType;
use tilewright_graph::op::AttentionAttrs;
use tilewright_graph::types::TensorType;
use tilewright_te::{Expr, UnaryOp};

use super::builder::{Builder, Operand, broadcast_index};
use super::elementwise::apply;
use super::heads::{Heads, Mask, capped};
use super::norm::exp_of_centred;
use super::sequential::Steps;
use super::{Algorithm, NoKernel};

/// Whether attention can be computed so: in `F32`, without past or present keys and values, and without its scores as a result.
pub(super) fn applies(
    attrs: &AttentionAttrs,
    factors: [&TensorType; 3],
    operands: &[Option<&TensorType>],
) -> bool {
    let is_there = |n: usize| operands.get(n).is_some_and(Option::is_some);
    factors.iter().all(|factor| factor.dtype == DType::F32)
        && attrs.softmax_precision.is_none_or(|dtype| dtype == DType::F32)
        && !is_there(4)
        && !is_there(5)
}

/// What is done to the products of queries and keys.
pub(super) struct Form<'a> {
    /// Which keys a query sees.
    pub(super) mask: &'a Mask<'a>,
    /// The factor of all products.
    pub(super) scale: Expr,
    /// See [`capped`].
    pub(super) softcap: f64,
    /// Query heads that share one of keys and values.
    pub(super) shared: i64,
}

/// Keys of a block, few or several: its scores should stay in L1 beside keys and values, and what a block does for each query and each of its
/// values, once however many keys there are, should be little.
const KEYS: [i64; 2] = [64, 128];

/// Keys of a small block, of which a block of open lengths has several: few, so that little is computed of keys that are not there.
const SMALL: i64 = 16;

/// What divides the keys of a block: rows of a register tile.
const TILE: i64 = 4;

/// Queries of a block: vectors of any width, few or several.
const QUERIES: [i64; 2] = [32, 64];

/// So many keys and those that make tiles of them.
fn round_up(keys: i64) -> i64 {
    (keys + TILE - 1) / TILE * TILE
}

/// How many keys there are, where known, in heads of four axes or packed in three.
pub(super) fn n_keys(k: &TensorType) -> Option<i64> {
    let dims = k.shape.dims()?;
    dims.get(dims.len().checked_sub(2)?)?.as_const()
}

/// The forms in blocks for so many keys: if possible in blocks that leave none over, and that tiles divide.
pub(super) fn forms(keys: Option<i64>) -> Vec<Algorithm> {
    let is_whole = |n: &i64| keys.is_some_and(|keys| keys > 0 && keys % n == 0);
    let near = |size: i64| {
        let sizes = (size / 2..=size * 3 / 2).filter(|n| n % TILE == 0 && is_whole(n));
        sizes.min_by_key(|n| (n - size).abs()).unwrap_or(size)
    };
    let mut sizes = KEYS.map(near).to_vec();
    sizes.dedup();
    sizes.iter().flat_map(|&keys| QUERIES.map(|queries| Algorithm::Blocks { queries, keys })).collect()
}

/// Some of the keys, in blocks.
struct Keys<'a> {
    /// All keys.
    n: &'a Expr,
    /// The first of these.
    first: Expr,
    /// How many blocks there are.
    count: Expr,
    /// Keys of a block.
    size: i64,
    /// Whether there are keys beyond the last in them.
    is_over: bool,
}

impl Keys<'_> {
    /// All keys in blocks of `size`; then what is left over, in one block or, where it is open how much that is, in small ones, of which the last
    /// may have keys beyond the end.
    fn in_blocks(n: &Expr, size: i64) -> Vec<Keys<'_>> {
        let (large, none) = (n.clone().floor_div(Expr::int(size)), Expr::int(0));
        let rest = large.clone() * size;
        let whole = |first: Expr, count: Expr, size: i64| Keys { n, first, count, size, is_over: false };
        let last = |first: Expr, count: Expr, size: i64| Keys { n, first, count, size, is_over: true };
        match n.as_int().map(|n| (n / size, n % size)) {
            Some((_, 0)) => vec![whole(none, large, size)],
            Some((0, over)) => vec![last(none, Expr::int(1), round_up(over))],
            Some((_, over)) => vec![whole(none, large, size), last(rest, Expr::int(1), round_up(over))],
            None => {
                let small = n.clone().floor_div(Expr::int(SMALL));
                let (end, over) = (small.clone() * SMALL, n.clone().ceil_div(SMALL) - small.clone());
                let between = small - large.clone() * (size / SMALL);
                vec![whole(none, large, size), whole(rest, between, SMALL), last(end, over, SMALL)]
            }
        }
    }

    /// Which key is at a place of block `t`; maybe beyond the last.
    fn at(&self, t: &Expr, place: &Expr) -> Expr {
        self.first.clone() + t.clone() * self.size + place.clone()
    }

    /// A key that there is, in place of one beyond the last.
    fn clamped(&self, key: &Expr) -> Expr {
        if self.is_over { key.clone().min(self.n.clone() - 1) } else { key.clone() }
    }

    /// The value for a key, or `otherwise` for one beyond the last.
    fn select(&self, key: &Expr, value: Expr, otherwise: Expr) -> Expr {
        if self.is_over { Expr::select(key.clone().lt(self.n.clone()), value, otherwise) } else { value }
    }
}

/// What the blocks of queries work on, all of it `[batch, head, block of queries, .., query]`.
struct State {
    /// The greatest score.
    max: Operand,
    /// The greatest score before the block at hand, then how much what was summed fades.
    fade: Operand,
    /// The sum of exponentials.
    sum: Operand,
    /// The weighted values, by element.
    values: Operand,
    /// The exponential of a difference of scores.
    exp: fn(Expr) -> Expr,
}

/// What attention is computed of, in blocks.
struct Attention<'a> {
    k: &'a Heads,
    v: &'a Heads,
    form: &'a Form<'a>,
    /// Extents of batch, heads and blocks of queries, which have nothing in common.
    apart: [Expr; 3],
    /// Queries of a block.
    n_queries: i64,
    /// The scaled queries, `[batch, head, block of queries, element, query]`.
    query: Operand,
    /// The mask where it differs between queries, `[.., block of queries, key, query]`: a block's elements lie as its scores do.
    mask: Option<Operand>,
}

/// Attention of heads in blocks of so many queries and keys.
pub(super) fn attention(
    b: &mut Builder,
    [q, k, v]: [&Heads; 3],
    form: &Form<'_>,
    [n_queries, n_keys]: [i64; 2],
) -> Result<Operand, NoKernel> {
    if b.n_results() != 1 {
        return Err(b.no_kernel("in blocks it has no result but one"));
    }
    let dtype = DType::F32;
    let n_blocks = q.length.clone().ceil_div(n_queries);
    let apart = [form.mask.shape[0].clone(), form.mask.shape[1].clone(), n_blocks];
    let by = |own: &[Expr]| [&apart, own, &[Expr::int(n_queries)]].concat();
    // A cap or numbers that are added are in the units of the scores.
    let is_base_2 = !form.mask.is_added() && form.softcap == 0.0;
    let scale = if is_base_2 { in_units_of_ln_2(&form.scale) } else { form.scale.clone() };
    let query = b.compute("query", dtype, &by(std::slice::from_ref(&q.size)), |i| {
        q.at(&i[0], &i[1], &query_at(&q.length, n_queries, &i[2], &i[4]), &i[3]) * scale.clone()
    });
    let mask = mask_by_queries(b, form.mask, n_queries, &apart[2]);
    let state = State {
        max: b.temporary("max", dtype, &by(&[])),
        fade: b.temporary("fade", dtype, &by(&[])),
        sum: b.temporary("sum", dtype, &by(&[])),
        values: b.temporary("values", dtype, &by(std::slice::from_ref(&v.size))),
        exp: if is_base_2 { |x| apply(UnaryOp::Exp2Ftz, x) } else { exp_of_centred },
    };
    let attention = Attention { k, v, form, apart: apart.clone(), n_queries, query, mask };
    for keys in Keys::in_blocks(&k.length, n_keys) {
        attention.go_through(b, &keys, &state);
    }
    let shape = b.result_shape(0)?;
    let guard = form.mask.may_hide_all();
    Ok(b.compute("attention", dtype, &shape, |i| {
        let (head, position, element) = match i {
            [_, position, packed] => {
                let (head, element) = v.unpacked(packed);
                (head, position, element)
            }
            _ => (i[1].clone(), &i[2], i[3].clone()),
        };
        let n_queries = Expr::int(n_queries);
        let (block, place) =
            (position.clone().floor_div(n_queries.clone()), position.clone().floor_mod(n_queries));
        let sum = state.sum.at(vec![i[0].clone(), head.clone(), block.clone(), place.clone()]);
        let value = state.values.at(vec![i[0].clone(), head, block, element, place]) / sum.clone();
        // A query that sees no key.
        let zero = Expr::zero(dtype);
        if guard { Expr::select(sum.equals(zero.clone()), zero, value) } else { value }
    }))
}

/// A factor of what `e` is raised to, for what 2 is.
fn in_units_of_ln_2(scale: &Expr) -> Expr {
    let (dtype, log2_e) = (scale.dtype(), std::f64::consts::LOG2_E);
    match scale.as_float() {
        Some(scale) => Expr::float_of(dtype, scale * log2_e),
        None => scale.clone() * Expr::float_of(dtype, log2_e),
    }
}

/// The query at a place of a block, of `n` in blocks of `size`; the last in place of one beyond.
fn query_at(n: &Expr, size: i64, block: &Expr, place: &Expr) -> Expr {
    let position = block.clone() * size + place.clone();
    if n.as_int().is_some_and(|n| n % size == 0) { position } else { position.min(n.clone() - 1) }
}

/// A mask that differs between queries by blocks of queries.
fn mask_by_queries(b: &mut Builder, mask: &Mask<'_>, n_queries: i64, n_blocks: &Expr) -> Option<Operand> {
    let given = mask.mask.as_ref()?;
    let [outer @ .., queries, keys] = &given.shape[..] else { return None };
    if queries.as_int() == Some(1) {
        return None;
    }
    let shape = [outer, &[n_blocks.clone(), keys.clone(), Expr::int(n_queries)]].concat();
    Some(b.compute("mask", given.dtype, &shape, |i| {
        let [outer @ .., block, key, place] = i else { return Expr::zero(given.dtype) };
        let query = query_at(&mask.shape[2], n_queries, block, place);
        let query = broadcast_index(&query, queries, &mask.shape[2]);
        given.at([outer, &[query, key.clone()]].concat())
    }))
}

impl Attention<'_> {
    /// Extents of what is by query and `own`.
    fn by(&self, own: &[Expr]) -> Vec<Expr> {
        [&self.apart, own, &[Expr::int(self.n_queries)]].concat()
    }

    /// The head of keys and values of a head of queries.
    fn kv_head(&self, head: &Expr) -> Expr {
        head.clone().floor_div(Expr::int(self.form.shared))
    }

    /// Adds to the state what the queries see of some keys.
    fn go_through(&self, b: &mut Builder, keys: &Keys<'_>, state: &State) {
        let Attention { k, v, query, apart, .. } = self;
        let dtype = query.dtype;
        let tile = self.by(&[Expr::int(keys.size)]);
        let scores = b.temporary("scores", dtype, &tile);
        b.in_order_apart("keys", &keys.count, apart, |steps| {
            steps.update("clear", &tile, &[], |_, i, _| vec![scores.store(i.to_vec(), Expr::zero(dtype))]);
            steps.update("scores", &tile, std::slice::from_ref(&k.size), |t, i, r| {
                let key = keys.clamped(&keys.at(t, &i[3]));
                let key = k.at(&i[0], &self.kv_head(&i[1]), &key, &r[0]);
                let query = query.at([&i[..3], r, &i[4..]].concat());
                vec![scores.store(i.to_vec(), Expr::fma(key, query, scores.at(i.to_vec())))]
            });
            if !self.form.mask.is_trivial() || self.form.softcap != 0.0 || keys.is_over {
                steps.update("mask", &tile, &[], |t, i, _| {
                    vec![scores.store(i.to_vec(), self.masked(scores.at(i.to_vec()), keys, t, i))]
                });
            }
            state.weigh(steps, &scores, keys);
            let values = &state.values;
            steps.update("values", &values.shape, &[Expr::int(keys.size)], |t, i, r| {
                let key = keys.at(t, &r[0]);
                let value = v.at(&i[0], &self.kv_head(&i[1]), &keys.clamped(&key), &i[3]);
                // A key that is not there has no weight, but nothing times infinity is no number.
                let value = keys.select(&key, value, Expr::zero(dtype));
                let weight = scores.at(of_key(i, &r[0]));
                vec![values.store(i.to_vec(), Expr::fma(value, weight, values.at(i.to_vec())))]
            });
        });
    }

    /// A score at the indices `i` of block `t` of the keys, with cap and mask.
    fn masked(&self, score: Expr, keys: &Keys<'_>, t: &Expr, i: &[Expr]) -> Expr {
        let key = keys.at(t, &i[3]);
        let query = query_at(&self.form.mask.shape[2], self.n_queries, &i[2], &i[4]);
        let at = [i[0].clone(), i[1].clone(), query, keys.clamped(&key)];
        let (mask, score) = (self.form.mask, capped(score, self.form.softcap));
        let lowest = Expr::lowest(score.dtype());
        let masked = match (&self.mask, &mask.mask) {
            (Some(by_queries), Some(given)) => {
                let own = [i[2].clone(), at[3].clone(), i[4].clone()];
                let value = by_queries.at([mask.indices(given, &at[..2]), own.to_vec()].concat());
                mask.apply_element(score, &at, Some((value, mask.is_inside(given, &at[3]))))
            }
            _ => mask.apply(score, &at),
        };
        keys.select(&key, masked, lowest)
    }
}

/// The indices of a query's score, of those of the query or one of its values.
fn of_key(i: &[Expr], key: &Expr) -> Vec<Expr> {
    [&i[..3], std::slice::from_ref(key), &i[i.len() - 1..]].concat()
}

impl State {
    /// Makes weights of the scores of a block of keys, and has what was summed before fade.
    fn weigh(&self, steps: &mut Steps<'_, '_, '_>, scores: &Operand, block: &Keys<'_>) {
        let State { max, fade, sum, values, exp } = self;
        let (dtype, rows, keys) = (scores.dtype, &max.shape, std::slice::from_ref(&scores.shape[3]));
        let is_first = |t: &Expr| block.at(t, &Expr::int(0)).equals(Expr::int(0));
        steps.update("before", rows, &[], |t, i, _| {
            // The least finite number, so that a key that is not seen, whose score is less, has no weight where no key is seen either.
            let least = Expr::float_of(dtype, f64::from(f32::MIN));
            vec![fade.store(i.to_vec(), Expr::select(is_first(t), least, max.at(i.to_vec())))]
        });
        steps.update("start", rows, &[], |_, i, _| vec![max.store(i.to_vec(), fade.at(i.to_vec()))]);
        steps.update("max", rows, keys, |_, i, r| {
            let score = scores.at(of_key(i, &r[0]));
            vec![max.store(i.to_vec(), max.at(i.to_vec()).max(score))]
        });
        steps.update("exp", &scores.shape, &[], |_, i, _| {
            let weight = exp(scores.at(i.to_vec()) - max.at(row_of(i)));
            vec![scores.store(i.to_vec(), weight)]
        });
        steps.update("fade", rows, &[], |_, i, _| {
            vec![fade.store(i.to_vec(), exp(fade.at(i.to_vec()) - max.at(i.to_vec())))]
        });
        let faded = |steps: &mut Steps<'_, '_, '_>, name: &str, what: &Operand| {
            steps.update(name, &what.shape, &[], |t, i, _| {
                let faded = what.at(i.to_vec()) * fade.at(row_of(i));
                vec![what.store(i.to_vec(), Expr::select(is_first(t), Expr::zero(dtype), faded))]
            });
        };
        // Each right in front of the sums that start from it: tiles of the two are computed together.
        faded(steps, "faded_sum", sum);
        steps.update("sum", rows, keys, |_, i, r| {
            vec![sum.store(i.to_vec(), sum.at(i.to_vec()) + scores.at(of_key(i, &r[0])))]
        });
        faded(steps, "faded_values", values);
    }
}

/// The indices of a query, of those of one of its scores or values.
fn row_of(i: &[Expr]) -> Vec<Expr> {
    [&i[..3], &i[i.len() - 1..]].concat()
}
