//! Finding and editing statements of a function: what all primitives share.

use tilewright_dtype::DType;

use crate::expr::{Buffer, Expr, ExprKind, Var, Visited};
use crate::func::{Block, Func, Loop, LoopKind, Scope, Stmt, VarKind};
use crate::schedule::ScheduleError;
use crate::simplify::Simplifier;

/// Where a statement is: the position in the function's body, then in the body of that loop, and so on.
pub(crate) type Path = Vec<usize>;

/// The statement at a path, `None` if there is none.
pub(crate) fn stmt<'a>(func: &'a Func, path: &[usize]) -> Option<&'a Stmt> {
    let (&last, parents) = path.split_last()?;
    list(func, parents)?.get(last)
}

/// The statements inside the loop at a path; the whole body for the empty path.
pub(crate) fn list<'a>(func: &'a Func, path: &[usize]) -> Option<&'a Vec<Stmt>> {
    path.iter().try_fold(&func.body, |stmts, &index| match stmts.get(index)? {
        Stmt::Loop(l) => Some(&l.body),
        Stmt::Block(_) => None,
    })
}

/// [`list`], to edit.
pub(crate) fn list_mut<'a>(func: &'a mut Func, path: &[usize]) -> Option<&'a mut Vec<Stmt>> {
    path.iter().try_fold(&mut func.body, |stmts, &index| match stmts.get_mut(index)? {
        Stmt::Loop(l) => Some(&mut l.body),
        Stmt::Block(_) => None,
    })
}

/// The loop at a path.
pub(crate) fn loop_at<'a>(func: &'a Func, path: &[usize]) -> Option<&'a Loop> {
    match stmt(func, path)? {
        Stmt::Loop(l) => Some(l),
        Stmt::Block(_) => None,
    }
}

/// The loop at a path, to edit.
pub(crate) fn loop_at_mut<'a>(func: &'a mut Func, path: &[usize]) -> Option<&'a mut Loop> {
    let (&last, parents) = path.split_last()?;
    match list_mut(func, parents)?.get_mut(last)? {
        Stmt::Loop(l) => Some(l),
        Stmt::Block(_) => None,
    }
}

/// The block at a path.
pub(crate) fn block_at<'a>(func: &'a Func, path: &[usize]) -> Option<&'a Block> {
    match stmt(func, path)? {
        Stmt::Block(b) => Some(b),
        Stmt::Loop(_) => None,
    }
}

/// The block at a path, to edit.
pub(crate) fn block_at_mut<'a>(func: &'a mut Func, path: &[usize]) -> Option<&'a mut Block> {
    let (&last, parents) = path.split_last()?;
    match list_mut(func, parents)?.get_mut(last)? {
        Stmt::Block(b) => Some(b),
        Stmt::Loop(_) => None,
    }
}

/// The path of the first statement, in execution order, that satisfies `test`.
pub(crate) fn find(stmts: &[Stmt], test: &impl Fn(&Stmt) -> bool) -> Option<Path> {
    stmts.iter().enumerate().find_map(|(index, s)| {
        if test(s) {
            return Some(vec![index]);
        }
        let Stmt::Loop(l) = s else { return None };
        find(&l.body, test).map(|inner| [vec![index], inner].concat())
    })
}

/// The path of a loop by the name of its variable.
pub(crate) fn find_loop(func: &Func, primitive: &'static str, name: &str) -> Result<Path, ScheduleError> {
    let is_it = |s: &Stmt| matches!(s, Stmt::Loop(l) if func.vars[l.var].name == name);
    find(&func.body, &is_it)
        .ok_or_else(|| ScheduleError::new(primitive, name, "there is no loop of that name"))
}

/// The path of a block by name.
pub(crate) fn find_block(func: &Func, primitive: &'static str, name: &str) -> Result<Path, ScheduleError> {
    let is_it = |s: &Stmt| matches!(s, Stmt::Block(b) if b.name == name);
    find(&func.body, &is_it)
        .ok_or_else(|| ScheduleError::new(primitive, name, "there is no block of that name"))
}

