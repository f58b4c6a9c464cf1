//! Functions that kernels call where C has no expression for what they do. Each is there only in programs that call it, so that
//! compilers find none to warn of.

use std::collections::BTreeSet;

use tilewright_dtype::DType;

use crate::types::{name, wrapping};

/// A function of the prelude.
struct Helper {
    name: String,
    text: String,
}

/// What a program begins with, whatever it is: headers, and what makes compilers keep to the letter.
const HEAD: &str = "\
/* Portable C99. Results are exact to the bit where the compiler keeps to IEEE 754: never build with -ffast-math, and with a compiler
   that knows none of the pragmas below, tell it not to contract a * b + c. Link with -lm. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__FAST_MATH__)
#error \"this code must not be compiled with -ffast-math\"
#endif
#if defined(__FLT_EVAL_METHOD__) && (__FLT_EVAL_METHOD__ < 0 || __FLT_EVAL_METHOD__ == 1 || __FLT_EVAL_METHOD__ == 2)
#error \"this code needs float arithmetic of the precision of its types; on x86, -mfpmath=sse\"
#endif
#if defined(__BYTE_ORDER__) && defined(__ORDER_LITTLE_ENDIAN__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error \"this code needs a little-endian machine\"
#endif
#if defined(__clang__) || !defined(__GNUC__)
#pragma STDC FP_CONTRACT OFF
#elif !defined(__STRICT_ANSI__)
/* GCC contracts unless it is told to keep to the standard. */
#pragma GCC optimize (\"fp-contract=off\")
#endif

";

/// What a program of these pieces of code begins with: the head, and the functions that they call.
pub(crate) fn prelude<'a>(code: impl IntoIterator<Item = &'a str>) -> String {
    let helpers = all();
    let mut called = BTreeSet::new();
    code.into_iter().for_each(|code| called.extend(calls(code)));
    // Helpers call those before them.
    let mut texts = Vec::new();
    for helper in helpers.iter().rev() {
        if called.contains(helper.name.as_str()) {
            called.extend(calls(&helper.text));
            texts.push(helper.text.as_str());
        }
    }
    texts.reverse();
    let mut out = String::from(HEAD);
    texts.iter().for_each(|text| out.push_str(text));
    if !texts.is_empty() {
        out.push('\n');
    }
    out
}

