//! What the tests share: a function to tune.

use tilewright_dtype::DType;
use tilewright_machine::{CodegenKind, Target};
use tilewright_te::{Computation, Expr, Func};
use tilewright_tune::Task;

/// A matrix product with constant weights.
pub(crate) fn task(name: &str, rows: i64) -> Task {
    let mut func = Func::new(name);
    let (m, n, k) = (Expr::int(rows), Expr::int(128), Expr::int(64));
    let a = func.add_input("a", DType::F32, vec![m.clone(), k.clone()]);
    let b = func.add_input("b", DType::F32, vec![k.clone(), n.clone()]);
    let out = func.reduce("product", DType::F32, vec![m, n], vec![k], Expr::f32(0.0), |f, i, r, acc| {
        let x = f.load(a, vec![i[0].clone(), r[0].clone()]);
        let y = f.load(b, vec![r[0].clone(), i[1].clone()]);
        Expr::fma(x, y, acc)
    });
    func.promote_to_output(out);
    let target = Target::parse("x86-64-v4", CodegenKind::Llvm).expect("a known target");
    let computation = Computation { constant_inputs: vec![false, true], ..Computation::of(func) };
    let constant_bytes = Task::constant_bytes_of(&computation);
    Task { computation, target, calls: 1, constant_bytes }
}
