//! Strings.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use tilewright_dtype::DType;
use tilewright_runtime::{Value, byte_len};

use crate::Result;
use crate::args::{Args, integers, texts, truths, with_room};
use crate::attrs::{Case, NormalizeAttrs, StringSplitAttrs, StringsAttrs};
use crate::pattern::Pattern;

pub(crate) fn constant(_: Args<'_>, attrs: &StringsAttrs) -> Result<Vec<Value>> {
    let dims = attrs.dims.iter().map(|&dim| usize::try_from(dim));
    let dims: core::result::Result<Vec<usize>, _> = dims.collect();
    Ok(vec![texts(&dims.map_err(|_| "an extent is too large")?, attrs.strings.clone())?.into()])
}

/// Extents of the result of two operands, numpy's way.
fn broadcast(a: &[usize], b: &[usize]) -> Result<Vec<usize>> {
    let rank = a.len().max(b.len());
    let at = |dims: &[usize], axis: usize| (axis + dims.len()).checked_sub(rank).map_or(1, |i| dims[i]);
    let merge = |axis: usize| match (at(a, axis), at(b, axis)) {
        (x, y) if x == y || y == 1 => Ok(x),
        (1, y) => Ok(y),
        _ => Err(format!("{a:?} and {b:?} do not broadcast")),
    };
    (0..rank).map(merge).collect()
}

/// The position in an operand of extents `from` of the element of the result of extents `dims` at a position.
fn source(mut position: usize, dims: &[usize], from: &[usize]) -> usize {
    let mut stride = from.iter().product::<usize>();
    let offset = dims.len() - from.len();
    let mut inner: usize = dims.iter().product();
    let mut index = 0;
    for (axis, &dim) in dims.iter().enumerate() {
        inner /= dim;
        let at = position / inner;
        position %= inner;
        if let Some(extent) = axis.checked_sub(offset).map(|axis| from[axis]) {
            stride /= extent;
            index += if extent == 1 { 0 } else { at * stride };
        }
    }
    index
}

/// Pairs of strings of the first two operands, broadcast, with the extents of the result.
fn pairs<T>(args: Args<'_>, join: impl Fn(&str, &str) -> T) -> Result<(Vec<usize>, Vec<T>)> {
    let (a, b) = (args.tensor(0)?, args.tensor(1)?);
    let dims = broadcast(a.dims, b.dims)?;
    let (left, right) = (a.strings()?, b.strings()?);
    let pair = |i: usize| join(&left[source(i, &dims, a.dims)], &right[source(i, &dims, b.dims)]);
    let count = byte_len(DType::U8, &dims).ok_or("the result is too large")?;
    let mut joined = with_room(count)?;
    joined.extend((0..count).map(pair));
    Ok((dims, joined))
}

pub(crate) fn concat(args: Args<'_>) -> Result<Vec<Value>> {
    let (dims, joined) = pairs(args, |a, b| format!("{a}{b}"))?;
    Ok(vec![texts(&dims, joined)?.into()])
}

pub(crate) fn equal(args: Args<'_>) -> Result<Vec<Value>> {
    let (dims, equal) = pairs(args, |a, b| a == b)?;
    Ok(vec![truths(&dims, equal)?])
}

/// Parts between separators, with at most so many splits from the left. Runs of white space separate where no
/// separator is given; then there are no empty parts, and the last keeps its trailing white space.
fn parts<'a>(text: &'a str, attrs: &StringSplitAttrs) -> Vec<&'a str> {
    let most = attrs.max_split.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
    if !attrs.delimiter.is_empty() {
        return text.splitn(most.saturating_add(1), &attrs.delimiter).collect();
    }
    let mut parts = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        match rest.find(char::is_whitespace).filter(|_| parts.len() < most) {
            Some(end) => {
                parts.push(&rest[..end]);
                rest = rest[end..].trim_start();
            }
            None => {
                parts.push(rest);
                break;
            }
        }
    }
    parts
}

pub(crate) fn split(args: Args<'_>, attrs: &StringSplitAttrs) -> Result<Vec<Value>> {
    let x = args.tensor(0)?;
    let rows: Vec<Vec<&str>> = x.strings()?.iter().map(|text| parts(text, attrs)).collect();
    let width = rows.iter().map(Vec::len).max().unwrap_or(0);
    let mut padded = with_room(rows.len().checked_mul(width).ok_or("the result is too large")?)?;
    for row in &rows {
        padded.extend(row.iter().map(|part| (*part).to_string()));
        padded.resize(padded.len() + width - row.len(), String::new());
    }
    let mut dims = x.dims.to_vec();
    dims.push(width);
    let counts = integers(x.dims, rows.iter().map(|row| row.len() as i64))?;
    Ok(vec![texts(&dims, padded)?.into(), counts])
}

