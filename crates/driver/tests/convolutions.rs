//! Convolutions with groups, strides, dilations and transposed ones, of one to three spatial axes, compute what the interpreter
//! does, whatever the layouts of what they read and write.

#[path = "common/graphs.rs"]
mod graphs;

use std::fmt::Write as _;

use graphs::compile_and_compare;
use tilewright_driver::{CodegenKind, Compiled, Numerics, Options};

/// A convolution, transposed or not, with constant weights.
#[derive(Clone, Debug)]
struct Case {
    op: &'static str,
    /// Channels read and written.
    channels: [usize; 2],
    groups: usize,
    /// Extents of the spatial axes, before and after.
    extents: [Vec<usize>; 2],
    kernel: Vec<usize>,
    strides: Vec<usize>,
    /// Begins, then ends.
    pads: Vec<usize>,
    dilation: usize,
}

impl Case {
    /// The graph: a pointwise convolution, the one under test with an activation, and what reads it, by which it is in blocks of
    /// channels; or the one under test alone, whose result is row-major.
    fn graph(&self, is_between: bool) -> String {
        let n = self.kernel.len();
        let [read, written] = self.channels;
        let dims = |channels: usize, extents: &[usize]| {
            [vec![1, channels], extents.to_vec()]
                .concat()
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        };
        let x = format!("f32[{}]", dims(read, &self.extents[0]));
        let y = format!("f32[{}]", dims(written, &self.extents[1]));
        let ones = vec![1; n];
        let mut text = format!("graph convolutions {{ region0(%x x: {x}) {{");
        let mut constant = |name: &str, shape: &[usize]| {
            let mut random = fastrand::Rng::with_seed(shape.iter().sum::<usize>() as u64);
            let n = shape.iter().product::<usize>();
            let values: Vec<String> = (0..n).map(|_| format!("{:?}", random.f32() - 0.5)).collect();
            let _ =
                writeln!(text, "%{name}: f32{shape:?} = Constant[f32{shape:?}{{{}}}]()", values.join(", "));
        };
        let rows_by_columns = match self.op {
            "Conv" => [written, read / self.groups],
            _ => [read, written / self.groups],
        };
        constant("w", &[rows_by_columns.to_vec(), self.kernel.clone()].concat());
        constant("p", &[vec![read, read], ones.clone()].concat());
        let zeros = vec![0; 2 * n];
        let plain = format!("strides={ones:?}, pads={zeros:?}, dilations={ones:?}, group=1");
        let Case { op, strides, pads, groups, .. } = self;
        let dilations = vec![self.dilation; n];
        let attrs = format!("strides={strides:?}, pads={pads:?}, dilations={dilations:?}, group={groups}");
        let from = if is_between { "%a" } else { "%x" };
        let _ = write!(text, "%a: {x} = Conv[{plain}](%x, %p)\n%b: {y} = {op}[{attrs}]({from}, %w)\n");
        let window = format!("kernel={ones:?}, strides={ones:?}, pads={zeros:?}, dilations={ones:?}");
        let _ = match is_between {
            true => write!(
                text,
                "%c: {y} = Unary[relu](%b)\n%r: {y} = Pool[kind=max, {window}](%c)\nreturn %r as r }} }}"
            ),
            false => write!(text, "return %b as r, %a as s }} }}"),
        };
        text
    }

    /// Compiles it for vectors of four lanes and of all that the machine has, with fast algorithms and without.
    fn check(&self) -> Vec<Compiled> {
        let mut compiled = Vec::new();
        for codegen in [CodegenKind::Cranelift, Options::best_codegen()] {
            for is_between in [true, false] {
                for numerics in [Numerics::Default, Numerics::Strict] {
                    let options = Options { numerics, ..Options::host(codegen) };
                    compiled.push(compile_and_compare(&self.graph(is_between), &options));
                }
            }
        }
        compiled
    }
}

