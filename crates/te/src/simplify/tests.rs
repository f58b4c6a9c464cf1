//! Tests of the simplifier: known answers, and random expressions compared by evaluation.

use super::*;

/// A small generator of pseudo-random numbers (SplitMix64), so that failures repeat.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// `i0` in 0..4, `i1` in 0..16, `j` in 0..n, `f` in 0..n·16, and the size `n` in 1..=20.
struct Setting {
    func: Func,
    simplifier: Simplifier,
    vars: Vec<Var>,
}

fn setting() -> Setting {
    let mut func = Func::new("t");
    let n = func.add_size("n", 1, 20);
    let mut simplifier = Simplifier::for_sizes(&func);
    let mut vars = vec![n];
    let extents = [Expr::int(4), Expr::int(16), Expr::var(n), Expr::var(n) * 16];
    for (name, extent) in ["i0", "i1", "j", "f"].iter().zip(extents) {
        let var = func.add_var(name, VarKind::Loop);
        simplifier.bind_range(var, 0, extent);
        vars.push(var);
    }
    Setting { func, simplifier, vars }
}

fn evaluate(e: &Expr, values: &dyn Fn(Var) -> i64) -> i64 {
    let eval = |e: &Expr| evaluate(e, values);
    match e.kind() {
        ExprKind::Int(v) => *v,
        ExprKind::Var(v) => values(*v),
        ExprKind::Unary(UnaryOp::Neg, a) => -eval(a),
        ExprKind::Unary(UnaryOp::Not, a) => (eval(a) == 0) as i64,
        ExprKind::Binary(op, a, b) => {
            let (a, b) = (eval(a), eval(b));
            match op {
                BinaryOp::Add => a + b,
                BinaryOp::Sub => a - b,
                BinaryOp::Mul => a * b,
                BinaryOp::Div => a.checked_div(b).unwrap_or(0),
                BinaryOp::Rem => a.checked_rem(b).unwrap_or(a),
                BinaryOp::FloorDiv if b == 0 => 0,
                BinaryOp::FloorMod if b == 0 => a,
                BinaryOp::FloorDiv => a.div_euclid(b) - (b < 0 && a.rem_euclid(b) != 0) as i64,
                BinaryOp::FloorMod => ((a % b) + b) % b,
                BinaryOp::Min => a.min(b),
                BinaryOp::Max => a.max(b),
                BinaryOp::And => a & b,
                BinaryOp::Or => a | b,
                other => panic!("not generated: {other:?}"),
            }
        }
        ExprKind::Compare(op, a, b) => {
            let (a, b) = (eval(a), eval(b));
            (match op {
                CompareOp::Eq => a == b,
                CompareOp::Ne => a != b,
                CompareOp::Lt => a < b,
                CompareOp::Le => a <= b,
                CompareOp::Gt => a > b,
                CompareOp::Ge => a >= b,
            }) as i64
        }
        ExprKind::Select(c, a, b) => {
            if eval(c) != 0 {
                eval(a)
            } else {
                eval(b)
            }
        }
        other => panic!("not generated: {:?}", std::mem::discriminant(other)),
    }
}

fn random_index(r: &mut Random, vars: &[Var], depth: u32) -> Expr {
    let constants = [0, 1, 2, 3, 4, 8, 15, 16, 32, -1, -4];
    if depth == 0 || r.below(6) == 0 {
        return if r.below(3) == 0 {
            Expr::int(constants[r.below(11) as usize])
        } else {
            Expr::var(vars[r.below(vars.len() as u64) as usize])
        };
    }
    let a = random_index(r, vars, depth - 1);
    let divisor = |r: &mut Random| {
        if r.below(5) == 0 {
            Expr::var(vars[0])
        } else {
            Expr::int([2, 3, 4, 8, 16, 32][r.below(6) as usize])
        }
    };
    match r.below(12) {
        0..=2 => a + random_index(r, vars, depth - 1),
        3 => a - random_index(r, vars, depth - 1),
        4 | 5 => a * divisor(r),
        6 | 7 => a.floor_div(divisor(r)),
        8 | 9 => a.floor_mod(divisor(r)),
        10 => {
            let op = [BinaryOp::Min, BinaryOp::Max, BinaryOp::Div, BinaryOp::Rem][r.below(4) as usize];
            Expr::binary(op, a, random_index(r, vars, depth - 1))
        }
        _ => Expr::select(random_condition(r, vars, depth - 1), a, random_index(r, vars, depth - 1)),
    }
}

