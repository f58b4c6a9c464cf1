//! A barrier where threads meet in elements that they share.
//!
//! The statements of a task are walked in their order, with the accesses to shared arrays and workspace that were made since
//! the last barrier; the body of a loop twice, since its end comes before its beginning. Before a statement that
//! accesses an element which another thread accessed, one of them writing, goes a barrier. Which thread accesses which element is found
//! out by going through the iterations inside a statement; where that is too much, or an index depends on data or on
//! open extents, any thread may access any element.
//!
//! Iterations of a loop of threads are independent of each other, so only statements side by side are looked at.

use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::error::FlattenError;
use super::nest::{self, Body, If, Loop, LoopKind, Masked, Nest, Stmt, Stores};
use super::options::FlattenOptions;
use super::poly::{Atoms, Poly};
use super::threads::{Around, Dealt, threads_of};
use crate::expr::{Buffer, Expr, ExprKind, Var};
use crate::func::{Scope, ThreadLevel};
use crate::interp::evaluate_index;
use crate::kernel::Threads;

/// Accesses, iterations and branches that are gone through for a kernel, and elements that one statement may access.
const MOST_ACCESSES: usize = 1 << 19;

/// Puts barriers where, and as far as can be proven only where, different threads meet in an element. Blocks must be bound.
///
/// # Errors
/// Where the target has no threads for the loops, or threads meet where not all of them arrive.
pub fn barriers(nest: &mut Nest<'_>, options: &FlattenOptions) -> Result<(), FlattenError> {
    let threads = threads_of(nest, options)?;
    if threads == Threads::ONE {
        return Ok(());
    }
    let dealt = Dealt::of(nest);
    let body = std::mem::take(&mut nest.body);
    let mut pass = Barriers {
        nest,
        threads,
        dealt,
        atoms: Atoms::default(),
        bounds: FxHashMap::default(),
        around: Vec::new(),
        left: MOST_ACCESSES,
        known: FxHashMap::default(),
        moved: FxHashMap::default(),
    };
    let body = pass.list(body, &mut Vec::new(), Position::default())?;
    nest.body = body;
    Ok(())
}

struct Barriers<'b, 'a> {
    nest: &'b Nest<'a>,
    threads: Threads,
    /// Registers that are dealt out.
    dealt: Dealt,
    atoms: Atoms,
    /// Serial loops that are open and have constant bounds.
    bounds: FxHashMap<Var, (i64, i64)>,
    /// Loops of threads that are open.
    around: Vec<(Var, i64)>,
    /// What may still be gone through.
    left: usize,
    /// What a statement does, by its loop and the address of its first stores, which stay where they are: statements
    /// are walked several times.
    known: FxHashMap<(Option<Var>, usize), Pending>,
    /// Touches in any iteration of a loop, by the address of what they are made of.
    moved: FxHashMap<(usize, Var), Rc<Touch>>,
}

/// Where a list of statements is.
#[derive(Clone, Copy, Default)]
struct Position {
    around: Around,
    /// Whether not all threads of the task come here.
    is_divergent: bool,
}

/// Accesses of a statement to a buffer.
#[derive(Debug)]
struct Touch {
    buffer: Buffer,
    writes: bool,
    elements: Elements,
}

/// Which thread accesses which element.
#[derive(Debug)]
enum Elements {
    /// Any thread any element.
    Any,
    /// By position, to which a part is added that is the same for all threads.
    By { shift: Poly, threads: FxHashMap<i64, Who> },
}

/// Who accesses an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    One(u32, u32),
    Several,
}

type Pending = Vec<Rc<Touch>>;

