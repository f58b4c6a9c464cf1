//! A stack for what recurses as deeply as a model nests.

use std::thread;

use crate::error::CompileError;
use crate::parallel::STACK;

/// Runs `work` on a thread with the stack for deep recursions; its memory is taken only where used. A panic is a defect, which the
/// caller is told of.
///
/// # Errors
/// Those of `work`, and where no thread can be started.
pub(crate) fn on_own_stack<T: Send, E: From<CompileError> + Send>(
    work: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T, E> {
    thread::scope(|scope| {
        let worker = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
        let worker =
            worker.map_err(|error| CompileError::Limit(format!("cannot start a thread: {error}")))?;
        worker.join().unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            let text = text.unwrap_or("a panic without a message");
            Err(CompileError::internal("the compiler", text).into())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_of_the_caller() {
        let result: Result<(), CompileError> = on_own_stack(|| panic!("no such {}", "thing"));
        let error = result.expect_err("a panic");
        assert_eq!((error.exit_code(), error.to_string().contains("no such thing")), (70, true), "{error}");
    }
}
