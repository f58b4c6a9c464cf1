//! The registry that the runtime is given.

use alloc::string::String;

use tilewright_runtime::{HostCall, HostError, HostOps};

use crate::op::HostOp;
use crate::pattern;

/// All host operators.
#[derive(Clone, Copy, Debug, Default)]
pub struct Registry;

impl HostOps for Registry {
    fn supports(&self, op: u16) -> bool {
        HostOp::CODES.contains(&op)
            && (pattern::ARE_THERE || op != HostOp::RegexFullMatch(String::new()).code())
    }

    fn call(&self, op: u16, call: &mut HostCall<'_>) -> Result<(), HostError> {
        let op = HostOp::decode(op, call.attrs())
            .map_err(|error| HostError::Message(alloc::format!("{error}")))?;
        if let Some(stream) = op.stream() {
            let draw = call.draw(stream);
            let out = call.output(0)?;
            return Ok(op.draw(call.inputs(), draw, out.bytes)?);
        }
        let results = op.run(call.inputs())?;
        call.give(results)
    }
}
