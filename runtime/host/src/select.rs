//! Selection by data: results whose extents are known when the operator has run.

use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use tilewright_runtime::Value;

use crate::Result;
use crate::args::{Args, Tensor, axis, integers};
use crate::attrs::{CompressAttrs, UniqueAttrs};
use crate::order::keys;

/// Indices `[rank, count]` of elements that are not zero, in row-major order. A scalar counts as a vector of one.
pub(crate) fn non_zero(args: Args<'_>) -> Result<Vec<Value>> {
    let x = args.tensor(0)?;
    x.bytes()?;
    let dims = if x.dims.is_empty() { &[1][..] } else { x.dims };
    if x.len() == 0 {
        return Ok(vec![integers(&[dims.len(), 0], [])?]);
    }
    let keys = keys(&x)?;
    let found: Vec<usize> = (0..keys.len()).filter(|&i| keys[i] != 0).collect();
    let mut indices = Vec::with_capacity(dims.len() * found.len());
    for axis in 0..dims.len() {
        let inner: usize = dims[axis + 1..].iter().product();
        indices.extend(found.iter().map(|i| (i / inner % dims[axis]) as i64));
    }
    Ok(vec![integers(&[dims.len(), found.len()], indices)?])
}

/// Elements, or slices along an axis, where the condition holds; it may be shorter than the axis.
pub(crate) fn compress(args: Args<'_>, attrs: &CompressAttrs) -> Result<Vec<Value>> {
    let (x, condition) = (args.tensor(0)?, args.tensor(1)?.truths()?);
    let kept: Vec<usize> = (0..condition.len()).filter(|&i| condition[i]).collect();
    let flat = [x.len()];
    let (x, axis) = match attrs.axis {
        Some(given) => (x, axis(given, x.dims.len())?),
        None => (Tensor { dims: &flat, ..x }, 0),
    };
    if condition.len() > x.dims[axis] {
        return Err(format!(
            "the condition has {} elements, but the axis has {}",
            condition.len(),
            x.dims[axis]
        ));
    }
    Ok(vec![x.take(axis, &kept)?.into()])
}

/// Unique elements, or slices along an axis: their values, where each comes first, which of them each element is, and
/// how often each occurs.
pub(crate) fn unique(args: Args<'_>, attrs: &UniqueAttrs) -> Result<Vec<Value>> {
    let x = args.tensor(0)?;
    let flat = [x.len()];
    let (x, axis) = match attrs.axis {
        Some(given) => (x, axis(given, x.dims.len())?),
        None => (Tensor { dims: &flat, ..x }, 0),
    };
    let count = x.dims[axis];
    if x.len() == 0 && count > 0 {
        return Err("slices without elements are not told apart".to_string());
    }
    let items = slices(&keys(&x)?, x.dims, axis);
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|&a, &b| items[a].cmp(&items[b]));
    // Runs of equal items; a stable sort has the first occurrence in front.
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for i in order {
        match groups.last_mut() {
            Some(group) if items[group[0]] == items[i] => group.push(i),
            Some(_) | None => groups.push(vec![i]),
        }
    }
    if !attrs.sorted {
        groups.sort_by_key(|group| group[0]);
    }
    let first: Vec<usize> = groups.iter().map(|group| group[0]).collect();
    let mut inverse = vec![0i64; count];
    for (rank, group) in groups.iter().enumerate() {
        group.iter().for_each(|&i| inverse[i] = rank as i64);
    }
    let n = groups.len();
    Ok(vec![
        x.take(axis, &first)?.into(),
        integers(&[n], first.iter().map(|&i| i as i64))?,
        integers(&[count], inverse)?,
        integers(&[n], groups.iter().map(|group| group.len() as i64))?,
    ])
}

/// The keys of each slice along an axis, in row-major order of the other axes.
fn slices(keys: &[i128], dims: &[usize], axis: usize) -> Vec<Vec<i128>> {
    if keys.is_empty() {
        return Vec::new();
    }
    let inner: usize = dims[axis + 1..].iter().product();
    let outer: usize = dims[..axis].iter().product();
    let extent = dims[axis];
    let slice = |i: usize| {
        let runs = (0..outer).map(|o| (o * extent + i) * inner);
        runs.flat_map(|at| keys[at..at + inner].iter().copied()).collect()
    };
    (0..extent).map(slice).collect()
}

