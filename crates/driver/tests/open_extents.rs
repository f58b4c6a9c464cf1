//! Models of open extents: one artifact at many sizes, by every algorithm that the rules offer, held against the interpreter.

#[path = "common/algorithms.rs"]
mod algorithms;

use algorithms::{CONTRACT, by_every_algorithm, error, noise, run, targets};
use tilewright_driver::graph::text;
use tilewright_driver::reference::Reference;
use tilewright_driver::runtime::TensorView;
use tilewright_driver::{DType, Options, TensorData, compile_model};

/// Batches, rows and columns of images: single pixels, less than a tile, tiles that overhang, and several tasks.
const IMAGES: [[usize; 3]; 8] =
    [[1, 1, 1], [3, 7, 5], [2, 1, 9], [1, 16, 3], [2, 4, 41], [1, 33, 34], [1, 5, 75], [2, 3, 136]];

/// Steps and batches.
const SEQUENCES: [[usize; 2]; 5] = [[1, 1], [7, 1], [5, 8], [1, 9], [12, 3]];

/// Batches and lengths: part of a block of queries and of keys, whole blocks, both, and nothing.
const LENGTHS: [[usize; 2]; 9] =
    [[1, 1], [3, 7], [1, 63], [2, 64], [1, 65], [2, 81], [1, 300], [0, 5], [2, 0]];

fn tensor(dims: &[usize], values: &[f32]) -> TensorData {
    TensorData {
        dtype: DType::F32,
        shape: dims.iter().map(|&n| n as i64).collect(),
        bytes: values.iter().flat_map(|x| x.to_le_bytes()).collect(),
    }
}

/// Computes a model of an input `x` of open extents and constants, given with their extents, at all sizes and by these algorithms.
fn check(text: &str, constants: &[(&str, &[usize])], sizes: &[Vec<usize>], algorithms: &[&str]) {
    let values: Vec<Vec<f32>> =
        constants.iter().zip(7..).map(|((_, dims), seed)| noise(dims.iter().product(), seed)).collect();
    let given: Vec<(&str, &[usize], &[f32])> =
        constants.iter().zip(&values).map(|((name, dims), values)| (*name, *dims, &values[..])).collect();
    let model = algorithms::model(text, &given);
    let graph = text::parse(text).expect("a graph");
    let reference = Reference::new(&graph).expect("a reference");
    let expected = |dims: &[usize], x: &[f32]| -> Vec<f64> {
        let inputs: Vec<TensorData> = std::iter::once(tensor(dims, x))
            .chain(given.iter().map(|(_, dims, values)| tensor(dims, values)))
            .collect();
        let result = reference.run(&inputs, &mut |_, _| {}).expect("a run").remove(0);
        let elements = result.bytes.chunks_exact(4);
        elements
            .map(|bytes| f64::from(f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])))
            .collect()
    };
    let cases: Vec<(&[usize], Vec<f32>)> =
        sizes.iter().zip(100..).map(|(dims, seed)| (&dims[..], noise(dims.iter().product(), seed))).collect();
    let expected: Vec<Vec<f64>> = cases.iter().map(|(dims, x)| expected(dims, x)).collect();
    for target in targets() {
        let results = by_every_algorithm(&model, &target, |compiled| -> Vec<Vec<f32>> {
            cases.iter().map(|(dims, x)| run(compiled, &[TensorView::of(dims, x)])).collect()
        });
        let mut names: Vec<&str> = results.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, algorithms, "{target}\n{text}");
        for (name, found) in &results {
            for (((dims, _), found), expected) in cases.iter().zip(found).zip(&expected) {
                // Both sides round.
                let error = error(found, expected);
                assert!(error <= 2.0 * CONTRACT, "{name} at {dims:?} for {target}: error {error:e}\n{text}");
            }
        }
    }
}

fn images(channels: usize) -> Vec<Vec<usize>> {
    IMAGES.iter().map(|&[batch, rows, columns]| vec![batch, rows, columns, channels]).collect()
}