impl<'a> Barriers<'_, 'a> {
    fn list(
        &mut self,
        stmts: Vec<Stmt<'a>>,
        pending: &mut Pending,
        place: Position,
    ) -> Result<Vec<Stmt<'a>>, FlattenError> {
        let mut all = Vec::with_capacity(stmts.len());
        for stmt in stmts {
            match stmt {
                Stmt::Loop(l) if l.kind == LoopKind::Serial => {
                    self.serial_after_barrier(l, pending, place, &mut all)?;
                }
                Stmt::Loop(l) if matches!(l.kind, LoopKind::Thread(_)) => {
                    let whole = Stmt::Loop(l);
                    let touches = self.meet(&whole, pending, place, &mut all)?;
                    let Stmt::Loop(l) = whole else { continue };
                    all.push(Stmt::Loop(self.of_threads(l, touches, pending, place)?));
                }
                Stmt::Loop(_) | Stmt::Masked(_) | Stmt::Stores(_) => {
                    let touches = self.meet(&stmt, pending, place, &mut all)?;
                    unite(pending, touches);
                    all.push(stmt);
                }
                Stmt::If(If { condition, then, otherwise }) => {
                    let place = self.under(&condition, place);
                    let mut other = pending.clone();
                    let then = Body { stmts: self.list(then.stmts, pending, place)?, ..then };
                    let otherwise =
                        Body { stmts: self.list(otherwise.stmts, &mut other, place)?, ..otherwise };
                    unite(pending, other);
                    all.push(Stmt::If(If { condition, then, otherwise }));
                }
                Stmt::Barrier => {
                    pending.clear();
                    all.push(stmt);
                }
                Stmt::Block(_) | Stmt::Prefetch(_) => all.push(stmt),
                Stmt::Copies(_) | Stmt::CommitCopies | Stmt::WaitCopies(_) => all.push(stmt),
            }
        }
        Ok(all)
    }

    /// A barrier before a statement where it meets what is pending. Gives what the statement itself does.
    fn meet(
        &mut self,
        stmt: &Stmt<'a>,
        pending: &mut Pending,
        place: Position,
        all: &mut Vec<Stmt<'a>>,
    ) -> Result<Pending, FlattenError> {
        let touches = self.touches(stmt, place);
        if self.meets_pending(&touches, pending, place)? {
            pending.clear();
            all.push(Stmt::Barrier);
        }
        Ok(touches)
    }

    /// Whether touches meet what is pending, so that a barrier has to come between.
    fn meets_pending(
        &mut self,
        touches: &Pending,
        pending: &Pending,
        place: Position,
    ) -> Result<bool, FlattenError> {
        let met =
            pending.iter().find(|before| touches.iter().any(|touch| self.meets(before, touch))).cloned();
        match met {
            Some(before) if place.is_divergent => {
                let name = &self.nest.func.buffers[before.buffer].name;
                let reason = format!("threads meet in `{name}` where not all of them arrive");
                Err(FlattenError::of(self.nest.func, "", reason))
            }
            met => Ok(met.is_some()),
        }
    }

    /// A serial loop. Where its body is one statement, a barrier before that, for what was done before the loop, would be there in each
    /// iteration: it comes before the loop instead.
    fn serial_after_barrier(
        &mut self,
        l: Loop<'a>,
        pending: &mut Pending,
        place: Position,
        all: &mut Vec<Stmt<'a>>,
    ) -> Result<(), FlattenError> {
        let runs = l.begin.as_int().zip(l.end.as_int()).is_some_and(|(begin, end)| begin < end);
        let mut meets = false;
        let whole = Stmt::Loop(l);
        if runs && whole.lists().all(|stmts| stmts.len() == 1) {
            let touches = self.touches(&whole, place);
            meets = self.meets_pending(&touches, pending, place)?;
        }
        if meets {
            pending.clear();
        }
        let Stmt::Loop(l) = whole else { return Ok(()) };
        let l = self.serial(l, pending, place)?;
        // What iterations do to each other may want one in each of them.
        if meets && !matches!(l.body.stmts[..], [Stmt::Barrier, ..]) {
            all.push(Stmt::Barrier);
        }
        all.push(Stmt::Loop(l));
        Ok(())
    }

    fn serial(
        &mut self,
        mut l: Loop<'a>,
        pending: &mut Pending,
        place: Position,
    ) -> Result<Loop<'a>, FlattenError> {
        let place = self.under(&(l.begin.clone() + l.end.clone()), place);
        let before = pending.clone();
        let bounds = l.begin.as_int().zip(l.end.as_int());
        self.bounds.extend(bounds.map(|bounds| (l.var, bounds)));
        for _ in 0..2 {
            let at_begin = pending.clone();
            l.body.stmts = self.list(std::mem::take(&mut l.body.stmts), pending, place)?;
            // What was done before may have been done in any iteration.
            let done = std::mem::take(pending);
            unite(pending, done.iter().map(|touch| self.in_any_iteration(touch, l.var)));
            let is_there = |touch| at_begin.iter().any(|known| Rc::ptr_eq(known, touch));
            if pending.iter().all(is_there) {
                break;
            }
        }
        self.bounds.remove(&l.var);
        let runs = bounds.is_some_and(|(begin, end)| begin < end);
        if !runs {
            unite(pending, before);
        }
        Ok(l)
    }

    /// The statements side by side in a loop of threads. Iterations being independent, they meet only among the threads of an
    /// iteration: the lanes of a warp, say, where loops of lanes are inside.
    fn of_threads(
        &mut self,
        mut l: Loop<'a>,
        touches: Pending,
        pending: &mut Pending,
        place: Position,
    ) -> Result<Loop<'a>, FlattenError> {
        let extent = l.end.as_int().unwrap_or(0);
        if holds_threads(&l.body.stmts) {
            let all = match l.kind {
                LoopKind::Thread(ThreadLevel::Warp) => self.threads.warps,
                LoopKind::Thread(ThreadLevel::Lane) => self.threads.lanes,
                LoopKind::Serial | LoopKind::Vectorized | LoopKind::Unrolled => 1,
            };
            let is_divergent = place.is_divergent || extent < i64::from(all);
            let inside = Position { around: place.around.enter(&l), is_divergent };
            self.around.push((l.var, extent));
            let stmts = self.list(std::mem::take(&mut l.body.stmts), pending, inside);
            self.around.pop();
            l.body.stmts = stmts?;
        } else {
            unite(pending, touches);
        }
        Ok(l)
    }

    /// A place inside something that an expression decides.
    fn under(&self, decides: &Expr, place: Position) -> Position {
        let tells_apart = |e: &Expr| match e.kind() {
            ExprKind::Load(..) => true,
            ExprKind::Var(var) => self.around.iter().any(|(own, _)| own == var),
            _ => false,
        };
        Position { is_divergent: place.is_divergent || decides.any(&mut |e| tells_apart(e)), ..place }
    }

    /// Whether the part of the positions that is the same for all threads depends on a variable.
    fn shifts(&self, touch: &Touch, var: Var) -> bool {
        match &touch.elements {
            Elements::Any => false,
            Elements::By { shift, .. } => {
                shift.terms.keys().flatten().any(|&atom| self.atoms.uses(atom, var))
            }
        }
    }

    /// A touch in any iteration of a loop rather than in the same as another.
    fn in_any_iteration(&mut self, touch: &Rc<Touch>, var: Var) -> Rc<Touch> {
        if !self.shifts(touch, var) {
            return touch.clone();
        }
        let key = (Rc::as_ptr(touch).addr(), var);
        if let Some(known) = self.moved.get(&key) {
            return known.clone();
        }
        let Touch { buffer, writes, .. } = **touch;
        let elements = match &touch.elements {
            Elements::Any => None,
            Elements::By { shift, threads } => self.in_all(shift, threads, var),
        };
        let moved = Rc::new(Touch { buffer, writes, elements: elements.unwrap_or(Elements::Any) });
        self.moved.insert(key, moved.clone());
        moved
    }

    fn in_all(&self, shift: &Poly, threads: &FxHashMap<i64, Who>, var: Var) -> Option<Elements> {
        let &(begin, end) = self.bounds.get(&var)?;
        let moves = |product: &[u32]| product.iter().any(|&atom| self.atoms.uses(atom, var));
        let mut rest = shift.clone();
        rest.terms.retain(|product, _| !moves(product));
        if usize::try_from(end - begin).ok()?.saturating_mul(threads.len()) > MOST_ACCESSES {
            return None;
        }
        let mut all = FxHashMap::default();
        for i in begin..end {
            let mut distance = 0;
            for (product, coefficient) in shift.terms.iter().filter(|(product, _)| moves(product)) {
                let value = |&atom| evaluate_index(self.atoms.expr(atom), &|v| (v == var).then_some(i)).ok();
                distance +=
                    product.iter().map(value).try_fold(*coefficient, |p, factor| Some(p * factor?))?;
            }
            threads.iter().for_each(|(position, &who)| note(&mut all, position + distance, who));
        }
        Some(Elements::By { shift: rest, threads: all })
    }

    /// Whether different threads meet in an element, one of them writing.
    fn meets(&mut self, a: &Rc<Touch>, b: &Rc<Touch>) -> bool {
        if a.buffer != b.buffer || !(a.writes || b.writes) {
            return false;
        }
        match (&a.elements, &b.elements) {
            (Elements::By { shift, threads }, Elements::By { shift: other, threads: others }) => {
                if shift == other {
                    return meet(threads, others);
                }
                // Where one of them may be of another iteration, so may be the other.
                let moves = |touch: &Touch| self.bounds.keys().copied().find(|&var| self.shifts(touch, var));
                match (moves(a), moves(b)) {
                    (Some(var), _) => {
                        let a = self.in_any_iteration(a, var);
                        self.meets(&a, b)
                    }
                    (None, Some(var)) => {
                        let b = self.in_any_iteration(b, var);
                        self.meets(a, &b)
                    }
                    (None, None) => true,
                }
            }
            (Elements::Any, _) | (_, Elements::Any) => true,
        }
    }

    /// What a statement does to buffers in which threads can meet.
    fn touches(&mut self, stmt: &Stmt<'a>, place: Position) -> Pending {
        let mut first = None;
        nest::for_each(std::slice::from_ref(stmt), &mut |inner| {
            if let Stmt::Stores(stores) = inner {
                first.get_or_insert(stores.stores.as_ptr().addr());
            }
        });
        let Some(first) = first else { return Vec::new() };
        let var = match stmt {
            Stmt::Loop(l) => Some(l.var),
            Stmt::If(_) | Stmt::Masked(_) | Stmt::Block(_) | Stmt::Stores(_) => None,
            Stmt::Prefetch(_) | Stmt::Barrier => None,
            Stmt::Copies(_) | Stmt::CommitCopies | Stmt::WaitCopies(_) => None,
        };
        if let Some(known) = self.known.get(&(var, first)) {
            return known.clone();
        }
        let mut inner = FxHashSet::default();
        nest::for_each_loop(std::slice::from_ref(stmt), &mut |l| {
            inner.insert(l.var);
        });
        let bound = self.around.clone();
        inner.extend(bound.iter().map(|(var, _)| *var));
        let values = FxHashMap::default();
        let mut walk = Walk { pass: self, inner, values, accesses: FxHashMap::default(), found: Vec::new() };
        walk.threads(&bound, stmt, place.around);
        let touches: Pending = walk.found.into_iter().map(Rc::new).collect();
        self.known.insert((var, first), touches.clone());
        touches
    }
}

