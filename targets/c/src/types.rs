//! Names, element types and constants in C.

use tilewright_dtype::DType;
use tilewright_te::expr::wrap;

/// The type of a value, or nothing for types that must have been expanded before.
pub(crate) fn name(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Bool => "_Bool",
        DType::I8 => "int8_t",
        DType::U8 => "uint8_t",
        DType::I16 => "int16_t",
        DType::U16 => "uint16_t",
        DType::I32 => "int32_t",
        DType::U32 => "uint32_t",
        DType::I64 => "int64_t",
        DType::U64 => "uint64_t",
        DType::F32 => "float",
        DType::F64 => "double",
        DType::F16
        | DType::BF16
        | DType::F8E4M3FN
        | DType::F8E4M3FNUZ
        | DType::F8E5M2
        | DType::F8E5M2FNUZ
        | DType::F8E8M0
        | DType::F4E2M1
        | DType::I4
        | DType::U4
        | DType::I2
        | DType::U2
        | DType::String => return None,
    })
}

/// The type of an element in memory: a truth value is a byte there, which need not be 0 or 1 to be read.
pub(crate) fn in_memory(dtype: DType) -> Option<&'static str> {
    if dtype == DType::Bool { Some("uint8_t") } else { name(dtype) }
}

/// The unsigned type in which arithmetic of integers wraps. Of narrower types it would be `int`, which overflows.
pub(crate) fn wrapping(dtype: DType) -> &'static str {
    if dtype.bits() == 64 { "uint64_t" } else { "uint32_t" }
}

/// An integer constant, truth values included.
pub(crate) fn int(dtype: DType, value: i64) -> String {
    let value = wrap(dtype, value);
    match dtype {
        DType::I32 if value == i64::from(i32::MIN) => "INT32_MIN".to_owned(),
        DType::I64 if value == i64::MIN => "INT64_MIN".to_owned(),
        DType::I64 if i32::try_from(value).is_err() && value < 0 => format!("(-INT64_C({}))", -value),
        DType::I64 if i32::try_from(value).is_err() => format!("INT64_C({value})"),
        DType::U64 => format!("UINT64_C({})", value as u64),
        DType::U32 => format!("{value}u"),
        DType::Bool => u8::from(value != 0).to_string(),
        _ if value < 0 => format!("({value})"),
        _ => value.to_string(),
    }
}

/// A float constant: the shortest decimal that reads back as the same bits.
pub(crate) fn float(dtype: DType, value: f64) -> String {
    let single = dtype == DType::F32;
    let text = match value {
        _ if value.is_nan() => "NAN".to_owned(),
        _ if value.is_infinite() || (single && (value as f32).is_infinite()) => {
            if value > 0.0 { "INFINITY" } else { "-INFINITY" }.to_owned()
        }
        _ if single => format!("{:?}f", value as f32),
        _ => format!("{value:?}"),
    };
    match text.starts_with('-') {
        true => format!("({text})"),
        false => text,
    }
}

/// The name of a kernel in C: without dots, and none that C or its library has for something of its own.
pub fn symbol(name: &str) -> String {
    format!("k_{}", name.replace(['.', '$'], "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_the_type_that_they_are_computed_in() {
        assert_eq!(int(DType::I8, 200), "(-56)");
        assert_eq!(int(DType::U8, -1), "255");
        assert_eq!(int(DType::U32, -1), "4294967295u");
        assert_eq!(int(DType::I32, i64::from(i32::MIN)), "INT32_MIN");
        assert_eq!(int(DType::I64, 7), "7");
        assert_eq!(int(DType::I64, 1 << 31), "INT64_C(2147483648)");
        assert_eq!(int(DType::I64, -(1 << 40)), "(-INT64_C(1099511627776))");
        assert_eq!(int(DType::I64, i64::MIN), "INT64_MIN");
        assert_eq!(int(DType::U64, -1), "UINT64_C(18446744073709551615)");
        assert_eq!(int(DType::Bool, 2), "1");
    }

    #[test]
    fn floats_read_back_as_the_same_bits() {
        assert_eq!(float(DType::F32, 1.0), "1.0f");
        assert_eq!(float(DType::F32, f64::from(0.1f32)), "0.1f");
        assert_eq!(float(DType::F32, f64::from(f32::MIN_POSITIVE / 4.0)), "2.938736e-39f");
        assert_eq!(float(DType::F64, -0.0), "(-0.0)");
        assert_eq!(float(DType::F64, 0.1), "0.1");
        assert_eq!(float(DType::F32, 1e300), "INFINITY");
        assert_eq!(float(DType::F64, f64::NEG_INFINITY), "(-INFINITY)");
        assert_eq!(float(DType::F64, f64::NAN), "NAN");
    }

    #[test]
    fn names_are_those_of_c() {
        assert_eq!(symbol("u12ab.0$rotate"), "k_u12ab_0_rotate");
    }
}
