//! Non-maximum suppression.

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use tilewright_runtime::Value;

use crate::Result;
use crate::args::{Args, integers};
use crate::attrs::NmsAttrs;

/// A box by its corners, with its area.
#[derive(Clone, Copy)]
struct Rect {
    x: (f32, f32),
    y: (f32, f32),
}

impl Rect {
    /// `[x, y, width, height]` around a centre, or two opposite corners `[y1, x1, y2, x2]`.
    fn new(four: &[f32], center_point_box: bool) -> Rect {
        let (a, b, c, d) = (four[0], four[1], four[2], four[3]);
        if center_point_box {
            let (half_width, half_height) = (c / 2.0, d / 2.0);
            Rect { x: (a - half_width, a + half_width), y: (b - half_height, b + half_height) }
        } else {
            Rect { x: (b.min(d), b.max(d)), y: (a.min(c), a.max(c)) }
        }
    }

    fn area(self) -> f32 {
        (self.x.1 - self.x.0) * (self.y.1 - self.y.0)
    }

    /// Whether the intersection is more than a part of the union; never for boxes without area.
    fn overlaps(self, other: Rect, threshold: f32) -> bool {
        let common = Rect {
            x: (self.x.0.max(other.x.0), self.x.1.min(other.x.1)),
            y: (self.y.0.max(other.y.0), self.y.1.min(other.y.1)),
        };
        if common.x.1 <= common.x.0 || common.y.1 <= common.y.0 {
            return false;
        }
        let (a, b, both) = (self.area(), other.area(), common.area());
        let union = a + b - both;
        a > 0.0 && b > 0.0 && union > 0.0 && both / union > threshold
    }
}

/// Boxes that are held against another at a time: vectors of any processor divide it.
const LANES: usize = 16;

/// Boxes, one a lane; lanes that are not used yet are empty boxes, which overlap nothing.
#[derive(Default)]
struct Lanes {
    left: [f32; LANES],
    right: [f32; LANES],
    top: [f32; LANES],
    bottom: [f32; LANES],
    area: [f32; LANES],
}

/// Boxes that were taken.
#[derive(Default)]
struct Taken {
    lanes: Vec<Lanes>,
    rects: Vec<Rect>,
}

impl Taken {
    fn push(&mut self, rect: Rect) {
        let lane = self.rects.len() % LANES;
        if lane == 0 {
            self.lanes.push(Lanes::default());
        }
        if let Some(lanes) = self.lanes.last_mut() {
            (lanes.left[lane], lanes.right[lane]) = rect.x;
            (lanes.top[lane], lanes.bottom[lane]) = rect.y;
            lanes.area[lane] = rect.area();
        }
        self.rects.push(rect);
    }

    /// Whether one of them overlaps a box by more than the threshold. First without a division, and with a margin for what that rounds
    /// otherwise; those few that may overlap are then held against it one by one.
    fn overlap(&self, rect: Rect, threshold: f32) -> bool {
        const MARGIN: f32 = 0.9999;
        // One instruction each, which those of numbers are not: they ask whether one of the two is no number. A box with such a corner has
        // no area, so overlaps nothing either way.
        let less = |a: f32, b: f32| if a < b { a } else { b };
        let more = |a: f32, b: f32| if a > b { a } else { b };
        let (area, least) = (rect.area(), threshold * MARGIN);
        let may_overlap = |lanes: &Lanes| {
            let mut found = false;
            for n in 0..LANES {
                let width = less(rect.x.1, lanes.right[n]) - more(rect.x.0, lanes.left[n]);
                let height = less(rect.y.1, lanes.bottom[n]) - more(rect.y.0, lanes.top[n]);
                let both = more(width, 0.0) * more(height, 0.0);
                found |= both > least * (area + lanes.area[n] - both);
            }
            found
        };
        self.lanes.iter().zip(self.rects.chunks(LANES)).any(|(lanes, rects)| {
            may_overlap(lanes) && rects.iter().any(|&other| rect.overlaps(other, threshold))
        })
    }
}

/// Cells of a [`Grid`] along an axis at most.
const MOST_CELLS: usize = 32;

/// An axis of an image, cut into cells as long as boxes are on average.
#[derive(Clone, Copy)]
struct Axis {
    begin: f32,
    cells_per_unit: f32,
    cells: usize,
}

