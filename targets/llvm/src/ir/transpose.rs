//! Transposition of squares in registers.
//!
//! A vector of the lanes of one number of as many vectors is a column of the square of which they are the rows. All columns come from one
//! network: step `d` exchanges bit `d` of the number of the row with that of the lane, by two shuffles of each pair of rows.
//!
//! Source: Eklundh, "A Fast Computer Method for Matrix Transposing", 1972.

use tilewright_machine::CodegenError;
use tilewright_te::kernel::{Type, Value};

use super::arithmetic::shuffle_mask;
use super::function::{Function, Square};

impl Function<'_> {
    /// The operand of a vector of these scalars, if they are a column of a square.
    pub(super) fn column(&mut self, ty: Type, scalars: &[Value]) -> Result<Option<String>, CodegenError> {
        let Some((rows, column)) = self.rows(ty, scalars) else { return Ok(None) };
        let known = self.square.take().filter(|known| known.rows == rows && known.block == self.block);
        let square = match known {
            Some(known) => known,
            None => {
                let columns = self.transpose(ty, &rows)?;
                Square { rows, block: self.block.clone(), columns }
            }
        };
        let operand = square.columns[column as usize].clone();
        self.square = Some(square);
        Ok(Some(operand))
    }

    /// The vectors that the scalars have been taken from, and the number of the lane of each.
    fn rows(&self, ty: Type, scalars: &[Value]) -> Option<(Vec<Value>, u32)> {
        let (_, column) = self.extracted[*scalars.first()?]?;
        let is_square = ty.lanes.is_power_of_two() && scalars.len() == ty.lanes as usize;
        let row = |scalar: &Value| {
            let (row, lane) = self.extracted[*scalar]?;
            (lane == column && self.kernel.values[row] == ty).then_some(row)
        };
        let rows = scalars.iter().map(row).collect::<Option<Vec<Value>>>().filter(|_| is_square)?;
        Some((rows, column))
    }

    /// The columns of a square.
    fn transpose(&mut self, ty: Type, rows: &[Value]) -> Result<Vec<String>, CodegenError> {
        let text = self.text(ty)?.ty;
        let mut square = rows.iter().map(|row| self.operand(*row)).collect::<Result<Vec<_>, _>>()?;
        let mut bit = 1;
        while bit < ty.lanes {
            let lanes = |upper: u32| {
                // Lanes of the second row have numbers behind those of the first.
                let from =
                    |lane: u32| if lane & bit == 0 { lane | upper } else { ty.lanes + (lane & !bit | upper) };
                shuffle_mask((0..ty.lanes).map(|lane| Some(from(lane))))
            };
            let (lower, upper) = (lanes(0), lanes(bit));
            for first in (0..ty.lanes).filter(|row| row & bit == 0) {
                let [first, second] = [first, first | bit].map(|row| row as usize);
                let pair = format!("shufflevector {text} {}, {text} {}", square[first], square[second]);
                square[first] = self.def(format!("{pair}, {lower}"));
                square[second] = self.def(format!("{pair}, {upper}"));
            }
            bit *= 2;
        }
        Ok(square)
    }
}
