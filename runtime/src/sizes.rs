//! Evaluation of size slots.

use alloc::vec::Vec;

use crate::plan::{Plan, SizeDef, SizeId};

/// The values of the size slots of one session; `None` is undefined.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    values: Vec<Option<i64>>,
}

impl Sizes {
    /// The value of a slot; `None` also for one that does not exist.
    pub(crate) fn get(&self, id: SizeId) -> Option<i64> {
        self.values.get(id.index()).copied().flatten()
    }

    /// Evaluates every slot from the dims of the inputs (computed slots become undefined).
    pub(crate) fn evaluate(&mut self, defs: &[SizeDef], input_dim: impl Fn(u32, u32) -> Option<i64>) {
        self.values.clear();
        self.values.reserve(defs.len());
        for &def in defs {
            let value = match def {
                SizeDef::InputDim { input, axis } => input_dim(input, axis),
                SizeDef::Computed => None,
                def => self.arithmetic(def),
            };
            self.values.push(value);
        }
    }

    /// Forgets the computed slots and what depends on them; `late` lists these in order.
    pub(crate) fn forget(&mut self, late: &[SizeId]) {
        for id in late {
            self.values[id.index()] = None;
        }
    }

    /// Writes a computed slot and re-evaluates the slots of `late` (all late slots in order) that follow it.
    pub(crate) fn set(&mut self, defs: &[SizeDef], late: &[SizeId], slot: SizeId, value: i64) {
        self.values[slot.index()] = Some(value);
        let first = late.partition_point(|&id| id <= slot);
        for &id in &late[first..] {
            let def = defs[id.index()];
            if !matches!(def, SizeDef::Computed) {
                self.values[id.index()] = self.arithmetic(def);
            }
        }
    }

    fn arithmetic(&self, def: SizeDef) -> Option<i64> {
        let pair = |a: SizeId, b: SizeId| Some((self.get(a)?, self.get(b)?));
        match def {
            SizeDef::Const(value) => Some(value),
            SizeDef::InputDim { .. } | SizeDef::Computed => None,
            SizeDef::Add(a, b) => pair(a, b).and_then(|(a, b)| a.checked_add(b)),
            SizeDef::Sub(a, b) => pair(a, b).and_then(|(a, b)| a.checked_sub(b)),
            SizeDef::Mul(a, b) => pair(a, b).and_then(|(a, b)| a.checked_mul(b)),
            SizeDef::FloorDiv(a, b) => pair(a, b).and_then(|(a, b)| floor_div(a, b)),
            SizeDef::CeilDiv(a, b) => {
                pair(a, b).and_then(|(a, b)| floor_div(a, b.checked_neg()?)?.checked_neg())
            }
            SizeDef::Mod(a, b) => {
                pair(a, b).and_then(|(a, b)| a.checked_sub(floor_div(a, b)?.checked_mul(b)?))
            }
            SizeDef::Min(a, b) => pair(a, b).map(|(a, b)| a.min(b)),
            SizeDef::Max(a, b) => pair(a, b).map(|(a, b)| a.max(b)),
        }
    }
}

impl Plan {
    /// The values of its size slots, as far as they depend on no input and no instruction.
    pub fn fixed_sizes(&self) -> Vec<Option<i64>> {
        let mut sizes = Sizes::default();
        sizes.evaluate(&self.sizes, |_, _| None);
        sizes.values
    }
}

fn floor_div(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    if a % b != 0 && (a < 0) != (b < 0) { Some(quotient - 1) } else { Some(quotient) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_rounds_as_documented() {
        let check = |a: i64, b: i64, expect: [Option<i64>; 3]| {
            let defs = [
                SizeDef::Const(a),
                SizeDef::Const(b),
                SizeDef::FloorDiv(SizeId(0), SizeId(1)),
                SizeDef::CeilDiv(SizeId(0), SizeId(1)),
                SizeDef::Mod(SizeId(0), SizeId(1)),
            ];
            let mut sizes = Sizes::default();
            sizes.evaluate(&defs, |_, _| None);
            assert_eq!([2, 3, 4].map(|i| sizes.get(SizeId(i))), expect, "{a} by {b}");
        };
        check(7, 2, [Some(3), Some(4), Some(1)]);
        check(-7, 2, [Some(-4), Some(-3), Some(1)]);
        check(7, -2, [Some(-4), Some(-3), Some(-1)]);
        check(-8, -2, [Some(4), Some(4), Some(0)]);
        check(1, 0, [None, None, None]);
        check(i64::MIN, -1, [None, None, None]);
    }

    #[test]
    fn writing_a_slot_updates_what_depends_on_it() {
        let defs = [
            SizeDef::Const(4),
            SizeDef::Computed,
            SizeDef::Mul(SizeId(0), SizeId(1)),
            SizeDef::Computed,
            SizeDef::Add(SizeId(2), SizeId(3)),
        ];
        let late = [1, 2, 3, 4].map(SizeId);
        let mut sizes = Sizes::default();
        sizes.evaluate(&defs, |_, _| None);
        sizes.set(&defs, &late, SizeId(1), 5);
        assert_eq!(sizes.get(SizeId(2)), Some(20));
        assert_eq!(sizes.get(SizeId(4)), None);
        sizes.set(&defs, &late, SizeId(3), 1);
        assert_eq!(sizes.get(SizeId(4)), Some(21));
        sizes.set(&defs, &late, SizeId(1), i64::MAX);
        assert_eq!(sizes.get(SizeId(2)), None, "overflow is undefined");
        sizes.forget(&late);
        assert_eq!(sizes.get(SizeId(1)), None);
    }
}
