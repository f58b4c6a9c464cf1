//! Buffers of a running program: bytes, and for what the program writes a mark on every written element.

use std::borrow::Cow;

use half::{bf16, f16};
use tilewright_dtype::DType;
use tilewright_dtype::float_format::FloatFormat;

/// One buffer.
pub(super) struct Memory<'a> {
    /// Element type as stored (in double mode floats that the program writes are `F64`).
    pub(super) dtype: DType,
    pub(super) shape: Vec<i64>,
    pub(super) strides: Vec<i64>,
    pub(super) bytes: Cow<'a, [u8]>,
    /// 1 for written elements; absent for inputs.
    pub(super) written: Option<Vec<u8>>,
}

/// Elements that an access touches.
pub(super) enum Span<'s> {
    /// Consecutive ones: those of lanes `from` to `to` (exclusive), `start` being the first; the other lanes
    /// take no part.
    Run { start: usize, from: usize, to: usize },
    /// One a lane, `step` apart; `last` is that of the last lane.
    Even { start: usize, step: usize, last: usize },
    /// One a lane; [`SKIP`] for lanes that take no part.
    Each(&'s [usize]),
}

/// Marks a lane that takes no part.
pub(super) const SKIP: usize = usize::MAX;

impl<'a> Memory<'a> {
    /// A buffer around existing bytes, all of them readable.
    pub(super) fn input(dtype: DType, shape: Vec<i64>, bytes: &'a [u8]) -> Memory<'a> {
        let strides = row_major(&shape);
        Memory { dtype, shape, strides, bytes: Cow::Borrowed(bytes), written: None }
    }

    /// A buffer in which nothing is written yet.
    pub(super) fn fresh(dtype: DType, shape: Vec<i64>) -> Memory<'a> {
        let len = shape.iter().product::<i64>().max(0) as usize;
        let strides = row_major(&shape);
        let bytes = Cow::Owned(vec![0; len * dtype.bytes()]);
        Memory { dtype, shape, strides, bytes, written: Some(vec![0; len]) }
    }

    /// How many elements there are.
    pub(super) fn elements(&self) -> usize {
        self.shape.iter().product::<i64>().max(0) as usize
    }

    /// Forgets what was written.
    pub(super) fn forget(&mut self) {
        if let Some(written) = &mut self.written {
            written.fill(0);
        }
    }

    /// The first unwritten element that the access would read.
    pub(super) fn find_unwritten(&self, span: &Span) -> Option<usize> {
        let written = self.written.as_ref()?;
        match span {
            Span::Run { start, from, to } => {
                let marks = &written[*start..start + to - from];
                marks.iter().position(|&m| m == 0).map(|at| start + at)
            }
            Span::Even { start, step, last } => {
                (*start..=*last).step_by(*step).find(|&position| written[position] == 0)
            }
            Span::Each(at) => at.iter().copied().find(|&at| at != SKIP && written[at] == 0),
        }
    }

    /// The first element that was never written.
    pub(super) fn find_never_written(&self) -> Option<usize> {
        self.written.as_ref()?.iter().position(|&mark| mark == 0)
    }

    fn mark(&mut self, span: &Span) {
        let Some(written) = &mut self.written else { return };
        match span {
            Span::Run { start, from, to } => written[*start..start + to - from].fill(1),
            Span::Even { start, step, last } => {
                written[*start..=*last].iter_mut().step_by(*step).for_each(|mark| *mark = 1);
            }
            Span::Each(at) => at.iter().filter(|&&at| at != SKIP).for_each(|&at| written[at] = 1),
        }
    }

    /// Loads integers or truth values.
    pub(super) fn load_int(&self, span: &Span, out: &mut [i64]) {
        let b = &self.bytes;
        match self.dtype {
            DType::Bool => load(b, span, out, |[x]| (x != 0) as i64),
            DType::I8 | DType::I4 | DType::I2 => load(b, span, out, |[x]| x as i8 as i64),
            DType::U8 | DType::U4 | DType::U2 => load(b, span, out, |[x]| x as i64),
            DType::I16 => load(b, span, out, |x| i16::from_le_bytes(x) as i64),
            DType::U16 => load(b, span, out, |x| u16::from_le_bytes(x) as i64),
            DType::I32 => load(b, span, out, |x| i32::from_le_bytes(x) as i64),
            DType::U32 => load(b, span, out, |x| u32::from_le_bytes(x) as i64),
            DType::I64 | DType::U64 => load(b, span, out, i64::from_le_bytes),
            DType::F16
            | DType::BF16
            | DType::F32
            | DType::F64
            | DType::F8E4M3FN
            | DType::F8E4M3FNUZ
            | DType::F8E5M2
            | DType::F8E5M2FNUZ
            | DType::F8E8M0
            | DType::F4E2M1
            | DType::String => {}
        }
    }