/// A buffer by name.
pub(crate) fn find_buffer(func: &Func, primitive: &'static str, name: &str) -> Result<Buffer, ScheduleError> {
    let found = func.buffers.iter().find(|(_, b)| b.name == name).map(|(id, _)| id);
    found.ok_or_else(|| ScheduleError::new(primitive, name, "there is no buffer of that name"))
}

/// The loops around the statement at a path, outermost first.
pub(crate) fn loops_above<'a>(func: &'a Func, path: &[usize]) -> Vec<&'a Loop> {
    (1..path.len()).filter_map(|n| loop_at(func, &path[..n])).collect()
}

/// Whether the iterations of the loop at a path can be tasks: it is outermost, or alone in an outermost loop whose iterations
/// are tasks too, or rounds of tasks in order, and have as many each.
pub(crate) fn may_be_parallel(func: &Func, path: &[usize]) -> bool {
    match path {
        [_] => true,
        [outer, _] => loop_at(func, &[*outer]).zip(loop_at(func, path)).is_some_and(|(outer, inner)| {
            let has_rounds = match outer.kind {
                LoopKind::Parallel => true,
                LoopKind::Serial => outer.stages == 1 && outer.prefetches.is_empty(),
                LoopKind::Vectorized | LoopKind::Unrolled | LoopKind::Thread(_) => false,
            };
            has_rounds && outer.body.len() == 1 && !inner.extent.uses(outer.var)
        }),
        _ => false,
    }
}

/// The outer one of a function's loops of tasks that a statement is: a parallel loop, or a serial one with only a parallel loop
/// inside, whose iterations are rounds in order.
pub(crate) fn tasks(stmt: &Stmt) -> Option<&Loop> {
    let Stmt::Loop(l) = stmt else { return None };
    let is_parallel = |l: &Loop| l.kind == LoopKind::Parallel;
    let is_round = matches!(&l.body[..], [Stmt::Loop(inner)] if is_parallel(inner));
    (is_parallel(l) || is_round).then_some(&**l)
}

/// Why a loop of tasks or threads may not be where it is, given the loops around it.
pub(crate) fn misplaced(func: &Func, path: &[usize]) -> Option<&'static str> {
    let l = loop_at(func, path)?;
    match l.kind {
        LoopKind::Parallel if !may_be_parallel(func, path) => {
            Some("it would be neither outermost nor alone inside an outermost loop of tasks or rounds")
        }
        LoopKind::Thread(_) => {
            let around = loops_above(func, path);
            if around.iter().any(|other| other.kind == l.kind) {
                Some("it would be inside a loop of the same threads")
            } else if around.iter().any(|other| other.kind == LoopKind::Vectorized) {
                Some("it would be threads inside of vectors")
            } else {
                None
            }
        }
        LoopKind::Serial | LoopKind::Parallel | LoopKind::Vectorized | LoopKind::Unrolled => None,
    }
}

/// The name of a loop of tasks or threads that is where none may be, and why not.
pub(crate) fn misplaced_loop(func: &Func) -> Option<(&str, &'static str)> {
    fn search(func: &Func, stmts: &[Stmt], path: &mut Path) -> Option<(Var, &'static str)> {
        stmts.iter().enumerate().find_map(|(index, s)| {
            let Stmt::Loop(l) = s else { return None };
            path.push(index);
            let reason = misplaced(func, path).map(|reason| (l.var, reason));
            let found = reason.or_else(|| search(func, &l.body, path));
            path.pop();
            found
        })
    }
    let (var, reason) = search(func, &func.body, &mut Path::new())?;
    Some((func.vars[var].name.as_str(), reason))
}

