//! Artifacts: round trip, damage of every kind, other machines.

mod common;

use std::io::{self, Cursor, Seek, SeekFrom, Write};
use std::sync::Arc;

use common::{DOUBLE, Random, demo_artifact, demo_manifest, demo_plan, demo_weights, one_kernel};
use tilewright_runtime::artifact::{
    Artifact, ArtifactError, Contents, ContentsError, DeviceDef, DeviceKernel, ImageDef, Level, Manifest,
    Pieces, Plans,
};
use tilewright_runtime::isa::Isa;
use tilewright_runtime::plan::{Instr, Plan, PlanOp};
use tilewright_runtime::{
    AlignedBuf, Bytes, KernelFn, Kernels, LoadError, Loader, Model, NoHostOps, SessionOptions, TensorView,
    Trust,
};

fn run(model: &Model) -> Vec<f32> {
    let mut session = model.session();
    let outputs = session.run(&[TensorView::of(&[2, 3], &[0f32, 1.0, 2.0, 3.0, 4.0, 5.0])]).unwrap();
    let mut values = outputs.get(0).unwrap().to_vec::<f32>().unwrap();
    values.extend(outputs.get(1).unwrap().to_vec::<f32>().unwrap());
    values
}

const EXPECT: [f32; 9] = [0.0, 4.0, 8.0, 12.0, 16.0, 20.0, 1.0, 2.0, 3.0];

fn scratch(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn what_is_written_is_read() {
    let bytes = demo_artifact();
    let artifact = Artifact::read(&bytes).unwrap();
    assert_eq!(artifact.manifest, demo_manifest());
    assert_eq!(artifact.plans, [Plans { open: demo_plan().plan, specialised: vec![] }]);
    assert_eq!(&bytes[artifact.images[0].clone()], DOUBLE);
    assert_eq!(&bytes[artifact.weights.clone()], demo_weights());
    assert!(artifact.images[0].start % 4096 == 0 && artifact.weights.start % 4096 == 0);
    artifact.verify_weights(&bytes).unwrap();
}

#[test]
fn bytes_are_the_same_streamed_or_in_memory_and_every_time() {
    let (manifest, plan, weights) = (demo_manifest(), demo_plan().plan, demo_weights());
    let levels = [Level { plan: &plan, specialised: &[], image: DOUBLE, device_code: None }];
    let contents = Contents { manifest: &manifest, levels: &levels, weights: &[&weights] };
    let mut file = Cursor::new(Vec::new());
    assert_eq!(contents.write_to(&mut file).unwrap(), file.position());
    assert_eq!(file.into_inner()[..], demo_artifact()[..]);
    let mut pipe = Pipe(Vec::new());
    assert_eq!(contents.write_to(&mut pipe).unwrap(), pipe.0.len() as u64);
    assert_eq!(pipe.0[..], demo_artifact()[..]);
}

#[test]
fn large_pieces_are_written_as_small_ones_are() {
    let (manifest, plan) = (demo_manifest(), demo_plan().plan);
    let levels = [Level { plan: &plan, specialised: &[], image: DOUBLE, device_code: None }];
    let weights: Vec<u8> = (0..1 << 20).map(|i| (i * 7 / 5) as u8).collect();
    let streamed = |weights: &dyn Pieces| {
        let contents = Contents { manifest: &manifest, levels: &levels, weights };
        let mut file = Cursor::new(Vec::new());
        contents.write_to(&mut file).unwrap();
        assert_eq!(file.get_ref()[..], contents.to_bytes().unwrap()[..]);
        file.into_inner()
    };
    let (first, second) = weights.split_at(700_000);
    let small: [&[u8]; 16] = std::array::from_fn(|n| &weights[n << 16..(n + 1) << 16]);
    assert!(streamed(&[first, second]) == streamed(&small));
    assert!(streamed(&[first]) != streamed(&small));
}

/// Pieces that are not as long as they say, or end in an error.
#[derive(Debug)]
struct Liar {
    said: usize,
    fails: bool,
}

impl Pieces for Liar {
    fn total(&self) -> usize {
        self.said
    }

    fn each(&self, visit: &mut dyn FnMut(&[u8]) -> Result<(), ContentsError>) -> Result<(), ContentsError> {
        visit(&[1; 64])?;
        if self.fails { Err(ContentsError::Pieces("out of clay".into())) } else { visit(&[2; 64]) }
    }
}

#[test]
fn weights_that_cannot_be_made_are_errors() {
    let (manifest, plan) = (demo_manifest(), demo_plan().plan);
    let levels = [Level { plan: &plan, specialised: &[], image: DOUBLE, device_code: None }];
    let check = |said: usize, fails: bool, expect: Option<&str>| {
        let contents = Contents { manifest: &manifest, levels: &levels, weights: &Liar { said, fails } };
        let expect = expect.map(|why| format!("weights cannot be made: {why}"));
        let file = contents.write_to(&mut Cursor::new(Vec::new())).err().map(|e| e.to_string());
        let pipe = contents.write_to(&mut Pipe(Vec::new())).err().map(|e| e.to_string());
        assert_eq!((&file, &pipe), (&expect, &expect));
        assert_eq!(contents.to_bytes().err().map(|e| e.to_string()), expect);
    };
    check(128, false, None);
    for said in [0, 100, 127, 129] {
        check(said, false, Some("they are not as long as was said"));
    }
    check(128, true, Some("out of clay"));
}

/// What can be written to once.
struct Pipe(Vec<u8>);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Pipe {
    fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
        Err(io::ErrorKind::NotSeekable.into())
    }
}

