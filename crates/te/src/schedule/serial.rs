//! Loops of threads as loops: a function that is scheduled for a GPU, for a processor.

use std::collections::BTreeSet;

use crate::expr::{Buffer, Var};
use crate::func::{Func, LoopKind, Scope, Stmt};
use crate::schedule::region::{Accesses, accessed, bind};
use crate::schedule::tree;

/// Makes every loop of threads one that runs its iterations one after the other. It computes the same: that is what loops of threads mean.
///
/// What threads share becomes an array of the task, and so do registers that are dealt out to threads, which the loops index.
pub fn threads_as_loops(func: &mut Func) {
    let mut threads: BTreeSet<Var> = BTreeSet::new();
    tree::for_each_loop(&func.body, &mut |l| {
        if matches!(l.kind, LoopKind::Thread(_)) {
            threads.insert(l.var);
        }
    });
    let mut arrays: BTreeSet<Buffer> = BTreeSet::new();
    for (buffer, data) in func.buffers.iter() {
        let is_dealt = || {
            let indexes = |index: &crate::expr::Expr| {
                index.any(&mut |e| e.as_var().is_some_and(|var| threads.contains(&var)))
            };
            func.blocks().iter().any(|block| {
                let places = accessed(block, buffer, Accesses::All);
                places.iter().flatten().any(|index| indexes(&bind(block, index)))
            })
        };
        if data.scope == Scope::Shared || data.scope == Scope::Register && is_dealt() {
            arrays.insert(buffer);
        }
    }
    for buffer in arrays {
        func.buffers[buffer].scope = Scope::Stack;
    }
    serialize(&mut func.body);
}

fn serialize(stmts: &mut [Stmt]) {
    for stmt in stmts {
        let Stmt::Loop(l) = stmt else { continue };
        if matches!(l.kind, LoopKind::Thread(_)) {
            l.kind = LoopKind::Serial;
        }
        serialize(&mut l.body);
    }
}
