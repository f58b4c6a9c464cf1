//! Convolutions by Winograd's algorithm: each tile size, wherever it can be chosen, computes the convolution within the
//! numerics contract, measured against a direct one in double precision.

#[path = "common/algorithms.rs"]
mod algorithms;

use std::fmt::Write as _;
use std::sync::Arc;

use algorithms::{
    ALGORITHM, CONTRACT, DIRECT, algorithm, by_every_algorithm, error, model, noise, records, run, runnable,
    targets,
};
use tilewright_driver::onnx::OnnxModel;
use tilewright_driver::runtime::TensorView;
use tilewright_driver::{CodegenKind, Compiled, Numerics, Options, Target, compile_model};

/// Every algorithm.
const ALL: [&str; 3] = [DIRECT, "winograd-2x2", "winograd-4x4"];

/// A convolution of 3 x 3 with stride 1 and what is around it.
#[derive(Clone, Copy, Debug)]
struct Case {
    batch: usize,
    channels: usize,
    filters: usize,
    /// Rows and columns of the image.
    image: [usize; 2],
    /// Above, left, below, right.
    pads: [usize; 4],
    dilations: [usize; 2],
    groups: usize,
    source: Source,
    bias: bool,
    residual: bool,
    relu: bool,
    reader: Reader,
    data: Data,
}

/// Where the image comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Source {
    /// The model's input, row-major.
    Input,
    /// A function that stores it in blocks of channels.
    Blocked,
}

/// What reads the result. A result of the model itself is row-major.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reader {
    /// A function that takes it in blocks of channels.
    Transpose,
    /// Maximum over windows of 2 x 2.
    Pool,
    /// The caller.
    Nobody,
}

/// What images hold.
#[derive(Clone, Copy, Debug)]
enum Data {
    /// Noise between -1 and 1.
    ZeroMean,
    /// Noise between 0 and 1, as after a rectifier.
    Positive,
}

const PLAIN: Case = Case {
    batch: 1,
    channels: 16,
    filters: 16,
    image: [8, 8],
    pads: [1; 4],
    dilations: [1; 2],
    groups: 1,
    source: Source::Blocked,
    bias: false,
    residual: false,
    relu: false,
    reader: Reader::Transpose,
    data: Data::ZeroMean,
};

impl Case {
    fn result(&self) -> [usize; 2] {
        [0, 1].map(|axis| self.image[axis] + self.pads[axis] + self.pads[axis + 2] - 2 * self.dilations[axis])
    }

    /// Channels that a filter reads.
    fn group_channels(&self) -> usize {
        self.channels / self.groups
    }

