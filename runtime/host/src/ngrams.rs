//! Counts of n-grams (`TfIdfVectorizer`).

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use tilewright_runtime::Value;

use crate::Result;
use crate::args::{Args, elements, with_room};
use crate::attrs::{NgramAttrs, NgramMode, Pool};

/// Most columns of a result: one row of them must not fill the memory by the word of a damaged file.
const MAX_COLUMNS: u64 = 1 << 32;

impl NgramAttrs {
    /// Columns of the result.
    fn columns(&self) -> u64 {
        self.columns.iter().max().map_or(0, |most| most.saturating_add(1))
    }
}

/// The n-grams of a pool: for each its items and its number.
fn table<'a, T: Ord>(attrs: &NgramAttrs, pool: &'a [T]) -> Result<BTreeMap<&'a [T], usize>> {
    let mut table = BTreeMap::new();
    let mut number = 0;
    for (i, &start) in attrs.starts.iter().enumerate() {
        let end = attrs.starts.get(i + 1).copied().unwrap_or(pool.len() as u64);
        let part =
            usize::try_from(start).ok().zip(usize::try_from(end).ok()).and_then(|(a, b)| pool.get(a..b));
        let part = part.ok_or("the starts of n-grams are not ascending within the pool")?;
        if part.len() % (i + 1) != 0 {
            return Err(format!("{} items are no list of {}-grams", part.len(), i + 1));
        }
        for gram in part.chunks_exact(i + 1) {
            table.insert(gram, number);
            number += 1;
        }
    }
    if number != attrs.columns.len() || !(attrs.weights.is_empty() || attrs.weights.len() == number) {
        return Err(format!(
            "{number} n-grams have {} columns and {} weights",
            attrs.columns.len(),
            attrs.weights.len()
        ));
    }
    Ok(table)
}

/// Whether the attributes belong together.
pub(crate) fn check(attrs: &NgramAttrs) -> Result<()> {
    if attrs.min_length == 0 || attrs.min_length > attrs.max_length {
        return Err(format!("lengths {}..={} are no range", attrs.min_length, attrs.max_length));
    }
    if attrs.columns() > MAX_COLUMNS {
        return Err(format!("{} columns are too many", attrs.columns()));
    }
    match &attrs.pool {
        Pool::Integers(pool) => table(attrs, pool).map(|_| ()),
        Pool::Strings(pool) => table(attrs, pool).map(|_| ()),
    }
}

/// For each row, how often the n-grams of the pool occur, as counts or weighted, in the columns of the n-grams.
pub(crate) fn count(args: Args<'_>, attrs: &NgramAttrs) -> Result<Vec<Value>> {
    check(attrs)?;
    let x = args.tensor(0)?;
    let (rows, width) = match *x.dims {
        [] => (1, 1),
        [width] => (1, width),
        [rows, width] => (rows, width),
        _ => return Err(format!("one or two axes are expected, not {}", x.dims.len())),
    };
    let columns = attrs.columns() as usize;
    let size = rows.checked_mul(columns).ok_or("the result is too large")?;
    let mut result = with_room(size)?;
    result.resize(size, 0f32);
    match &attrs.pool {
        Pool::Integers(pool) => {
            rows_of(attrs, pool, &x.integers()?, width, &mut result)?;
        }
        Pool::Strings(pool) => rows_of::<String>(attrs, pool, x.strings()?, width, &mut result)?,
    }
    let mut dims = x.dims[..x.dims.len().saturating_sub(1)].to_vec();
    dims.push(columns);
    Ok(vec![elements(&dims, result)?])
}