    /// Loads floats of up to 32 bits.
    pub(super) fn load_single(&self, span: &Span, out: &mut [f32]) {
        let b = &self.bytes;
        match self.dtype {
            DType::F32 => load(b, span, out, f32::from_le_bytes),
            DType::F16 => load(b, span, out, |x| f16::from_le_bytes(x).to_f32()),
            DType::BF16 => load(b, span, out, |x| bf16::from_le_bytes(x).to_f32()),
            _ => {
                if let Some(format) = FloatFormat::of(self.dtype) {
                    load(b, span, out, |[x]| format.decode(x as u16) as f32);
                }
            }
        }
    }

    /// Loads floats of any type.
    pub(super) fn load_double(&self, span: &Span, out: &mut [f64]) {
        let b = &self.bytes;
        match self.dtype {
            DType::F64 => load(b, span, out, f64::from_le_bytes),
            DType::F32 => load(b, span, out, |x| f32::from_le_bytes(x) as f64),
            DType::F16 => load(b, span, out, |x| f16::from_le_bytes(x).to_f64()),
            DType::BF16 => load(b, span, out, |x| bf16::from_le_bytes(x).to_f64()),
            _ => {
                if let Some(format) = FloatFormat::of(self.dtype) {
                    load(b, span, out, |[x]| format.decode(x as u16));
                }
            }
        }
    }

    /// Stores integers or truth values.
    pub(super) fn store_int(&mut self, span: &Span, values: &[i64]) {
        let b = self.bytes.to_mut();
        match self.dtype.bytes() {
            1 => store(b, span, values, |x| [x as u8]),
            2 => store(b, span, values, |x| (x as u16).to_le_bytes()),
            4 => store(b, span, values, |x| (x as u32).to_le_bytes()),
            _ => store(b, span, values, i64::to_le_bytes),
        }
        self.mark(span);
    }

    /// Stores floats that are values of the buffer's type.
    pub(super) fn store_single(&mut self, span: &Span, values: &[f32]) {
        let b = self.bytes.to_mut();
        match self.dtype {
            DType::F32 => store(b, span, values, f32::to_le_bytes),
            DType::F16 => store(b, span, values, |x| f16::from_f32(x).to_le_bytes()),
            DType::BF16 => store(b, span, values, |x| bf16::from_f32(x).to_le_bytes()),
            _ => {
                if let Some(format) = FloatFormat::of(self.dtype) {
                    store(b, span, values, |x| [format.encode(x as f64) as u8]);
                }
            }
        }
        self.mark(span);
    }

    /// Stores doubles into a buffer of doubles.
    pub(super) fn store_double(&mut self, span: &Span, values: &[f64]) {
        store(self.bytes.to_mut(), span, values, f64::to_le_bytes);
        self.mark(span);
    }

    /// The indices of the element at a flat position.
    pub(super) fn indices_of(&self, position: usize) -> Vec<i64> {
        let mut rest = position as i64;
        let index = |&stride: &i64| {
            let index = if stride == 0 { 0 } else { rest / stride };
            rest -= index * stride;
            index
        };
        self.strides.iter().map(index).collect()
    }
}

fn row_major(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for dim in (1..shape.len()).rev() {
        strides[dim - 1] = strides[dim] * shape[dim];
    }
    strides
}

#[inline(always)]
fn load<T: Clone + Default, const N: usize>(
    bytes: &[u8],
    span: &Span,
    out: &mut [T],
    decode: impl Fn([u8; N]) -> T,
) {
    let (elements, _) = bytes.as_chunks::<N>();
    match span {
        Span::Run { start, from, to } => {
            out[..*from].fill(T::default());
            out[*to..].fill(T::default());
            for (x, element) in out[*from..*to].iter_mut().zip(&elements[*start..]) {
                *x = decode(*element);
            }
        }
        Span::Even { start, step, last } => {
            for (x, element) in out.iter_mut().zip(elements[*start..=*last].iter().step_by(*step)) {
                *x = decode(*element);
            }
        }
        Span::Each(at) => {
            for (x, &at) in out.iter_mut().zip(*at) {
                *x = if at == SKIP { T::default() } else { decode(elements[at]) };
            }
        }
    }
}

#[inline(always)]
fn store<T: Copy, const N: usize>(
    bytes: &mut [u8],
    span: &Span,
    values: &[T],
    encode: impl Fn(T) -> [u8; N],
) {
    let (elements, _) = bytes.as_chunks_mut::<N>();
    match span {
        Span::Run { start, from, to } => {
            for (element, &x) in elements[*start..].iter_mut().zip(&values[*from..*to]) {
                *element = encode(x);
            }
        }
        Span::Even { start, step, last } => {
            for (element, &x) in elements[*start..=*last].iter_mut().step_by(*step).zip(values) {
                *element = encode(x);
            }
        }
        Span::Each(at) => {
            for (&at, &x) in at.iter().zip(values) {
                if at != SKIP {
                    elements[at] = encode(x);
                }
            }
        }
    }
}
