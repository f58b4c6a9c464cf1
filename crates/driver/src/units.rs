//! What becomes of each function of a program: scheduled, generated, or found in the cache.
//!
//! A [`Unit`] holds all that plan and image need of a function. It follows from the function's structure, the target,
//! the options that schedules look at, and the compiler; from nothing else, not even the function's name. That makes
//! it a thing to keep on disk, where another model, or the same one after a change, finds it.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use tilewright_autosched::Decisions;
use tilewright_digest::{Canonical, Digest};
use tilewright_lower::LoweredFunc;
use tilewright_machine::{CodegenError, CodegenKind, DeviceKind, Target};
use tilewright_runtime::artifact::{DeviceKernel, ImageDef, ProgramDef, ScheduleDef};
use tilewright_runtime::plan::{Access, KernelDef, KernelParam, Space};
use tilewright_te::computation::DIRECT;
use tilewright_te::kernel::{self, Kernel, TaskGrid};
use tilewright_te::schedule::Piece;
use tilewright_te::{Buffer, Computation, Func};
use tilewright_tune::TaskKey;

use crate::autoschedule::{Kernels, to_kernels};
use crate::cache::Cache;
use crate::codegen;
use crate::device_code::{self, Piece as CodePiece};
use crate::error::CompileError;
use crate::gap::Gap;
use crate::options::{CompileObserver, Options};
use crate::parallel::{self, Jobs};

/// A function of a program, scheduled and generated.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Unit {
    /// Parameters, workspaces and sizes; the statements are left out.
    pub func: Func,
    /// What is made of constant inputs at compile time, by input: functions, one after the other.
    pub packing: Vec<Vec<Func>>,
    /// How it was scheduled, for people.
    pub schedule: ScheduleDef,
    /// What a record of tuning decided.
    pub decisions: Decisions,
    /// The kernels, in the order in which they run.
    pub kernels: Vec<UnitKernel>,
}

/// A kernel of a [`Unit`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UnitKernel {
    /// The signature. In a unit the name is what follows the function's.
    pub def: KernelDef,
    /// Buffers of the function, in the order of the parameters.
    pub buffers: Vec<Buffer>,
    /// Number of tasks, over the function's sizes.
    pub grid: TaskGrid,
    /// Machine code: an object with the function [`symbol`](UnitKernel::symbol); of a kernel on a device, its text there; of C, its text.
    pub object: Vec<u8>,
    /// The name in the object, unique among different units.
    pub symbol: String,
    /// How a kernel on a device is launched.
    pub device: Option<DeviceKernel>,
}

/// A function on the way to its unit.
pub enum Pending {
    /// The cache had it.
    Found(Box<Unit>),
    /// Scheduled, to be generated and kept under the key.
    Scheduled(Digest, ScheduleDef, Space, Box<Kernels>),
}

/// A unit that the cache did not have.
#[derive(Clone, Copy, Debug)]
pub struct Fresh {
    /// Its position among the units.
    pub unit: usize,
    /// Its key.
    pub key: Digest,
}

/// What a unit depends on beside the computation.
#[derive(Serialize)]
struct Question<'a> {
    compiler: &'a str,
    generator: &'a str,
    target: String,
    numerics: String,
    /// What records offer for the function: the schedule each was made beside, and its decisions.
    records: Vec<(&'a str, &'a Decisions)>,
    /// What is decided whatever records say.
    settled: &'a Decisions,
}

/// The key of a function's unit. Units hold names of variables and buffers, so keys depend on them, but not on that of the
/// function. `llvm` is the version of LLVM that makes code, or made it.
fn key(lowered: &LoweredFunc, settled: &Decisions, target: &Target, options: &Options, llvm: &str) -> Digest {
    let target = &in_space(target, lowered.space);
    let generator = match (target.device, target.codegen.kind) {
        (Some(DeviceKind::Cuda), _) | (None, CodegenKind::Llvm) => llvm,
        // Part of the compiler.
        (Some(DeviceKind::OpenCl), _) | (None, CodegenKind::Cranelift | CodegenKind::C) => "",
    };
    let task = TaskKey::new(&lowered.computation, target);
    let records = options.records.candidates(&task);
    let records = records.map(|entry| (entry.baseline.as_str(), &entry.decisions)).collect();
    let question = Question {
        compiler: env!("TILEWRIGHT_FINGERPRINT"),
        generator,
        target: target.to_string(),
        numerics: options.numerics.to_string(),
        records,
        settled,
    };
    Digest::of("unit", |writer| {
        writer.data(&question);
        lowered.computation.write(writer);
        lowered.computation.write_representation(writer);
    })
}