#[test]
fn runs_from_memory_and_from_a_file() {
    assert_eq!(run(&Model::from_bytes(Bytes::new(demo_artifact()), Trust::Origin).unwrap()), EXPECT);
    let mut shifted = vec![0u8; 1];
    shifted.extend_from_slice(&demo_artifact());
    let shifted = Bytes::new(shifted);
    let unaligned = shifted.slice(1..shifted.len()).unwrap();
    assert_eq!(run(&Model::from_bytes(unaligned, Trust::Origin).unwrap()), EXPECT);

    let path = scratch("runs.twm");
    std::fs::write(&path, &*demo_artifact()).unwrap();
    let model = Loader::new(Trust::Origin).verify_weights(true).load(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(run(&model), EXPECT);
    assert_eq!(model.manifest().model, "demo");
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let missing = scratch("missing.twm");
    let error = Model::load(&missing, Trust::Origin).unwrap_err();
    assert!(matches!(error, LoadError::File { .. }));
    assert!(error.to_string().contains("missing.twm"), "{error}");
    let error = Model::load(env!("CARGO_TARGET_TMPDIR"), Trust::Origin).unwrap_err();
    assert!(error.to_string().contains("not a file"), "{error}");
    let empty = scratch("empty.twm");
    std::fs::write(&empty, b"").unwrap();
    assert_eq!(Model::load(&empty, Trust::Origin).unwrap_err().to_string(), "not a Tilewright artifact");
}

fn check_damage(edit: impl FnOnce(&mut Vec<u8>), expect: &str) {
    let mut bytes = demo_artifact().to_vec();
    edit(&mut bytes);
    assert_eq!(Model::from_bytes(Bytes::new(bytes), Trust::Origin).unwrap_err().to_string(), expect);
}

#[test]
fn damage_is_told_apart() {
    check_damage(|bytes| bytes[0] = 0x0a, "not a Tilewright artifact");
    let version = "artifact format version 12, this runtime reads version 11: compile the model again";
    check_damage(|bytes| bytes[8] = 12, version);
    let len = demo_artifact().len();
    let cut = format!("damaged artifact: {} bytes, the header says {len}", len - 1);
    check_damage(|bytes| bytes.truncate(len - 1), &cut);
    let longer = format!("damaged artifact: {} bytes, the header says {len}", len + 1);
    check_damage(|bytes| bytes.push(0), &longer);
    check_damage(|bytes| bytes[12] = 200, "damaged artifact: bad header");
    check_damage(
        |bytes| bytes[70] ^= 1,
        "damaged artifact: the checksum of the section table does not match",
    );
    let artifact = Artifact::read(&demo_artifact()).unwrap();
    let image = artifact.images[0].clone();
    check_damage(|bytes| bytes[image.start] ^= 1, "damaged artifact: the checksum of code does not match");
    check_damage(|bytes| bytes[image.start - 1] ^= 1, "damaged artifact: bad place of a section");
    check_damage(
        |bytes| bytes[64 + 5 * 64] ^= 1,
        "damaged artifact: the checksum of manifest does not match",
    );

    let mut bytes = demo_artifact().to_vec();
    bytes[artifact.weights.start] ^= 1;
    let error = Loader::new(Trust::Origin).verify_weights(true).from_bytes(Bytes::new(bytes)).unwrap_err();
    assert_eq!(error.to_string(), "damaged artifact: the checksum of weights does not match");
}

/// Header with table, and each section with the padding before it.
fn parts(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let n_sections = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    let ends = (0..n_sections).map(|n| 64 + 64 * n).map(|entry| number(entry + 8) + number(entry + 16));
    let ends: Vec<usize> = std::iter::once(64 + 64 * n_sections).chain(ends).collect();
    assert_eq!(ends.last(), Some(&bytes.len()));
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts.zip(&ends).map(|(start, &end)| start..end).collect()
}

/// An artifact for the processor and, as a second level, for a device.
fn artifact_for_a_device() -> AlignedBuf {
    let (mut manifest, plan, weights) = (demo_manifest(), demo_plan().plan, demo_weights());
    let code = [0x5au8; 300];
    let def = DeviceDef {
        kind: "far".into(),
        parts: vec![("opencl-c".into(), code.len() as u64)],
        kernels: vec![DeviceKernel { symbol: "double".into(), threads: [1, 32], dynamic_shared: 0 }],
        ..DeviceDef::default()
    };
    let mut image = manifest.images[0].clone();
    image.program.entries = vec![0];
    image.device = Some(def);
    manifest.images.push(image);
    let mut far: Plan = "arena 0 bytes, weights 0 bytes\nk0: far(; 0 sizes) on device\n".parse().unwrap();
    far.weight_bytes = plan.weight_bytes;
    let levels = [
        Level { plan: &plan, specialised: &[], image: DOUBLE, device_code: None },
        Level { plan: &far, specialised: &[], image: &[], device_code: Some(&code) },
    ];
    Contents { manifest: &manifest, levels: &levels, weights: &[&weights] }.to_bytes().unwrap()
}

#[test]
fn a_thousand_random_mutations_are_all_found() {
    check_mutations(&demo_artifact(), 6);
    check_mutations(&artifact_for_a_device(), 9);
}

/// Every kind of mutation hits every part of the file alike, however small the part is: header, manifest, notes, weights, plan and code of
/// each level.
fn check_mutations(original: &AlignedBuf, n_parts: usize) {
    let load =
        |bytes| Loader::new(Trust::Origin).on_host().verify_weights(true).from_bytes(Bytes::new(bytes));
    load(original.to_vec()).expect("the artifact as it is");
    let parts = parts(original);
    assert_eq!(parts.len(), n_parts);
    let mut random = Random(0x7117);
    for round in 0..1000 {
        let part = parts[round / 4 % parts.len()].clone();
        let at = part.start + random.below(part.len());
        let mut bytes = original.to_vec();
        match round % 4 {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes.truncate(at),
            2 => {
                let end = (at + 1 + random.below(16)).min(bytes.len());
                bytes[at..end].iter_mut().for_each(|byte| *byte = random.below(256) as u8);
            }
            _ => {
                let (from, len) = (random.below(original.len()), 1 + random.below(64));
                let len = len.min(original.len() - from.max(at));
                bytes.copy_within(from..from + len, at);
            }
        }
        let changed = bytes[..] != original[..];
        assert_eq!(load(bytes).is_err(), changed, "round {round}, at {at}");
    }
}

/// Writes a plan or manifest that the checksums do not protect.
fn artifact_of(manifest: &Manifest, plan: &Plan) -> AlignedBuf {
    let weights = demo_weights();
    let levels = [Level { plan, specialised: &[], image: DOUBLE, device_code: None }];
    Contents { manifest, levels: &levels, weights: &[&weights] }.to_bytes().unwrap()
}

#[test]
fn contradictions_are_found_behind_sound_checksums() {
    let check = |edit: fn(&mut Manifest, &mut Plan), expect: &str| {
        let (mut manifest, mut plan) = (demo_manifest(), demo_plan().plan);
        edit(&mut manifest, &mut plan);
        let error = Artifact::read(&artifact_of(&manifest, &plan)).unwrap_err();
        assert!(error.to_string().contains(expect), "{error} does not contain {expect}");
    };
    check(
        |manifest, _| manifest.images[0].program.entries[0] = DOUBLE.len() as u64,
        "contradicts itself: entry of a kernel",
    );
    check(|manifest, _| manifest.images[0].program.entries.clear(), "number of kernels");
    check(|manifest, _| manifest.images.clear(), "number of code images");
    check(|_, plan| plan.weight_bytes += 64, "size of the weights");
    check(
        |_, plan| plan.buffers[0].size_bytes.0 = 99,
        "the plan of the artifact is invalid: buffer 0: s99 does not exist",
    );
}

/// Plans that are sound in form and senseless in content: loading and running them may fail, and no more.
#[test]
fn random_plans_behind_sound_checksums_do_no_harm() {
    let original = postcard::to_allocvec(&demo_plan().plan).unwrap();
    let mut random = Random(0x5eed);
    let (mut decoded, mut valid, mut ran) = (0, 0, 0);
    for _ in 0..5000 {
        let mut bytes = original.clone();
        for _ in 0..1 + random.below(3) {
            let at = random.below(bytes.len());
            bytes[at] = random.below(256) as u8;
        }
        let Ok((plan, _)) = postcard::take_from_bytes::<Plan>(&bytes) else { continue };
        decoded += 1;
        match Artifact::read(&artifact_of(&demo_manifest(), &plan)) {
            Ok(_) => valid += 1,
            Err(ArtifactError::Plan(_) | ArtifactError::Mismatch(_)) => continue,
            Err(other) => panic!("{other}"),
        }
        ran += usize::from(run_without_kernels(plan));
    }
    assert!(decoded > 500 && valid > 50 && valid < decoded && ran > 10, "{ran} of {valid} of {decoded}");
}

/// Runs a valid plan with kernels that touch no memory, and no loops; whether it gave outputs.
fn run_without_kernels(plan: Plan) -> bool {
    let endless = |(i, instr): (usize, &Instr)| match instr.op {
        PlanOp::Jump { target } | PlanOp::BranchIfZero { target, .. } => target as usize <= i,
        _ => false,
    };
    if plan.instrs.iter().enumerate().any(endless) {
        return false;
    }
    extern "C" fn nothing(_: *const *mut u8, _: *const i64, _: i64, _: i64) {}
    let kernels = Kernels::new(vec![nothing as KernelFn; plan.kernels.len()], None);
    let weights = Bytes::new(vec![0; plan.weight_bytes as usize]);
    #[allow(unsafe_code, reason = "a model whose kernels do nothing")]
    // SAFETY: the kernels touch no buffer.
    let model = unsafe { Model::assemble(Manifest::default(), plan, kernels, weights, Arc::new(NoHostOps)) };
    let Ok(model) = model else { return false };
    let mut session =
        model.session_with(SessionOptions { memory_limit: 1 << 20, ..SessionOptions::default() });
    let bytes = [1u8; 64];
    [[2usize, 3], [0, 3], [7, 1]].iter().fold(false, |ran, dims| {
        let views: Vec<TensorView<'_>> = model
            .inputs()
            .iter()
            .map(|spec| {
                TensorView::new(spec.dtype, dims, &bytes[..dims[0] * dims[1] * spec.dtype.bytes().min(4)])
            })
            .collect();
        let outputs = session.run(&views);
        ran | outputs.is_ok_and(|outputs| outputs.iter().all(|(_, view)| view.bytes.len() < 1 << 20))
    })
}

/// The loader picks the image that uses most of the machine: the other would crash.
#[test]
fn images_of_several_levels_lie_side_by_side() {
    let manifest = demo_manifest();
    let image = |feature: &str| ImageDef { features: vec![feature.into()], ..manifest.images[0].clone() };
    let baseline = if cfg!(target_arch = "x86_64") { "sse3" } else { "neon" };
    let defs = vec![manifest.images[0].clone(), image(baseline), image("of-the-future")];
    let (plan, weights) = (demo_plan().plan, demo_weights());
    let trap = [0u8; 4].map(|_| if cfg!(target_arch = "x86_64") { 0xcc } else { 0 });
    // Each level has a plan of its own, here told apart by the name of a kernel.
    let named = |name: &str| {
        let mut plan = plan.clone();
        plan.kernels[0].name = name.into();
        plan
    };
    let plans = ["least", "best", "future"].map(named);
    let images: [&[u8]; 3] = [&trap, DOUBLE, &trap];
    let levels =
        [0, 1, 2].map(|i| Level { plan: &plans[i], specialised: &[], image: images[i], device_code: None });
    let manifest = Manifest { images: defs, ..manifest };
    let contents = Contents { manifest: &manifest, levels: &levels, weights: &[&weights] };
    let bytes = Bytes::new(contents.to_bytes().unwrap());
    let model = Model::from_bytes(bytes.clone(), Trust::Origin).unwrap();
    assert_eq!(run(&model), EXPECT);
    assert_eq!(model.plan().kernels[0].name, "best");
    let bare = Isa { features: vec![], ..Isa::native() };
    let model = Loader::new(Trust::Origin).as_if_on(&bare).from_bytes(bytes.clone()).unwrap();
    assert_eq!(model.plan().kernels[0].name, "least");
    // Saying so does not give the machine what it has not.
    let future = Isa { features: vec!["of-the-future".into(), baseline.into()], ..Isa::native() };
    let model = Loader::new(Trust::Origin).as_if_on(&future).from_bytes(bytes).unwrap();
    assert_eq!(model.plan().kernels[0].name, "best");
    let none = Contents { manifest: &manifest, levels: &[], weights: &[&weights] };
    assert!(matches!(none.to_bytes(), Err(ContentsError::Levels(0))));
}

#[test]
fn artifacts_for_other_machines_are_refused() {
    let check = |images: Vec<ImageDef>, expect: &str| {
        let manifest = Manifest { images, ..demo_manifest() };
        let bytes = artifact_of(&manifest, &demo_plan().plan);
        let error = Model::from_bytes(Bytes::new(bytes), Trust::Origin).unwrap_err();
        assert!(matches!(error, LoadError::Isa(_)), "{error}");
        assert!(error.to_string().contains(expect), "{error} does not contain {expect}");
    };
    let image = |triple: String, features: Vec<String>| {
        vec![ImageDef { triple, features, program: one_kernel(), ..ImageDef::default() }]
    };
    check(
        image("mips64-unknown-linux-gnu".into(), vec![]),
        "it has code for mips64-unknown-linux-gnu, this machine is",
    );
    let here = demo_manifest().images[0].triple.clone();
    check(image(here, vec!["amx-of-the-future".into()]), "this machine lacks amx-of-the-future");
}