    /// The model in the graph's text form, weights among the inputs.
    fn text(&self) -> String {
        let Case { batch, channels, filters, image: [h, w], pads: [top, left, bottom, right], .. } = *self;
        let [rows, columns] = self.result();
        let ty = format!("f32[{batch}, {filters}, {rows}, {columns}]");
        let mut body = String::new();
        let image = format!("f32[{batch}, {channels}, {h}, {w}]");
        let input = match self.source {
            Source::Input => image,
            Source::Blocked => {
                writeln!(body, "%t: {image} = Transpose[perm=[0, 3, 1, 2]](%x)").expect("a string");
                format!("f32[{batch}, {h}, {w}, {channels}]")
            }
        };
        let x = if self.source == Source::Blocked { "%t" } else { "%x" };
        let bias = if self.bias { ", %b" } else { "" };
        let pads = format!("pads=[{top}, {left}, {bottom}, {right}]");
        let attributes =
            format!("strides=[1, 1], {pads}, dilations={:?}, group={}", self.dilations, self.groups);
        writeln!(body, "%c: {ty} = Conv[{attributes}]({x}, %w{bias})").expect("a string");
        let mut last = "%c";
        if self.residual {
            writeln!(body, "%s: {ty} = Binary[add]({last}, %r)").expect("a string");
            last = "%s";
        }
        if self.relu {
            writeln!(body, "%u: {ty} = Unary[relu]({last})").expect("a string");
            last = "%u";
        }
        let made = match self.reader {
            Reader::Transpose => {
                let ty = format!("f32[{batch}, {rows}, {columns}, {filters}]");
                format!("%o: {ty} = Transpose[perm=[0, 2, 3, 1]]({last})")
            }
            Reader::Pool => {
                let ty = format!("f32[{batch}, {filters}, {}, {}]", rows - 1, columns - 1);
                let windows = "kernel=[2, 2], strides=[1, 1], pads=[0, 0, 0, 0], dilations=[1, 1]";
                let others = "ceil_mode=false, count_include_pad=false, p=2";
                format!("%o: {ty} = Pool[kind=max, {windows}, {others}]({last})")
            }
            Reader::Nobody => {
                last = last.trim_start_matches('%');
                String::new()
            }
        };
        let result = if self.reader == Reader::Nobody { last } else { "o" };
        format!(
            "graph conv {{
              region0(%x x: {input}, %r r: {ty}, %w w: f32[{filters}, {}, 3, 3], %b b: f32[{filters}]) {{
                {body}{made}
                return %{result} as y
              }}
            }}",
            self.group_channels()
        )
    }

    fn tensors(&self) -> Tensors {
        let Case { batch, channels, filters, image: [h, w], .. } = *self;
        let [rows, columns] = self.result();
        let of_data = |x: f32| match self.data {
            Data::ZeroMean => x,
            Data::Positive => x.abs(),
        };
        Tensors {
            image: noise(batch * channels * h * w, 1).into_iter().map(of_data).collect(),
            weights: noise(filters * self.group_channels() * 9, 2),
            bias: noise(filters, 3),
            residual: noise(batch * filters * rows * columns, 4),
        }
    }

    /// The model with its weights.
    fn model(&self, tensors: &Tensors) -> OnnxModel {
        let weights: [usize; 4] = [self.filters, self.group_channels(), 3, 3];
        model(&self.text(), &[("w", &weights, &tensors.weights), ("b", &[self.filters], &tensors.bias)])
    }

    /// The result in double precision, by the definition.
    fn expected(&self, tensors: &Tensors) -> Vec<f64> {
        let Case { batch, channels, filters, image: [h, w], pads: [top, left, ..], .. } = *self;
        let ([rows, columns], [down, right]) = (self.result(), self.dilations);
        let (height, width) = (rows + 2 * down, columns + 2 * right);
        let mut padded = vec![0.0; batch * channels * height * width];
        for plane in 0..batch * channels {
            for y in 0..h {
                for x in 0..w {
                    padded[(plane * height + y + top) * width + x + left] =
                        f64::from(tensors.image[(plane * h + y) * w + x]);
                }
            }
        }
        let mut result = vec![0.0; batch * filters * rows * columns];
        for (plane, out) in result.chunks_exact_mut(rows * columns).enumerate() {
            let (image, filter) = (plane / filters, plane % filters);
            let first = filter / (filters / self.groups) * self.group_channels();
            for n in 0..self.group_channels() {
                let channel = image * channels + first + n;
                let source = &padded[channel * height * width..][..height * width];
                let weights = &tensors.weights[(filter * self.group_channels() + n) * 9..][..9];
                for (n, &weight) in weights.iter().enumerate() {
                    for (y, out) in out.chunks_exact_mut(columns).enumerate() {
                        let source = &source[(y + n / 3 * down) * width + n % 3 * right..][..columns];
                        out.iter_mut().zip(source).for_each(|(out, x)| *out += f64::from(weight) * x);
                    }
                }
            }
            if self.bias {
                out.iter_mut().for_each(|out| *out += f64::from(tensors.bias[filter]));
            }
        }
        if self.residual {
            result.iter_mut().zip(&tensors.residual).for_each(|(out, &x)| *out += f64::from(x));
        }
        if self.relu {
            result.iter_mut().for_each(|out| *out = out.max(0.0));
        }
        let at = |plane: usize, y: usize, x: usize| result[(plane * rows + y) * columns + x];
        match self.reader {
            Reader::Nobody => result,
            Reader::Transpose => channels_last(&result, batch, filters),
            Reader::Pool => {
                let mut pooled = Vec::new();
                for plane in 0..batch * filters {
                    for (y, x) in (0..rows - 1).flat_map(|y| (0..columns - 1).map(move |x| (y, x))) {
                        let window = [at(plane, y, x), at(plane, y, x + 1), at(plane, y + 1, x)];
                        pooled.push(window.into_iter().fold(at(plane, y + 1, x + 1), f64::max));
                    }
                }
                pooled
            }
        }
    }

    /// The compiled model's result.
    fn run(&self, tensors: &Tensors, compiled: &Compiled) -> Vec<f32> {
        let Case { batch, channels, filters, image: [h, w], .. } = *self;
        let [rows, columns] = self.result();
        let (image, dims) = match self.source {
            Source::Input => (tensors.image.clone(), [batch, channels, h, w]),
            Source::Blocked => (channels_last(&tensors.image, batch, channels), [batch, h, w, channels]),
        };
        let result = [batch, filters, rows, columns];
        run(compiled, &[TensorView::of(&dims, &image), TensorView::of(&result, &tensors.residual)])
    }
}

