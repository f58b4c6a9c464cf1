//! What a kernel means: an evaluator that does one lane of one operation at a time.
//!
//! Values are bit patterns, zero-extended to 64 bits. Out-of-bounds accesses and undefined values are errors
//! of the kernel, reported as text.

use std::ops::Range;

use cranelift_entity::SecondaryMap;
use tilewright_dtype::{DType, Kind};
use tilewright_te::expr::{BinaryOp, CompareOp, UnaryOp, wrap};
use tilewright_te::kernel::{Inst, Kernel, Op, Place, Type, Value};

/// Runs tasks of a kernel on buffers.
///
/// # Errors
/// The first access out of bounds, use of an undefined value, or operation that its type has not.
pub fn run(kernel: &Kernel, buffers: &mut [Vec<u8>], sizes: &[i64], tasks: Range<i64>) -> Result<(), String> {
    for task in tasks {
        let [locals, shared] = [&kernel.locals, &kernel.shared]
            .map(|arrays| arrays.iter().map(|l| vec![0; l.len as usize * l.dtype.bytes()]).collect());
        let mut state = State { kernel, buffers, locals, shared, sizes, values: SecondaryMap::new() };
        state.values[kernel.task] = vec![task as u64];
        state.body(&kernel.body)?;
    }
    Ok(())
}

struct State<'a> {
    kernel: &'a Kernel,
    buffers: &'a mut [Vec<u8>],
    locals: Vec<Vec<u8>>,
    shared: Vec<Vec<u8>>,
    sizes: &'a [i64],
    values: SecondaryMap<Value, Vec<u64>>,
}

