//! Sequences and optionals.

use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use tilewright_runtime::{HostArg, Value};

use crate::Result;
use crate::args::{Args, Data, Tensor, axis, integers, numbers, tensor_of, texts, truths};
use crate::attrs::{ConcatAttrs, SplitAttrs};

pub(crate) fn copy(args: Args<'_>) -> Result<Vec<Value>> {
    Ok(vec![args.value(0)?])
}

pub(crate) fn construct(args: Args<'_>) -> Result<Vec<Value>> {
    let items = (0..args.len()).map(|i| args.value(i)).collect::<Result<Vec<_>>>()?;
    Ok(vec![Value::sequence(items)])
}

pub(crate) fn empty(_: Args<'_>) -> Result<Vec<Value>> {
    Ok(vec![Value::sequence(Vec::new())])
}

/// A position that counts from the end when negative, of `places`.
fn place(position: i64, length: usize, places: usize) -> Result<usize> {
    let place = if position < 0 { i128::from(position) + length as i128 } else { i128::from(position) };
    match usize::try_from(place) {
        Ok(place) if place < places => Ok(place),
        _ => Err(format!("position {position} is out of range for a sequence of {length}")),
    }
}

pub(crate) fn at(args: Args<'_>) -> Result<Vec<Value>> {
    let items = args.sequence(0)?;
    let position = args.integer(1)?.ok_or("the position is missing")?;
    Ok(vec![items[place(position, items.len(), items.len())?].clone()])
}

pub(crate) fn insert(args: Args<'_>) -> Result<Vec<Value>> {
    let items = args.sequence(0)?;
    let place = match args.integer(2)? {
        Some(position) => place(position, items.len(), items.len() + 1)?,
        None => items.len(),
    };
    let mut longer = Vec::with_capacity(items.len() + 1);
    longer.extend_from_slice(&items[..place]);
    longer.push(args.value(1)?);
    longer.extend_from_slice(&items[place..]);
    Ok(vec![Value::sequence(longer)])
}

pub(crate) fn erase(args: Args<'_>) -> Result<Vec<Value>> {
    let items = args.sequence(0)?;
    let place = place(args.integer(1)?.unwrap_or(-1), items.len(), items.len())?;
    let mut shorter = items.to_vec();
    shorter.remove(place);
    Ok(vec![Value::sequence(shorter)])
}

pub(crate) fn length(args: Args<'_>) -> Result<Vec<Value>> {
    Ok(vec![integers(&[], [args.sequence(0)?.len() as i64])?])
}

/// Parts of extent 1, or of the extents given: one number for all but the last, or a number each.
pub(crate) fn split(args: Args<'_>, attrs: &SplitAttrs) -> Result<Vec<Value>> {
    let (x, sizes) = (args.tensor(0)?, args.optional(1)?);
    let axis = axis(attrs.axis, x.dims.len())?;
    let extent = x.dims[axis];
    let natural = |size: i64| usize::try_from(size).map_err(|_| format!("a part cannot have extent {size}"));
    let parts: Vec<usize> = match sizes {
        None => vec![1; extent],
        Some(sizes) if sizes.dims.is_empty() => {
            let size = match sizes.integers()?[..] {
                [size] if size > 0 => natural(size)?,
                _ => return Err("the extent of parts must be positive".to_string()),
            };
            (0..extent).step_by(size).map(|start| size.min(extent - start)).collect()
        }
        Some(sizes) => sizes.integers()?.into_iter().map(natural).collect::<Result<_>>()?,
    };
    let total = parts.iter().try_fold(0usize, |sum, &part| sum.checked_add(part));
    if total != Some(extent) {
        return Err(format!("the extents of the parts {parts:?} do not add up to {extent}"));
    }
    let drops_axis = sizes.is_none() && !attrs.keep_dims;
    let mut start = 0;
    let mut items = Vec::with_capacity(parts.len());
    for part in parts {
        let indices: Vec<usize> = (start..start + part).collect();
        start += part;
        let mut item = Value::from(x.take(axis, &indices)?);
        if drops_axis {
            let mut dims = x.dims.to_vec();
            dims.remove(axis);
            item = tensor_of(&item)?.with_dims(&dims)?.into();
        }
        items.push(item);
    }
    Ok(vec![Value::sequence(items)])
}