pub(crate) fn normalize(args: Args<'_>, attrs: &NormalizeAttrs) -> Result<Vec<Value>> {
    let x = args.tensor(0)?;
    if !matches!(*x.dims, [_] | [1, _]) {
        return Err(format!("extents must be [n] or [1, n], not {:?}", x.dims));
    }
    let fold = |text: &str| if attrs.case_sensitive { text.to_string() } else { text.to_lowercase() };
    let stopwords: Vec<String> = attrs.stopwords.iter().map(|word| fold(word)).collect();
    let kept = x.strings()?.iter().filter(|text| !stopwords.contains(&fold(text)));
    let mut changed: Vec<String> = kept
        .map(|text| match attrs.case {
            Case::Keep => text.clone(),
            Case::Lower => text.to_lowercase(),
            Case::Upper => text.to_uppercase(),
        })
        .collect();
    // What is left of nothing is one empty string.
    if changed.is_empty() && !stopwords.is_empty() {
        changed.push(String::new());
    }
    let mut dims = x.dims.to_vec();
    if let Some(last) = dims.last_mut() {
        *last = changed.len();
    }
    Ok(vec![texts(&dims, changed)?.into()])
}

pub(crate) fn full_match(args: Args<'_>, pattern: &str) -> Result<Vec<Value>> {
    let (x, pattern) = (args.tensor(0)?, Pattern::new(pattern)?);
    let matches: Vec<bool> = x.strings()?.iter().map(|text| pattern.matches(text)).collect();
    Ok(vec![truths(x.dims, matches)?])
}

#[cfg(test)]
mod tests {
    use tilewright_runtime::HostArg;

    use super::*;

    fn strings(dims: &[usize], list: &[&str]) -> Value {
        texts(dims, list.iter().map(|s| s.to_string()).collect()).unwrap().into()
    }

    fn run(op: impl Fn(Args<'_>) -> Result<Vec<Value>>, operands: &[Value]) -> Result<Vec<Value>> {
        let args: Vec<HostArg<'_>> = operands.iter().cloned().map(HostArg::Value).collect();
        op(Args(&args))
    }

    #[test]
    fn strings_join_with_broadcasting() {
        let column = strings(&[2, 1], &["a", "b"]);
        let row = strings(&[3], &["x", "y", "z"]);
        let joined = strings(&[2, 3], &["ax", "ay", "az", "bx", "by", "bz"]);
        assert_eq!(run(concat, &[column.clone(), row.clone()]), Ok(vec![joined]));
        let equal_row = run(equal, &[row.clone(), strings(&[], &["y"])]).unwrap();
        assert_eq!(equal_row, [truths(&[3], [false, true, false]).unwrap()]);
        assert_eq!(run(concat, &[strings(&[0, 1], &[]), row.clone()]), Ok(vec![strings(&[0, 3], &[])]));
        assert!(run(concat, &[strings(&[2], &["", ""]), row]).is_err());
    }

    #[test]
    fn strings_split_as_in_python() {
        let check = |text: &str, delimiter: &str, max_split: Option<u64>, expect: &[&str]| {
            let attrs = StringSplitAttrs { delimiter: delimiter.to_string(), max_split };
            assert_eq!(parts(text, &attrs), expect, "{text:?}");
        };
        check("a-b--c", "-", None, &["a", "b", "", "c"]);
        check("a-b--c", "-", Some(1), &["a", "b--c"]);
        check("", "-", None, &[""]);
        check("  a  b c ", "", None, &["a", "b", "c"]);
        check("  a  b c ", "", Some(1), &["a", "b c "]);
        check(" a b", "", Some(0), &["a b"]);
        check("  ", "", None, &[]);
        let attrs = StringSplitAttrs { delimiter: ".".to_string(), max_split: None };
        let results = run(|args| split(args, &attrs), &[strings(&[2], &["a.b", "c"])]).unwrap();
        assert_eq!(results, [strings(&[2, 2], &["a", "b", "c", ""]), integers(&[2], [2, 1]).unwrap()]);
    }

    #[test]
    fn stop_words_go_and_case_changes() {
        let x = strings(&[1, 3], &["monday", "Tuesday", "MONDAY"]);
        let check = |case: Case, case_sensitive: bool, stopwords: &[&str], expect: Value| {
            let stopwords = stopwords.iter().map(|word| word.to_string()).collect();
            let attrs = NormalizeAttrs { case, case_sensitive, stopwords };
            assert_eq!(run(|args| normalize(args, &attrs), std::slice::from_ref(&x)), Ok(vec![expect]));
        };
        check(Case::Upper, false, &["Monday"], strings(&[1, 1], &["TUESDAY"]));
        check(Case::Lower, true, &["monday"], strings(&[1, 2], &["tuesday", "monday"]));
        check(Case::Keep, true, &[], x.clone());
        check(Case::Keep, false, &["monday", "tuesday"], strings(&[1, 1], &[""]));
        let attrs = NormalizeAttrs { case: Case::Keep, case_sensitive: true, stopwords: vec![] };
        assert!(run(|args| normalize(args, &attrs), &[strings(&[2, 1], &["a", "b"])]).is_err());
    }

    #[test]
    fn patterns_match_whole_strings() {
        let check = |pattern: &str, text: &str, expect: bool| {
            let results = run(|args| full_match(args, pattern), &[strings(&[], &[text])]).unwrap();
            assert_eq!(results, [truths(&[], [expect]).unwrap()], "{pattern:?} on {text:?}");
        };
        check("a|ab", "ab", true);
        check("a", "ab", false);
        check("a", "a\n", false);
        // As in RE2, classes are of ASCII, and a dot is one character.
        check(r"\w", "é", false);
        check(".", "é", true);
        assert!(Pattern::new("(").is_err());
    }
}
