//! Functions of known extents made of functions of open ones.

use crate::expr::{Expr, Var};
use crate::func::{Func, Stmt, VarKind};
use crate::simplify::Simplifier;

impl Func {
    /// The function with each size variable replaced by the extent given for it, or by the nearest that its bounds allow: what a cost model
    /// may look at where extents are open. It is not to be run: the size variables are still its parameters.
    pub fn with_sizes(&self, extent: impl Fn(Var) -> i64) -> Func {
        let mut func = self.clone();
        let value = |var: Var| match self.vars[var].kind {
            VarKind::Size { min, max, .. } => Some(Expr::int(extent(var).clamp(min, max.max(min)))),
            VarKind::Loop | VarKind::Iter => None,
        };
        let simplifier = Simplifier::for_sizes(self);
        let known = |e: &Expr| simplifier.simplify(&e.substitute(&value));
        for buffer in func.buffers.values_mut() {
            buffer.shape.iter_mut().for_each(|extent| *extent = known(extent));
        }
        set(&mut func.body, &value, &known);
        func
    }
}

fn set(stmts: &mut [Stmt], value: &impl Fn(Var) -> Option<Expr>, known: &impl Fn(&Expr) -> Expr) {
    for stmt in stmts {
        match stmt {
            Stmt::Loop(l) => {
                l.extent = known(&l.extent);
                set(&mut l.body, value, known);
            }
            Stmt::Block(block) => {
                for iter in &mut block.iters {
                    iter.extent = known(&iter.extent);
                    iter.value = iter.value.substitute(value);
                }
                block.predicate = block.predicate.take().map(|predicate| predicate.substitute(value));
                block.substitute(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::func::Func;

    #[test]
    fn open_extents_become_the_nearest_that_is_allowed() {
        let text = "func twice(n: size 1..=4096, m: size 1..=16, x: f32[n, m]) -> (y: f32[(n * 2), m]) {
  for i in 0..(n * 2) {
    for j in 0..m {
      block y(a: spatial (n * 2) = i, b: spatial m = j) {
        y[a, b] = x[floordiv(a, 2), b]
      }
    }
  }
}
";
        let func: Func = text.parse().expect("a function");
        let known = func.with_sizes(|_| 64).to_string();
        assert!(known.contains("y: f32[128, 16]") && known.contains("for i in 0..128 {"), "{known}");
        assert!(known.contains("a: spatial 128 = i, b: spatial 16 = j"), "{known}");
    }
}
