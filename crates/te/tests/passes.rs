//! Golden tests of the passes between functions and kernels: each file under `tests/passes` holds passes to run, a
//! function, and what they make of it.
//!
//! The first line is `test: PASS, PASS, ...`, then the input, a line `----`, and the expectation. What the last of the
//! passes makes is printed, and what each makes is verified. `BLESS=1` rewrites expectations.

#[path = "../../../tools/golden_files.rs"]
mod golden_files;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tilewright_te::Func;
use tilewright_te::flatten::nest::{Form, Nest};
use tilewright_te::flatten::*;
use tilewright_te::schedule::start_apart;

const OPTIONS: FlattenOptions =
    FlattenOptions { masked_access: Some(4), lanes: Some(32), ..FlattenOptions::PLAIN };

fn verified(made: Made<'_, '_>) -> String {
    assert_eq!(made.verify(), Ok(()), "{made}");
    made.to_string()
}

/// A pass over nests: what its result fulfils, and its text.
fn over_nest(pass: &str, nest: &mut Nest<'_>) -> String {
    let form = match pass {
        "split_kernels" => Form::Split,
        "unswitch" => {
            unswitch(nest);
            Form::Split
        }
        "trim" => {
            trim(nest);
            Form::Split
        }
        "partial_tiles" => {
            partial_tiles(nest);
            Form::Split
        }
        "whole_tiles" => {
            whole_tiles(nest);
            Form::Split
        }
        "partition" => {
            partition(nest);
            Form::Split
        }
        "whole_squares" => {
            whole_squares(nest);
            Form::Split
        }
        "unroll" => {
            unroll(nest).expect("unrolls");
            Form::Unrolled
        }
        "mask_vectors" => {
            mask_vectors(nest, &OPTIONS);
            Form::Masked
        }
        "bind_blocks" => {
            bind_blocks(nest).expect("binds");
            Form::Bound
        }
        "join_indices" => {
            join_indices(nest);
            Form::Bound
        }
        "barriers" => {
            barriers(nest, &OPTIONS).expect("has its barriers");
            Form::Bound
        }
        "pipeline" => {
            pipeline(nest, &OPTIONS).expect("runs ahead");
            Form::Bound
        }
        other => panic!("no pass `{other}` over nests"),
    };
    verified(Made::Nest(nest, form))
}