/// `[batch, channels, ..]` as `[batch, .., channels]`.
fn channels_last<T: Copy>(values: &[T], batch: usize, channels: usize) -> Vec<T> {
    let pixels = values.len() / (batch * channels);
    let at = |n: usize, channel: usize| values[(n / pixels * channels + channel) * pixels + n % pixels];
    (0..batch * pixels).flat_map(|n| (0..channels).map(move |channel| at(n, channel))).collect()
}

/// What a case is computed from.
struct Tensors {
    image: Vec<f32>,
    weights: Vec<f32>,
    bias: Vec<f32>,
    residual: Vec<f32>,
}

/// The error of each algorithm that a case can be computed by.
fn errors(case: &Case, target: &Target) -> Vec<(String, f64)> {
    let tensors = case.tensors();
    let expected = case.expected(&tensors);
    let results = by_every_algorithm(&case.model(&tensors), target, |compiled| case.run(&tensors, compiled));
    results.into_iter().map(|(name, found)| (name, error(&found, &expected))).collect()
}

/// Computes cases by every algorithm, which must be these, for every target.
fn check(cases: &[Case], algorithms: &[&str]) {
    check_for(&targets(), cases, algorithms);
}

fn check_for(targets: &[Target], cases: &[Case], algorithms: &[&str]) {
    for target in targets {
        for case in cases {
            let errors = errors(case, target);
            let mut names: Vec<&str> = errors.iter().map(|(name, _)| name.as_str()).collect();
            names.sort_unstable();
            assert_eq!(names, algorithms, "{case:?} for {target}");
            for (name, error) in &errors {
                assert!(*error <= CONTRACT, "{case:?} by {name} for {target}: error {error:e}");
            }
        }
    }
}

#[test]
fn images_of_any_extents() {
    let squares = [2, 3, 5, 7, 8, 13, 14, 15, 28].map(|extent| [extent; 2]);
    let images = squares.into_iter().chain([[7, 12], [2, 9], [28, 3]]);
    check(&images.map(|image| Case { image, ..PLAIN }).collect::<Vec<_>>(), &ALL);
}

#[test]
fn padding_and_batches() {
    let other = Case { channels: 32, bias: true, ..PLAIN };
    let cases = [
        Case { pads: [0; 4], ..other },
        // A single result, which has no blocks of channels.
        Case { image: [3, 3], pads: [0; 4], ..other },
        Case { pads: [2; 4], image: [5, 6], ..other },
        Case { pads: [0, 1, 2, 0], image: [7, 7], ..other },
        Case { pads: [2, 0, 0, 1], image: [6, 9], batch: 3, ..other },
        Case { batch: 3, image: [13, 9], ..other },
        // Images that are nothing but padding around a pixel, or less than a tile.
        Case { pads: [2; 4], image: [1, 1], batch: 3, ..other },
        Case { pads: [0; 4], image: [3, 4], batch: 3, ..other },
    ];
    check(&cases, &ALL);
}