/// The version of LLVM whose code a compilation takes. A build without LLVM makes no such code, but takes what another one
/// has left in its cache.
fn llvm_version(cache: Option<&Cache>) -> String {
    match tilewright_llvm::is_available() {
        true => tilewright_llvm::version(),
        false => cache.and_then(Cache::generator).unwrap_or_default(),
    }
}

/// What a function that runs in a space is compiled for.
pub(crate) fn in_space(target: &Target, space: Space) -> Target {
    match (space, target.device) {
        (Space::Host, Some(_)) => target.without_device(),
        (Space::Host, None) | (Space::Device, _) => target.clone(),
    }
}

/// The different functions among some.
pub(crate) struct Different<'a> {
    /// Each once, with the key of its unit and what is decided for it.
    pub(crate) funcs: Vec<(Digest, &'a LoweredFunc, &'a Decisions)>,
    /// Which of these each function is.
    pub(crate) of: Vec<usize>,
}

/// Finds the different ones among functions; `settled` has what is decided for each of them already.
///
/// # Errors
/// When a thread cannot be started.
pub(crate) fn different<'a>(
    funcs: &[&'a LoweredFunc],
    settled: &'a [Decisions],
    target: &Target,
    options: &Options,
) -> Result<Different<'a>, CompileError> {
    let funcs: Vec<(&LoweredFunc, &Decisions)> = funcs.iter().copied().zip(settled).collect();
    let llvm = llvm_version(options.cache.as_ref());
    let key = |&(func, settled): &(&LoweredFunc, &Decisions)| key(func, settled, target, options, &llvm);
    let keys = parallel::map("schedule", &funcs, &options.work(), &mut |_| {}, key)?;
    let mut known = FxHashMap::default();
    let mut different = Different { funcs: Vec::new(), of: Vec::with_capacity(funcs.len()) };
    for ((func, settled), key) in funcs.into_iter().zip(keys) {
        different.of.push(*known.entry(key).or_insert_with(|| {
            different.funcs.push((key, func, settled));
            different.funcs.len() - 1
        }));
    }
    Ok(different)
}

/// The different functions among some, on the way to their units.
pub struct Schedules {
    /// One for each different function.
    pub pending: Vec<Pending>,
    /// Which of these each function is.
    pub of: Vec<usize>,
}

/// Looks for each different function in `cache` and schedules those that are not there. `settled` has what is decided for each
/// function already, whatever records say.
///
/// # Errors
/// Functions that cannot be scheduled: defects.
pub fn schedule(
    funcs: &[&LoweredFunc],
    settled: &[Decisions],
    target: &Target,
    options: &Options,
    cache: Option<&Cache>,
) -> Result<Schedules, CompileError> {
    let Different { funcs, of } = different(funcs, settled, target, options)?;
    let one = |&(key, lowered, settled): &(Digest, &LoweredFunc, &Decisions)| {
        if let Some((cache, bytes)) = cache.and_then(|cache| Some((cache, cache.read(key)?))) {
            match postcard::from_bytes(&bytes) {
                Ok(unit) => return Ok(Pending::Found(Box::new(unit))),
                Err(_) => cache.remove(key),
            }
        }
        let kernels = to_kernels(lowered, settled, &in_space(target, lowered.space), options)?;
        let schedule = schedule_def(lowered, &kernels);
        Ok(Pending::Scheduled(key, schedule, lowered.space, Box::new(kernels)))
    };
    let pending = parallel::map("schedule", &funcs, &options.work(), &mut |_| {}, one)?;
    Ok(Schedules { pending: all_or_illegal(pending)?, of })
}

/// All results, or the first error; what is illegal is one error for all functions.
fn all_or_illegal(results: Vec<Result<Pending, CompileError>>) -> Result<Vec<Pending>, CompileError> {
    let mut all_illegal = Vec::new();
    let mut pending = Vec::with_capacity(results.len());
    for result in results {
        match result {
            Ok(one) => pending.push(one),
            Err(CompileError::Illegal { functions, .. }) => all_illegal.extend(functions),
            Err(error) => return Err(error),
        }
    }
    CompileError::illegal("schedule", all_illegal)?;
    Ok(pending)
}

