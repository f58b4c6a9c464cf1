//! The interpreter: what a [`Func`] means, executed.
//!
//! It is the oracle that every schedule and code generator is compared with, and what constant folding runs.
//! A function at any stage of scheduling is compiled to bytecode over lanes of one data-parallel loop
//! ([`lanes`](self)); every access is checked against the buffer's shape and every read of a buffer that the
//! function writes against what has been written.
//!
//! Arithmetic in [`Mode::Exact`] is that of [`crate::expr`]. On `F16`, `BF16` and narrower floats an
//! operation is done on the values as `F32` and its result rounded to the type: for sums, products,
//! quotients and square roots this is the correctly rounded result; a fused multiply-add is rounded to `F32`
//! and then to the type, as is the conversion of an integer. Intrinsics are expanded by [`crate::math`], so
//! that generated code can be compared bit for bit. [`Mode::Double`] holds all floats as `f64`, stores them
//! as `F64`, and computes intrinsics by `libm`: it measures rounding. Conversions to 8-bit and narrower
//! floats still round there, because they carry meaning (quantisation).

mod code;
mod compile;
mod error;
mod evaluate;
mod exec;
mod lanes;
mod memory;
mod scalar;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::OnceLock;

use tilewright_dtype::DType;

use crate::func::Func;
use crate::schedule::start_apart;

use code::Unit;
use exec::Machine;
use memory::Memory;

pub use code::Mode;
pub use error::InterpError;
pub use evaluate::{Scalar, evaluate_expr, evaluate_index};
pub use scalar::{reference_binary, reference_unary};

/// A tensor: row-major little-endian elements.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorData {
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub shape: Vec<i64>,
    /// Elements, [`DType::bytes`] each.
    pub bytes: Vec<u8>,
}

/// A compiled function.
pub struct Program {
    func: Func,
    exact: OnceLock<Result<Code, InterpError>>,
    double: OnceLock<Result<Code, InterpError>>,
}

struct Code {
    units: Vec<Unit>,
    blocks: Vec<String>,
}

impl Program {
    /// Compiles a function; errors are those of a malformed one.
    pub fn compile(func: &Func) -> Result<Program, InterpError> {
        let started = start_apart(func)
            .map_err(|error| InterpError::Malformed { func: func.name.clone(), what: error.to_string() })?;
        let program = Program { func: started.into_owned(), exact: OnceLock::new(), double: OnceLock::new() };
        program.code(Mode::Exact)?;
        Ok(program)
    }

    /// The code for a mode, compiled at its first use.
    fn code(&self, mode: Mode) -> Result<&Code, InterpError> {
        let cell = match mode {
            Mode::Exact => &self.exact,
            Mode::Double => &self.double,
        };
        let compiled = cell.get_or_init(|| {
            let mut blocks = Vec::new();
            let units = compile::compile(&self.func, mode, false, &mut blocks)?;
            Ok(Code { units, blocks })
        });
        compiled.as_ref().map_err(Clone::clone)
    }

    /// Runs the function at the given sizes (in the order of [`Func::sizes`]) on inputs (in the order of the
    /// parameters; row-major little-endian bytes) and returns its outputs.
    ///
    /// In [`Mode::Double`] float outputs have type `F64`.
    pub fn run(&self, sizes: &[i64], inputs: &[&[u8]], mode: Mode) -> Result<Vec<TensorData>, InterpError> {
        self.execute(self.code(mode)?, sizes, inputs, mode, false)
    }

    /// As [`Program::run`] in exact mode; what is more, watches which task and which lane accesses which element. Slower.
    ///
    /// # Errors
    /// Also [`InterpError::Race`]: whatever the order of tasks and lanes, one is found where there is one for these inputs.
    pub fn watch(&self, sizes: &[i64], inputs: &[&[u8]]) -> Result<Vec<TensorData>, InterpError> {
        let mut blocks = Vec::new();
        let units = compile::compile(&self.func, Mode::Exact, true, &mut blocks)?;
        self.execute(&Code { units, blocks }, sizes, inputs, Mode::Exact, true)
    }

