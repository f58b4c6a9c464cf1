//! Softmax and what contains one, against double precision: right down to the smallest normal number, 0 below.

use super::*;

/// Distances from the greatest element of a row, on both sides of where shares become subnormal.
const BELOW: [f32; 14] =
    [0.0, 0.5, 1.0, 30.0, 64.9, 65.1, 70.0, 80.0, 86.0, 86.7, 87.3, 87.4, 100.0, f32::INFINITY];

/// The first result of an operator on one operand.
fn run(op: Op, inputs: &[&Tensor], result: TensorType) -> Vec<f64> {
    let operands: Vec<Option<&Tensor>> = inputs.iter().map(|tensor| Some(*tensor)).collect();
    let func = function(&op, &operands, &[result]).unwrap();
    let bytes: Vec<&[u8]> = inputs.iter().map(|tensor| tensor.bytes().unwrap().as_slice()).collect();
    let result = Program::compile(&func).unwrap().run(&[], &bytes, Mode::Exact).unwrap().remove(0);
    let dims = result.shape.iter().map(|&extent| extent as usize).collect();
    Tensor::from_bytes(result.dtype, dims, Bytes::new(result.bytes)).unwrap().to_f64s().unwrap()
}

/// Shares of a row in double precision.
fn exact(row: &[f64]) -> Vec<f64> {
    let sum: f64 = row.iter().map(|x| x.exp()).sum();
    row.iter().map(|x| x.exp() / sum).collect()
}

/// Shares agree within `tolerance` of them where they are at least `least`, and are 0 elsewhere.
fn agree(got: &[f64], exact: &[f64], tolerance: f64, least: f64) {
    for (got, exact) in got.iter().zip(exact) {
        let expected = if *exact < least { 0.0 } else { *exact };
        assert!((got - expected).abs() <= tolerance * expected, "{got:e}, expected {expected:e}");
    }
}

#[test]
fn shares_are_right_down_to_the_smallest_normal_number() {
    let softmax = || Op::Softmax(SoftmaxAttrs { axis: 1, log: false });
    let row: Vec<f32> = BELOW.iter().map(|x| 3.0 - x).collect();
    let x = tensor(&[1, row.len()], &row);
    // What a softmax sees is the rounded difference from the greatest.
    let centred: Vec<f64> = row.iter().map(|x| f64::from(x - 3.0)).collect();
    let expected = exact(&centred);
    let least = f64::from(f32::MIN_POSITIVE);
    let got = run(softmax(), &[&x], x.tensor_type());
    agree(&got, &expected, 4e-7, least);
    assert!(expected.iter().any(|x| (least..2.0 * least).contains(x)), "one is just normal: {expected:?}");

    let wide: Vec<f64> = BELOW.iter().map(|x| 8.1 * (3.0 - f64::from(*x))).collect();
    let x = tensor(&[1, wide.len()], &wide);
    let centred: Vec<f64> = wide.iter().map(|x| x - wide[0]).collect();
    let got = run(softmax(), &[&x], x.tensor_type());
    agree(&got, &exact(&centred), 1e-14, f64::MIN_POSITIVE);
}

#[test]
fn shares_of_narrow_types_reach_as_far() {
    let softmax = || Op::Softmax(SoftmaxAttrs { axis: 1, log: false });
    for (dtype, tolerance, least) in
        [(DType::F16, 2e-3, 6.2e-5), (DType::BF16, 2e-2, f64::from(f32::MIN_POSITIVE))]
    {
        // Distances that the type has exactly: what is measured is not their rounding.
        let row: Vec<f64> =
            [0.0, 0.5, 1.0, 4.0, 8.0, 9.0, 64.5, 65.5, 70.0, 86.0, 100.0].map(|x: f64| -x).into();
        let bits: Vec<u16> = row
            .iter()
            .map(|x| if dtype == DType::F16 { half(*x) } else { ((*x as f32).to_bits() >> 16) as u16 })
            .collect();
        let bytes = bits.iter().flat_map(|bits| bits.to_le_bytes()).collect::<Vec<u8>>();
        let x = Tensor::from_bytes(dtype, vec![1, row.len()], Bytes::new(bytes)).unwrap();
        assert_eq!(x.to_f64s().unwrap(), row);
        let (got, expected) = (run(softmax(), &[&x], x.tensor_type()), exact(&row));
        for (got, expected) in got.iter().zip(&expected) {
            let close = (got - expected).abs() <= tolerance * expected;
            assert!(close || *expected < least && *got < least, "{dtype}: {got:e}, expected {expected:e}");
        }
    }
}

/// The `F16` of a number that has one with few digits.
fn half(x: f64) -> u16 {
    let bits = (x as f32).to_bits();
    if x == 0.0 {
        return (bits >> 16) as u16;
    }
    ((bits >> 16) & 0x8000) as u16
        | ((((bits >> 23) & 0xff) - 112) << 10) as u16
        | ((bits >> 13) & 0x3ff) as u16
}

#[test]
fn logarithms_of_shares_are_finite_where_shares_are_normal() {
    let x = tensor(&[1, 2], &[0.0f32, -70.0]);
    let shares = run(Op::Softmax(SoftmaxAttrs { axis: 1, log: false }), &[&x], x.tensor_type());
    let shares = tensor(&[1, 2], &[shares[0] as f32, shares[1] as f32]);
    check(Op::Unary(UnaryOp::Log), &[&shares], std::slice::from_ref(&x));
    // The logarithm of a softmax has no limit.
    let row: Vec<f32> = BELOW.iter().map(|x| 3.0 - x * 100.0).collect();
    let x = tensor(&[1, row.len()], &row);
    let got = run(Op::Softmax(SoftmaxAttrs { axis: 1, log: true }), &[&x], x.tensor_type());
    let centred: Vec<f64> = row.iter().map(|x| f64::from(*x) - 3.0).collect();
    let sum = centred.iter().map(|x| x.exp()).sum::<f64>().ln();
    for (got, x) in got.iter().zip(&centred) {
        assert!(*got == x - sum || (got - (x - sum)).abs() <= 1e-6 * (x - sum).abs(), "{got} {x}");
    }
    let axes = ReduceAttrs { kind: ReduceKind::LogSumExp, axes: vec![1], keep_dims: false };
    let x = tensor(&[3, 2], &[-700.0f32, -700.0, 0.0, -200.0, f32::NEG_INFINITY, f32::NEG_INFINITY]);
    let sums = [-700.0 + 2f32.ln(), 0.0, f32::NEG_INFINITY];
    check(Op::Reduce(axes), &[&x], &[tensor(&[3], &sums)]);
}

#[test]
fn attention_gives_far_keys_their_share() {
    // One query of size 1 and scale 1: scores are the keys. Values pick one share each.
    let n = BELOW.len();
    let keys: Vec<f32> = BELOW.iter().map(|x| -x.min(1e3)).collect();
    let eye: Vec<f32> = (0..n * n).map(|i| f32::from(u8::from(i / n == i % n))).collect();
    let (q, k) = (tensor(&[1, 1, 1, 1], &[1.0f32]), tensor(&[1, 1, n, 1], &keys));
    let v = tensor(&[1, 1, n, n], &eye);
    let attrs = AttentionAttrs::of_heads(Some(Real(1.0)));
    let result = TensorType::new(DType::F32, [1, 1, 1, n as i64].map(Dim::new).to_vec());
    let got = run(Op::Attention(attrs), &[&q, &k, &v], result);
    let centred: Vec<f64> = keys.iter().map(|x| f64::from(*x)).collect();
    agree(&got, &exact(&centred), 4e-7, f64::from(f32::MIN_POSITIVE));
}