impl State<'_> {
    fn body(&mut self, insts: &[Inst]) -> Result<(), String> {
        insts.iter().try_for_each(|inst| self.inst(inst))
    }

    fn inst(&mut self, inst: &Inst) -> Result<(), String> {
        match inst {
            Inst::Let { result, op } => {
                let ty = self.kernel.values[*result];
                let lanes = self.op(ty, op)?;
                if lanes.len() != ty.lanes as usize {
                    return Err(format!("{result} has {} lanes, its type is {ty}", lanes.len()));
                }
                self.values[*result] = lanes;
            }
            Inst::Store { place, index, offset, value, mask } => {
                let first = self.scalar(*index)? as i64 + offset;
                let value = self.get(*value)?;
                let indices = (0..value.len() as i64).map(|i| first + i).collect();
                self.write(*place, indices, &value, *mask)?;
            }
            Inst::Scatter { place, indices, offset, value, mask } => {
                let indices = self.get(*indices)?.iter().map(|i| *i as i64 + offset).collect();
                let value = self.get(*value)?;
                self.write(*place, indices, &value, *mask)?;
            }
            Inst::Prefetch { index, .. } => {
                self.scalar(*index)?;
            }
            Inst::Barrier | Inst::CopyAsync { .. } | Inst::CommitCopies | Inst::WaitCopies { .. } => {
                return Err("threads work together".into());
            }
            Inst::Loop { var, begin, end, carried, body } => {
                let mut current = Vec::new();
                for c in carried {
                    current.push(self.get(c.init)?);
                }
                for i in self.scalar(*begin)? as i64..self.scalar(*end)? as i64 {
                    self.values[*var] = vec![i as u64];
                    for (c, value) in carried.iter().zip(current) {
                        self.values[c.param] = value;
                    }
                    self.body(body)?;
                    current = carried.iter().map(|c| self.get(c.next)).collect::<Result<_, _>>()?;
                }
                for (c, value) in carried.iter().zip(current) {
                    self.values[c.result] = value;
                }
            }
            Inst::If { condition, then_body, else_body, joins } => {
                let taken = self.scalar(*condition)? != 0;
                self.body(if taken { then_body } else { else_body })?;
                for join in joins {
                    self.values[join.result] =
                        self.get(if taken { join.then_value } else { join.else_value })?;
                }
            }
        }
        Ok(())
    }

    fn op(&mut self, ty: Type, op: &Op) -> Result<Vec<u64>, String> {
        let all = |bits: u64| vec![bits; ty.lanes as usize];
        Ok(match op {
            Op::Int(value) => all(from_int(ty.dtype, i128::from(*value))),
            Op::Float(bits) => all(from_float(ty.dtype, f64::from_bits(*bits))),
            Op::Size(i) => vec![*self.sizes.get(*i as usize).ok_or("no such extent")? as u64],
            Op::Warp | Op::Lane | Op::Shuffle { .. } => return Err("threads work together".into()),
            Op::Iota => (0..ty.lanes).map(|i| from_int(ty.dtype, i128::from(i))).collect(),
            Op::Splat(a) => all(self.scalar(*a)?),
            Op::Extract(a, lane) => vec![*self.get(*a)?.get(*lane as usize).ok_or("no such lane")?],
            Op::Concat(parts) => {
                let mut lanes = Vec::new();
                for part in parts {
                    lanes.extend(self.get(*part)?);
                }
                lanes
            }
            Op::Slice(a, first) => {
                let first = *first as usize;
                self.get(*a)?.get(first..first + ty.lanes as usize).ok_or("no such lanes")?.to_vec()
            }
            Op::Unary(op, a) => {
                let dtype = self.kernel.values[*a].dtype;
                self.get(*a)?.into_iter().map(|x| unary(*op, dtype, x)).collect::<Result<_, _>>()?
            }
            Op::Binary(op, a, b) => {
                let lanes = self.get(*a)?.into_iter().zip(self.get(*b)?);
                lanes.map(|(x, y)| binary(*op, ty.dtype, x, y)).collect::<Result<_, _>>()?
            }
            Op::Compare(op, a, b) => {
                let dtype = self.kernel.values[*a].dtype;
                let lanes = self.get(*a)?.into_iter().zip(self.get(*b)?);
                lanes.map(|(x, y)| u64::from(compare(*op, dtype, x, y))).collect()
            }
            Op::Select(condition, a, b) => {
                let condition = self.get(*condition)?;
                let lanes = self.get(*a)?.into_iter().zip(self.get(*b)?).enumerate();
                let chosen = |i: usize| condition[if condition.len() == 1 { 0 } else { i }] != 0;
                lanes.map(|(i, (x, y))| if chosen(i) { x } else { y }).collect()
            }
            Op::Cast(a) => {
                let from = self.kernel.values[*a].dtype;
                self.get(*a)?.into_iter().map(|x| cast(from, ty.dtype, x)).collect()
            }
            Op::Bitcast(a) => self.get(*a)?,
            Op::Fma(a, b, c) => {
                let (x, y, z) = (self.get(*a)?, self.get(*b)?, self.get(*c)?);
                (0..x.len()).map(|i| fma(ty.dtype, x[i], y[i], z[i])).collect::<Result<_, _>>()?
            }
            Op::Load { place, index, offset, mask } => {
                let first = self.scalar(*index)? as i64 + offset;
                let indices = (0..i64::from(ty.lanes)).map(|i| first + i).collect();
                self.read(*place, indices, ty.dtype, *mask)?
            }
            Op::Gather { place, indices, offset, mask } => {
                let indices = self.get(*indices)?.iter().map(|i| *i as i64 + offset).collect();
                self.read(*place, indices, ty.dtype, *mask)?
            }
        })
    }

    fn get(&self, value: Value) -> Result<Vec<u64>, String> {
        let lanes = &self.values[value];
        if lanes.is_empty() { Err(format!("{value} is not defined")) } else { Ok(lanes.clone()) }
    }

    fn scalar(&self, value: Value) -> Result<u64, String> {
        Ok(self.get(value)?[0])
    }

    fn memory(&mut self, place: Place) -> &mut Vec<u8> {
        match place {
            Place::Param(i) => &mut self.buffers[i as usize],
            Place::Local(i) => &mut self.locals[i as usize],
            Place::Shared(i) => &mut self.shared[i as usize],
        }
    }

    fn active(&self, mask: Option<Value>, lanes: usize) -> Result<Vec<bool>, String> {
        match mask {
            Some(mask) => Ok(self.get(mask)?.into_iter().map(|lane| lane != 0).collect()),
            None => Ok(vec![true; lanes]),
        }
    }

    fn read(
        &mut self,
        place: Place,
        indices: Vec<i64>,
        dtype: DType,
        mask: Option<Value>,
    ) -> Result<Vec<u64>, String> {
        let active = self.active(mask, indices.len())?;
        let (bytes, memory) = (dtype.bytes(), self.memory(place));
        let element = |(index, active): (i64, bool)| {
            if !active {
                return Ok(0);
            }
            let at = usize::try_from(index).map_err(|_| format!("load of element {index}"))? * bytes;
            let from = memory.get(at..at + bytes).ok_or_else(|| format!("load of element {index}"))?;
            Ok(from.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte)))
        };
        indices.into_iter().zip(active).map(element).collect()
    }

    fn write(
        &mut self,
        place: Place,
        indices: Vec<i64>,
        value: &[u64],
        mask: Option<Value>,
    ) -> Result<(), String> {
        let active = self.active(mask, indices.len())?;
        let dtype = match place {
            Place::Param(i) => self.kernel.buffers[i as usize].dtype,
            Place::Local(i) => self.kernel.locals[i as usize].dtype,
            Place::Shared(i) => self.kernel.shared[i as usize].dtype,
        };
        let (bytes, memory) = (dtype.bytes(), self.memory(place));
        for ((index, bits), active) in indices.into_iter().zip(value).zip(active) {
            if active {
                let at = usize::try_from(index).map_err(|_| format!("store of element {index}"))? * bytes;
                let to = memory.get_mut(at..at + bytes).ok_or_else(|| format!("store of element {index}"))?;
                to.copy_from_slice(&bits.to_le_bytes()[..bytes]);
            }
        }
        Ok(())
    }
}