fn random_condition(r: &mut Random, vars: &[Var], depth: u32) -> Expr {
    if depth > 0 && r.below(4) == 0 {
        let a = random_condition(r, vars, depth - 1);
        return match r.below(3) {
            0 => a.and(random_condition(r, vars, depth - 1)),
            1 => a.or(random_condition(r, vars, depth - 1)),
            _ => Expr::unary(UnaryOp::Not, a),
        };
    }
    let op = CompareOp::ALL[r.below(6) as usize];
    let (a, b) = (random_index(r, vars, depth), random_index(r, vars, depth));
    Expr::compare(op, a, b)
}

/// Random values within the ranges of [`setting`].
fn random_values(r: &mut Random) -> [i64; 5] {
    let n = 1 + r.below(20) as i64;
    [n, r.below(4) as i64, r.below(16) as i64, r.below(n as u64) as i64, r.below(16 * n as u64) as i64]
}

fn assert_equal_everywhere(r: &mut Random, s: &Setting, before: &Expr, after: &Expr, what: &str) {
    for _ in 0..12 {
        let point = random_values(r);
        let value = |v: Var| point[s.vars.iter().position(|x| *x == v).unwrap()];
        let (x, y) = (evaluate(before, &value), evaluate(after, &value));
        assert_eq!(x, y, "{what}: {before:?} became {after:?}; differ at {point:?}");
    }
}

#[test]
fn random_expressions_keep_their_value_and_stay_simple() {
    let (mut r, s) = (Random(1), setting());
    for round in 0..6000 {
        let before = if round % 3 == 0 {
            random_condition(&mut r, &s.vars, 3)
        } else {
            random_index(&mut r, &s.vars, 4)
        };
        let after = s.simplifier.simplify(&before);
        assert_equal_everywhere(&mut r, &s, &before, &after, "simplify");
        let fresh = setting();
        assert_eq!(fresh.simplifier.simplify(&after), after, "not idempotent on {before:?}");
    }
}

#[test]
fn every_rule_applies_somewhere_and_keeps_the_value() {
    let (mut r, s) = (Random(2), setting());
    let mut applied = vec![0; rules::RULES.len()];
    for round in 0..20_000 {
        let raw = if round % 3 == 0 {
            random_condition(&mut r, &s.vars, 2)
        } else {
            random_index(&mut r, &s.vars, 3)
        };
        let node = raw.map_operands(|o| s.simplifier.simplify(o));
        for (count, rule) in applied.iter_mut().zip(rules::RULES) {
            if let Some(after) = (rule.apply)(&s.simplifier, &node).filter(|after| *after != node) {
                assert_equal_everywhere(&mut r, &s, &node, &after, rule.name);
                *count += 1;
            }
        }
    }
    let unused: Vec<_> =
        rules::RULES.iter().zip(&applied).filter(|(_, n)| **n == 0).map(|(r, _)| r.name).collect();
    assert!(unused.is_empty(), "rules never applied: {unused:?}");
}

#[test]
fn bounds_hold() {
    let (mut r, s) = (Random(3), setting());
    let n = s.vars[0];
    for _ in 0..4000 {
        let e = random_index(&mut r, &s.vars, 3);
        let low = s.simplifier.lower_bound(&s.simplifier.linear(&e));
        let high = s.simplifier.upper_bound(&e);
        let ends = [false, true].map(|upper| s.simplifier.extreme(&e, upper, &|v| v != n));
        for _ in 0..12 {
            let point = random_values(&mut r);
            let value = |v: Var| point[s.vars.iter().position(|x| *x == v).unwrap()];
            let x = evaluate(&e, &value);
            assert!(
                low.is_none_or(|b| b <= x) && high.is_none_or(|b| x <= b),
                "{e:?} = {x} not in {low:?}..{high:?}"
            );
            if let Some(end) = &ends[0] {
                assert!(evaluate(end, &value) <= x, "{e:?} = {x} below {end:?} at {point:?}");
            }
            if let Some(end) = &ends[1] {
                assert!(evaluate(end, &value) >= x, "{e:?} = {x} above {end:?} at {point:?}");
            }
        }
    }
}