impl Axis {
    /// The axis that holds intervals; those without bounds or numbers go to its ends.
    fn of(intervals: impl Iterator<Item = (f32, f32)>) -> Axis {
        let (mut begin, mut end, mut sum, mut count) = (f32::INFINITY, f32::NEG_INFINITY, 0.0, 0);
        for (from, to) in intervals.filter(|(from, to)| from.is_finite() && to.is_finite()) {
            (begin, end) = (begin.min(from), end.max(to));
            (sum, count) = (sum + f64::from(to - from), count + 1);
        }
        let (length, mean) = (f64::from(end) - f64::from(begin), sum / f64::from(count.max(1)));
        let cells = if mean > 0.0 { ((length / mean) as usize).clamp(1, MOST_CELLS) } else { 1 };
        let cells_per_unit = if length > 0.0 { (cells as f64 / length) as f32 } else { 0.0 };
        Axis { begin: if count > 0 { begin } else { 0.0 }, cells_per_unit, cells }
    }

    /// The cells of an interval, both ends included. A number that is not less has no lesser cell. There is a cell, whatever the
    /// numbers: boxes with ends that are none overlap nothing.
    fn cells(self, (from, to): (f32, f32)) -> core::ops::RangeInclusive<usize> {
        let cell = |at: f32| (((at - self.begin) * self.cells_per_unit) as usize).min(self.cells - 1);
        cell(from)..=cell(to).max(cell(from))
    }
}

/// Boxes that were taken, in every cell that they lie in.
struct Grid {
    x: Axis,
    y: Axis,
    cells: Vec<Taken>,
    count: usize,
    threshold: f32,
}

impl Grid {
    /// A grid for boxes that are held against each other by a threshold.
    fn new(x: Axis, y: Axis, threshold: f32) -> Grid {
        let cells = (0..x.cells * y.cells).map(|_| Taken::default()).collect();
        Grid { x, y, cells, count: 0, threshold }
    }

    fn push(&mut self, rect: Rect) {
        self.count += 1;
        for row in self.y.cells(rect.y) {
            for column in self.x.cells(rect.x) {
                self.cells[row * self.x.cells + column].push(rect);
            }
        }
    }

    /// Whether one of the boxes overlaps another by more than the threshold. From a threshold of a half on, what they have in common is
    /// more than half as wide and high as the other one, so it has a part in the middle third of it.
    fn overlap(&self, rect: Rect) -> bool {
        let searched = |(from, to): (f32, f32)| {
            let margin = if self.threshold >= 0.5 { (to - from) / 3.0 } else { 0.0 };
            (from + margin, to - margin)
        };
        self.y.cells(searched(rect.y)).any(|row| {
            let cells = &self.cells[row * self.x.cells..][..self.x.cells];
            cells[self.x.cells(searched(rect.x))].iter().any(|cell| cell.overlap(rect, self.threshold))
        })
    }
}

/// Boxes by falling score, the first of equals first; those without more than the least score are left out.
fn ranked(scores: &[f32], least: Option<f32>) -> Vec<usize> {
    // Bits of the order in which `total_cmp` has numbers, the greatest first.
    let falling = |score: f32| {
        let bits = score.to_bits();
        if bits >> 31 == 0 { !(bits | 1 << 31) } else { bits }
    };
    let wanted = scores.iter().enumerate().filter(|(_, score)| least.is_none_or(|least| **score > least));
    let mut keys: Vec<(u32, usize)> = wanted.map(|(i, &score)| (falling(score), i)).collect();
    keys.sort_unstable();
    keys.into_iter().map(|(_, i)| i).collect()
}

/// For each batch entry and class, boxes by falling score (the first of equals first) that overlap no box taken before
/// them by more than the IoU threshold: `[batch, class, box]` each.
pub(crate) fn non_max_suppression(args: Args<'_>, attrs: &NmsAttrs) -> Result<Vec<Value>> {
    let (boxes, scores) = (args.tensor(0)?, args.tensor(1)?);
    let most = usize::try_from(args.integer(2)?.unwrap_or(0)).unwrap_or(0);
    let iou = args.float(3)?.unwrap_or(0.0);
    let least = args.float(4)?;
    let (&[batch, count, 4], &[score_batch, classes, score_count]) = (boxes.dims, scores.dims) else {
        return Err("boxes must be [batch, boxes, 4] and scores [batch, classes, boxes]".to_string());
    };
    if (batch, count) != (score_batch, score_count) {
        return Err("boxes and scores differ in batch or number of boxes".to_string());
    }
    let (boxes, scores) = (boxes.floats()?, scores.floats()?);
    let mut selected: Vec<i64> = Vec::new();
    for entry in 0..batch {
        let rects: Vec<Rect> = boxes[entry * count * 4..(entry + 1) * count * 4]
            .chunks_exact(4)
            .map(|four| Rect::new(four, attrs.center_point_box))
            .collect();
        let (x, y) = (Axis::of(rects.iter().map(|rect| rect.x)), Axis::of(rects.iter().map(|rect| rect.y)));
        for class in 0..classes {
            let scores = &scores[(entry * classes + class) * count..][..count];
            let mut taken = Grid::new(x, y, iou);
            for i in ranked(scores, least) {
                if taken.count == most {
                    break;
                }
                if !taken.overlap(rects[i]) {
                    taken.push(rects[i]);
                    selected.extend([entry as i64, class as i64, i as i64]);
                }
            }
        }
    }
    Ok(vec![integers(&[selected.len() / 3, 3], selected)?])
}

