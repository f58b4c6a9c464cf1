//! The `.npy` form of one array: header and elements.
//!
//! Types that numpy lacks take the forms of the `ml_dtypes` package: bfloat16 is `V2` (or `u2`), 8-bit and
//! 4-bit floats are `V1` (or `u1`), 4-bit and 2-bit integers are `i1` and `u1` holding their values. Which type is
//! meant follows from what the model expects, so the reader is told.

use std::io::Read;

use tilewright_dtype::DType;
use tilewright_runtime::{Tensor, TensorError};

/// What files begin with.
pub(super) const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// Longest header that is read; numpy itself refuses longer ones.
const MAX_HEADER: usize = 10_000;

/// Why an array cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum NpyError {
    /// What the system says, or the archive around the array.
    #[error("{0}")]
    Read(std::io::Error),
    /// The file is none of the format.
    #[error("not a .npy array")]
    NotNpy,
    /// A version of the format that nobody knows.
    #[error("unknown version {0} of the .npy format")]
    Version(u8),
    /// The file is shorter than its header says that the header is.
    #[error("the file ends within the header")]
    CutHeader,
    /// A header of so many bytes, more than numpy reads.
    #[error("a header of {0} bytes")]
    LongHeader(usize),
    /// A header that is not UTF-8.
    #[error("the header is not text")]
    NoText,
    /// A header without one of its entries.
    #[error("the header lacks '{0}'")]
    Lacks(&'static str),
    /// Elements with fields.
    #[error("arrays of records are not supported")]
    Records,
    /// A type that is none of [`DType`]'s.
    #[error("arrays of type `{0}` are not supported")]
    Type(String),
    /// A type of bytes that may be one of [`DType`]'s, where the one expected is not, or nothing is.
    #[error("elements of type `V{0}` stand for no type that is expected here")]
    Unclear(usize),
    /// Extents that are no tuple.
    #[error("the header's shape is no tuple")]
    Shape,
    /// An extent that is no number.
    #[error("extent `{0}`")]
    Extent(String),
    /// More elements than any machine holds.
    #[error("the array is too large")]
    TooLarge,
    /// Another number of bytes than the header says; `got` is none where there are more.
    #[error("the header promises {promised} bytes of elements, the file has {}", got.map_or("more".to_string(), |n| n.to_string()))]
    Size {
        /// Bytes that the header says.
        promised: usize,
        /// Bytes that are there.
        got: Option<usize>,
    },
    /// A byte that is no value of a narrow type.
    #[error("element {at} is {value}, which is no {dtype}")]
    Range {
        /// Which element, counted in row-major order.
        at: usize,
        /// The byte.
        value: i8,
        /// The type.
        dtype: DType,
    },
    /// No memory for the tensor.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// Reads an array; `expected` is the type that the reader of its data wants, where it is known.
pub(super) fn read(reader: &mut dyn Read, expected: Option<DType>) -> Result<Tensor, NpyError> {
    let header = read_header(reader)?;
    let header = Header::parse(&header)?;
    let count = header.dims.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim));
    let size = count.and_then(|count| count.checked_mul(header.item)).ok_or(NpyError::TooLarge)?;
    let mut bytes = Vec::new();
    // One byte more than needed tells whether there is more.
    reader.take((size as u64).saturating_add(1)).read_to_end(&mut bytes).map_err(NpyError::Read)?;
    if bytes.len() != size {
        return Err(NpyError::Size { promised: size, got: (bytes.len() < size).then_some(bytes.len()) });
    }
    if header.big_endian {
        bytes.chunks_exact_mut(header.item).for_each(<[u8]>::reverse);
    }
    if header.fortran {
        bytes = row_major(&bytes, header.item, &header.dims);
    }
    let dtype = header.dtype(expected)?;
    if dtype == DType::Bool {
        bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
    }
    check_range(dtype, &bytes)?;
    Ok(Tensor::from_bytes(dtype, &header.dims, bytes)?)
}

/// The array's bytes as a file; `None` for strings.
pub(super) fn write(tensor: &Tensor) -> Option<Vec<u8>> {
    let descr = descr(tensor.dtype())?;
    let dims: Vec<String> = tensor.dims().iter().map(|dim| format!("{dim},")).collect();
    let mut header =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}), }}", dims.join(" "));
    // The elements start at a multiple of 64 bytes, after a line feed.
    let unpadded = MAGIC.len() + 4 + header.len() + 1;
    header.push_str(&" ".repeat(unpadded.next_multiple_of(64) - unpadded));
    header.push('\n');
    let elements = tensor.bytes();
    let mut file = Vec::with_capacity(MAGIC.len() + 4 + header.len() + elements.len());
    file.extend_from_slice(MAGIC);
    file.extend_from_slice(&[1, 0]);
    file.extend_from_slice(&(header.len() as u16).to_le_bytes());
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(elements);
    Some(file)
}