/// Convolutions of 3 x 3 between functions that store blocks of channels, of one group and of several.
#[test]
fn convolutions_by_tiles() {
    for (filters, n_groups) in [(16, 1), (48, 1), (48, 2)] {
        let attributes = format!("strides=[1, 1], pads=[1, 1, 1, 1], dilations=[1, 1], group={n_groups}");
        let channels = 16 / n_groups;
        let text = format!(
            "graph conv {{
              sym b input 1..64:1
              sym h input 1..4096:1
              sym w_ input 1..4096:1
              region0(%x x: f32[b, h, w_, 16], %w w: f32[{filters}, {channels}, 3, 3], %v v: f32[{filters}]) {{
                %t: f32[b, 16, h, w_] = Transpose[perm=[0, 3, 1, 2]](%x)
                %c: f32[b, {filters}, h, w_] = Conv[{attributes}](%t, %w, %v)
                %u: f32[b, {filters}, h, w_] = Unary[relu](%c)
                %o: f32[b, h, w_, {filters}] = Transpose[perm=[0, 2, 3, 1]](%u)
                return %o as y
              }}
            }}"
        );
        let constants: [(&str, &[usize]); 2] = [("w", &[filters, channels, 3, 3]), ("v", &[filters])];
        let algorithms: &[&str] = match n_groups {
            1 => &["direct", "winograd-2x2", "winograd-4x4"],
            _ => &["direct"],
        };
        check(&text, &constants, &images(16), algorithms);
    }
}

/// The same of images of which some extents are open.
#[test]
fn convolutions_by_tiles_of_some_open_extents() {
    let attributes = "strides=[1, 1], pads=[1, 1, 1, 1], dilations=[1, 1], group=1";
    for (batch, rows, columns) in
        [("n", "4", "4"), ("n", "8", "7"), ("2", "n", "7"), ("2", "7", "n"), ("n", "n", "8"), ("n", "5", "n")]
    {
        let text = format!(
            "graph conv {{
              sym n input 1..4096:1
              region0(%x x: f32[{batch}, {rows}, {columns}, 16], %w w: f32[16, 16, 3, 3]) {{
                %t: f32[{batch}, 16, {rows}, {columns}] = Transpose[perm=[0, 3, 1, 2]](%x)
                %c: f32[{batch}, 16, {rows}, {columns}] = Conv[{attributes}](%t, %w)
                %o: f32[{batch}, {rows}, {columns}, 16] = Transpose[perm=[0, 2, 3, 1]](%c)
                return %o as y
              }}
            }}"
        );
        let extent = |extent: &str, n: usize| extent.parse().unwrap_or(n);
        let sizes = [1, 3, 8, 13].map(|n| vec![extent(batch, n), extent(rows, n), extent(columns, n), 16]);
        check(&text, &[("w", &[16, 16, 3, 3])], &sizes, &["direct", "winograd-2x2", "winograd-4x4"]);
    }
}

/// Tiles of 4 x 4 pay for large images. After strides of 32 there are few tiles, and the weights that they need are four times as many.
#[test]
fn tiles_are_chosen_for_the_size_of_images_after_strides() {
    let chosen = |strides: usize| {
        let side = |symbol: &str| format!("floordiv({symbol} + {}, {strides})", strides - 1);
        let (rows, columns) = (side("h"), side("w_"));
        let pointwise =
            format!("Conv[strides=[{strides}, {strides}], pads=[0, 0, 0, 0], dilations=[1, 1], group=1]");
        let conv = "Conv[strides=[1, 1], pads=[1, 1, 1, 1], dilations=[1, 1], group=1]";
        let text = format!(
            "graph deep {{
              sym b input 0..*:1
              sym h input 1..*:1
              sym w_ input 1..*:1
              region0(%x x: f32[b, 16, h, w_], %v v: f32[64, 16, 1, 1], %w w: f32[64, 64, 3, 3]) {{
                %p: f32[b, 64, {rows}, {columns}] = {pointwise}(%x, %v)
                %c: f32[b, 64, {rows}, {columns}] = {conv}(%p, %w)
                %d: f32[b, 64, {rows}, {columns}] = {conv}(%c, %w)
                return %d as y
              }}
            }}"
        );
        let [v, w] = [64 * 16, 64 * 64 * 9].map(|n| noise(n, 3));
        let constants: [(&str, &[usize], &[f32]); 2] =
            [("v", &[64, 16, 1, 1], &v), ("w", &[64, 64, 3, 3], &w)];
        let model = algorithms::model(&text, &constants);
        targets().into_iter().map(move |target| {
            let options = Options::for_target(target.clone());
            let compiled = compile_model(&model, &options, &mut ()).expect("an artifact");
            let schedules =
                compiled.artifact.manifest.images.iter().flat_map(|image| &image.program.schedules);
            let rules: Vec<String> = schedules.map(|schedule| schedule.rules.clone()).collect();
            (target, rules)
        })
    };
    let is_in_large_tiles = |rules: &[String]| rules.iter().any(|rules| rules.contains("winograd-4x4"));
    for ((target, large), (_, small)) in chosen(2).zip(chosen(32)) {
        assert!(is_in_large_tiles(&large), "{target}: {large:?}");
        assert!(!is_in_large_tiles(&small), "{target}: {small:?}");
    }
}