#[test]
fn dilations_are_phases_of_the_image() {
    let of = |dilations: [usize; 2], pads: [usize; 4], image: [usize; 2]| Case {
        dilations,
        pads,
        image,
        filters: 32,
        bias: true,
        relu: true,
        ..PLAIN
    };
    let cases = [
        of([2, 2], [2; 4], [8, 8]),
        of([2, 2], [2; 4], [7, 13]),
        of([3, 2], [0; 4], [12, 11]),
        of([1, 4], [1, 3, 0, 4], [5, 17]),
        of([4, 1], [2, 0, 7, 1], [10, 6]),
        Case { batch: 3, ..of([2, 3], [2, 3, 2, 3], [14, 15]) },
        // Phases of a single element at the end, and of two.
        of([3, 5], [3, 5, 3, 5], [7, 10]),
    ];
    check(&cases, &ALL);
}

#[test]
fn groups_of_several_channels() {
    let cases = [
        Case { channels: 32, filters: 32, groups: 2, image: [13, 9], ..PLAIN },
        Case { channels: 32, filters: 64, groups: 4, batch: 3, bias: true, relu: true, ..PLAIN },
        Case { channels: 48, filters: 32, groups: 2, image: [14, 14], residual: true, ..PLAIN },
        Case { channels: 64, filters: 64, groups: 4, source: Source::Input, ..PLAIN },
        Case { channels: 64, filters: 64, groups: 4, dilations: [2, 1], pads: [2, 1, 2, 1], ..PLAIN },
    ];
    check(&cases, &ALL);
}

#[test]
fn channels_that_vectors_divide() {
    let cases = [
        Case { channels: 48, filters: 64, image: [9, 10], ..PLAIN },
        Case { channels: 64, filters: 48, image: [14, 14], relu: true, bias: true, ..PLAIN },
        Case { channels: 32, filters: 16, source: Source::Input, ..PLAIN },
        // Enough for both threads.
        Case { channels: 64, filters: 64, image: [28, 28], batch: 3, ..PLAIN },
    ];
    check(&cases, &ALL);
}

#[test]
fn direct_convolution_where_nothing_lies_in_vectors() {
    let cases = [
        Case { channels: 7, ..PLAIN },
        Case { filters: 7, ..PLAIN },
        Case { channels: 17, filters: 17, ..PLAIN },
        // Results in blocks of which the last one is padded.
        Case { filters: 31, reader: Reader::Pool, bias: true, residual: true, relu: true, ..PLAIN },
        Case { image: [1, 1], ..PLAIN },
        // Of a single row the weights above and below meet nothing but padding: they are no 3 x 3 any more.
        Case { image: [1, 9], ..PLAIN },
    ];
    check(&cases, &[DIRECT]);
}

#[test]
fn what_follows_a_convolution() {
    let mut cases = Vec::new();
    // What the caller takes is row-major, and copied out of vectors.
    for reader in [Reader::Transpose, Reader::Pool, Reader::Nobody] {
        for n in 0..8 {
            let (bias, residual, relu) = (n & 1 > 0, n & 2 > 0, n & 4 > 0);
            cases.push(Case { bias, residual, relu, reader, image: [7, 10], filters: 32, ..PLAIN });
        }
    }
    check(&cases, &ALL);
}

#[test]
fn sums_over_many_channels() {
    let mut cases = Vec::new();
    for data in [Data::ZeroMean, Data::Positive] {
        for channels in [128, 256, 512] {
            cases.push(Case { channels, filters: 32, image: [14, 14], data, ..PLAIN });
        }
    }
    check(&cases, &ALL);
}

#[test]
fn processors_without_fused_multiply_add() {
    let targets =
        runnable(&[CodegenKind::Llvm, CodegenKind::Cranelift].map(|codegen| ("x86-64-v2", codegen)));
    check_for(&targets, &[Case { bias: true, relu: true, image: [9, 6], ..PLAIN }], &ALL);
}