/// The names in a text that are those of helpers.
fn calls(code: &str) -> impl Iterator<Item = &str> {
    code.match_indices("tw_").filter_map(|(at, _)| {
        let rest = &code[at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
        Some(&rest[..end])
    })
}

/// Every helper, after those that it calls.
fn all() -> Vec<Helper> {
    let mut helpers = Vec::new();
    for dtype in [DType::F32, DType::F64] {
        bits(dtype, &mut helpers);
    }
    let integers =
        [DType::I8, DType::I16, DType::I32, DType::I64, DType::U8, DType::U16, DType::U32, DType::U64];
    for dtype in integers {
        let Some(ty) = name(dtype) else { continue };
        division(dtype, ty, &mut helpers);
        shifts(dtype, ty, &mut helpers);
        for from in [DType::F32, DType::F64] {
            saturating(from, dtype, ty, &mut helpers);
        }
    }
    helpers
}

/// A function of one expression.
fn helper(helpers: &mut Vec<Helper>, ty: &str, name: String, params: &str, statements: &[&str]) {
    let mut text = format!("static inline {ty} {name}({params}) {{\n");
    statements.iter().for_each(|statement| text.push_str(&format!("  {statement};\n")));
    text.push_str("}\n");
    helpers.push(Helper { name, text });
}

/// The bits of a float, and the float of bits.
fn bits(dtype: DType, helpers: &mut Vec<Helper>) {
    let (ty, bits) = if dtype == DType::F32 { ("float", "uint32_t") } else { ("double", "uint64_t") };
    let copies = |to: &str| [format!("{to} y"), "memcpy(&y, &x, sizeof y)".to_owned(), "return y".to_owned()];
    let of_float = copies(bits);
    let of_float: Vec<&str> = of_float.iter().map(String::as_str).collect();
    helper(helpers, bits, format!("tw_bits_of_{dtype}"), &format!("{ty} x"), &of_float);
    let of_bits = copies(ty);
    let of_bits: Vec<&str> = of_bits.iter().map(String::as_str).collect();
    helper(helpers, ty, format!("tw_{dtype}_of_bits"), &format!("{bits} x"), &of_bits);
}

/// Division that never traps: by zero it gives 0 and the dividend, and the least integer by -1 wraps.
fn division(dtype: DType, ty: &str, helpers: &mut Vec<Helper>) {
    let wide = wrapping(dtype);
    let params = format!("{ty} x, {ty} y");
    if !dtype.is_signed() {
        let div = format!("return ({ty})(y == 0 ? 0 : x / y)");
        helper(helpers, ty, format!("tw_div_{dtype}"), &params, &[&div]);
        let rem = format!("return ({ty})(y == 0 ? x : x % y)");
        helper(helpers, ty, format!("tw_rem_{dtype}"), &params, &[&rem]);
        return;
    }
    let div = format!("return ({ty})(y == 0 ? 0 : y == -1 ? 0 - ({wide})x : ({wide})(x / y))");
    helper(helpers, ty, format!("tw_div_{dtype}"), &params, &[&div]);
    let rem = format!("return ({ty})(y == 0 ? x : y == -1 ? 0 : x % y)");
    helper(helpers, ty, format!("tw_rem_{dtype}"), &params, &[&rem]);
    // Of both roundings down: whether the remainder has another sign than the divisor.
    let r = format!("const {ty} r = tw_rem_{dtype}(x, y)");
    let is_below = "const int is_below = y != 0 && r != 0 && (r < 0) != (y < 0)";
    let floordiv = format!("return ({ty})(({wide})tw_div_{dtype}(x, y) - ({wide})is_below)");
    helper(helpers, ty, format!("tw_floordiv_{dtype}"), &params, &[&r, is_below, &floordiv]);
    let floormod = format!("return ({ty})(is_below ? ({wide})r + ({wide})y : ({wide})r)");
    helper(helpers, ty, format!("tw_floormod_{dtype}"), &params, &[&r, is_below, &floormod]);
}

/// Shifts by an unsigned amount: one of the width or more shifts everything out.
fn shifts(dtype: DType, ty: &str, helpers: &mut Vec<Helper>) {
    let (wide, width) = (wrapping(dtype), dtype.bits());
    let params = format!("{ty} x, {ty} by");
    let n = format!("const u{0} n = (u{0})by", ty.trim_start_matches('u'));
    let shl = format!("return ({ty})(n < {width} ? ({wide})x << n : 0)");
    helper(helpers, ty, format!("tw_shl_{dtype}"), &params, &[&n, &shl]);
    // What C makes of negative numbers is up to compilers, so those are shifted as their complements.
    let shr = match dtype.is_signed() {
        true => format!("return ({ty})(x < 0 ? ~(n < {width} ? ~x >> n : 0) : n < {width} ? x >> n : 0)"),
        false => format!("return ({ty})(n < {width} ? x >> n : 0)"),
    };
    helper(helpers, ty, format!("tw_shr_{dtype}"), &params, &[&n, &shr]);
}

/// Conversion toward zero to the nearest number of the type; 0 of a NaN.
fn saturating(from: DType, dtype: DType, ty: &str, helpers: &mut Vec<Helper>) {
    let (of, suffix) = if from == DType::F32 { ("float", "f") } else { ("double", "") };
    let max = format!("{}_MAX", ty.trim_end_matches("_t").to_uppercase());
    let (bits, least, min) = match dtype.is_signed() {
        true => (
            dtype.bits() - 1,
            format!("-{}.0{suffix}", 1u128 << (dtype.bits() - 1)),
            max.replace("MAX", "MIN"),
        ),
        false => (dtype.bits(), format!("0.0{suffix}"), "0".to_owned()),
    };
    let text = format!(
        "return ({ty})(x >= {least} ? x < {}.0{suffix} ? ({ty})x : {max} : x < {least} ? {min} : 0)",
        1u128 << bits
    );
    helper(helpers, ty, format!("tw_{dtype}_of_{from}"), &format!("{of} x"), &[&text]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The helpers that a prelude has, in their order.
    fn helpers_of(code: &str) -> Vec<String> {
        let text = prelude([code]);
        let functions = text.lines().filter_map(|line| line.strip_prefix("static inline "));
        let names = functions.filter_map(|line| line.split(['(', ' ']).nth(1));
        names.map(str::to_owned).collect()
    }

    #[test]
    fn a_prelude_has_what_is_called_and_what_that_calls() {
        assert_eq!(prelude(["float x = 1.0f;"]), HEAD);
        assert_eq!(helpers_of("x = tw_div_u8(a, b);"), ["tw_div_u8"]);
        let floordiv = ["tw_div_i64", "tw_rem_i64", "tw_floordiv_i64"];
        assert_eq!(helpers_of("x = tw_floordiv_i64(tw_floordiv_i64(a, 3), 4);"), floordiv);
        assert_eq!(helpers_of("tw_i8_of_f32(x) + tw_f32_of_bits(y)"), ["tw_f32_of_bits", "tw_i8_of_f32"]);
    }

    #[test]
    fn helpers_have_a_name_each() {
        let names: BTreeSet<String> = all().into_iter().map(|helper| helper.name).collect();
        assert_eq!(names.len(), all().len());
    }
}