/// Transposed convolutions whose strides divide their results, by phases, and one whose do not.
#[test]
fn transposed_convolutions_by_phases() {
    for (kernel, stride, pad, more, has_phases) in
        [(2, 2, 0, 0, true), (4, 2, 1, 0, true), (3, 2, 1, 1, true), (5, 3, 1, 0, true), (3, 2, 0, 0, false)]
    {
        let added = kernel + more - 2 * pad - stride;
        let [rows, columns] = ["h", "w_"].map(|extent| format!("{extent} * {stride} + {added}"));
        let attributes = format!(
            "strides=[{stride}, {stride}], pads=[{pad}, {pad}, {pad}, {pad}], dilations=[1, 1], group=1, \
             output_padding=[{more}, {more}]"
        );
        let text = format!(
            "graph conv {{
              sym b input 1..64:1
              sym h input 1..4096:1
              sym w_ input 1..4096:1
              region0(%x x: f32[b, h, w_, 16], %w w: f32[16, 24, {kernel}, {kernel}]) {{
                %t: f32[b, 16, h, w_] = Transpose[perm=[0, 3, 1, 2]](%x)
                %o: f32[b, 24, {rows}, {columns}] = ConvTranspose[{attributes}](%t, %w)
                return %o as y
              }}
            }}"
        );
        let algorithms: &[&str] = if has_phases { &["direct", "phases"] } else { &["direct"] };
        check(&text, &[("w", &[16, 24, kernel, kernel])], &images(16), algorithms);
    }
}

/// Recurrent layers, whose steps and sequences are one number where the input is multiplied.
#[test]
fn recurrent_layers() {
    let sizes: Vec<Vec<usize>> = SEQUENCES.iter().map(|&[steps, batch]| vec![steps, batch, 20]).collect();
    let lstm = ("Lstm", 4, "sigmoid, tanh, tanh", 24);
    // So many units that threads share them.
    let wide = ("Lstm", 4, "sigmoid, tanh, tanh", 128);
    let others = [("Gru", 3, "sigmoid, tanh", 24), ("Rnn", 1, "tanh", 24)];
    for (op, gates, activations, hidden) in [lstm, wide].into_iter().chain(others) {
        for (direction, n) in [("forward", 1), ("reverse", 1), ("bidirectional", 2)] {
            let rows = gates * hidden;
            let activations = vec![activations; n].join(", ");
            let zeros = vec!["0.0"; activations.split(", ").count()].join(", ");
            let attributes = format!(
                "direction={direction}, hidden_size={hidden}, activations=[{activations}], \
                 activation_alpha=[{zeros}], activation_beta=[{zeros}]"
            );
            let types = ["steps, ", "", ""].map(|steps| format!("f32[{steps}{n}, b, {hidden}]"));
            let n_results = if op == "Lstm" { 3 } else { 2 };
            let results: Vec<String> = ["%y", "%h", "%c"]
                .iter()
                .zip(&types)
                .take(n_results)
                .map(|(v, t)| format!("{v}: {t}"))
                .collect();
            let text = format!(
                "graph layer {{
                  sym steps input 1..4096:1
                  sym b input 1..64:1
                  region0(%x x: f32[steps, b, 20], %w w: f32[{n}, {rows}, 20], %r r: f32[{n}, {rows}, {hidden}]) {{
                    {} = {op}[{attributes}](%x, %w, %r)
                    return %y as y
                  }}
                }}",
                results.join(", ")
            );
            let constants: [(&str, &[usize]); 2] = [("w", &[n, rows, 20]), ("r", &[n, rows, hidden])];
            check(&text, &constants, &sizes, &["direct"]);
        }
    }
}