fn run(passes: &[&str], input: &str) -> String {
    let func: Func = input.parse().expect("the input parses");
    if passes == ["start_apart"] {
        return verified(Made::Func(&start_apart(&func).expect("takes starts apart")));
    }
    let mut text = String::new();
    for mut nest in split_kernels(&func).expect("splits") {
        let mut flat: Option<FlatKernel> = None;
        let mut made = String::new();
        for &pass in passes {
            made = match (pass, &mut flat) {
                ("translate", None) => {
                    let flat = flat.insert(translate(&nest, &OPTIONS).expect("translates"));
                    verified(Made::Kernel(&mut flat.kernel))
                }
                ("narrow", Some(flat)) => {
                    narrow(&mut flat.kernel, &OPTIONS);
                    verified(Made::Kernel(&mut flat.kernel))
                }
                ("hoist", Some(flat)) => {
                    hoist(&mut flat.kernel);
                    verified(Made::Kernel(&mut flat.kernel))
                }
                ("transpose_gathers", Some(flat)) => {
                    transpose_gathers(&mut flat.kernel, &FlattenOptions { lanes: None, ..OPTIONS });
                    verified(Made::Kernel(&mut flat.kernel))
                }
                ("join_elements", Some(flat)) => {
                    join_elements(&mut flat.kernel, &FlattenOptions { element_vector: Some(16), ..OPTIONS });
                    verified(Made::Kernel(&mut flat.kernel))
                }
                _ => over_nest(pass, &mut nest),
            };
        }
        text += &made;
    }
    text
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/passes");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// The passes and the input of a file, with or without its expectation.
fn parts(content: &str) -> (Vec<&str>, &str) {
    let (header, rest) = content.split_once('\n').expect("a header line");
    let passes = header.strip_prefix("test: ").expect("`test: PASS` in the first line");
    let input = rest.split_once("----\n").map_or(rest, |(input, _)| input);
    (passes.split(", ").collect(), input)
}

#[test]
fn golden_files() {
    golden_files::check("tests/passes", 1, |input, _| {
        let (passes, input) = parts(input);
        run(&passes, input)
    });
}

#[test]
fn every_pass_has_a_golden_file_of_its_own() {
    let contents: Vec<String> = files().iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let tested: BTreeSet<&str> =
        contents.iter().filter_map(|content| parts(content).0.last().copied()).collect();
    assert_eq!(tested, PASSES.into_iter().collect());
}

/// What is shown is what runs, in the order of the list, and each result is legal.
#[test]
fn the_pipeline_shows_each_pass_once_for_each_kernel() {
    let text = std::fs::read_to_string(files().remove(0)).unwrap();
    let func: Func = parts(&text).1.parse().expect("the input parses");
    let mut names = Vec::new();
    let kernels = flatten_watched(&func, &OPTIONS, &mut |name, made| {
        verified(made);
        names.push(name);
        Ok(())
    });
    let n = kernels.expect("flattens").len();
    let over_kernels = || PASSES[1..].iter().copied();
    assert_eq!(names, [PASSES[0]].into_iter().chain((0..n).flat_map(|_| over_kernels())).collect::<Vec<_>>());
}

#[test]
fn what_a_form_demands_is_checked() {
    let path = files().into_iter().find(|path| path.ends_with("unroll.txt")).expect("a file");
    let text = std::fs::read_to_string(path).unwrap();
    let func: Func = parts(&text).1.parse().expect("the input parses");
    let mut nests = split_kernels(&func).expect("splits");
    let faults = |nest: &Nest<'_>, form| nest.verify(form).err().unwrap_or_default().join("; ");
    assert_eq!(faults(&nests[0], Form::Split), "");
    let unrolled = faults(&nests[0], Form::Unrolled);
    assert!(
        unrolled.contains("loop j is not unrolled") && unrolled.contains("one has not several lanes"),
        "{unrolled}"
    );
    assert!(faults(&nests[0], Form::Masked).contains("block y has a predicate"));
    assert!(faults(&nests[0], Form::Bound).contains("block y is not bound"));
    let Some(nest::Stmt::Loop(outer)) = nests[0].body.first_mut() else { panic!("a loop") };
    let inner = std::mem::take(&mut outer.body.stmts);
    nests[0].body = inner;
    assert!(faults(&nests[0], Form::Split).contains("i is not in scope"));
}

/// Stores what is defined nowhere, or indexes by a variable that no loop binds.
fn break_on_purpose(made: &mut Made<'_, '_>) {
    match made {
        Made::Func(_) => panic!("functions are broken by their schedules"),
        Made::Nest(nest, _) => {
            let Some(nest::Stmt::Loop(outer)) = nest.body.first_mut() else { panic!("no loop") };
            nest.body = std::mem::take(&mut outer.body.stmts);
        }
        Made::Kernel(kernel) => {
            let twice = kernel.body.clone();
            kernel.body.extend(twice);
        }
    }
}

/// Whatever pass breaks a kernel, it is named with the function, and what it broke goes no further.
#[test]
fn a_pass_that_breaks_a_kernel_is_named() {
    let path = files().into_iter().find(|path| path.ends_with("unroll.txt")).expect("a file");
    let text = std::fs::read_to_string(path).unwrap();
    let func: Func = parts(&text).1.parse().expect("the input parses");
    for culprit in &PASSES[1..] {
        let mut seen = Vec::new();
        let result = flatten_watched(&func, &OPTIONS, &mut |pass, mut made| {
            seen.push(pass);
            if pass == *culprit {
                break_on_purpose(&mut made);
            }
            made.check(&func, pass)
        });
        let error = result.expect_err("it is broken");
        let FlattenError::Illegal(illegal) = &error else { panic!("{error}") };
        assert_eq!(
            (illegal.func.as_str(), &illegal.after),
            (func.name.as_str(), &format!("pass `{culprit}`"))
        );
        assert!(illegal.violations.iter().all(|v| v.place.starts_with("kernel ")), "{error}");
        assert_eq!(seen.last(), Some(culprit));
    }
}