/// The bits of an integer wrapped to the type.
pub fn from_int(dtype: DType, value: i128) -> u64 {
    if dtype == DType::Bool {
        return u64::from(value != 0);
    }
    let spare = 64 - dtype.bits();
    ((value as u64) << spare) >> spare
}

/// The bits of a float rounded to the type.
pub fn from_float(dtype: DType, value: f64) -> u64 {
    if dtype == DType::F32 { u64::from((value as f32).to_bits()) } else { value.to_bits() }
}

/// The integer value of bits.
fn to_int(dtype: DType, bits: u64) -> i128 {
    let extended = wrap(dtype, bits as i64);
    if dtype.is_signed() { i128::from(extended) } else { i128::from(extended as u64) }
}

/// The value of a float's bits; exact.
fn to_float(dtype: DType, bits: u64) -> f64 {
    if dtype == DType::F32 { f64::from(f32::from_bits(bits as u32)) } else { f64::from_bits(bits) }
}

/// Whether an element in memory is a NaN.
pub fn is_nan(dtype: DType, bytes: &[u8]) -> bool {
    to_float(dtype, element(bytes)).is_nan()
}

/// An element in memory for a message.
pub fn show(dtype: DType, bytes: &[u8]) -> String {
    let bits = element(bytes);
    if dtype.is_float() {
        format!("{:?} ({bits:#x})", to_float(dtype, bits))
    } else {
        to_int(dtype, bits).to_string()
    }
}

fn element(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte))
}

fn unary(op: UnaryOp, dtype: DType, bits: u64) -> Result<u64, String> {
    let (x, n) = (to_float(dtype, bits), to_int(dtype, bits));
    let of_float = dtype.is_float();
    Ok(match op {
        UnaryOp::Neg if of_float => bits ^ 1 << (dtype.bits() - 1),
        UnaryOp::Abs if of_float => bits & !(1 << (dtype.bits() - 1)),
        UnaryOp::Neg => from_int(dtype, -n),
        UnaryOp::Abs => from_int(dtype, n.abs()),
        UnaryOp::Not if dtype == DType::Bool => 1 - bits,
        UnaryOp::Not => from_int(dtype, !n),
        // The root of a binary32 rounded twice is the root rounded once.
        UnaryOp::Sqrt => from_float(dtype, x.sqrt()),
        UnaryOp::Floor => from_float(dtype, x.floor()),
        UnaryOp::Ceil => from_float(dtype, x.ceil()),
        UnaryOp::Trunc => from_float(dtype, x.trunc()),
        UnaryOp::Round => from_float(dtype, x.round_ties_even()),
        UnaryOp::IsNan => u64::from(x.is_nan()),
        intrinsic => return Err(format!("{} was not expanded", intrinsic.name())),
    })
}