/// Statistics over rows and columns together, each of an open number, of channels that lie in rows and in blocks.
#[test]
fn normalisations_over_several_open_axes() {
    for channels in [5, 16] {
        let text = format!(
            "graph norm {{
              sym b input 1..64:1
              sym h input 1..4096:1
              sym w_ input 1..4096:1
              region0(%x x: f32[b, h, w_, 16], %w w: f32[{channels}, 16, 1, 1], %s s: f32[{channels}], %t t: f32[{channels}]) {{
                %i: f32[b, 16, h, w_] = Transpose[perm=[0, 3, 1, 2]](%x)
                %c: f32[b, {channels}, h, w_] = Conv[strides=[1, 1], pads=[0, 0, 0, 0], dilations=[1, 1], group=1](%i, %w)
                %n: f32[b, {channels}, h, w_] = InstanceNorm[epsilon=1e-05](%c, %s, %t)
                %o: f32[b, h, w_, {channels}] = Transpose[perm=[0, 2, 3, 1]](%n)
                return %o as y
              }}
            }}"
        );
        let constants: [(&str, &[usize]); 3] =
            [("w", &[channels, 16, 1, 1]), ("s", &[channels]), ("t", &[channels])];
        // A single pixel has no deviation: what would be normalised is rounding.
        let images: Vec<Vec<usize>> = images(16).into_iter().filter(|x| x[1] * x[2] > 1).collect();
        check(&text, &constants, &images, &["direct"]);
    }
}

/// Computes attention of two heads of 24 elements with themselves, of all lengths and in all ways.
fn check_attention(text: &str) {
    let sizes = LENGTHS.map(|[batch, n]| vec![batch, 2, n, 24]);
    check(text, &[], &sizes, &["blocks-32x128", "blocks-32x64", "blocks-64x128", "blocks-64x64", "direct"]);
}

/// Attention as one operator.
#[test]
fn attention() {
    let text = "graph attention {
      sym b input 0..*:1
      sym n input 0..*:1
      region0(%x x: f32[b, 2, n, 24]) {
        %o: f32[b, 2, n, 24] = Attention[](%x, %x, %x)
        return %o as y
      }
    }";
    check_attention(text);
}

/// Attention as exporters write it, with a mask that differs between queries: it is raised, and keeps no scores.
#[test]
fn attention_of_products() {
    let text = "graph attention {
      sym b input 0..*:1
      sym n input 0..*:1
      region0(%x x: f32[b, 2, n, 24]) {
        %c: f32[] = Constant[f32[]{0.2}]()
        %mq: f32[b, 1, n, 1] = Slice[axes=[1, 3], starts=[0, 3], steps=[1, 1], sizes=[1, 1]](%x)
        %mk: f32[b, 1, 1, n] = Transpose[perm=[0, 1, 3, 2]](%mq)
        %m: f32[b, 1, n, n] = Binary[mul](%mq, %mk)
        %qk: f32[b, 2, n, n] = MatMul[transpose_b=true](%x, %x)
        %s: f32[b, 2, n, n] = Binary[mul](%qk, %c)
        %a: f32[b, 2, n, n] = Binary[add](%s, %m)
        %p: f32[b, 2, n, n] = Softmax[axis=3](%a)
        %o: f32[b, 2, n, 24] = MatMul[](%p, %x)
        return %o as y
      }
    }";
    check_attention(text);
}

/// Products of fewer rows than a tile has, of as many, and of more: of a single row, and with one, some and all rows in the last tile.
#[test]
fn products_of_any_number_of_rows() {
    let text = "graph product {
      sym n input 0..*:1
      region0(%x x: f32[n, 40], %w w: f32[40, 70], %c c: f32[70]) {
        %p: f32[n, 70] = MatMul[](%x, %w)
        %s: f32[n, 70] = Binary[add](%p, %c)
        %o: f32[n, 70] = Unary[relu](%s)
        return %o as y
      }
    }";
    let sizes: Vec<Vec<usize>> = (0..10).chain([13, 65]).map(|n| vec![n, 40]).collect();
    check(text, &[("w", &[40, 70]), ("c", &[70])], &sizes, &["direct"]);
}

/// Products of so few rows at most that one tile has them all, of few steps and of many.
#[test]
fn products_of_a_few_rows() {
    for (steps, results) in [(64, 16), (1280, 1000)] {
        let text = format!(
            "graph product {{
              sym n input 1..4:1
              region0(%x x: f32[n, {steps}], %w w: f32[{steps}, {results}]) {{
                %p: f32[n, {results}] = MatMul[](%x, %w)
                %o: f32[n, {results}] = Unary[relu](%p)
                return %o as y
              }}
            }}"
        );
        let sizes: Vec<Vec<usize>> = (1..5).map(|n| vec![n, steps]).collect();
        check(&text, &[("w", &[steps, results])], &sizes, &["direct"]);
    }
}