/// Generates the code of the functions that the cache did not have; gives the units of all, and which are new.
///
/// # Errors
/// What code generators say.
pub(crate) fn generate(
    pending: Vec<Pending>,
    target: &Target,
    jobs: &Jobs,
    observer: &mut dyn CompileObserver,
) -> Result<(Vec<Unit>, Vec<Fresh>), CompileError> {
    let mut kernels = Vec::new();
    let mut names = Vec::new();
    let mut fresh = Vec::new();
    let mut units = Vec::new();
    for (unit, pending) in pending.into_iter().enumerate() {
        units.push(match pending {
            Pending::Found(unit) => *unit,
            Pending::Scheduled(key, schedule_def, space, scheduled) => {
                fresh.push(Fresh { unit, key });
                names.push(scheduled.func.name.clone());
                let (unit, generated) = without_code(*scheduled, schedule_def, space, key);
                let generated = generated.into_iter().map(|kernel| (kernel, space));
                kernels.extend(generated);
                unit
            }
        });
    }
    let total = kernels.len();
    let mut progress = |done| observer.kernels(done, total);
    let compile = |(kernel, space): &(Kernel, Space)| match (space, target.device, &target.gpu) {
        (Space::Device, Some(device), Some(gpu)) => device_code::compile_kernel(kernel, device, gpu),
        _ => {
            let code = codegen::compile_kernel(kernel, target)?;
            Ok(CodePiece { text: code.object, ..CodePiece::default() })
        }
    };
    let size = |(kernel, _): &(Kernel, Space)| kernel.values.len();
    let codes = parallel::map_largest_first("codegen", &kernels, jobs, &mut progress, size, compile)?;
    let mut codes = codes.into_iter();
    for (&Fresh { unit, .. }, name) in fresh.iter().zip(&names) {
        for (kernel, code) in units[unit].kernels.iter_mut().zip(&mut codes) {
            let CodePiece { text, kernel: launch } = code.map_err(|error| not_kept(error, name))?;
            kernel.object = text;
            kernel.device = (kernel.def.space == Space::Device).then_some(launch);
        }
    }
    Ok((units, fresh))
}

/// What code generators refuse among functions that the cache did not have: gaps of kernels, with the number of their function.
///
/// # Errors
/// As [`generate`], but for gaps and for what fails below code generators.
pub(crate) fn check(
    pending: &[Pending],
    target: &Target,
    jobs: &Jobs,
) -> Result<Vec<(usize, Gap)>, CompileError> {
    let scheduled = pending.iter().enumerate().filter_map(|(number, pending)| match pending {
        Pending::Found(_) => None,
        Pending::Scheduled(_, _, space, kernels) => Some((number, *space, &**kernels)),
    });
    let of_function = |&(number, space, scheduled): &(usize, Space, &Kernels)| {
        let mut gaps = Vec::new();
        for flat in &scheduled.kernels {
            let checked = match (space, target.device, &target.gpu) {
                (Space::Device, Some(device), Some(gpu)) => {
                    device_code::check_kernel(&flat.kernel, device, gpu)
                }
                _ => codegen::check_kernel(&flat.kernel, target).map_err(CompileError::from),
            };
            match checked {
                Ok(()) => {}
                Err(CompileError::Gaps(of_kernel)) => {
                    gaps.extend(of_kernel.into_iter().map(|gap| (number, gap)))
                }
                Err(error) => return Err(not_kept(error, &scheduled.func.name)),
            }
        }
        Ok(gaps)
    };
    let scheduled: Vec<_> = scheduled.collect();
    let gaps = parallel::map("codegen", &scheduled, jobs, &mut |_| {}, of_function)?;
    Ok(gaps.into_iter().collect::<Result<Vec<_>, _>>()?.concat())
}

/// The error for a function whose code generator is not in this build, where the cache did not have it either.
fn not_kept(error: CompileError, function: &str) -> CompileError {
    match error {
        CompileError::Codegen(source @ CodegenError::Unavailable { .. }) => {
            CompileError::NotKept { function: function.to_string(), source }
        }
        other => other,
    }
}

