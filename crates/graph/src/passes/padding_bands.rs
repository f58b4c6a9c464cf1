//! Splits a convolution whose windows lie in padding for much of the way into convolutions of bands of rows.
//!
//! A window that is dilated far has taps that meet an image's padding alone, others for the first rows of the result than for the last ones.
//! Rows with the same taps make a band: a convolution of its own, with these taps and without padding along the rows. It is loop
//! partitioning (index set splitting) at the level of operators, so that each band gets an algorithm and a schedule by its own extents.
//!
//! ```text
//! %y = Conv[pads=[12, 12, ..]](%x, %w)      %t0 = Slice(%w, rows 1..3), %y0 = Conv[pads=[0, 12, ..]](%x, %t0)
//!                                           %t1 = Slice(%w, row 1), %x1 = Slice(%x, rows 4..12), %y1 = Conv[..](%x1, %t1)
//!                                           %t2 = Slice(%w, rows 0..2), %y2 = Conv[..](%x, %t2)
//!                                           %y = Concat[axis=2](%y0, %y1, %y2)
//! ```

use std::ops::Range;

use crate::dim::Dim;
use crate::graph::Graph;
use crate::ids::{NodeId, ValueId};
use crate::op::*;
use crate::pass::PassError;
use crate::patch::{Patch, Rule, Source, View, rewrite};

/// Splits what is worth it.
pub fn padding_bands(graph: &mut Graph) -> Result<bool, PassError> {
    rewrite(graph, RULES, 2)
}

const RULES: &[Rule] = &[Rule { name: "padding_bands", apply: into_bands }];

/// The axis of rows, in images and in weights.
const ROWS: usize = 2;

/// Of so many products of the whole the bands leave one out at least: less does not pay for the copies of what they read and write.
const LEAST_SAVED: i64 = 4;

/// Results of a channel in a band at least: fewer do not use the weights that are loaded for them often enough, which every band has
/// anew.
const LEAST_RESULTS: i64 = 32;

/// Rows of the result that use the same taps of the window.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Band {
    rows: Range<i64>,
    taps: Range<i64>,
}

/// How a window moves along an axis.
#[derive(Clone, Copy, Debug)]
struct Walk {
    /// Extents of the image, the window and the result.
    image: i64,
    window: i64,
    result: i64,
    stride: i64,
    dilation: i64,
    /// Padding before the image.
    before: i64,
}

impl Walk {
    /// Where a tap of a row is in the image.
    fn place(&self, row: i64, tap: i64) -> i64 {
        row * self.stride + tap * self.dilation - self.before
    }

    /// The taps of a row that meet the image; those that do follow one another.
    fn taps(&self, row: i64) -> Range<i64> {
        let meets = |tap: &i64| (0..self.image).contains(&self.place(row, *tap));
        let first = (0..self.window).find(meets).unwrap_or(0);
        let n = (first..self.window).take_while(|tap| meets(tap)).count() as i64;
        first..first + n
    }

    /// The rows in bands.
    fn bands(&self) -> Vec<Band> {
        let mut bands: Vec<Band> = Vec::new();
        for row in 0..self.result {
            let taps = self.taps(row);
            match bands.last_mut() {
                Some(band) if band.taps == taps => band.rows.end = row + 1,
                _ => bands.push(Band { rows: row..row + 1, taps }),
            }
        }
        bands
    }

    /// The rows of the image that a band reads.
    fn read(&self, band: &Band) -> Range<i64> {
        let last = self.place(band.rows.end - 1, band.taps.end - 1);
        self.place(band.rows.start, band.taps.start)..last + 1
    }
}

fn length(range: &Range<i64>) -> i64 {
    range.end - range.start
}

fn into_bands(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::Conv(attrs) = &node.op else { return None };
    let (image, weight) = (node.input(0)?, node.input(1)?);
    let constant = view.graph.constant(weight)?;
    if attrs.group != 1 {
        return None;
    }
    let extents =
        |value: ValueId| view.graph.dims(value)?.iter().map(Dim::as_const).collect::<Option<Vec<i64>>>();
    let (read, window, written) = (extents(image)?, extents(weight)?, extents(node.output()?)?);
    let walk = Walk {
        image: *read.get(ROWS)?,
        window: *window.get(ROWS)?,
        result: *written.get(ROWS)?,
        stride: *attrs.strides.first()? as i64,
        dilation: *attrs.dilations.first()? as i64,
        before: *attrs.pads.first()?,
    };
    let bands = walk.bands();
    let products: i64 = bands.iter().map(|band| length(&band.rows) * length(&band.taps)).sum();
    let all = walk.result * walk.window;
    if (all - products) * LEAST_SAVED < all {
        return None;
    }
    let of_row = written[0] * written[ROWS + 1..].iter().product::<i64>();
    let are_large = |band: &Band| length(&band.rows) * of_row >= LEAST_RESULTS && !band.taps.is_empty();
    // A weight that is not finite makes something of zeros, too.
    if !bands.iter().all(are_large) || !constant.to_f64s()?.iter().all(|w| w.is_finite()) {
        return None;
    }
    let n = window.len() - ROWS;
    let mut attrs = attrs.clone();
    (attrs.pads[0], attrs.pads[n]) = (0, 0);
    let mut patch = Patch::new();
    let results: Vec<Source> = bands
        .iter()
        .map(|band| {
            let taps = rows_of(&mut patch, weight, &band.taps, walk.window);
            let x = rows_of(&mut patch, image, &walk.read(band), walk.image);
            let operands = [x, taps].into_iter().chain(node.input(2).map(Source::Old));
            patch.add(Op::Conv(attrs.clone()), operands)
        })
        .collect();
    let whole = patch.add(Op::Concat(AxisAttrs { axis: ROWS }), results);
    Some(patch.replace(whole))
}

/// Some of the rows that a value has.
fn rows_of(patch: &mut Patch, value: ValueId, rows: &Range<i64>, all: i64) -> Source {
    if *rows == (0..all) {
        return Source::Old(value);
    }
    let slice = SliceAttrs {
        axes: vec![ROWS],
        starts: vec![Dim::new(rows.start)],
        steps: vec![1],
        sizes: vec![Dim::new(length(rows))],
    };
    patch.add(Op::Slice(slice), [Source::Old(value)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(image: i64, window: i64, stride: i64, dilation: i64, before: i64, result: i64) -> Walk {
        Walk { image, window, result, stride, dilation, before }
    }

    #[test]
    fn rows_with_the_same_taps_are_a_band() {
        let band = |rows, taps| Band { rows, taps };
        let far = walk(16, 3, 1, 12, 12, 16);
        let bands = far.bands();
        assert_eq!(bands, [band(0..4, 1..3), band(4..12, 1..2), band(12..16, 0..2)]);
        let read: Vec<_> = bands.iter().map(|band| far.read(band)).collect();
        assert_eq!(read, [0..16, 4..12, 0..16]);
        let near = walk(5, 3, 1, 1, 1, 5);
        assert_eq!(near.bands(), [band(0..1, 1..3), band(1..4, 0..3), band(4..5, 0..2)]);
        let strided = walk(9, 2, 2, 6, 3, 5);
        assert_eq!(strided.bands(), [band(0..2, 1..2), band(2..3, 0..2), band(3..5, 0..1)]);
        // A row of nothing but padding.
        assert_eq!(walk(2, 1, 1, 1, 1, 4).bands()[0], band(0..1, 0..0));
    }
}