/// The loop whose tasks write a local buffer that something outside of the loop accesses as well: each task has its own.
pub(crate) fn escaped(func: &Func, buffer: Buffer) -> Option<&str> {
    if func.buffers[buffer].scope == Scope::Global {
        return None;
    }
    let accesses = |s: &Stmt| {
        let mut found = [false; 2];
        for_each_block(std::slice::from_ref(s), &mut |b| {
            found[0] |= writes(b, buffer);
            found[1] |= writes(b, buffer) || reads(b, buffer);
        });
        found
    };
    let accesses: Vec<[bool; 2]> = func.body.iter().map(accesses).collect();
    let is_alone = accesses.iter().filter(|[_, any]| *any).count() < 2;
    let tasks = func.body.iter().zip(accesses).find_map(|(s, [written, _])| match s {
        s if written => tasks(s).map(|l| l.var),
        _ => None,
    });
    tasks.filter(|_| !is_alone).map(|var| func.vars[var].name.as_str())
}

/// Every block with its path, in execution order.
pub(crate) fn blocks_with_paths(func: &Func) -> Vec<(Path, &Block)> {
    fn collect<'a>(stmts: &'a [Stmt], path: &mut Path, out: &mut Vec<(Path, &'a Block)>) {
        for (index, s) in stmts.iter().enumerate() {
            path.push(index);
            match s {
                Stmt::Loop(l) => collect(&l.body, path, out),
                Stmt::Block(b) => out.push((path.clone(), b)),
            }
            path.pop();
        }
    }
    let mut out = Vec::new();
    collect(&func.body, &mut Vec::new(), &mut out);
    out
}

/// Calls `visit` on every block below, in execution order.
pub(crate) fn for_each_block<'a>(stmts: &'a [Stmt], visit: &mut impl FnMut(&'a Block)) {
    for s in stmts {
        match s {
            Stmt::Loop(l) => for_each_block(&l.body, visit),
            Stmt::Block(b) => visit(b),
        }
    }
}

/// Calls `visit` on every block below, to edit.
pub(crate) fn for_each_block_mut(stmts: &mut [Stmt], visit: &mut impl FnMut(&mut Block)) {
    for s in stmts {
        match s {
            Stmt::Loop(l) => for_each_block_mut(&mut l.body, visit),
            Stmt::Block(b) => visit(b),
        }
    }
}

/// Calls `visit` on every loop below, outer before inner.
pub(crate) fn for_each_loop<'a>(stmts: &'a [Stmt], visit: &mut impl FnMut(&'a Loop)) {
    for s in stmts {
        if let Stmt::Loop(l) = s {
            visit(l);
            for_each_loop(&l.body, visit);
        }
    }
}

/// Rewrites every expression over loop variables below: extents, prefetched elements, bindings, predicates.
pub(crate) fn map_loop_exprs(stmts: &mut [Stmt], map: &impl Fn(&Expr) -> Expr) {
    for s in stmts {
        match s {
            Stmt::Loop(l) => {
                l.extent = map(&l.extent);
                for prefetch in &mut l.prefetches {
                    prefetch.for_each_expr_mut(|e| *e = map(e));
                }
                map_loop_exprs(&mut l.body, map);
            }
            Stmt::Block(b) => {
                for iter in &mut b.iters {
                    iter.value = map(&iter.value);
                }
                b.predicate = b.predicate.as_ref().map(map);
            }
        }
    }
}

/// Adds a condition to the predicate of every block below.
pub(crate) fn add_predicate(stmts: &mut [Stmt], condition: &Expr) {
    for_each_block_mut(stmts, &mut |block| {
        block.predicate = Some(match block.predicate.take() {
            None => condition.clone(),
            Some(p) => p.and(condition.clone()),
        });
    });
}

/// Removes the statement at a path and the loops that become empty by it.
pub(crate) fn remove(func: &mut Func, path: &[usize]) -> Option<Stmt> {
    let (&last, parents) = path.split_last()?;
    let stmts = list_mut(func, parents)?;
    let removed = (last < stmts.len()).then(|| stmts.remove(last));
    if stmts.is_empty() && !parents.is_empty() {
        remove(func, parents);
    }
    removed
}