/// Whether there are loops of threads among statements.
fn holds_threads(stmts: &[Stmt<'_>]) -> bool {
    let mut found = false;
    nest::for_each_loop(stmts, &mut |l| found |= matches!(l.kind, LoopKind::Thread(_)));
    found
}

fn unite(pending: &mut Pending, others: impl IntoIterator<Item = Rc<Touch>>) {
    for other in others {
        if !pending.iter().any(|known| Rc::ptr_eq(known, &other)) {
            pending.push(other);
        }
    }
}

/// Whether different threads access an element.
fn meet(a: &FxHashMap<i64, Who>, b: &FxHashMap<i64, Who>) -> bool {
    a.iter().any(|(at, who)| b.get(at).is_some_and(|other| *who == Who::Several || who != other))
}

/// Notes who accesses an element.
fn note(threads: &mut FxHashMap<i64, Who>, position: i64, who: Who) {
    let of = threads.entry(position).or_insert(who);
    if *of != who {
        *of = Who::Several;
    }
}

/// Goes through the iterations inside a statement.
struct Walk<'w, 'b, 'a> {
    pass: &'w mut Barriers<'b, 'a>,
    /// Variables of the loops inside, and of those of threads around.
    inner: FxHashSet<Var>,
    values: FxHashMap<Var, i64>,
    /// Accesses of stores, by the address of these.
    accesses: FxHashMap<usize, Rc<Vec<Access>>>,
    found: Vec<Touch>,
}