#[cfg(test)]
mod tests {
    use tilewright_runtime::{HostArg, Tensor};

    use super::*;
    use crate::args::{tensor_of, truths};

    fn floats(dims: &[usize], values: &[f32]) -> Value {
        Tensor::new(dims, values).unwrap().into()
    }

    fn list(value: &Value) -> (Vec<usize>, Vec<i64>) {
        let tensor = tensor_of(value).unwrap();
        (tensor.dims.to_vec(), tensor.integers().unwrap())
    }

    #[test]
    fn indices_are_a_row_an_axis() {
        let x = [HostArg::Value(floats(&[2, 2], &[1.0, 0.0, -0.0, f32::NAN]))];
        assert_eq!(list(&non_zero(Args(&x)).unwrap()[0]), (vec![2, 2], vec![0, 1, 0, 1]));
        let scalar = [HostArg::Value(floats(&[], &[3.0]))];
        assert_eq!(list(&non_zero(Args(&scalar)).unwrap()[0]), (vec![1, 1], vec![0]));
        let none = [HostArg::Value(floats(&[0, 3], &[]))];
        assert_eq!(list(&non_zero(Args(&none)).unwrap()[0]), (vec![2, 0], vec![]));
    }

    #[test]
    fn compression_keeps_slices() {
        let x = floats(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let check = |axis: Option<u32>, condition: &[bool], expect: core::result::Result<Value, &str>| {
            let condition = truths(&[condition.len()], condition.iter().copied()).unwrap();
            let args = [HostArg::Value(x.clone()), HostArg::Value(condition)];
            let result = compress(Args(&args), &CompressAttrs { axis }).map(|mut results| results.remove(0));
            assert_eq!(result, expect.map_err(|message| message.to_string()));
        };
        check(Some(0), &[false, true, true], Ok(floats(&[2, 2], &[3.0, 4.0, 5.0, 6.0])));
        check(Some(1), &[false, true], Ok(floats(&[3, 1], &[2.0, 4.0, 6.0])));
        check(None, &[false, true, false, true], Ok(floats(&[2], &[2.0, 4.0])));
        check(Some(1), &[true; 3], Err("the condition has 3 elements, but the axis has 2"));
        check(Some(2), &[true], Err("axis 2 is out of range for 2 axes"));
    }

    #[test]
    fn unique_items_are_sorted_or_in_order_of_occurrence() {
        let x = floats(&[6], &[2.0, 1.0, 1.0, 3.0, 4.0, 3.0]);
        let run =
            |sorted: bool| unique(Args(&[HostArg::Value(x.clone())]), &UniqueAttrs { axis: None, sorted });
        let results = run(false).unwrap();
        assert_eq!(results[0], floats(&[4], &[2.0, 1.0, 3.0, 4.0]));
        let lists: Vec<_> = results[1..].iter().map(|value| list(value).1).collect();
        assert_eq!(lists, [vec![0, 1, 3, 4], vec![0, 1, 1, 2, 3, 2], vec![1, 2, 2, 1]]);
        let results = run(true).unwrap();
        assert_eq!(results[0], floats(&[4], &[1.0, 2.0, 3.0, 4.0]));
        assert_eq!(list(&results[2]).1, [1, 0, 0, 2, 3, 2]);
    }

    #[test]
    fn unique_slices_compare_element_by_element() {
        let x = floats(&[2, 3], &[1.0, 0.0, 1.0, 5.0, 7.0, 5.0]);
        let results =
            unique(Args(&[HostArg::Value(x)]), &UniqueAttrs { axis: Some(1), sorted: true }).unwrap();
        assert_eq!(results[0], floats(&[2, 2], &[0.0, 1.0, 7.0, 5.0]));
        assert_eq!(list(&results[3]), (vec![2], vec![1, 2]));
        let none = floats(&[0], &[]);
        let results =
            unique(Args(&[HostArg::Value(none)]), &UniqueAttrs { axis: None, sorted: true }).unwrap();
        assert!(results[1..].iter().all(|value| list(value) == (vec![0], vec![])));
    }
}