pub(crate) fn concat(args: Args<'_>, attrs: &ConcatAttrs) -> Result<Vec<Value>> {
    let items = args.sequence(0)?.iter().map(tensor_of).collect::<Result<Vec<Tensor<'_>>>>()?;
    let Some(first) = items.first() else {
        return Err("a sequence without elements cannot be joined".to_string());
    };
    let rank = first.dims.len() + usize::from(attrs.new_axis);
    let axis = axis(attrs.axis, rank)?;
    let joined = |dims: &[usize]| if attrs.new_axis { 1 } else { dims[axis] };
    let inner_axis = if attrs.new_axis { axis } else { axis + 1 };
    let same = |item: &Tensor<'_>| {
        item.dtype == first.dtype
            && item.dims.len() == first.dims.len()
            && (0..item.dims.len()).all(|i| item.dims[i] == first.dims[i] || (i == axis && !attrs.new_axis))
    };
    if let Some(odd) = items.iter().find(|item| !same(item)) {
        return Err(format!(
            "{}{:?} and {}{:?} cannot be joined along axis {axis}",
            first.dtype, first.dims, odd.dtype, odd.dims
        ));
    }
    let mut dims = first.dims.to_vec();
    let extent = items.iter().try_fold(0usize, |sum, item| sum.checked_add(joined(item.dims)));
    let extent = extent.ok_or("the joined extent is too large")?;
    if attrs.new_axis {
        dims.insert(axis, extent);
    } else {
        dims[axis] = extent;
    }
    // Of a result without elements, other extents may be any number.
    let is_empty = dims.contains(&0);
    let outer: usize = if is_empty { 0 } else { first.dims[..axis].iter().product() };
    let inner: usize = if is_empty { 0 } else { first.dims[inner_axis..].iter().product() };
    // In row-major order, each element's part of each outer index.
    let parts = (0..outer).flat_map(|o| items.iter().map(move |item| (o, item)));
    let result = match first.data {
        Data::Bytes(_) => {
            let mut bytes = Vec::new();
            for (o, item) in parts {
                let run = joined(item.dims) * inner * item.dtype.bytes();
                bytes.extend_from_slice(&item.bytes()?[o * run..(o + 1) * run]);
            }
            numbers(first.dtype, &dims, bytes)?
        }
        Data::Strings(_) => {
            let mut strings = Vec::new();
            for (o, item) in parts {
                let run = joined(item.dims) * inner;
                strings.extend_from_slice(&item.strings()?[o * run..(o + 1) * run]);
            }
            texts(&dims, strings)?
        }
    };
    Ok(vec![result.into()])
}

pub(crate) fn some(args: Args<'_>) -> Result<Vec<Value>> {
    Ok(vec![Value::optional(Some(args.value(0)?))])
}

pub(crate) fn none(_: Args<'_>) -> Result<Vec<Value>> {
    Ok(vec![Value::optional(None)])
}

pub(crate) fn get(args: Args<'_>) -> Result<Vec<Value>> {
    match args.value(0)? {
        Value::Optional(Some(value)) => Ok(vec![(*value).clone()]),
        Value::Optional(None) => Err("the optional holds nothing".to_string()),
        value @ (Value::Tensor(_) | Value::Sequence(_)) => Ok(vec![value]),
    }
}

