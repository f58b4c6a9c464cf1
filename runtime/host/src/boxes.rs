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
        for class in 0..classes {
            let scores = &scores[(entry * classes + class) * count..][..count];
            let mut order: Vec<usize> =
                (0..count).filter(|&i| least.is_none_or(|least| scores[i] > least)).collect();
            order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
            let mut taken: Vec<usize> = Vec::new();
            for i in order {
                if taken.len() == most {
                    break;
                }
                if !taken.iter().any(|&other| rects[i].overlaps(rects[other], iou)) {
                    taken.push(i);
                }
            }
            selected.extend(taken.iter().flat_map(|&i| [entry as i64, class as i64, i as i64]));
        }
    }
    Ok(vec![integers(vec![selected.len() / 3, 3], selected)?])
}

#[cfg(test)]
mod tests {
    use tilewright_dtype::DType;
    use tilewright_runtime::{HostArg, TensorValue};

    use super::*;
    use crate::args::tensor_of;

    fn floats(dims: &[usize], values: &[f32]) -> HostArg<'static> {
        let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        HostArg::Value(TensorValue::from_bytes(DType::F32, dims.to_vec(), bytes).unwrap().into())
    }

    /// Three boxes: the second overlaps the first by a half, the third is alone and given by its other corners.
    fn check(scores: &[f32], most: i64, iou: f32, least: Option<f32>, expect: &[i64]) {
        let boxes = floats(&[1, 3, 4], &[0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.5, 9.0, 9.0, 8.0, 8.0]);
        let most = HostArg::Value(integers(vec![], [most]).unwrap());
        let least = least.map_or(HostArg::Absent, |least| floats(&[], &[least]));
        let args = [boxes, floats(&[1, 1, 3], scores), most, floats(&[], &[iou]), least];
        let results = non_max_suppression(Args(&args), &NmsAttrs { center_point_box: false }).unwrap();
        let tensor = tensor_of(&results[0]).unwrap();
        assert_eq!(tensor.dims, [expect.len(), 3]);
        let boxes: Vec<i64> = tensor.integers().unwrap().chunks(3).map(|row| row[2]).collect();
        assert_eq!(boxes, expect);
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