impl<'a> Walk<'_, '_, 'a> {
    /// All iterations of the loops of threads around.
    fn threads(&mut self, bound: &[(Var, i64)], stmt: &Stmt<'a>, around: Around) {
        let Some((&(var, extent), rest)) = bound.split_first() else { return self.stmt(stmt, around) };
        for i in 0..extent {
            self.values.insert(var, i);
            self.threads(rest, stmt, around);
        }
        self.values.remove(&var);
    }

    fn value(&self, e: &Expr) -> Option<i64> {
        evaluate_index(e, &|var| self.values.get(&var).copied()).ok()
    }

    fn stmts(&mut self, stmts: &[Stmt<'a>], around: Around) {
        stmts.iter().for_each(|stmt| self.stmt(stmt, around));
    }

    fn stmt(&mut self, stmt: &Stmt<'a>, around: Around) {
        match stmt {
            Stmt::Loop(l) => {
                let inside = around.enter(l);
                match self.value(&l.begin).zip(self.value(&l.end)) {
                    Some((begin, end)) if self.pass.left > 0 => {
                        for i in begin..end {
                            self.pass.left = self.pass.left.saturating_sub(1);
                            self.values.insert(l.var, i);
                            self.stmts(&l.body.stmts, inside);
                        }
                        self.values.remove(&l.var);
                    }
                    Some(_) | None => self.stmts(&l.body.stmts, inside),
                }
            }
            Stmt::If(branch) => {
                self.pass.left = self.pass.left.saturating_sub(1);
                let holds = if self.pass.left > 0 { self.value(&branch.condition) } else { None };
                if holds != Some(0) {
                    self.stmts(&branch.then.stmts, around);
                }
                if holds.is_none_or(|holds| holds == 0) {
                    self.stmts(&branch.otherwise.stmts, around);
                }
            }
            Stmt::Masked(Masked { mask, stmts }) => {
                if self.value(mask) != Some(0) {
                    self.stmts(stmts, around);
                }
            }
            Stmt::Stores(stores) => self.stores(stores, around),
            Stmt::Block(_) | Stmt::Prefetch(_) | Stmt::Barrier => {}
            Stmt::Copies(_) | Stmt::CommitCopies | Stmt::WaitCopies(_) => {}
        }
    }

    fn stores(&mut self, stores: &Stores<'_>, around: Around) {
        let everyone = self.pass.dealt.is_for_everyone(self.pass.nest.func, stores);
        let index = |bound: Option<(Var, u32)>, all: u32, everyone: bool| match bound {
            Some((var, _)) => self.values.get(&var).map(|&i| i as u32),
            None if everyone && all > 1 => None,
            None => Some(0),
        };
        let warp = index(around.warp, self.pass.threads.warps, everyone[0]);
        let lane = index(around.lane, self.pass.threads.lanes, everyone[1]);
        let who = warp.zip(lane).map_or(Who::Several, |(warp, lane)| Who::One(warp, lane));
        let key = stores.stores.as_ptr().addr();
        let accesses = match self.accesses.get(&key) {
            Some(known) => known.clone(),
            None => {
                let found = Rc::new(self.accesses_of(stores));
                self.accesses.insert(key, found.clone());
                found
            }
        };
        self.pass.left = self.pass.left.saturating_sub(accesses.len());
        accesses.iter().for_each(|access| self.access(access, who));
    }

    /// The accesses of stores to what threads share.
    fn accesses_of(&mut self, stores: &Stores<'_>) -> Vec<Access> {
        let nest = self.pass.nest;
        let mut loads = Loads { found: Vec::new(), seen: FxHashSet::default() };
        for store in &stores.stores {
            loads.found.push((store.buffer, &store.indices, true));
            store.indices.iter().chain([&store.value]).for_each(|e| loads.visit(e, false));
        }
        let mut all = loads.found;
        let is_shared = |buffer: Buffer| match nest.func.buffers[buffer].scope {
            Scope::Global => nest.written.contains(&buffer),
            Scope::Shared => true,
            Scope::Stack | Scope::Register => false,
        };
        let mut seen = FxHashSet::default();
        all.retain(|access| is_shared(access.0) && seen.insert(*access));
        all.into_iter().map(|(buffer, indices, writes)| self.prepared(buffer, indices, writes)).collect()
    }

    fn prepared(&mut self, buffer: Buffer, indices: &[Expr], writes: bool) -> Access {
        let atoms = &mut self.pass.atoms;
        let poly = atoms.position(self.pass.nest.func, buffer, indices);
        let mut access = Access {
            buffer,
            writes,
            own: Vec::new(),
            constant: poly.constant,
            shift: Poly::default(),
            is_data: indices.iter().any(|index| index.any(&mut |e| matches!(e.kind(), ExprKind::Load(..)))),
        };
        for (product, coefficient) in poly.terms {
            if product.iter().any(|&atom| self.inner.iter().any(|&var| atoms.uses(atom, var))) {
                access.own.push((product, coefficient));
            } else {
                access.shift.terms.insert(product, coefficient);
            }
        }
        access
    }

    fn access(&mut self, access: &Access, who: Who) {
        let &Access { buffer, writes, .. } = access;
        let position = if self.pass.left > 0 { self.position(access) } else { None };
        let Some(position) = position else {
            self.found.retain(|touch| touch.buffer != buffer || touch.writes != writes);
            return self.found.push(Touch { buffer, writes, elements: Elements::Any });
        };
        for touch in self.found.iter_mut().filter(|touch| touch.buffer == buffer && touch.writes == writes) {
            match &mut touch.elements {
                Elements::Any => return,
                Elements::By { shift, threads } if *shift == access.shift => {
                    return note(threads, position, who);
                }
                Elements::By { .. } => {}
            }
        }
        let (shift, threads) = (access.shift.clone(), [(position, who)].into_iter().collect());
        self.found.push(Touch { buffer, writes, elements: Elements::By { shift, threads } });
    }

    /// The part of a position that is not the same for all threads, where it is known.
    fn position(&self, access: &Access) -> Option<i64> {
        if access.is_data {
            return None;
        }
        access.own.iter().try_fold(access.constant, |sum, (product, coefficient)| {
            let atoms = product.iter().map(|&atom| self.value(self.pass.atoms.expr(atom)));
            Some(sum + atoms.into_iter().try_fold(*coefficient, |value, factor| Some(value * factor?))?)
        })
    }
}

/// An access of what threads share.
struct Access {
    buffer: Buffer,
    writes: bool,
    /// The terms of the position that loops inside change.
    own: Vec<(Vec<u32>, i64)>,
    constant: i64,
    /// The other terms.
    shift: Poly,
    /// Whether an index depends on data.
    is_data: bool,
}

/// Loads in an expression. What a condition guards may read the first element instead.
struct Loads<'e> {
    found: Vec<(Buffer, &'e [Expr], bool)>,
    /// Expressions that were looked at, unguarded and guarded: they share parts, and there may be far more paths than parts.
    seen: FxHashSet<(*const ExprKind, bool)>,
}

impl<'e> Loads<'e> {
    fn visit(&mut self, e: &'e Expr, is_guarded: bool) {
        if !self.seen.insert((e.kind(), is_guarded)) {
            return;
        }
        match e.kind() {
            ExprKind::Load(buffer, indices) => {
                self.found.push((*buffer, indices, false));
                if is_guarded {
                    self.found.push((*buffer, &[], false));
                }
                indices.iter().for_each(|index| self.visit(index, is_guarded));
            }
            ExprKind::Select(condition, a, b) => {
                self.visit(condition, is_guarded);
                self.visit(a, true);
                self.visit(b, true);
            }
            ExprKind::Int(_) | ExprKind::Float(_) | ExprKind::Var(_) => {}
            ExprKind::Unary(_, a) | ExprKind::Cast(a) | ExprKind::Bitcast(a) => self.visit(a, is_guarded),
            ExprKind::Binary(_, a, b) | ExprKind::Compare(_, a, b) => {
                self.visit(a, is_guarded);
                self.visit(b, is_guarded);
            }
            ExprKind::Fma(a, b, c) => [a, b, c].into_iter().for_each(|e| self.visit(e, is_guarded)),
        }
    }
}