pub(crate) fn has(args: Args<'_>) -> Result<Vec<Value>> {
    let has = match args.0.first() {
        None | Some(HostArg::Absent | HostArg::Value(Value::Optional(None))) => false,
        Some(HostArg::Tensor(_) | HostArg::Value(_)) => true,
    };
    Ok(vec![truths(&[], [has])?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(values: &[i64]) -> Value {
        integers(&[values.len()], values.iter().copied()).unwrap()
    }

    fn scalar(value: i64) -> HostArg<'static> {
        HostArg::Value(integers(&[], [value]).unwrap())
    }

    fn items(value: &Value) -> Vec<Value> {
        match value {
            Value::Sequence(items) => items.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn positions_count_from_the_end_when_negative() {
        let sequence = HostArg::Value(Value::sequence(vec![list(&[1]), list(&[2]), list(&[3])]));
        let get = |position| at(Args(&[sequence.clone(), scalar(position)])).map(|r| r[0].clone());
        assert_eq!(get(0), Ok(list(&[1])));
        assert_eq!(get(-1), Ok(list(&[3])));
        assert_eq!(get(3), Err("position 3 is out of range for a sequence of 3".to_string()));
        assert!(get(-4).is_err() && get(i64::MIN).is_err());
        let put = |position: HostArg<'static>| {
            let args = [sequence.clone(), HostArg::Value(list(&[9])), position];
            insert(Args(&args)).map(|r| items(&r[0]).iter().position(|item| *item == list(&[9])))
        };
        assert_eq!(put(HostArg::Absent), Ok(Some(3)));
        assert_eq!(put(scalar(3)), Ok(Some(3)));
        assert_eq!(put(scalar(-1)), Ok(Some(2)));
        assert!(put(scalar(4)).is_err());
        let left = erase(Args(&[sequence.clone(), scalar(-3)])).unwrap();
        assert_eq!(items(&left[0]), [list(&[2]), list(&[3])]);
        let left = erase(Args(std::slice::from_ref(&sequence))).unwrap();
        assert_eq!(items(&left[0]), [list(&[1]), list(&[2])]);
        assert_eq!(length(Args(&[sequence])).unwrap(), [integers(&[], [3]).unwrap()]);
        let nothing = HostArg::Value(empty(Args(&[])).unwrap().remove(0));
        assert!(erase(Args(&[nothing])).is_err());
    }

    #[test]
    fn tensors_split_and_join_again() {
        let x = integers(&[2, 3], 0..6).unwrap();
        let parts = |sizes: HostArg<'static>, axis, keep_dims| {
            split(Args(&[HostArg::Value(x.clone()), sizes]), &SplitAttrs { axis, keep_dims })
                .map(|r| r[0].clone())
        };
        let join = |sequence: &Value, axis, new_axis| {
            concat(Args(&[HostArg::Value(sequence.clone())]), &ConcatAttrs { axis, new_axis })
                .map(|r| r[0].clone())
        };
        let uneven = parts(scalar(2), 1, true).unwrap();
        assert_eq!(items(&uneven)[1], integers(&[2, 1], [2, 5]).unwrap());
        assert_eq!(join(&uneven, 1, false), Ok(x.clone()));
        assert!(join(&uneven, 0, false).is_err());
        let listed = parts(HostArg::Value(list(&[1, 0, 2])), 1, true).unwrap();
        assert_eq!(items(&listed).len(), 3);
        assert_eq!(join(&listed, 1, false), Ok(x.clone()));
        let rows = parts(HostArg::Absent, 0, false).unwrap();
        assert_eq!(items(&rows), [list(&[0, 1, 2]), list(&[3, 4, 5])]);
        assert_eq!(join(&rows, 0, true), Ok(x.clone()));
        assert_eq!(join(&rows, 1, true), Ok(integers(&[3, 2], [0, 3, 1, 4, 2, 5]).unwrap()));
        assert_eq!(items(&parts(HostArg::Absent, 0, true).unwrap())[0], integers(&[1, 3], 0..3).unwrap());
        assert!(parts(HostArg::Value(list(&[1, 1])), 1, true).is_err());
        assert!(parts(HostArg::Value(list(&[-1, 4])), 1, true).is_err());
        assert!(parts(scalar(0), 1, true).is_err() && parts(HostArg::Absent, 2, true).is_err());
        assert!(join(&Value::sequence(vec![]), 0, false).is_err());
    }

    #[test]
    fn optionals_hold_one_value_or_none() {
        let full = HostArg::Value(some(Args(&[scalar(7)])).unwrap().remove(0));
        let bare = HostArg::Value(none(Args(&[])).unwrap().remove(0));
        assert_eq!(get(Args(std::slice::from_ref(&full))).unwrap(), [integers(&[], [7]).unwrap()]);
        assert!(get(Args(std::slice::from_ref(&bare))).is_err());
        let holds = |arg: &[HostArg<'_>]| has(Args(arg)).unwrap() == [truths(&[], [true]).unwrap()];
        assert!(holds(&[full]) && holds(&[scalar(1)]) && !holds(&[bare]) && !holds(&[]));
    }
}