    fn execute(
        &self,
        code: &Code,
        sizes: &[i64],
        inputs: &[&[u8]],
        mode: Mode,
        watched: bool,
    ) -> Result<Vec<TensorData>, InterpError> {
        let func = &self.func;
        if sizes.len() != func.sizes.len() {
            return Err(InterpError::SizeCount { expected: func.sizes.len(), given: sizes.len() });
        }
        if inputs.len() != func.n_inputs {
            return Err(InterpError::InputCount { expected: func.n_inputs, given: inputs.len() });
        }
        let size_of = |var| func.sizes.iter().position(|&s| s == var).map(|at| sizes[at]);
        let mut memories = Vec::with_capacity(func.buffers.len());
        for (buffer, data) in &func.buffers {
            let extents = data.shape.iter().map(|extent| evaluate_index(extent, &size_of));
            let shape = extents.collect::<Result<Vec<i64>, _>>()?;
            let impossible = || InterpError::Shape { buffer: data.name.clone(), shape: shape.clone() };
            let product = shape.iter().try_fold(8i64, |n, &e| n.checked_mul(e).filter(|_| e >= 0));
            let len = product.ok_or_else(impossible)? as usize / 8;
            let input = func.params[..func.n_inputs].iter().position(|&p| p == buffer);
            memories.push(match input {
                Some(at) => {
                    let (expected, given) = (len * data.dtype.bytes(), inputs[at].len());
                    if expected != given {
                        let buffer = data.name.clone();
                        return Err(InterpError::InputBytes { buffer, shape, expected, given });
                    }
                    Memory::input(data.dtype, shape, inputs[at])
                }
                None if mode == Mode::Double && data.dtype.is_float() => Memory::fresh(DType::F64, shape),
                None => Memory::fresh(data.dtype, shape),
            });
        }
        let mut machine = Machine::new(memories, watched);
        for unit in &code.units {
            if let Err(fault) = machine.run(unit, sizes) {
                return Err(fault.describe(&machine.memories, func, &code.blocks));
            }
        }
        let mut memories: Vec<Option<Memory>> = machine.memories.into_iter().map(Some).collect();
        let mut outputs = Vec::new();
        for &buffer in &func.params[func.n_inputs..] {
            let name = || func.buffers[buffer].name.clone();
            let Some(memory) = memories[buffer.as_u32() as usize].take() else {
                let what = format!("output {} is listed twice", name());
                return Err(InterpError::Malformed { func: func.name.clone(), what });
            };
            if let Some(position) = memory.find_never_written() {
                let indices = memory.indices_of(position);
                return Err(InterpError::OutputNotWritten { buffer: name(), indices });
            }
            let Memory { dtype, shape, bytes, .. } = memory;
            outputs.push(TensorData { dtype, shape, bytes: bytes.into_owned() });
        }
        Ok(outputs)
    }
}

macro_rules! typed_tensors {
    ($($new:ident $get:ident $type:ty = $dtype:ident),*) => {
        impl TensorData {
            $(
                #[doc = concat!("A tensor of `", stringify!($dtype), "` values; their number must match the shape.")]
                pub fn $new(shape: &[i64], values: &[$type]) -> TensorData {
                    assert_eq!(shape.iter().product::<i64>(), values.len() as i64, "values for shape {shape:?}");
                    let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
                    TensorData { dtype: DType::$dtype, shape: shape.to_vec(), bytes }
                }

                #[doc = concat!("The elements, if they are `", stringify!($dtype), "`.")]
                pub fn $get(&self) -> Option<Vec<$type>> {
                    if self.dtype != DType::$dtype {
                        return None;
                    }
                    let (elements, _) = self.bytes.as_chunks();
                    Some(elements.iter().map(|&x| <$type>::from_le_bytes(x)).collect())
                }
            )*
        }
    };
}
typed_tensors!(
    from_f32 to_f32 f32 = F32,
    from_f64 to_f64 f64 = F64,
    from_i32 to_i32 i32 = I32,
    from_i64 to_i64 i64 = I64,
    from_u8 to_u8 u8 = U8
);