#[test]
fn known_answers() {
    let s = setting();
    let [n, i0, i1, j, f] = [0, 1, 2, 3, 4].map(|i| Expr::var(s.vars[i]));
    let check = |e: Expr, expect: Expr| assert_eq!(s.simplifier.simplify(&e), expect, "{e:?}");
    let int = Expr::int;
    let flat = i0.clone() * 16 + i1.clone();
    check(flat.clone().floor_div(int(16)), i0.clone());
    check(flat.clone().floor_mod(int(16)), i1.clone());
    check(flat.clone().floor_div(int(4)).floor_div(int(4)), i0.clone());
    check((flat.clone().floor_div(int(4)) * 4) + flat.clone().floor_mod(int(4)), flat.clone());
    check(f.clone().floor_div(n.clone()) * n.clone() + f.clone().floor_mod(n.clone()), f.clone());
    // The remainder's dividend has lost its multiples of 7.
    let wide = i0.clone() * 100 + f.clone();
    check((wide.clone().floor_div(int(7)) * 7) + wide.clone().floor_mod(int(7)), wide.clone());
    let (row, plane) = (wide.clone().floor_div(int(7)), wide.clone().floor_div(int(35)));
    check(plane * 35 + row.floor_mod(int(5)) * 7 + wide.clone().floor_mod(int(7)), wide.clone());
    let rows = i1.clone() * n.clone() + j.clone();
    check(rows.clone().floor_div(n.clone()), i1.clone());
    check(rows.floor_mod(n.clone()), j.clone());
    check(j.clone().lt(n.clone()), Expr::bool(true));
    check((n.clone() - 1).lt(j.clone()), Expr::bool(false));
    check(j.clone().min(n.clone() - 1), j.clone());
    check(f.clone().floor_div(int(16)).lt(n.clone()), Expr::bool(true));
    check(f.floor_div(n.clone()).lt(int(16)), Expr::bool(true));
    check((j.clone() + i1.clone()).ge(j.clone()), Expr::bool(true));
    check((i1 * 2 + 1).equals(int(4)), Expr::bool(false));
    assert!(!s.simplifier.prove(&j.lt(int(16))));
    assert_eq!(s.func.sizes.len(), 1);
}

/// Fused loops over open extents, split again: the index of an array that they walk in order is their number.
#[test]
fn an_open_extent_within_others_is_walked_in_order() {
    let mut func = Func::new("t");
    let (a, b) = (func.add_size("a", 0, 1 << 20), func.add_size("b", 0, 1 << 20));
    let (outer, inner) = (func.add_var("outer", VarKind::Loop), func.add_var("inner", VarKind::Loop));
    let mut s = Simplifier::for_sizes(&func);
    let [a, b, outer_var, inner_var] = [a, b, outer, inner].map(Expr::var);
    let int = Expr::int;
    s.bind_range(outer, 0, (a.clone() * b.clone() * 512).ceil_div(8192));
    s.bind_range(inner, 0, int(8192));
    let flat = outer_var * 8192 + inner_var;
    let rows = flat.clone().floor_div(int(256));
    let low = flat.clone().floor_mod(int(256));
    let index = flat.clone().floor_div(a.clone() * 256) * (a.clone() * 256)
        + rows.clone().floor_mod(a.clone()) * 256
        + low.clone();
    // Where `a` may be 0, too: rows have no remainder by it then.
    assert_eq!(s.simplify(&index), s.simplify(&flat));
    // As where a row has been appended.
    let longer = a.clone() + 1;
    let index = flat.clone().floor_div(longer.clone() * 256) * (longer.clone() * 256)
        + rows.clone().floor_mod(longer) * 256
        + low.clone();
    assert_eq!(s.simplify(&index), s.simplify(&flat));
    s.assume_positive(&a);
    s.assume_positive(&b);
    let planes = flat.clone().floor_div(a.clone() * 256);
    let index = flat.clone().floor_div(a.clone() * b.clone() * 256) * (a.clone() * b.clone() * 256)
        + planes.floor_mod(b) * (a.clone() * 256)
        + rows.floor_mod(a) * 256
        + low;
    assert_eq!(s.simplify(&index), s.simplify(&flat));
}

