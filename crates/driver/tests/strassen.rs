//! Products by Strassen's algorithm: whenever its products are summed, what they sum to is the product within the numerics
//! contract, measured against double precision.

#[path = "common/algorithms.rs"]
mod algorithms;

use std::sync::Arc;

use algorithms::{
    ALGORITHM, CONTRACT, DIRECT, algorithm, by_every_algorithm, error, model, noise, records, run, targets,
};
use tilewright_driver::onnx::OnnxModel;
use tilewright_driver::runtime::TensorView;
use tilewright_driver::{Compiled, Numerics, Options, compile_model};

const STRASSEN: &str = "strassen";

/// When products are summed.
const WAYS: [&str; 2] = ["in-blocks", "afterwards"];

/// A product of rows with a matrix of weights, and what is around it.
#[derive(Clone, Debug)]
struct Case {
    /// Extents of the axes of rows.
    rows: Vec<usize>,
    depth: usize,
    columns: usize,
    /// How it is written.
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    /// `MatMul` alone.
    Plain,
    /// `MatMul`, a bias, a hyperbolic tangent, and an operand as large as the result.
    Epilogue,
    /// `Gemm` with transposed weights, a bias and factors.
    Gemm,
}

impl Case {
    fn of(rows: &[usize], depth: usize, columns: usize, form: Form) -> Case {
        Case { rows: rows.to_vec(), depth, columns, form }
    }

    fn n_rows(&self) -> usize {
        self.rows.iter().product()
    }

    /// Rows as long as that.
    fn extents(&self, length: usize) -> Vec<usize> {
        [&self.rows[..], &[length]].concat()
    }

    fn model(&self, tensors: &Tensors) -> OnnxModel {
        let Case { depth, columns, form, .. } = *self;
        let ty = |length: usize| format!("f32{:?}", self.extents(length));
        let (x, y) = (ty(depth), ty(columns));
        let weights = if form == Form::Gemm { [columns, depth] } else { [depth, columns] };
        let body = match form {
            Form::Plain => format!("%o: {y} = MatMul[transpose_a=false, transpose_b=false](%x, %w)"),
            Form::Epilogue => format!(
                "%p: {y} = MatMul[transpose_a=false, transpose_b=false](%x, %w)
                 %s: {y} = Binary[add](%p, %b)
                 %g: {y} = Unary[tanh](%s)
                 %o: {y} = Binary[add](%g, %r)"
            ),
            Form::Gemm => {
                format!("%o: {y} = Gemm[alpha=0.5, beta=2, transpose_a=false, transpose_b=true](%x, %w, %b)")
            }
        };
        let text = format!(
            "graph product {{
              region0(%x x: {x}, %r r: {y}, %w w: f32{weights:?}, %b b: f32[{columns}]) {{
                {body}
                return %o as y
              }}
            }}"
        );
        model(&text, &[("w", &weights, &tensors.weights), ("b", &[columns], &tensors.bias)])
    }

    /// The result in double precision, by the definition.
    fn expected(&self, tensors: &Tensors) -> Vec<f64> {
        let Case { depth, columns, form, .. } = *self;
        let element = |row: usize, column: usize| {
            let weight = |k: usize| match form {
                Form::Gemm => tensors.weights[column * depth + k],
                Form::Plain | Form::Epilogue => tensors.weights[k * columns + column],
            };
            let terms = (0..depth).map(|k| f64::from(tensors.x[row * depth + k]) * f64::from(weight(k)));
            let (sum, bias) = (terms.sum::<f64>(), f64::from(tensors.bias[column]));
            match form {
                Form::Plain => sum,
                Form::Epilogue => (sum + bias).tanh() + f64::from(tensors.residual[row * columns + column]),
                Form::Gemm => 0.5 * sum + 2.0 * bias,
            }
        };
        (0..self.n_rows())
            .flat_map(|row| (0..columns).map(move |column| (row, column)))
            .map(|(r, c)| element(r, c))
            .collect()
    }

    fn tensors(&self) -> Tensors {
        let Case { depth, columns, .. } = *self;
        Tensors {
            x: noise(self.n_rows() * depth, 1),
            weights: noise(depth * columns, 2),
            bias: noise(columns, 3),
            residual: noise(self.n_rows() * columns, 4),
        }
    }

    fn run(&self, tensors: &Tensors, compiled: &Compiled) -> Vec<f32> {
        let (x, y) = (self.extents(self.depth), self.extents(self.columns));
        run(compiled, &[TensorView::of(&x, &tensors.x), TensorView::of(&y, &tensors.residual)])
    }
}

/// What a case is computed from.
struct Tensors {
    x: Vec<f32>,
    weights: Vec<f32>,
    bias: Vec<f32>,
    residual: Vec<f32>,
}