/// A residual block: image, residual and results all lie in blocks of channels.
#[test]
fn convolutions_in_a_row() {
    let ty = "f32[2, 32, 14, 14]";
    let conv = "Conv[strides=[1, 1], pads=[1, 1, 1, 1], dilations=[1, 1], group=1]";
    let text = format!(
        "graph block {{
          region0(%x x: f32[2, 14, 14, 32], %w w: f32[32, 32, 3, 3], %v v: f32[32, 32, 3, 3], %b b: f32[32]) {{
            %t: {ty} = Transpose[perm=[0, 3, 1, 2]](%x)
            %c: {ty} = {conv}(%t, %w, %b)
            %d: {ty} = Unary[relu](%c)
            %e: {ty} = {conv}(%d, %v)
            %f: {ty} = Binary[add](%e, %d)
            %g: {ty} = Unary[relu](%f)
            %o: f32[2, 14, 14, 32] = Transpose[perm=[0, 2, 3, 1]](%g)
            return %o as y
          }}
        }}"
    );
    let same = Case { batch: 2, channels: 32, filters: 32, image: [14, 14], relu: true, ..PLAIN };
    let first = Case { bias: true, reader: Reader::Nobody, ..same };
    let tensors = first.tensors();
    let inner: Vec<f32> = first.expected(&tensors).iter().map(|&x| x as f32).collect();
    let second = Case { residual: true, ..same };
    let second_weights = noise(tensors.weights.len(), 5);
    let of_second = Tensors {
        image: inner.clone(),
        residual: inner,
        weights: second_weights.clone(),
        ..second.tensors()
    };
    let expected = second.expected(&of_second);
    let weights: [usize; 4] = [32, 32, 3, 3];
    let constants: [(&str, &[usize], &[f32]); 3] =
        [("w", &weights, &tensors.weights), ("v", &weights, &second_weights), ("b", &[32], &tensors.bias)];
    let model = model(&text, &constants);
    let image = channels_last(&tensors.image, 2, 32);
    for target in targets() {
        let run = |compiled: &Compiled| run(compiled, &[TensorView::of(&[2, 14, 14, 32], &image)]);
        let results = by_every_algorithm(&model, &target, run);
        assert_eq!(results.len(), ALL.len());
        for (name, found) in results {
            let error = error(&found, &expected);
            assert!(error <= 2.0 * CONTRACT, "{name} for {target}: error {error:e}");
        }
    }
}

#[test]
fn large_convolutions_are_not_computed_directly() {
    let case = Case { channels: 64, filters: 64, image: [56, 56], bias: true, relu: true, ..PLAIN };
    let model = case.model(&case.tensors());
    for target in targets() {
        let compiled =
            compile_model(&model, &Options::for_target(target.clone()), &mut ()).expect("an artifact");
        assert_ne!(algorithm(&compiled), DIRECT, "{target}");
    }
}

#[test]
fn strict_numerics_keep_to_direct_convolution() {
    let case = Case { channels: 64, filters: 64, image: [28, 28], bias: true, relu: true, ..PLAIN };
    let tensors = case.tensors();
    let model = case.model(&tensors);
    for target in targets() {
        let options = Options::for_target(target.clone());
        let by_rules = compile_model(&model, &options, &mut ()).expect("an artifact");
        assert_ne!(algorithm(&by_rules), DIRECT, "{target}");
        // A record, whatever it was made for, does not bring back what is forbidden.
        for records in [Arc::default(), Arc::new(records(&by_rules, &target, &[(ALGORITHM, ALL[1])]).0)] {
            let strict = Options { numerics: Numerics::Strict, records, ..options.clone() };
            let compiled = compile_model(&model, &strict, &mut ()).expect("an artifact");
            let schedules =
                compiled.artifact.manifest.images.iter().flat_map(|image| &image.program.schedules);
            let rules: Vec<&str> = schedules.map(|schedule| schedule.rules.as_str()).collect();
            assert!(!rules.is_empty() && rules.iter().all(|rules| !rules.contains("winograd")), "{rules:?}");
        }
    }
}

