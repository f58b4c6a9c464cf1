//! Scalar replacement: elements of register buffers become values.
//!
//! A register holds what was stored last, a scalar or a vector of consecutive elements. Stores and loads of other
//! elements than those take vectors apart and put them together. Loops carry the registers that they write, and branches
//! join them (`stmt`).

use super::emit::Emitter;
use crate::expr::{Buffer, Expr};
use crate::flatten::error::FlattenError;
use crate::kernel::{KernelOp, Type, Value};

impl Emitter<'_> {
    /// First element and lanes of a register access.
    fn register_slot(&mut self, buffer: Buffer, indices: &[Expr]) -> Result<(i64, u32), FlattenError> {
        let mut poly = self.flat_index(buffer, indices);
        if self.deal.dealt.contains(buffer) {
            // The thread decides of the rest.
            let (atoms, vars) = (&self.atoms, &self.deal.vars);
            let by_thread = |atom: u32| vars.iter().any(|&var| atoms.uses(atom, var));
            poly.terms.retain(|product, _| !product.iter().any(|&atom| by_thread(atom)));
        }
        let lane_var = self.lane.map(|l| l.var);
        let name = &self.func.buffers[buffer].name;
        match poly.terms.len() {
            0 => Ok((poly.constant, 1)),
            1 => {
                let (product, &coefficient) = poly.terms.iter().next().expect("one term");
                let is_lane = product.len() == 1
                    && lane_var.is_some()
                    && self.atoms.expr(product[0]).as_var() == lane_var
                    && coefficient == 1;
                if is_lane {
                    Ok((poly.constant, self.lane.map_or(1, |l| l.lanes)))
                } else {
                    self.error(format!("register buffer `{name}` is indexed by a variable: {indices:?}"))
                }
            }
            _ => self.error(format!("register buffer `{name}` is indexed by variables: {indices:?}")),
        }
    }

    pub(super) fn load_register(&mut self, buffer: Buffer, indices: &[Expr]) -> Result<Value, FlattenError> {
        if let Some(&shuffle) = self.deal.shuffles.get(&(buffer, indices.to_vec())) {
            let value = self.register_at(buffer, shuffle.slot, shuffle.lanes)?;
            let others = self.shuffled(value, shuffle.from);
            let Some(own) = shuffle.own else { return Ok(others) };
            let value = self.register_at(buffer, own.slot, shuffle.lanes)?;
            return Ok(self.own_or(own, value, others));
        }
        let (start, lanes) = self.register_slot(buffer, indices)?;
        self.register_at(buffer, start, lanes)
    }

    /// Consecutive elements of those that this thread holds.
    fn register_at(&mut self, buffer: Buffer, start: i64, lanes: u32) -> Result<Value, FlattenError> {
        let below = self.registers.range((buffer, i64::MIN)..=(buffer, start)).next_back();
        if let Some((&(_, first), &value)) = below {
            if self.partial.contains(&(buffer, first)) {
                self.partial_reads.insert((buffer, first));
            }
            let ty = self.type_of(value);
            let inside = start - first;
            if inside == 0 && ty.lanes == lanes {
                return Ok(value);
            }
            if inside + lanes as i64 <= ty.lanes as i64 {
                let op = if lanes == 1 {
                    KernelOp::Extract(value, inside as u32)
                } else {
                    KernelOp::Slice(value, inside as u32)
                };
                return Ok(self.op(Type::vector(ty.dtype, lanes), op));
            }
        }
        // The lanes lie in several registers: join them element by element.
        let dtype = self.func.buffers[buffer].dtype;
        if lanes > 1 {
            let mut parts = Vec::new();
            for lane in 0..lanes as i64 {
                match self.register_element(buffer, start + lane) {
                    Some(value) => parts.push(value),
                    None => return self.unwritten(buffer, start + lane),
                }
            }
            return Ok(self.op(Type::vector(dtype, lanes), KernelOp::Concat(parts)));
        }
        self.unwritten(buffer, start)
    }

    fn register_element(&mut self, buffer: Buffer, element: i64) -> Option<Value> {
        let (&(_, first), &value) =
            self.registers.range((buffer, i64::MIN)..=(buffer, element)).next_back()?;
        let ty = self.type_of(value);
        let inside = element - first;
        if inside >= ty.lanes as i64 {
            return None;
        }
        Some(if ty.lanes == 1 {
            value
        } else {
            self.op(Type::scalar(ty.dtype), KernelOp::Extract(value, inside as u32))
        })
    }

    fn unwritten<T>(&self, buffer: Buffer, element: i64) -> Result<T, FlattenError> {
        let name = &self.func.buffers[buffer].name;
        self.error(format!("element {element} of register buffer `{name}` is read before it is written"))
    }

    /// Writes a register; the previous contents of the same elements are gone.
    pub(super) fn store_register(
        &mut self,
        buffer: Buffer,
        indices: &[Expr],
        value: Value,
        mask: Option<Value>,
    ) -> Result<(), FlattenError> {
        let (start, lanes) = self.register_slot(buffer, indices)?;
        if self.type_of(value).lanes > lanes {
            let name = &self.func.buffers[buffer].name;
            return self
                .error(format!("lanes of a vector are written to one element of register buffer `{name}`"));
        }
        let mut value = self.widen(value, lanes);
        if let Some(mask) = mask {
            // Lanes that are masked off keep what they had; where they had nothing, nobody may read them.
            if let Some(&old) = self.registers.get(&(buffer, start))
                && self.type_of(old) == self.type_of(value)
            {
                let ty = self.type_of(value);
                value = self.op(ty, KernelOp::Select(mask, value, old));
            }
        }
        let end = start + lanes as i64;
        let overlapping: Vec<(i64, Value)> = self
            .registers
            .range((buffer, i64::MIN)..(buffer, end))
            .filter(|&(&(_, first), &v)| first + self.type_of(v).lanes as i64 > start)
            .map(|(&(_, first), &v)| (first, v))
            .collect();
        for (first, old) in overlapping {
            self.registers.remove(&(buffer, first));
            let ty = self.type_of(old);
            for lane in 0..ty.lanes {
                let element = first + lane as i64;
                if !(start..end).contains(&element) {
                    let kept = self.op(Type::scalar(ty.dtype), KernelOp::Extract(old, lane));
                    self.registers.insert((buffer, element), kept);
                }
            }
        }
        self.partial.remove(&(buffer, start));
        self.registers.insert((buffer, start), value);
        Ok(())
    }
}
