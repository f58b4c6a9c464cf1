//! Kernels to machine code: each kernel on its own, in parallel, linked into one flat image.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tilewright_image::Image;
use tilewright_machine::{CodegenError, CodegenKind, Listing, ObjectCode, Target};
use tilewright_te::kernel::Kernel;

use crate::error::CompileError;
use crate::options::Observer;

/// Compiles and links kernels; entry `i` of the image is kernel `i`.
///
/// Each kernel is compiled by itself on one of `jobs` threads, so the image does not depend on their number.
pub fn generate(
    kernels: &[Kernel],
    target: &Target,
    jobs: usize,
    observer: &mut dyn Observer,
) -> Result<Image, CompileError> {
    let slots: Vec<Mutex<Option<Result<ObjectCode, CodegenError>>>> =
        kernels.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let (finished, progress) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, kernels.len().max(1)) {
            let finished = finished.clone();
            let (slots, next) = (&slots, &next);
            scope.spawn(move || {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let (Some(kernel), Some(slot)) = (kernels.get(i), slots.get(i)) else { break };
                    let result = compile_kernel(kernel, target);
                    if let Ok(mut slot) = slot.lock() {
                        *slot = Some(result);
                    }
                    if finished.send(()).is_err() {
                        break;
                    }
                }
            });
        }
        drop(finished);
        for done in 1.. {
            if progress.recv().is_err() {
                break;
            }
            observer.kernels(done, kernels.len());
        }
    });
    let mut objects = Vec::with_capacity(kernels.len());
    for slot in slots {
        match slot.into_inner() {
            Ok(Some(result)) => objects.push(result?.object),
            Ok(None) | Err(_) => {
                return Err(CompileError::internal("codegen", "a code generation thread stopped"));
            }
        }
    }
    let entries: Vec<&str> = kernels.iter().map(|k| k.name.as_str()).collect();
    tilewright_image::link(&objects, &entries).map_err(|e| CompileError::internal("link", e))
}

fn compile_kernel(kernel: &Kernel, target: &Target) -> Result<ObjectCode, CodegenError> {
    match target.codegen.kind {
        CodegenKind::Llvm => tilewright_llvm::compile_kernel(kernel, target),
        CodegenKind::Cranelift => tilewright_cranelift::compile_kernel(kernel, target),
    }
}

/// A listing of kernels: the code generator's IR or assembly.
pub fn listing(kernels: &[Kernel], target: &Target, listing: Listing) -> Result<String, CompileError> {
    Ok(match target.codegen.kind {
        CodegenKind::Llvm => tilewright_llvm::emit(kernels, target, listing)?,
        CodegenKind::Cranelift => tilewright_cranelift::emit(kernels, target, listing)?,
    })
}