/// A unit whose objects are to come, and the kernels to make them of, under the names that they have there.
fn without_code(scheduled: Kernels, schedule: ScheduleDef, space: Space, key: Digest) -> (Unit, Vec<Kernel>) {
    let Kernels { func, kernels: flat, packing, decisions, .. } = scheduled;
    let mut kernels = Vec::new();
    let mut generated = Vec::new();
    for flat in flat {
        let mut kernel = flat.kernel;
        let suffix = kernel.name.strip_prefix(&func.name).unwrap_or(&kernel.name).to_string();
        kernel.name = format!("u{key}{suffix}");
        kernels.push(UnitKernel {
            def: KernelDef { name: suffix, space, ..kernel_def(&kernel) },
            buffers: flat.buffers,
            grid: kernel.grid.clone(),
            object: Vec::new(),
            symbol: kernel.name.clone(),
            device: None,
        });
        generated.push(kernel);
    }
    let func = Func { name: String::new(), body: Vec::new(), ..func };
    (Unit { func, packing, schedule, decisions, kernels }, generated)
}

/// How a function was scheduled.
fn schedule_def(lowered: &LoweredFunc, scheduled: &Kernels) -> ScheduleDef {
    let mut rules: Vec<&str> = Vec::new();
    if scheduled.algorithm != DIRECT {
        rules.push(&scheduled.algorithm);
    }
    for ruling in &scheduled.rulings {
        if !rules.contains(&ruling.rule) {
            rules.push(ruling.rule);
        }
    }
    let mut layouts: Vec<String> = Vec::new();
    let Computation { func, layouts: of_params, .. } = &lowered.computation;
    for output in func.n_inputs..func.params.len() {
        // Those that are missing are row-major.
        let layout = of_params.get(output).and_then(Option::as_ref);
        let name = layout.map_or_else(|| "row-major".to_string(), |pieces| layout_name(pieces));
        if !layouts.contains(&name) {
            layouts.push(name);
        }
    }
    let estimate_ns = scheduled.estimate_ns;
    ScheduleDef { rules: rules.join(" "), layout: layouts.join(" "), estimate_ns }
}

/// A layout as `aBcd16b`: a letter a piece, the outer ones capital where the axis has inner pieces.
fn layout_name(pieces: &[Piece]) -> String {
    let letter = |dim: usize| char::from(b'a' + (dim % 26) as u8);
    let is_split = |dim: usize| pieces.iter().any(|p| p.dim == dim && p.factor.is_some());
    let piece = |p: &Piece| match p.factor {
        Some(factor) => format!("{factor}{}", letter(p.dim)),
        None if is_split(p.dim) => letter(p.dim).to_uppercase().to_string(),
        None => letter(p.dim).to_string(),
    };
    pieces.iter().map(piece).collect()
}

/// What the loader is told of an image of one program.
pub(crate) fn image_def(target: &Target, program: ProgramDef) -> ImageDef {
    ImageDef {
        target: target.machine.level().to_string(),
        triple: target.machine.arch.triple().to_string(),
        features: target.machine.features.iter().map(|f| f.name().to_string()).collect(),
        program,
        ..ImageDef::default()
    }
}

/// The signature of a kernel.
pub(crate) fn kernel_def(kernel: &Kernel) -> KernelDef {
    let params = kernel.buffers.iter().map(|b| KernelParam {
        align: b.align,
        access: match b.access {
            kernel::Access::Read => Access::Read,
            kernel::Access::Write | kernel::Access::ReadWrite => Access::Write,
        },
    });
    KernelDef {
        name: kernel.name.clone(),
        params: params.collect(),
        n_sizes: kernel.sizes.len() as u32,
        space: Space::Host,
    }
}