#[cfg(test)]
mod tests {
    use tilewright_runtime::{HostArg, Tensor};

    use super::*;
    use crate::args::tensor_of;

    fn floats(dims: &[usize], values: &[f32]) -> HostArg<'static> {
        HostArg::Value(Tensor::new(dims, values).unwrap().into())
    }

    /// Three boxes: the second overlaps the first by a half, the third is alone and given by its other corners.
    fn check(scores: &[f32], most: i64, iou: f32, least: Option<f32>, expect: &[i64]) {
        let boxes = floats(&[1, 3, 4], &[0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.5, 9.0, 9.0, 8.0, 8.0]);
        let most = HostArg::Value(integers(&[], [most]).unwrap());
        let least = least.map_or(HostArg::Absent, |least| floats(&[], &[least]));
        let args = [boxes, floats(&[1, 1, 3], scores), most, floats(&[], &[iou]), least];
        let results = non_max_suppression(Args(&args), &NmsAttrs { center_point_box: false }).unwrap();
        let tensor = tensor_of(&results[0]).unwrap();
        assert_eq!(tensor.dims, [expect.len(), 3]);
        let boxes: Vec<i64> = tensor.integers().unwrap().chunks(3).map(|row| row[2]).collect();
        assert_eq!(boxes, expect);
    }

    /// Boxes of many sizes, some empty, without bounds or not numbers: what lanes find together is what boxes find one by one.
    #[test]
    fn lanes_overlap_as_boxes_do() {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32
        };
        let odd = [0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e30, -1.0];
        let mut rect = || {
            let (x, y, side) = (next(), next(), next() * next());
            let mut four = [y, x, y + side, x + side * (0.5 + next())];
            if next() < 0.1 {
                four[(next() * 4.0) as usize] = odd[(next() * 6.0) as usize];
            }
            Rect::new(&four, false)
        };
        for count in [0, 1, LANES - 1, LANES, LANES + 1, 3 * LANES + 5, 300] {
            for threshold in [0.0, 0.1, 0.5, 0.9, 1.0, -0.5] {
                let rects: Vec<Rect> = (0..count).map(|_| rect()).collect();
                let (x, y) = (Axis::of(rects.iter().map(|r| r.x)), Axis::of(rects.iter().map(|r| r.y)));
                let (mut taken, mut grid) = (Taken::default(), Grid::new(x, y, threshold));
                for &rect in &rects {
                    taken.push(rect);
                    grid.push(rect);
                }
                for _ in 0..200 {
                    let rect = rect();
                    let alone = rects.iter().any(|&other| rect.overlaps(other, threshold));
                    assert_eq!(taken.overlap(rect, threshold), alone);
                    assert_eq!(grid.overlap(rect), alone, "{} x {} cells", x.cells, y.cells);
                }
            }
        }
    }

    #[test]
    fn boxes_are_taken_by_score_unless_they_overlap() {
        check(&[0.5, 0.9, 0.1], 3, 0.4, None, &[1, 2]);
        check(&[0.5, 0.9, 0.1], 3, 0.5, None, &[1, 0, 2]);
        check(&[0.5, 0.5, 0.5], 3, 0.5, None, &[0, 1, 2]);
        check(&[0.5, 0.9, 0.1], 1, 0.4, None, &[1]);
        check(&[0.5, 0.9, 0.1], 3, 0.4, Some(0.1), &[1]);
        check(&[0.5, 0.9, 0.1], 0, 0.4, None, &[]);
    }
}