/// The conditions of a conjunction.
pub(crate) fn conjuncts(condition: &Expr) -> Vec<Expr> {
    match condition.kind() {
        ExprKind::Binary(crate::expr::BinaryOp::And, a, b) => [conjuncts(a), conjuncts(b)].concat(),
        _ => vec![condition.clone()],
    }
}

/// The conjunction of conditions, `None` where there are none.
pub(crate) fn conjunction(conditions: impl IntoIterator<Item = Expr>) -> Option<Expr> {
    conditions.into_iter().reduce(Expr::and)
}

/// What is known at the statement at a path: sizes and the loops around it.
pub(crate) fn simplifier_at(func: &Func, path: &[usize]) -> Simplifier {
    let mut simplifier = Simplifier::for_sizes(func);
    for l in loops_above(func, path) {
        simplifier.bind_range(l.var, 0, l.extent.clone());
    }
    simplifier
}

/// [`simplifier_at`], knowing besides that the loops around have iterations.
pub(crate) fn simplifier_running(func: &Func, path: &[usize]) -> Simplifier {
    let mut simplifier = simplifier_at(func, path);
    loops_above(func, path).iter().for_each(|l| simplifier.assume_positive(&l.extent));
    simplifier
}

/// [`simplifier_at`] with the loops of a subtree as well.
pub(crate) fn simplifier_within(func: &Func, path: &[usize], stmts: &[Stmt]) -> Simplifier {
    let mut simplifier = simplifier_at(func, path);
    for_each_loop(stmts, &mut |l| simplifier.bind_range(l.var, 0, l.extent.clone()));
    simplifier
}

/// Simplifies extents, bindings and predicates of the whole function; predicates that always hold go.
pub(crate) fn normalize(func: &mut Func) {
    normalize_with(func, Simplifier::for_sizes(func).keep_fixed_variables());
}

/// [`normalize`] with what the simplifier knows of sizes.
pub(crate) fn normalize_with(func: &mut Func, mut simplifier: Simplifier) {
    let mut body = std::mem::take(&mut func.body);
    normalize_stmts(&mut body, &mut simplifier);
    func.body = body;
}

fn normalize_stmts(stmts: &mut [Stmt], simplifier: &mut Simplifier) {
    for s in stmts {
        match s {
            Stmt::Loop(l) => {
                l.extent = simplifier.simplify(&l.extent);
                simplifier.bind_range(l.var, 0, l.extent.clone());
                for prefetch in &mut l.prefetches {
                    prefetch.for_each_expr_mut(|e| *e = simplifier.simplify(e));
                }
                normalize_stmts(&mut l.body, simplifier);
            }
            Stmt::Block(b) => {
                for iter in &mut b.iters {
                    iter.value = simplifier.simplify(&iter.value);
                }
                if let Some(predicate) = b.predicate.take() {
                    let mut kept: Vec<Expr> = Vec::new();
                    for condition in conjuncts(&predicate) {
                        let condition = simplifier.simplify(&condition);
                        if condition.as_int() != Some(1) && !kept.contains(&condition) {
                            kept.push(condition);
                        }
                    }
                    b.predicate = conjunction(kept);
                }
            }
        }
    }
}

/// A nest of serial loops, outermost first, around a statement.
pub(crate) fn nest(loops: Vec<(Var, Expr)>, inner: Stmt) -> Stmt {
    loops
        .into_iter()
        .rev()
        .fold(inner, |body, (var, extent)| Stmt::Loop(Box::new(Loop::serial(var, extent, vec![body]))))
}

/// A new loop variable.
pub(crate) fn loop_var(func: &mut Func, hint: &str) -> Var {
    func.add_var(hint, VarKind::Loop)
}