/// Computes cases by the algorithm in every way, for every target.
fn check(cases: &[Case]) {
    for target in targets() {
        for case in cases {
            let tensors = case.tensors();
            let (model, expected) = (case.model(&tensors), case.expected(&tensors));
            let options = Options { jobs: 1, ..Options::for_target(target.clone()) };
            let by_rules = compile_model(&model, &options, &mut ()).expect("an artifact");
            for way in WAYS {
                let decided = [(ALGORITHM, STRASSEN), ("strassen_product/sums", way)];
                let (records, offered) = records(&by_rules, &target, &decided);
                assert!(offered.iter().any(|name| name == STRASSEN), "{case:?} for {target}: {offered:?}");
                let options = Options { records: Arc::new(records), ..options.clone() };
                let compiled = compile_model(&model, &options, &mut ()).expect("an artifact");
                assert_eq!(algorithm(&compiled), STRASSEN, "{case:?} {way} for {target}");
                let error = error(&case.run(&tensors, &compiled), &expected);
                assert!(error <= CONTRACT, "{case:?} {way} for {target}: error {error:e}");
            }
        }
    }
}

#[test]
fn any_number_of_rows() {
    let rows: [&[usize]; 9] =
        [&[2], &[3], &[1, 7], &[16], &[1, 33], &[100], &[3, 5], &[2, 3, 4], &[1, 1, 50, 3]];
    check(&rows.map(|rows| Case::of(rows, 64, 96, Form::Plain)));
}

#[test]
fn any_depth_and_columns_that_vectors_divide() {
    let of = |depth, columns| Case::of(&[1, 23], depth, columns, Form::Plain);
    check(&[of(32, 32), of(32, 160), of(96, 32), of(224, 64), of(64, 352), of(8192, 32)]);
}

#[test]
fn epilogues_run_on_the_sums() {
    let of = |rows: &[usize], form| Case::of(rows, 64, 128, form);
    check(&[
        of(&[1, 12], Form::Epilogue),
        of(&[1, 13], Form::Epilogue),
        of(&[5, 3, 4], Form::Epilogue),
        of(&[24], Form::Gemm),
        of(&[9], Form::Gemm),
    ]);
}

/// Prints the table of `docs/numerics.md`: `cargo test --release -p tilewright-driver --test strassen -- --ignored --nocapture`.
#[test]
#[ignore = "prints a table"]
fn table_of_errors() {
    println!("| depth | left factor | {DIRECT} | {STRASSEN} |");
    println!("|---|---|---|---|");
    for depth in [256, 1024, 4096, 16384] {
        for (positive, left) in [(false, "between -1 and 1"), (true, "between 0 and 1")] {
            let case = Case::of(&[64], depth, 128, Form::Plain);
            let mut tensors = case.tensors();
            if positive {
                tensors.x.iter_mut().for_each(|x| *x = x.abs());
            }
            let expected = case.expected(&tensors);
            let mut worst = [0.0f64; 2];
            for target in targets() {
                let run = |compiled: &Compiled| case.run(&tensors, compiled);
                for (name, found) in by_every_algorithm(&case.model(&tensors), &target, run) {
                    let at = [DIRECT, STRASSEN].iter().position(|known| *known == name);
                    let worst = &mut worst[at.expect("a known algorithm")];
                    *worst = worst.max(error(&found, &expected));
                }
            }
            println!("| {depth} | {left} | {} |", worst.map(|error| format!("{error:.1e}")).join(" | "));
        }
    }
}

#[test]
fn large_products_choose_it_and_others_do_not() {
    // Enough rows that sums of quarters of the left factor are little work, and so many steps that an eighth of them is worth it. In
    // vectors of 16 lanes sums weigh more (128 x 1024 x 1024 takes either the same time).
    let large = Case::of(&[1, 128], 1024, 1024, Form::Plain);
    let larger = Case::of(&[1, 512], 1536, 1024, Form::Plain);
    let thin = Case::of(&[1, 128], 32, 1024, Form::Plain);
    for target in targets() {
        let large = if target.lanes(4) > 8 { &larger } else { &large };
        for (case, expected) in [(large, STRASSEN), (&thin, DIRECT)] {
            let tensors = case.tensors();
            let run = |compiled: &Compiled| case.run(&tensors, compiled);
            let results = by_every_algorithm(&case.model(&tensors), &target, run);
            let names: Vec<&str> = results.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names.len(), 2, "{case:?} for {target}: {names:?}");
            assert_eq!(names[0], expected, "{case:?} for {target}");
            let wanted = case.expected(&tensors);
            for (name, found) in &results {
                let error = error(found, &wanted);
                assert!(error <= CONTRACT, "{case:?} by {name} for {target}: error {error:e}");
            }
        }
    }
}

#[test]
fn what_has_no_halves_and_strict_numerics_are_direct() {
    let target = &targets()[0];
    let odd = [
        Case::of(&[8], 48, 96, Form::Plain),
        Case::of(&[8], 64, 95, Form::Plain),
        Case::of(&[1], 64, 96, Form::Plain),
    ];
    for case in odd {
        let model = case.model(&case.tensors());
        let by_rules =
            compile_model(&model, &Options::for_target(target.clone()), &mut ()).expect("an artifact");
        let (_, offered) = records(&by_rules, target, &[(ALGORITHM, DIRECT)]);
        assert!(!offered.iter().any(|name| name == STRASSEN), "{case:?}: {offered:?}");
    }
    let case = Case::of(&[1, 128], 1024, 1024, Form::Plain);
    let options = Options { numerics: Numerics::Strict, ..Options::for_target(target.clone()) };
    let strict = compile_model(&case.model(&case.tensors()), &options, &mut ()).expect("an artifact");
    assert_eq!(algorithm(&strict), DIRECT);
}