fn descr(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Bool => "|b1",
        DType::I8 | DType::I4 | DType::I2 => "|i1",
        DType::U8 | DType::U4 | DType::U2 => "|u1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::U16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::F16 => "<f2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::BF16 => "|V2",
        DType::F8E4M3FN | DType::F8E4M3FNUZ | DType::F8E5M2 | DType::F8E5M2FNUZ | DType::F8E8M0 => "|V1",
        DType::F4E2M1 => "|V1",
        DType::String => return None,
    })
}

fn read_header(reader: &mut dyn Read) -> Result<String, NpyError> {
    let cut = |_| NpyError::CutHeader;
    let mut start = [0; 8];
    reader.read_exact(&mut start).map_err(cut)?;
    if &start[..6] != MAGIC {
        return Err(NpyError::NotNpy);
    }
    let length = match start[6] {
        1 => {
            let mut length = [0; 2];
            reader.read_exact(&mut length).map_err(cut)?;
            usize::from(u16::from_le_bytes(length))
        }
        2 | 3 => {
            let mut length = [0; 4];
            reader.read_exact(&mut length).map_err(cut)?;
            u32::from_le_bytes(length) as usize
        }
        version => return Err(NpyError::Version(version)),
    };
    if length > MAX_HEADER {
        return Err(NpyError::LongHeader(length));
    }
    let mut header = vec![0; length];
    reader.read_exact(&mut header).map_err(cut)?;
    String::from_utf8(header).map_err(|_| NpyError::NoText)
}

/// What the header says of the elements.
struct Header {
    kind: char,
    item: usize,
    big_endian: bool,
    fortran: bool,
    dims: Vec<usize>,
}

impl Header {
    /// Parses the Python dictionary that a header is.
    fn parse(text: &str) -> Result<Header, NpyError> {
        let value = |key: &'static str| {
            let (_, rest) = text.split_once(&format!("'{key}':")).ok_or(NpyError::Lacks(key))?;
            Ok::<&str, NpyError>(rest.trim_start())
        };
        let descr = value("descr")?;
        let quoted = descr.strip_prefix('\'').and_then(|rest| rest.split_once('\''));
        let (descr, _) = quoted.ok_or(NpyError::Records)?;
        let (order, rest) = match descr.chars().next() {
            Some(order @ ('<' | '>' | '|' | '=')) => (order, &descr[1..]),
            _ => ('=', descr),
        };
        let unsupported = || NpyError::Type(descr.to_string());
        let kind = rest.chars().next().ok_or_else(unsupported)?;
        let item = rest.get(1..).and_then(|digits| digits.parse().ok()).ok_or_else(unsupported)?;
        if !matches!((kind, item), ('b', 1) | ('i' | 'u', 1 | 2 | 4 | 8) | ('f', 2 | 4 | 8) | ('V', 1 | 2)) {
            return Err(unsupported());
        }
        let fortran = value("fortran_order")?.starts_with("True");
        let shape = value("shape")?.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        let (shape, _) = shape.ok_or(NpyError::Shape)?;
        let dims = shape.split(',').map(|dim| dim.trim().trim_end_matches('L')).filter(|dim| !dim.is_empty());
        let extent = |dim: &str| dim.parse().map_err(|_| NpyError::Extent(dim.to_string()));
        let dims = dims.map(extent).collect::<Result<_, _>>()?;
        Ok(Header { kind, item, big_endian: order == '>', fortran, dims })
    }

    fn dtype(&self, expected: Option<DType>) -> Result<DType, NpyError> {
        let own = match (self.kind, self.item) {
            ('b', 1) => Some(DType::Bool),
            ('i', 1) => Some(DType::I8),
            ('i', 2) => Some(DType::I16),
            ('i', 4) => Some(DType::I32),
            ('i', 8) => Some(DType::I64),
            ('u', 1) => Some(DType::U8),
            ('u', 2) => Some(DType::U16),
            ('u', 4) => Some(DType::U32),
            ('u', 8) => Some(DType::U64),
            ('f', 2) => Some(DType::F16),
            ('f', 4) => Some(DType::F32),
            ('f', 8) => Some(DType::F64),
            _ => None,
        };
        let stands_for = |dtype: DType| match descr(dtype) {
            Some("|V2") => matches!((self.kind, self.item), ('V' | 'u', 2)),
            Some("|V1") => matches!((self.kind, self.item), ('V' | 'u', 1)),
            Some("|i1") => (self.kind, self.item) == ('i', 1),
            Some("|u1") => (self.kind, self.item) == ('u', 1),
            Some(_) | None => false,
        };
        expected.filter(|&dtype| stands_for(dtype)).or(own).ok_or(NpyError::Unclear(self.item))
    }
}

