//! Digests of functions: pinned, the same under renaming and renumbering, different after any other change.

use proptest::prelude::*;
use serde_json::Value;
use tilewright_digest::{Canonical, Digest};
use tilewright_dtype::DType;
use tilewright_te::schedule::Piece;
use tilewright_te::{
    BinaryOp, Buffer, Computation, Expr, ExprKind, Func, LoopKind, Scope, Stmt, UnaryOp, Var, Variant,
};

const MATMUL: &str = "
func matmul(n: size 1..=64, A: f32[n, 8], B: f32[8, 4]) -> (C: f32[n, 4]) {
  for i in 0..n parallel {
    for j in 0..4 vectorized {
      for k in 0..8 prefetch A[((i * 8) + (k + 16))] {
        block C(vi: spatial n = i, vj: spatial 4 = j, vk: reduce 8 = k) where (k < n) {
          init C[vi, vj] = f32(0.0)
          C[vi, vj] = (C[vi, vj] + (A[vi, vk] * B[vk, vj]))
        }
      }
    }
  }
}
";

/// Every kind of expression, and a temporary.
const KINDS: &str = "
func kinds(m: size 0.., X: f32[m, 6], T: i64[6]) -> (Y: f32[m, 6], Z: i32[m, 6]) {
  buffer W: f32[m, 6] global
  for a in 0..m {
    for b in 0..6 unrolled {
      block W(va: spatial m = a, vb: spatial 6 = b) {
        W[va, vb] = fma(X[va, vb], X[va, T[vb]], sqrt(X[va, vb]))
      }
      block Y(ua: spatial m = a, ub: spatial 6 = b) {
        Y[ua, ub] = select((W[ua, ub] < f32(1.5)), W[ua, ub], cast.f32((ub + ua)))
        Z[ua, ub] = bitcast.i32(W[ua, ub])
      }
    }
  }
}
";