#[test]
fn tiles_of_a_symbolic_extent_stay_inside_the_padded_one() {
    let mut func = Func::new("t");
    let n = func.add_size("n", 1, i64::MAX);
    let (outer, inner) = (func.add_var("outer", VarKind::Loop), func.add_var("inner", VarKind::Loop));
    let mut s = Simplifier::for_sizes(&func);
    s.bind_range(outer, 0, Expr::var(n).ceil_div(16));
    s.bind_range(inner, 0, 16);
    let index = Expr::var(outer) * 16 + Expr::var(inner);
    assert!(s.prove_lt(&index, &(Expr::var(n).ceil_div(16) * 16)));
    assert!(!s.prove_lt(&index, &Expr::var(n)));
    s.assume(&index.clone().lt(Expr::var(n)));
    assert!(s.prove_lt(&index, &Expr::var(n)));
    assert!(s.prove_lt(&Expr::var(outer), &Expr::var(n)));
}

#[test]
fn a_clamped_window_has_a_constant_size() {
    let mut func = Func::new("t");
    let outer = func.add_var("outer", VarKind::Loop);
    let mut s = Simplifier::new();
    s.bind_range(outer, 0, 33);
    let low = (Expr::var(outer) * 6).min(Expr::int(196));
    let high = (Expr::var(outer) * 6 + 5).min(Expr::int(196));
    assert_eq!(s.upper_bound(&(high - low + 1)), Some(6));
}

/// Of tiles of three rows those whose number is at most 1 have all of their rows among seven; the fact counts three times.
#[test]
fn a_fact_counts_as_often_as_it_must() {
    let mut s = Simplifier::new();
    let var = Var::from_u32(0);
    s.bind_range(var, 0, 3);
    let row = |n: i64| Expr::var(var) * 3 + n;
    let clamped = |n: i64| row(n).min(Expr::int(6));
    assert_ne!(s.simplify(&clamped(2)), s.simplify(&row(2)));
    s.assume(&Expr::var(var).lt(Expr::int(2)));
    assert_eq!(s.simplify(&clamped(2)), s.simplify(&row(2)));
    assert_eq!(s.simplify(&clamped(3)), s.simplify(&row(3)));
    assert_ne!(s.simplify(&clamped(4)), s.simplify(&row(4)));
    s.forget_facts(0);
    assert_ne!(s.simplify(&clamped(2)), s.simplify(&row(2)));
}

/// A loop over tiles of an open extent and batches: where it runs there are tiles, so remainders by their number are remainders.
#[test]
fn loops_that_run_have_iterations() {
    let mut func = Func::new("t");
    let (n, batch) = (func.add_size("n", 0, 1 << 20), func.add_size("batch", 0, 1 << 20));
    let task = func.add_var("task", VarKind::Loop);
    let tiles = Expr::var(n).ceil_div(128);
    let extent = Expr::var(batch) * tiles.clone();
    let mut s = Simplifier::for_sizes(&func);
    s.bind_range(task, 0, extent.clone());
    let tile = Expr::var(task).floor_mod(tiles.clone());
    let number = Expr::var(task).floor_div(tiles.clone());
    assert!(!s.prove_lt(&tile, &tiles) && !s.prove_lt(&number, &Expr::var(batch)));
    s.assume_positive(&s.simplify(&extent));
    assert!(s.prove_le(&Expr::int(0), &tile) && s.prove_lt(&tile, &tiles));
    assert!(s.prove_lt(&number, &Expr::var(batch)));
    assert!(s.prove_le(&(tile * 128 + 128), &(tiles * 128)));
    assert!(!s.prove_lt(&(number + 1), &Expr::var(batch)));
    // What is positive by a fact is so no longer than that is known.
    let mut s = Simplifier::for_sizes(&func);
    let most = Expr::var(n).max(Expr::var(batch));
    s.assume(&Expr::var(n).ge(Expr::var(batch)));
    s.assume_positive(&most);
    assert!(s.prove_le(&Expr::int(1), &Expr::var(n)));
    s.forget_facts(0);
    assert!(!s.prove_le(&Expr::int(1), &Expr::var(n)));
}