/// Prints the table of `docs/numerics.md`: `cargo test --release -p tilewright-driver --test winograd -- --ignored --nocapture`.
#[test]
#[ignore = "prints a table"]
fn table_of_errors() {
    println!("| channels | image | {} |", ALL.join(" | "));
    println!("|---|---|{}", "---|".repeat(ALL.len()));
    for channels in [16, 64, 256, 512, 1024] {
        for (data, image) in [(Data::ZeroMean, "between -1 and 1"), (Data::Positive, "between 0 and 1")] {
            let case = Case { channels, filters: 64, image: [28, 28], data, ..PLAIN };
            let mut worst = [0.0f64; ALL.len()];
            for target in targets() {
                for (name, error) in errors(&case, &target) {
                    let at = ALL.iter().position(|known| *known == name).expect("a known algorithm");
                    worst[at] = worst[at].max(error);
                }
            }
            println!("| {channels} | {image} | {} |", worst.map(|error| format!("{error:.1e}")).join(" | "));
        }
    }
}

/// Weights of `[depth, 3, 3]`: slices are transformed by themselves, and summed along the depth by definition.
#[test]
fn slices_of_volumes() {
    const CHANNELS: usize = 16;
    let (batch, slices, [h, w]) = (2, 5, [7, 10]);
    for target in targets() {
        for (depth, stride, dilation, pad, within) in
            [(3, 1, 1, 1, 1), (1, 1, 1, 0, 1), (3, 2, 1, 1, 1), (2, 1, 2, 1, 1), (3, 1, 1, 1, 2)]
        {
            let results = (slices + 2 * pad - (depth - 1) * dilation - 1) / stride + 1;
            let (volume, result) = (format!("{slices}, {h}, {w}"), format!("{results}, {h}, {w}"));
            let attributes = format!(
                "strides=[{stride}, 1, 1], pads=[{pad}, {within}, {within}, {pad}, {within}, {within}], \
                 dilations=[{dilation}, {within}, {within}], group=1"
            );
            let text = format!(
                "graph conv {{
                  region0(%x x: f32[{batch}, {volume}, {CHANNELS}], %w w: f32[{CHANNELS}, {CHANNELS}, {depth}, 3, 3]) {{
                    %t: f32[{batch}, {CHANNELS}, {volume}] = Transpose[perm=[0, 4, 1, 2, 3]](%x)
                    %c: f32[{batch}, {CHANNELS}, {result}] = Conv[{attributes}](%t, %w)
                    %o: f32[{batch}, {result}, {CHANNELS}] = Transpose[perm=[0, 2, 3, 4, 1]](%c)
                    return %o as y
                  }}
                }}"
            );
            let x = noise(batch * CHANNELS * slices * h * w, 5);
            let weights = noise(CHANNELS * CHANNELS * depth * 9, 6);
            let mut expected = vec![0.0; batch * CHANNELS * results * h * w];
            for (n, out) in expected.iter_mut().enumerate() {
                let (column, row) = (n % w, n / w % h);
                let (slice, plane) = (n / (w * h) % results, n / (w * h * results));
                let (image, filter) = (plane / CHANNELS, plane % CHANNELS);
                for channel in 0..CHANNELS {
                    for (tap, &weight) in
                        weights[(filter * CHANNELS + channel) * depth * 9..][..depth * 9].iter().enumerate()
                    {
                        let from =
                            (slice * stride + tap / 9 * dilation).checked_sub(pad).filter(|&z| z < slices);
                        let y = (row + tap / 3 % 3 * within).checked_sub(within).filter(|&y| y < h);
                        let z = (column + tap % 3 * within).checked_sub(within).filter(|&x| x < w);
                        if let (Some(from), Some(y), Some(z)) = (from, y, z) {
                            let at = (((image * CHANNELS + channel) * slices + from) * h + y) * w + z;
                            *out += f64::from(weight) * f64::from(x[at]);
                        }
                    }
                }
            }
            let model = model(&text, &[("w", &[CHANNELS, CHANNELS, depth, 3, 3], &weights)]);
            let last = channels_last(&x, batch, CHANNELS);
            let expected = channels_last(&expected, batch, CHANNELS);
            let found = by_every_algorithm(&model, &target, |compiled| {
                run(compiled, &[TensorView::of(&[batch, slices, h, w, CHANNELS], &last)])
            });
            let mut names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
            names.sort_unstable();
            assert_eq!(names, ALL, "{target}");
            for (name, found) in &found {
                let error = error(found, &expected);
                assert!(error <= CONTRACT, "{name}, {depth} slices at {stride}, {target}: {error}");
            }
        }
    }
}