/// Convolutions without padding, each of which makes images smaller: results of no pixel, of one, and of more.
#[test]
fn convolutions_without_padding() {
    let attributes = "strides=[1, 1], pads=[0, 0, 0, 0], dilations=[1, 1], group=1";
    let text = format!(
        "graph conv {{
          sym b input 0..*:1
          sym h input 0..*:1
          sym w_ input 0..*:1
          region0(%x x: f32[b, h, w_, 16], %w w: f32[16, 16, 3, 3]) {{
            %t: f32[b, 16, h, w_] = Transpose[perm=[0, 3, 1, 2]](%x)
            %c: f32[b, 16, h - 2, w_ - 2] = Conv[{attributes}](%t, %w)
            %d: f32[b, 16, h - 4, w_ - 4] = Conv[{attributes}](%c, %w)
            %o: f32[b, h - 4, w_ - 4, 16] = Transpose[perm=[0, 2, 3, 1]](%d)
            return %o as y
          }}
        }}"
    );
    let sizes = [[1, 4, 9], [1, 5, 5], [2, 7, 45], [0, 9, 9], [1, 36, 23]];
    let sizes = sizes.map(|[batch, rows, columns]| vec![batch, rows, columns, 16]);
    check(&text, &[("w", &[16, 16, 3, 3])], &sizes, &["direct", "winograd-2x2", "winograd-4x4"]);
}

/// Windows over channels in blocks, whose images are padded piece by piece, and what is joined of them: with strides, wide, and reduced to
/// a pixel.
#[test]
fn windows_over_blocks_of_channels() {
    let conv = |strides: &str, pads: &str, groups: usize| {
        format!("Conv[strides={strides}, pads={pads}, dilations=[1, 1], group={groups}]")
    };
    let plain = conv("[1, 1]", "[0, 0, 0, 0]", 1);
    let wide = conv("[1, 1]", "[2, 2, 2, 2]", 32);
    let strided = conv("[2, 2]", "[1, 1, 1, 1]", 32);
    let pool = "Pool[kind=max, kernel=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], dilations=[1, 1], p=2]";
    let half = "floordiv(h + 1, 2), floordiv(w_ + 1, 2)";
    let text = |bounds: &str| {
        format!(
            "graph windows {{
          sym b input 0..*:1
          sym h input {bounds}
          sym w_ input {bounds}
          region0(%x x: f32[b, 32, h, w_], %p p: f32[32, 32, 1, 1], %k k: f32[32, 1, 5, 5], %s s: f32[32, 1, 3, 3], %q q: f32[32, 96, 1, 1]) {{
            %a: f32[b, 32, h, w_] = {plain}(%x, %p)
            %c: f32[b, 32, h, w_] = {wide}(%a, %k)
            %d: f32[b, 32, {half}] = {strided}(%c, %s)
            %e: f32[b, 32, {half}] = {pool}(%c)
            %m: f32[b, 32, 1, 1] = Reduce[kind=mean, axes=[2, 3], keep_dims=true](%c)
            %n: f32[b, 32, {half}] = Binary[mul](%d, %m)
            %j: f32[b, 96, {half}] = Concat[axis=1](%d, %e, %n)
            %y: f32[b, 32, {half}] = {plain}(%j, %q)
            return %y as y
          }}
        }}"
        )
    };
    let constants: [(&str, &[usize]); 4] =
        [("p", &[32, 32, 1, 1]), ("k", &[32, 1, 5, 5]), ("s", &[32, 1, 3, 3]), ("q", &[32, 96, 1, 1])];
    let sizes = |images: &[[usize; 3]]| -> Vec<Vec<usize>> {
        images.iter().map(|&[batch, rows, columns]| vec![batch, 32, rows, columns]).collect()
    };
    let more = [[0, 4, 4], [1, 12, 12], [1, 25, 67]];
    check(&text("1..*:1"), &constants, &sizes(&[&IMAGES[..], &more].concat()), &["direct"]);
    // Of images that are never larger than a piece or a task.
    let few = [[1, 1, 1], [2, 3, 7], [1, 8, 8]];
    check(&text("1..8:1"), &constants, &sizes(&few), &["direct"]);
}