/// Whether a block loads from the buffer.
pub(crate) fn reads(block: &Block, buffer: Buffer) -> bool {
    let (mut visited, mut found) = (Visited::default(), false);
    let mut is_load = |x: &Expr| matches!(x.kind(), ExprKind::Load(b, _) if *b == buffer);
    block.for_each_expr(|e| found = found || e.search(&mut visited, &mut is_load));
    found
}

/// Whether a block stores to the buffer.
pub(crate) fn writes(block: &Block, buffer: Buffer) -> bool {
    block.init.iter().chain(&block.body).any(|s| s.buffer == buffer)
}

/// The buffers a block stores to, each once, in order.
pub(crate) fn written(block: &Block) -> Vec<Buffer> {
    let mut out: Vec<Buffer> = Vec::new();
    for store in block.body.iter().chain(&block.init) {
        if !out.contains(&store.buffer) {
            out.push(store.buffer);
        }
    }
    out
}

/// The buffers a block loads from, each once, in order.
pub(crate) fn read_buffers(block: &Block) -> Vec<Buffer> {
    let mut out = Vec::new();
    block.for_each_node(|x| {
        if let ExprKind::Load(b, _) = x.kind()
            && !out.contains(b)
        {
            out.push(*b);
        }
    });
    out
}

/// Every access of a block: buffer and indices, of stores first.
pub(crate) fn accesses(block: &Block) -> Vec<(Buffer, Vec<Expr>)> {
    let stores = block.init.iter().chain(&block.body);
    let mut found: Vec<(Buffer, Vec<Expr>)> = stores.map(|s| (s.buffer, s.indices.clone())).collect();
    block.for_each_expr(|e| {
        e.walk(&mut |x| {
            if let ExprKind::Load(buffer, indices) = x.kind() {
                found.push((*buffer, indices.clone()));
            }
        });
    });
    found
}

/// Gives accesses of a block the indices that `map` makes of theirs, where it makes some.
pub(crate) fn map_accesses(block: &mut Block, map: impl Fn(Buffer, &[Expr]) -> Option<Vec<Expr>>) {
    for store in block.init.iter_mut().chain(&mut block.body) {
        if let Some(indices) = map(store.buffer, &store.indices) {
            store.indices = indices;
        }
    }
    block.rewrite_exprs(&mut |x| match x.kind() {
        ExprKind::Load(buffer, indices) => {
            map(*buffer, indices).map(|indices| Expr::load(x.dtype(), *buffer, indices))
        }
        _ => None,
    });
}

/// Where the loop is that alone drives a variable of the block at a path, over its whole domain, and has no other block in it, as
/// computed.
pub(crate) fn loop_of(func: &Func, path: &[usize], var: Var) -> Result<Path, String> {
    let block = block_at(func, path).ok_or("there is no such block")?;
    let iter = block.iters.iter().find(|i| i.var == var);
    let value = iter.and_then(|i| i.value.as_var());
    let sizes = Simplifier::for_sizes(func);
    let is_whole = |l: &Loop| iter.is_some_and(|i| sizes.prove_equal(&l.extent, &i.extent));
    let found = (1..path.len()).find_map(|depth| {
        let l = loop_at(func, &path[..depth]).filter(|l| Some(l.var) == value)?;
        let mut blocks = 0;
        for_each_block(&l.body, &mut |_| blocks += 1);
        let alone = block.iters.iter().filter(|i| i.value.uses(l.var)).count() == 1;
        let is_plain =
            alone && is_whole(l) && blocks == 1 && l.kind == LoopKind::Serial && l.tied().is_none();
        is_plain.then(|| path[..depth].to_vec())
    });
    found.ok_or_else(|| format!("the loops of block `{}` are not as computed", block.name))
}

/// Simplifies the indices and conditions of a block, wherever they are in a value.
pub(crate) fn simplify_indices(block: &mut Block, simplifier: &Simplifier) {
    let is_simple = |x: &Expr| matches!(x.dtype(), DType::I64 | DType::Bool);
    block.rewrite_exprs(&mut |x| is_simple(x).then(|| simplifier.simplify(x)));
}