fn rows_of<T: Ord + Clone>(
    attrs: &NgramAttrs,
    pool: &[T],
    items: &[T],
    width: usize,
    result: &mut [f32],
) -> Result<()> {
    let table = table(attrs, pool)?;
    let columns = attrs.columns() as usize;
    let mut counts = vec![0u32; attrs.columns.len()];
    if width == 0 || columns == 0 {
        return Ok(());
    }
    for (row, target) in items.chunks_exact(width).zip(result.chunks_exact_mut(columns)) {
        counts.fill(0);
        for length in attrs.min_length..=attrs.max_length.min(attrs.starts.len() as u32) {
            // Nothing is skipped inside one item.
            let max_skip = if length == 1 { 0 } else { attrs.max_skip };
            count_row(&table, row, length as usize, max_skip as usize, &mut counts);
        }
        for (number, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let weight = attrs.weights.get(number).copied().unwrap_or(1.0);
            let column = usize::try_from(attrs.columns[number]).map_err(|error| error.to_string())?;
            match attrs.mode {
                NgramMode::Tf => target[column] += count as f32,
                NgramMode::Idf => target[column] = weight,
                NgramMode::TfIdf => target[column] += count as f32 * weight,
            }
        }
    }
    Ok(())
}

/// Counts the n-grams of a length in a row, with up to so many items skipped between any two.
fn count_row<T: Ord + Clone>(
    table: &BTreeMap<&[T], usize>,
    row: &[T],
    length: usize,
    max_skip: usize,
    counts: &mut [u32],
) {
    let mut gram: Vec<T> = Vec::with_capacity(length);
    // A longer step leaves no room for two items.
    for step in 1..=max_skip.saturating_add(1).min(row.len()) {
        let Some(last_start) =
            (length - 1).checked_mul(step).and_then(|span| row.len().checked_sub(span + 1))
        else {
            break;
        };
        for start in 0..=last_start {
            gram.clear();
            gram.extend(row[start..].iter().step_by(step).take(length).cloned());
            if let Some(&number) = table.get(&gram[..]) {
                counts[number] += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tilewright_runtime::HostArg;

    use super::*;
    use crate::args::{integers, tensor_of};

    fn attrs(mode: NgramMode, lengths: (u32, u32), max_skip: u32) -> NgramAttrs {
        NgramAttrs {
            mode,
            min_length: lengths.0,
            max_length: lengths.1,
            max_skip,
            starts: vec![0, 2],
            columns: vec![1, 0, 3, 2],
            // Unigrams 2 and 3, bigrams (5, 6) and (7, 8).
            pool: Pool::Integers(vec![2, 3, 5, 6, 7, 8]),
            weights: vec![0.5, 2.0, 3.0, 4.0],
        }
    }

    fn check(attrs: &NgramAttrs, expect: &[f32]) {
        let row = [2, 2, 5, 9, 6, 7, 8];
        let x = [HostArg::Value(integers(&[row.len()], row).unwrap())];
        let result = count(Args(&x), attrs).unwrap();
        let tensor = tensor_of(&result[0]).unwrap();
        assert_eq!((tensor.dims, tensor.floats().unwrap()), (&[4][..], expect.to_vec()));
    }

    #[test]
    fn grams_are_counted_with_skips_and_weights() {
        check(&attrs(NgramMode::Tf, (1, 2), 0), &[0.0, 2.0, 1.0, 0.0]);
        check(&attrs(NgramMode::Tf, (1, 2), 1), &[0.0, 2.0, 1.0, 1.0]);
        check(&attrs(NgramMode::Tf, (2, 2), 1), &[0.0, 0.0, 1.0, 1.0]);
        check(&attrs(NgramMode::Idf, (1, 2), 1), &[0.0, 0.5, 4.0, 3.0]);
        check(&attrs(NgramMode::TfIdf, (1, 2), 1), &[0.0, 1.0, 4.0, 3.0]);
    }

    #[test]
    fn attributes_that_do_not_belong_together_are_refused() {
        let refuse = |change: fn(&mut NgramAttrs)| {
            let mut attrs = attrs(NgramMode::Tf, (1, 2), 0);
            change(&mut attrs);
            assert!(check(&attrs).is_err());
        };
        fn check(attrs: &NgramAttrs) -> Result<()> {
            super::check(attrs)
        }
        refuse(|attrs| attrs.min_length = 3);
        refuse(|attrs| attrs.starts = vec![0, 9]);
        refuse(|attrs| attrs.starts = vec![0, 3]);
        refuse(|attrs| attrs.columns.truncate(3));
        refuse(|attrs| attrs.columns[0] = u64::MAX);
        refuse(|attrs| attrs.weights.truncate(1));
    }
}