fn binary(op: BinaryOp, dtype: DType, a: u64, b: u64) -> Result<u64, String> {
    match op {
        BinaryOp::Min => return Ok(if compare(CompareOp::Lt, dtype, a, b) { a } else { b }),
        BinaryOp::Max => return Ok(if compare(CompareOp::Gt, dtype, a, b) { a } else { b }),
        _ => {}
    }
    if dtype.is_float() {
        let (x, y) = (to_float(dtype, a), to_float(dtype, b));
        // Of two binary32 operands, the binary64 result rounds to the right binary32.
        let result = match op {
            BinaryOp::Add => x + y,
            BinaryOp::Sub => x - y,
            BinaryOp::Mul => x * y,
            BinaryOp::Div => x / y,
            other => return Err(format!("{} of {dtype}", other.name())),
        };
        return Ok(from_float(dtype, result));
    }
    let (x, y) = (to_int(dtype, a), to_int(dtype, b));
    let width = dtype.bits() as i128;
    // The amount of a shift is unsigned.
    let by = i128::from(b);
    let floor = |x: i128, y: i128| x.div_euclid(y) - i128::from(y < 0 && x.rem_euclid(y) != 0);
    Ok(from_int(
        dtype,
        match op {
            BinaryOp::Add => x + y,
            BinaryOp::Sub => x - y,
            BinaryOp::Mul => x.wrapping_mul(y),
            BinaryOp::Div => x.checked_div(y).unwrap_or(0),
            BinaryOp::Rem => x.checked_rem(y).unwrap_or(x),
            BinaryOp::FloorDiv => {
                if y == 0 {
                    0
                } else {
                    floor(x, y)
                }
            }
            BinaryOp::FloorMod => {
                if y == 0 {
                    x
                } else {
                    x - floor(x, y) * y
                }
            }
            BinaryOp::And => x & y,
            BinaryOp::Or => x | y,
            BinaryOp::Xor => x ^ y,
            BinaryOp::Shl => {
                if by < width {
                    x << by
                } else {
                    0
                }
            }
            BinaryOp::Shr => x >> by.min(100),
            other => return Err(format!("{} was not expanded", other.name())),
        },
    ))
}

fn compare(op: CompareOp, dtype: DType, a: u64, b: u64) -> bool {
    let order = match dtype.is_float() {
        true => to_float(dtype, a).partial_cmp(&to_float(dtype, b)),
        false => Some(to_int(dtype, a).cmp(&to_int(dtype, b))),
    };
    match op {
        CompareOp::Eq => order.is_some_and(|order| order.is_eq()),
        CompareOp::Ne => order.is_none_or(|order| order.is_ne()),
        CompareOp::Lt => order.is_some_and(|order| order.is_lt()),
        CompareOp::Le => order.is_some_and(|order| order.is_le()),
        CompareOp::Gt => order.is_some_and(|order| order.is_gt()),
        CompareOp::Ge => order.is_some_and(|order| order.is_ge()),
    }
}

fn cast(from: DType, to: DType, bits: u64) -> u64 {
    match (from.kind(), to.kind()) {
        (Kind::Float, Kind::Float) => from_float(to, to_float(from, bits)),
        (Kind::Float, Kind::Bool) => u64::from(to_float(from, bits) != 0.0),
        (Kind::Float, _) => {
            // Rust's conversions saturate and take NaN to 0, as kernels do; to 128 bits nothing is lost.
            let (low, high) = match to.is_signed() {
                true => (-(1i128 << (to.bits() - 1)), (1i128 << (to.bits() - 1)) - 1),
                false => (0, (1i128 << to.bits()) - 1),
            };
            from_int(to, (to_float(from, bits) as i128).clamp(low, high))
        }
        (_, Kind::Float) if to == DType::F32 => u64::from((to_int(from, bits) as f32).to_bits()),
        (_, Kind::Float) => (to_int(from, bits) as f64).to_bits(),
        (_, _) => from_int(to, to_int(from, bits)),
    }
}

fn fma(dtype: DType, a: u64, b: u64, c: u64) -> Result<u64, String> {
    match dtype {
        DType::F32 => {
            let [a, b, c] = [a, b, c].map(|bits| f32::from_bits(bits as u32));
            Ok(u64::from(a.mul_add(b, c).to_bits()))
        }
        DType::F64 => {
            let [a, b, c] = [a, b, c].map(f64::from_bits);
            Ok(a.mul_add(b, c).to_bits())
        }
        other => Err(format!("fma of {other}")),
    }
}