/// Keeps new units. A cache that cannot be written is worth one warning and no more.
pub fn keep(units: &[Unit], fresh: &[Fresh], cache: &Cache, observer: &mut dyn CompileObserver) {
    let write = || -> std::io::Result<()> {
        for &Fresh { unit, key } in fresh {
            let bytes = postcard::to_allocvec(&units[unit]).map_err(std::io::Error::other)?;
            cache.write(key, &bytes)?;
        }
        if !fresh.is_empty() {
            if tilewright_llvm::is_available() {
                cache.set_generator(&tilewright_llvm::version())?;
            }
            cache.prune()?;
        }
        Ok(())
    };
    if let Err(error) = write() {
        let folder = cache.folder().display();
        observer.warning(&format!("compiled code is not kept in {folder}: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_dtype::DType;
    use tilewright_te::{Expr, Variant};

    use crate::options::Numerics;

    fn lowered(name: &str, extent: i64) -> LoweredFunc {
        let mut func = Func::new(name);
        let input = func.add_input("x", DType::F32, vec![Expr::int(extent)]);
        let out = func.compute("y", DType::F32, vec![Expr::int(extent)], |f, i| {
            f.load(input, i.to_vec()) + f.load(input, i.to_vec())
        });
        func.promote_to_output(out);
        LoweredFunc { computation: Computation::of(func), tables: vec![], space: Space::Host }
    }

    #[test]
    fn code_of_llvm_is_known_by_the_version_that_made_it() {
        let target: Target = "x86-64-v3@llvm".parse().unwrap();
        let options = Options::for_target(target.clone());
        let none = Decisions::default();
        let func = lowered("f", 8);
        let by = |target: &Target, llvm: &str| key(&func, &none, target, &options, llvm);
        assert_ne!(by(&target, "22.1.8"), by(&target, "22.1.9"));
        let cranelift: Target = "x86-64-v3@cranelift".parse().unwrap();
        assert_eq!(by(&cranelift, "22.1.8"), by(&cranelift, ""));

        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path(), 1 << 20);
        assert_eq!(llvm_version(Some(&cache)), tilewright_llvm::version());
        cache.set_generator("22.0.7").unwrap();
        let expected =
            if tilewright_llvm::is_available() { tilewright_llvm::version() } else { "22.0.7".into() };
        assert_eq!(llvm_version(Some(&cache)), expected);
        assert_eq!(llvm_version(None), tilewright_llvm::version());
    }

    #[test]
    fn a_key_depends_on_all_but_the_name() {
        let target: Target = "x86-64-v3@cranelift".parse().unwrap();
        let options = Options::for_target(target.clone());
        let none = Decisions::default();
        let key = |lowered: &LoweredFunc, target: &Target| key(lowered, &none, target, &options, "22");
        let plain = key(&lowered("f0_add", 8), &target);
        assert_eq!(key(&lowered("f7_add", 8), &target), plain);
        assert_ne!(key(&lowered("f0_add", 9), &target), plain);
        let other = |change: &dyn Fn(&mut Computation)| {
            let mut other = lowered("f", 8);
            change(&mut other.computation);
            key(&other, &target)
        };
        assert_ne!(other(&|c| c.constant_inputs = vec![true]), plain);
        let variant =
            Variant { algorithm: "other".into(), func: lowered("f", 8).computation.func, prepare: vec![] };
        assert_ne!(other(&|c| c.variants = vec![variant.clone()]), plain);
        let blocked =
            vec![None, Some(vec![Piece { dim: 0, factor: None }, Piece { dim: 0, factor: Some(4) }])];
        assert_ne!(other(&|c| c.layouts = blocked.clone()), plain);
        let on_device = |lowered: &LoweredFunc| LoweredFunc {
            space: Space::Device,
            computation: lowered.computation.clone(),
            tables: vec![],
        };
        let device = "opencl:sm_80/x86-64-v3@cranelift".parse().unwrap();
        assert_eq!(key(&lowered("f", 8), &device), plain, "what runs beside a device");
        assert_ne!(key(&on_device(&lowered("f", 8)), &device), plain);
        for other in ["x86-64-v3;l2=1@cranelift", "x86-64-v4@cranelift", "x86-64-v3@llvm"] {
            assert_ne!(key(&lowered("f", 8), &other.parse().unwrap()), plain, "{other}");
        }
        let strict = Options { numerics: Numerics::Strict, ..options.clone() };
        assert_ne!(super::key(&lowered("f", 8), &none, &target, &strict, "22"), plain);
        let mut settled = none.clone();
        settled.set("y/tile", "4x3");
        assert_ne!(super::key(&lowered("f", 8), &settled, &target, &options, "22"), plain);
    }

    #[test]
    fn units_come_back_as_they_were() {
        let target: Target = "x86-64-v3@cranelift".parse().unwrap();
        let options = Options::for_target(target.clone());
        let funcs = [lowered("f0_add", 100), lowered("f1_add", 7), lowered("f2_add", 100)];
        let Schedules { pending, of } =
            schedule(&funcs.each_ref(), &vec![Decisions::default(); 3], &target, &options, None).unwrap();
        assert_eq!(of, [0, 1, 0], "what differs in its name alone is one unit");
        let (units, fresh) =
            generate(pending, &target, &Jobs::new(1, options.cancel.clone()), &mut ()).unwrap();
        assert_eq!((units.len(), fresh.len()), (2, 2));
        assert!(!units[0].kernels[0].object.is_empty());
        let bytes = postcard::to_allocvec(&units[0]).unwrap();
        let back: Unit = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(postcard::to_allocvec(&back).unwrap(), bytes);
    }
}