/// Each selection makes two questions of one: 40 of them would make 2^40.
#[test]
fn a_question_about_bounds_ends_with_its_budget() {
    let mut s = Simplifier::new();
    let terms: Vec<Expr> = (0..40)
        .map(|n| {
            let (a, b) = (Var::from_u32(2 * n), Var::from_u32(2 * n + 1));
            s.bind_range(a, 0, 10);
            s.bind_range(b, 0, Expr::var(a) + 10);
            Expr::var(b).min(Expr::var(a)).max(Expr::var(b) - 3)
        })
        .collect();
    let sum = terms.iter().cloned().reduce(|a, b| a + b).unwrap();
    let budget = Budget::of(bounds::MAX_STEPS);
    let bound = s.lower_bound_within(&Linear::of(&sum), &budget);
    assert_eq!(budget.left(), 0);
    assert!(bound.is_none_or(|bound| bound <= 0), "no element is above 0 everywhere: {bound:?}");
    let few = Linear::of(&(terms[0].clone() + terms[1].clone()));
    let budget = Budget::of(bounds::MAX_STEPS);
    assert_eq!(s.lower_bound_within(&few, &budget), Some(0));
    assert!(budget.left() > bounds::MAX_STEPS / 2, "two are no work: {budget:?}");
}

/// Each remainder asks for both ends of what is under it.
#[test]
fn extremes_end_with_their_budget() {
    let mut s = Simplifier::new();
    let var = Var::from_u32(0);
    s.bind_range(var, 0, 1000);
    let nested = |depth: i64| {
        (0..depth).fold(Expr::var(var), |e, n| (e * 3 + Expr::var(var)).floor_mod(Expr::int(1001 + n)))
    };
    // The outermost remainder bounds the whole, whatever is not known of what is under it.
    let budget = Budget::of(bounds::MAX_STEPS);
    let known = s.extreme_within(&nested(40), true, &|v| v == var, &budget);
    assert_eq!((known.and_then(|extreme| extreme.as_int()), budget.left()), (Some(1039), 0));
    let budget = Budget::of(bounds::MAX_STEPS);
    let few = s.extreme_within(&nested(4), true, &|v| v == var, &budget);
    assert!(few.is_some() && budget.left() > 0, "{budget:?}");
}

/// A product of sums has a term for each choice of one term of each.
#[test]
fn a_product_of_many_sums_stays_a_product() {
    let sum = |n: u32| Expr::var(Var::from_u32(2 * n)) + Expr::var(Var::from_u32(2 * n + 1));
    let product = |n: u32| (0..n).map(sum).reduce(|a, b| a * b).unwrap();
    assert_eq!(Linear::of(&product(8)).terms.len(), linear::MAX_TERMS);
    let linear = Linear::of(&product(40));
    assert!(linear.terms.len() <= linear::MAX_TERMS, "{} terms", linear.terms.len());
    let s = Simplifier::new();
    let simple = s.simplify(&product(12));
    let value = |v: Var| v.as_u32() as i64 % 3 - 1;
    assert_eq!(evaluate(&simple, &value), evaluate(&product(12), &value));
}

/// As a tree, what follows has as many nodes as the hundredth Fibonacci number.
#[test]
fn sums_that_share_their_terms_take_time_in_their_nodes() {
    let (mut a, mut b) = (Expr::var(Var::from_u32(0)), Expr::var(Var::from_u32(1)));
    for _ in 0..100 {
        (a, b) = (b.clone(), a + b);
    }
    assert_eq!(b.n_nodes(), u32::MAX);
    let simple = Simplifier::new().simplify(&b);
    let mut n = 0;
    simple.walk(&mut |_| n += 1);
    assert!(n <= 100 * linear::MAX_NODES, "{n} nodes");
    assert_eq!(linear::order(&b, &b.share(&mut Default::default())), std::cmp::Ordering::Equal);
}

#[test]
fn a_quotient_of_an_open_range_is_bounded_to_the_last() {
    let mut func = Func::new("tiles");
    let n = Expr::var(func.add_size("n", 0, i64::MAX));
    let mut s = Simplifier::for_sizes(&func);
    let tiles = || (n.clone() + 63).floor_div(Expr::int(64));
    let [task, lane] = ["task", "lane"].map(|name| func.add_var(name, VarKind::Loop));
    s.bind_range(task, 0, tiles() * 48);
    s.bind_range(lane, 0, 64);
    let row = Expr::var(task).floor_div(Expr::int(48)) * 64 + Expr::var(lane);
    assert!(s.prove_lt(&row, &(tiles() * 64)), "all rows of a tile are among those of whole tiles");
    assert!(!s.prove_lt(&row, &(tiles() * 64 - 1)), "the last row of the last tile is one of them");
}