/// Elements from column-major to row-major order.
fn row_major(bytes: &[u8], item: usize, dims: &[usize]) -> Vec<u8> {
    let mut strides = Vec::with_capacity(dims.len());
    let mut stride = item;
    for &dim in dims {
        strides.push(stride);
        stride *= dim;
    }
    let mut index = vec![0; dims.len()];
    let mut result = Vec::with_capacity(bytes.len());
    while result.len() < bytes.len() {
        let at: usize = index.iter().zip(&strides).map(|(i, stride)| i * stride).sum();
        result.extend_from_slice(&bytes[at..at + item]);
        for (i, &dim) in index.iter_mut().zip(dims).rev() {
            *i += 1;
            if *i < dim {
                break;
            }
            *i = 0;
        }
    }
    result
}

/// Narrow types take a byte an element, which can hold what they cannot.
fn check_range(dtype: DType, bytes: &[u8]) -> Result<(), NpyError> {
    let fits: fn(u8) -> bool = match dtype {
        DType::I4 => |byte| (-8..8).contains(&(byte as i8)),
        DType::I2 => |byte| (-2..2).contains(&(byte as i8)),
        DType::U4 | DType::F4E2M1 => |byte| byte < 16,
        DType::U2 => |byte| byte < 4,
        _ => return Ok(()),
    };
    match bytes.iter().position(|&byte| !fits(byte)) {
        None => Ok(()),
        Some(at) => Err(NpyError::Range { at, value: bytes[at] as i8, dtype }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, elements: &[u8]) -> Vec<u8> {
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend_from_slice(&(header.len() as u16).to_le_bytes());
        file.extend_from_slice(header.as_bytes());
        file.extend_from_slice(elements);
        file
    }

    fn check(
        header: &str,
        elements: &[u8],
        expected: Option<DType>,
        result: Result<(DType, &[usize], &[u8]), &str>,
    ) {
        let read = read(&mut file(header, elements).as_slice(), expected).map_err(|error| error.to_string());
        let seen = read.as_ref().map(|tensor| (tensor.dtype(), tensor.dims(), tensor.bytes()));
        assert_eq!(seen.map_err(String::as_str), result, "{header}");
    }

    #[test]
    fn headers_as_numpy_writes_them() {
        let plain = "{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }  \n";
        check(plain, &[1, 0, 2, 0], None, Ok((DType::I16, &[2], &[1, 0, 2, 0])));
        let scalar = "{'descr': '|b1', 'fortran_order': False, 'shape': (), }";
        check(scalar, &[5], None, Ok((DType::Bool, &[], &[1])));
        let big = "{'descr': '>i2', 'fortran_order': False, 'shape': (2,), }";
        check(big, &[0, 1, 0, 2], None, Ok((DType::I16, &[2], &[1, 0, 2, 0])));
        let fortran = "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }";
        check(fortran, &[1, 4, 2, 5, 3, 6], None, Ok((DType::U8, &[2, 3], &[1, 2, 3, 4, 5, 6])));
        let empty = "{'descr': '<f4', 'fortran_order': True, 'shape': (0, 3), }";
        check(empty, &[], None, Ok((DType::F32, &[0, 3], &[])));
    }

    #[test]
    fn types_numpy_lacks_follow_from_what_is_expected() {
        let void = "{'descr': '|V2', 'fortran_order': False, 'shape': (1,), }";
        check(void, &[0x80, 0x3f], Some(DType::BF16), Ok((DType::BF16, &[1], &[0x80, 0x3f])));
        check(void, &[0, 0], None, Err("elements of type `V2` stand for no type that is expected here"));
        let bytes = "{'descr': '|i1', 'fortran_order': False, 'shape': (1,), }";
        check(bytes, &[0xf8], Some(DType::I4), Ok((DType::I4, &[1], &[0xf8])));
        check(bytes, &[8], Some(DType::I4), Err("element 0 is 8, which is no i4"));
        check(bytes, &[8], Some(DType::F32), Ok((DType::I8, &[1], &[8])));
    }

    #[test]
    fn damaged_arrays_are_errors() {
        let short = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
        check(short, &[0; 4], None, Err("the header promises 8 bytes of elements, the file has 4"));
        check(short, &[0; 9], None, Err("the header promises 8 bytes of elements, the file has more"));
        let huge = "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 99999999999), }";
        check(huge, &[], None, Err("the array is too large"));
        let text = "{'descr': '<U3', 'fortran_order': False, 'shape': (2,), }";
        check(text, &[], None, Err("arrays of type `<U3` are not supported"));
        check("{}", &[], None, Err("the header lacks 'descr'"));
        assert_eq!(read(&mut &b"PK"[..], None).unwrap_err().to_string(), "the file ends within the header");
    }

    #[test]
    fn what_is_written_is_read() {
        for dtype in DType::ALL.into_iter().filter(|&dtype| dtype != DType::String) {
            let bytes = vec![1; 6 * dtype.bytes()];
            let tensor = Tensor::from_bytes(dtype, &[2, 3], bytes).unwrap();
            let file = write(&tensor).unwrap();
            assert_eq!((file.len() - 6 * dtype.bytes()) % 64, 0);
            assert_eq!(read(&mut file.as_slice(), Some(dtype)).unwrap(), tensor);
        }
    }
}