fn parse(text: &str) -> Func {
    text.parse().unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// A computation with every field in use.
fn computation() -> Computation {
    let (func, kinds) = (parse(MATMUL), parse(KINDS));
    let variants =
        vec![Variant { algorithm: "other".into(), func: func.clone(), prepare: vec![None, Some(kinds)] }];
    let layout = vec![Piece { dim: 0, factor: None }, Piece { dim: 1, factor: Some(4) }];
    Computation { func, variants, constant_inputs: vec![false, true], layouts: vec![None, Some(layout)] }
}

/// A digest that changes parts the database and the cache from what they hold: the version of the encoding
/// ([`tilewright_digest::VERSION`]) has to change as well, and records to be converted.
#[test]
fn digests_are_pinned() {
    let digests = [
        ("matmul", parse(MATMUL).digest()),
        ("kinds", parse(KINDS).digest()),
        ("computation", computation().digest()),
        ("definition", Digest::of("task", |writer| computation().write_definition(writer))),
    ];
    let pins = [
        ("matmul", "85c1ced463dd8c7797e79e9e29fa9e330eefa912dcd09291ecd779ca519f43bb"),
        ("kinds", "d52cd6845fa88fa2c4e4b426c84e013d1706c8dc89e3fc4ed7a0f549f30138df"),
        ("computation", "a100fd30142705d78911196a05226485bef8730cd052a20302266a4efd79b336"),
        ("definition", "bfb3cc9ea461d6878c55eecf357ed4c772682f711752a642dc9bbf07e38b7c51"),
    ];
    assert_eq!(
        digests.map(|(name, digest)| (name, digest.to_string())),
        pins.map(|(n, d)| (n, d.to_string()))
    );
}

#[test]
fn typical_values_of_sizes_are_part_of_a_function() {
    let digests = ["", " about 8", " about 9"].map(|typical| {
        parse(&KINDS.replace("size 0..,", &format!("size 0..{typical},"))).digest().to_string()
    });
    assert!(digests[0] != digests[1] && digests[1] != digests[2] && digests[0] != digests[2], "{digests:?}");
}

/// The function with its arenas in another order, some of them with entries that nothing uses in between, and new names.
fn disguised(func: &Func, var_keys: &[u32], buffer_keys: &[u32]) -> Func {
    let mut other = Func::new("disguised");
    let mut vars: Vec<Var> = func.vars.keys().collect();
    vars.sort_by_key(|var| var_keys[var.as_u32() as usize % var_keys.len()]);
    let mut new_vars = vec![None; vars.len()];
    for var in vars {
        if var_keys[0].is_multiple_of(3) {
            other.add_var("idle", func.vars[var].kind);
        }
        new_vars[var.as_u32() as usize] = Some(other.add_var("renamed", func.vars[var].kind));
    }
    let mut buffers: Vec<Buffer> = func.buffers.keys().collect();
    buffers.sort_by_key(|buffer| buffer_keys[buffer.as_u32() as usize % buffer_keys.len()]);
    let mut new_buffers = vec![None; buffers.len()];
    for &buffer in &buffers {
        if buffer_keys[0].is_multiple_of(3) {
            other.add_buffer("idle", DType::I8, vec![], Scope::Stack);
        }
        let data = &func.buffers[buffer];
        let new = other.add_buffer("renamed", data.dtype, data.shape.clone(), data.scope);
        new_buffers[buffer.as_u32() as usize] = Some(new);
    }
    let var = |var: Var| new_vars[var.as_u32() as usize].unwrap();
    let buffer = |buffer: Buffer| new_buffers[buffer.as_u32() as usize].unwrap();
    // Built anew in each place, so that nothing is shared that was.
    fn expr(e: &Expr, var: &dyn Fn(Var) -> Var, buffer: &dyn Fn(Buffer) -> Buffer) -> Expr {
        match e.kind() {
            ExprKind::Var(v) => Expr::var(var(*v)),
            ExprKind::Load(b, indices) => {
                let indices = indices.iter().map(|index| expr(index, var, buffer)).collect();
                Expr::load(e.dtype(), buffer(*b), indices)
            }
            ExprKind::Int(_) | ExprKind::Float(_) => Expr::new(e.dtype(), e.kind().clone()),
            _ => e.map_operands(|operand| expr(operand, var, buffer)),
        }
    }
    let expr = |e: &mut Expr| *e = expr(e, &var, &buffer);
    fn each(
        stmts: &mut [Stmt],
        var: &dyn Fn(Var) -> Var,
        buffer: &dyn Fn(Buffer) -> Buffer,
        expr: &dyn Fn(&mut Expr),
    ) {
        for stmt in stmts {
            match stmt {
                Stmt::Loop(l) => {
                    l.var = var(l.var);
                    expr(&mut l.extent);
                    for prefetch in &mut l.prefetches {
                        prefetch.buffer = buffer(prefetch.buffer);
                        expr(&mut prefetch.element);
                    }
                    each(&mut l.body, var, buffer, expr);
                }
                Stmt::Block(block) => {
                    block.name += "_renamed";
                    for iter in &mut block.iters {
                        iter.var = var(iter.var);
                        expr(&mut iter.extent);
                        expr(&mut iter.value);
                    }
                    block.predicate.iter_mut().for_each(expr);
                    for store in block.init.iter_mut().chain(&mut block.body) {
                        store.buffer = buffer(store.buffer);
                        store.indices.iter_mut().for_each(expr);
                        expr(&mut store.value);
                    }
                }
            }
        }
    }
    other.body = func.body.clone();
    each(&mut other.body, &var, &buffer, &expr);
    other.buffers.values_mut().for_each(|data| data.shape.iter_mut().for_each(expr));
    other.params = func.params.iter().map(|&param| buffer(param)).collect();
    other.sizes = func.sizes.iter().map(|&size| var(size)).collect();
    other.n_inputs = func.n_inputs;
    other
}

proptest! {
    #[test]
    fn names_and_numbers_are_incidental(
        vars in prop::collection::vec(0u32..1000, 12),
        buffers in prop::collection::vec(0u32..1000, 6),
    ) {
        for text in [MATMUL, KINDS] {
            let func = parse(text);
            let other = disguised(&func, &vars, &buffers);
            prop_assert_eq!(other.digest(), func.digest());
            let representation = |func: &Func| Digest::of("test", |writer| func.write_representation(writer));
            prop_assert_ne!(representation(&other), representation(&func));
        }
    }
}

#[test]
fn blocks_have_names_in_computations_and_workspaces_are_met() {
    let plain = computation();
    let mut other = computation();
    other.func.name += "_renamed";
    other.variants[0].func.name += "_renamed";
    assert_eq!(other.digest(), plain.digest());
    let Some(Stmt::Loop(l)) = other.func.body.first_mut() else { panic!() };
    let Some(Stmt::Loop(l)) = l.body.first_mut() else { panic!() };
    let Some(Stmt::Loop(l)) = l.body.first_mut() else { panic!() };
    let Some(Stmt::Block(block)) = l.body.first_mut() else { panic!() };
    block.name = "sum".into();
    assert_ne!(other.digest(), plain.digest());
    assert_eq!(other.func.digest(), plain.func.digest());
    other.func.add_buffer("idle", DType::F32, vec![], Scope::Global);
    assert_ne!(other.func.digest(), plain.func.digest());
}

/// Sums that share all operands: trees of 2^60 nodes.
#[test]
fn what_is_shared_takes_no_time() {
    let doubled = |mut e: Expr| {
        for _ in 0..60 {
            e = e.clone() + e;
        }
        e
    };
    let func = |value: &dyn Fn(&Func, Buffer) -> Expr| {
        let mut func = Func::new("f");
        let x = func.add_input("x", DType::F32, vec![]);
        let y = func.compute("y", DType::F32, vec![], |f, _| value(f, x));
        func.promote_to_output(y);
        func.digest()
    };
    let shared = func(&|f, x| doubled(f.load(x, vec![])));
    // The same sums, of nodes that were made twice.
    let apart = func(&|f, x| {
        let (mut a, mut b) = (f.load(x, vec![]), f.load(x, vec![]));
        for _ in 0..60 {
            (a, b) = (a.clone() + b.clone(), b.clone() + a.clone());
        }
        a
    });
    assert_eq!(shared, apart);
    assert_ne!(shared, func(&|f, x| doubled(f.load(x, vec![]) + Expr::f32(0.0))));
}

/// The serial form of a value with one leaf or item changed, each in every way that it can be; `true` where only a name is.
fn mutants(value: &Value, words: &[String]) -> Vec<(String, bool, Vec<Value>)> {
    let mut out = Vec::new();
    let mut path = Vec::new();
    visit(value, value, words, &mut path, &mut out);
    out
}

fn visit(
    root: &Value,
    at: &Value,
    words: &[String],
    path: &mut Vec<String>,
    out: &mut Vec<(String, bool, Vec<Value>)>,
) {
    let put = |new: Value| {
        let mut root = root.clone();
        *root.pointer_mut(&pointer(path)).unwrap() = new;
        root
    };
    let is_name = path.last().is_some_and(|field| field == "name");
    let mut place = |path: &[String], mutants: Vec<Value>| out.push((path.join("/"), is_name, mutants));
    match at {
        Value::Null => {}
        Value::Bool(value) => place(path, vec![put((!value).into())]),
        Value::Number(n) => {
            let (up, down) = (n.as_i64().map(|n| n.wrapping_add(1)), n.as_i64().map(|n| n.wrapping_sub(1)));
            place(path, up.into_iter().chain(down).map(|n| put(n.into())).collect());
        }
        Value::String(word) if is_name => place(path, vec![put(format!("{word}_renamed").into())]),
        Value::String(word) => {
            let others = words.iter().filter(|other| *other != word);
            place(path, others.map(|other| put(other.clone().into())).collect());
        }
        Value::Array(items) => {
            // What is left out of an arena renumbers the rest: no single change.
            if path.last().is_none_or(|field| field != "elems") {
                let mut changed = Vec::new();
                for i in 0..items.len() {
                    let mut fewer = items.clone();
                    let item = fewer.remove(i);
                    let mut more = items.clone();
                    more.insert(i, item);
                    changed.extend([put(fewer.into()), put(more.into())]);
                    if i > 0 && items[i] != items[i - 1] {
                        let mut swapped = items.clone();
                        swapped.swap(i, i - 1);
                        changed.push(put(swapped.into()));
                    }
                }
                if !items.is_empty() {
                    place(&[&path[..], &["items".to_string()]].concat(), changed);
                }
            }
            for (i, item) in items.iter().enumerate() {
                path.push(i.to_string());
                visit(root, item, words, path, out);
                path.pop();
            }
        }
        Value::Object(fields) => {
            // A variant is an object of one field: its name may be another's.
            if let [(name, value)] = &fields.iter().collect::<Vec<_>>()[..] {
                let renamed = words.iter().filter(|word| word != name);
                let renamed = renamed.map(|word| put(serde_json::json!({ word.as_str(): value }))).collect();
                out.push((format!("{}/variant", path.join("/")), false, renamed));
            }
            for (field, item) in fields {
                path.push(field.clone());
                visit(root, item, words, path, out);
                path.pop();
            }
        }
    }
}

fn pointer(path: &[String]) -> String {
    path.iter().map(|step| format!("/{step}")).collect()
}

/// Names of variants that a word of the serial form may become.
fn words() -> Vec<String> {
    let name = |value: Value| match value {
        Value::String(name) => name,
        Value::Object(fields) => fields.keys().next().cloned().unwrap_or_default(),
        other => panic!("{other}"),
    };
    let mut words: Vec<String> =
        ["Cast", "Bitcast", "Select", "Fma", "Int", "Float", "Var", "Unary", "Binary", "Compare"]
            .into_iter()
            .map(String::from)
            .collect();
    words.extend(UnaryOp::ALL.map(|op| name(serde_json::to_value(op).unwrap())));
    words.extend(BinaryOp::ALL.map(|op| name(serde_json::to_value(op).unwrap())));
    words.extend(["Lt", "Le", "Eq"].map(String::from));
    words.extend(
        [DType::F32, DType::I64, DType::I32, DType::Bool].map(|t| name(serde_json::to_value(t).unwrap())),
    );
    words.extend([LoopKind::Serial, LoopKind::Parallel].map(|k| name(serde_json::to_value(k).unwrap())));
    words.extend([Scope::Global, Scope::Stack].map(|s| name(serde_json::to_value(s).unwrap())));
    words.extend(["Spatial", "Reduce", "Loop", "Iter"].map(String::from));
    words
}

/// Changes every single field of what `value` holds: the digest must notice all but names. Returns how many changes it met.
fn check_every_field<T: Canonical + serde::Serialize + serde::de::DeserializeOwned>(value: &T) -> usize {
    let serial = serde_json::to_value(value).unwrap();
    assert_eq!(serde_json::from_value::<T>(serial.clone()).unwrap().digest(), value.digest());
    let mut n = 0;
    for (place, is_name, mutants) in mutants(&serial, &words()) {
        let mutants: Vec<T> = mutants.into_iter().filter_map(|m| serde_json::from_value(m).ok()).collect();
        // Some variants have a payload that no other has, and the items of a pair stay two.
        let can_change = !place.ends_with("/variant") && !place.ends_with("/items");
        assert!(!mutants.is_empty() || !can_change, "nothing else can stand at {place}");
        for mutant in mutants {
            let is_same = mutant.digest() == value.digest();
            assert_eq!(is_same, is_name, "{place}: {}", serde_json::to_string(&mutant).unwrap());
            n += 1;
        }
    }
    n
}

#[test]
fn every_field_of_a_function_counts() {
    let n = check_every_field(&parse(MATMUL)) + check_every_field(&parse(KINDS));
    assert!(n > 1000, "{n}");
}

#[test]
fn every_field_of_a_computation_counts() {
    // Names of blocks count here: they are not called so in front of the check.
    let computation = computation();
    let text = serde_json::to_string(&computation).unwrap();
    assert!(text.contains("algorithm"));
    let plain = computation.digest();
    let change = |change: &dyn Fn(&mut Computation)| {
        let mut other = computation.clone();
        change(&mut other);
        assert_ne!(other.digest(), plain);
    };
    change(&|c| c.func = parse(KINDS));
    change(&|c| c.variants.clear());
    change(&|c| c.variants[0].algorithm.push('x'));
    change(&|c| c.variants[0].func = parse(KINDS));
    change(&|c| c.variants[0].prepare[0] = Some(parse(KINDS)));
    change(&|c| c.variants[0].prepare[1] = None);
    change(&|c| c.constant_inputs[0] = true);
    change(&|c| c.constant_inputs.push(false));
    change(&|c| c.layouts[0] = Some(vec![]));
    change(&|c| c.layouts.push(None));
    change(&|c| c.layouts[1].as_mut().unwrap()[0].dim = 1);
    change(&|c| c.layouts[1].as_mut().unwrap()[1].factor = None);
}