fn conv(
    channels: [usize; 2],
    groups: usize,
    extents: &[usize],
    kernel: usize,
    stride: usize,
    dilation: usize,
) -> Case {
    let n = extents.len();
    let pad = dilation * (kernel - 1) / 2;
    let after = |extent: &usize| (extent + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1;
    Case {
        op: "Conv",
        channels,
        groups,
        extents: [extents.to_vec(), extents.iter().map(after).collect()],
        kernel: vec![kernel; n],
        strides: vec![stride; n],
        pads: vec![pad; 2 * n],
        dilation,
    }
}

fn transposed(
    channels: [usize; 2],
    groups: usize,
    extents: &[usize],
    kernel: usize,
    stride: usize,
    pad: usize,
) -> Case {
    let n = extents.len();
    let after = |extent: &usize| (extent - 1) * stride + kernel - 2 * pad;
    let extents = [extents.to_vec(), extents.iter().map(after).collect()];
    let (kernel, strides, pads) = (vec![kernel; n], vec![stride; n], vec![pad; 2 * n]);
    Case { op: "ConvTranspose", channels, groups, extents, kernel, strides, pads, dilation: 1 }
}

#[test]
fn groups_of_whole_vectors_of_less_and_of_one_channel() {
    for (channels, groups) in
        [([64, 64], 2), ([32, 64], 4), ([24, 24], 3), ([32, 32], 8), ([20, 10], 5), ([16, 16], 16)]
    {
        conv(channels, groups, &[7, 9], 3, 1, 1).check();
        conv(channels, groups, &[7, 9], 3, 2, 1).check();
        conv(channels, groups, &[7, 9], 1, 1, 1).check();
    }
}

#[test]
fn one_and_three_axes() {
    for groups in [1, 2] {
        conv([16, 32], groups, &[37], 3, 1, 2).check();
        conv([16, 32], groups, &[5, 6, 7], 3, 1, 1).check();
        conv([16, 32], groups, &[5, 6, 7], 3, 2, 1).check();
        conv([16, 32], groups, &[5, 6, 7], 1, 1, 1).check();
    }
}

#[test]
fn windows_dilated_into_padding() {
    for dilation in [2, 4, 6, 7, 12] {
        conv([16, 16], 1, &[7, 6], 3, 1, dilation).check();
        conv([16, 16], 1, &[7, 6], 3, 2, dilation).check();
    }
}

/// Bands of rows that meet other taps are convolutions of their own.
#[test]
fn bands_of_rows_between_padding() {
    for (extents, dilation) in
        [(&[16, 16][..], 12), (&[16, 9], 9), (&[40, 13], 25), (&[12, 4, 5], 8), (&[100], 64)]
    {
        for (stride, channels) in [(1, [16, 16]), (2, [16, 16]), (1, [3, 20])] {
            conv(channels, 1, extents, 3, stride, dilation).check();
        }
    }
}

#[test]
fn transposed_convolutions_by_phases_and_others() {
    for (kernel, stride, pad) in
        [(2, 2, 0), (4, 2, 1), (3, 2, 1), (3, 2, 0), (5, 3, 1), (2, 3, 0), (4, 1, 2), (6, 2, 2)]
    {
        transposed([16, 32], 1, &[5, 6], kernel, stride, pad).check();
        transposed([3, 7], 1, &[5], kernel, stride, pad).check();
        transposed([16, 32], 4, &[4, 3], kernel, stride, pad).check();
    }
    transposed([16, 32], 1, &[3, 4, 5], 2, 2, 0).check();
    transposed([16, 32], 1, &[3, 4, 5], 4, 2, 1).check();
}

/// The rules by which the functions of a compiled model were scheduled, each with its algorithm.
fn rules(compiled: &Compiled) -> Vec<&str> {
    let schedules = compiled.artifact.manifest.images.iter().flat_map(|image| &image.program.schedules);
    schedules.map(|schedule| schedule.rules.as_str()).collect()
}

#[test]
fn weights_meet_each_input_once_by_phases() {
    for compiled in transposed([16, 32], 1, &[5, 6], 4, 2, 1).check() {
        let rules = rules(&compiled);
        assert!(rules.iter().any(|rules| rules.starts_with("phases contraction")), "{rules:?}");
    }
}

#[test]
fn groups_are_contractions() {
    for compiled in conv([64, 64], 2, &[7, 9], 3, 1, 1).check() {
        let rules = rules(&compiled);
        // The pointwise one and that of groups; where the window reads what is not padded, both are functions of their own.
        let contractions = rules.iter().filter(|rules| rules.contains("contraction")).count();
        assert!(contractions >= 2, "{rules:?}");
    }
}

/// Of a pointwise convolution with strides what it reads is copied, where enough results are computed of each element: 16 for each lane
/// of a vector by the generic machines' numbers, 7 by those of Zen 5. A vector has 4 lanes to 16.
#[test]
fn strides_between_points() {
    for (channels, copies) in [([24, 264], true), ([16, 256], true), ([24, 24], false)] {
        for extents in [&[23][..], &[7, 9], &[14, 14], &[1, 6], &[5, 6, 7]] {
            for stride in [2, 3] {
                for compiled in conv(channels, 1, extents, 1, stride, 1).check() {
                    let rules = rules(&compiled);
                    let is_copied = rules.iter().any(|rules| rules.contains("contraction elementwise"));
                    assert_eq!(is_copied, copies, "{extents:?} {stride} {rules:?}");
                }
            }
        }
    }
    conv([24, 256], 2, &[7, 9], 1, 2, 1).check();
}

/// A factor of channels that only a run knows goes to the weights of the pointwise convolution behind it (`scale_weights`), which
/// are packed in each run then; those of a larger window keep theirs.
#[test]
fn weights_that_are_scaled_in_each_run() {
    for window in [1, 3] {
        let pad = window / 2;
        let constant = |name: &str, shape: [usize; 4]| {
            let mut random = fastrand::Rng::with_seed(shape.iter().sum::<usize>() as u64);
            let n = shape.iter().product::<usize>();
            let values: Vec<String> = (0..n).map(|_| format!("{:?}", random.f32() - 0.5)).collect();
            format!("%{name}: f32{shape:?} = Constant[f32{shape:?}{{{}}}]()\n", values.join(", "))
        };
        let (p, w) = (constant("p", [24, 24, 1, 1]), constant("w", [20, 24, window, window]));
        let attrs = |pad: usize| format!("strides=[1, 1], pads={:?}, dilations=[1, 1], group=1", [pad; 4]);
        let text = format!(
            "graph scaled {{ region0(%x x: f32[1, 24, 17, 13], %g g: f32[1, 24, 1, 1]) {{\n{p}{w}
            %a: f32[1, 24, 17, 13] = Conv[{}](%x, %p)
            %b: f32[1, 24, 17, 13] = Binary[mul](%g, %a)
            %c: f32[1, 20, 17, 13] = Conv[{}](%b, %w)
            %d: f32[1, 20, 17, 13] = Unary[relu](%c)
            return %d as r }} }}",
            attrs(0),
            attrs(pad)
        );
        for codegen in [CodegenKind::Cranelift, Options::best_codegen()] {
            compile_and_compare(&text, &Options::host(codegen));
        }
    }
}
