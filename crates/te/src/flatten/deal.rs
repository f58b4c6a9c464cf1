//! Which thread holds which element of a register buffer, and what it takes for another to read it.
//!
//! The row-major position of every element that is written is a sum of a part that the thread decides, the same for all
//! accesses, and a part that it does not: the thread holds the elements of the second part, and no two threads the same
//! element. A load of what another lane holds is a shuffle. All of that is found out by going through the threads, of which
//! there are few.

use rustc_hash::{FxHashMap, FxHashSet};

use super::error::FlattenError;
use super::nest::{LoopKind, Nest, Stmt, Stores};
use super::poly::Atoms;
use super::threads::{self, Around, Dealt};
use crate::expr::{Buffer, Expr, ExprKind, Var};
use crate::func::ThreadLevel;
use crate::interp::evaluate_index;
use crate::kernel::Threads;

/// How register buffers are dealt out to threads.
#[derive(Debug, Default)]
pub(super) struct Deal {
    /// Buffers that are dealt out.
    pub(super) dealt: Dealt,
    /// Variables of loops of threads.
    pub(super) vars: FxHashSet<Var>,
    /// The loads that take another lane's register.
    pub(super) shuffles: FxHashMap<(Buffer, Vec<Expr>), Shuffle>,
}

/// Another lane's register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shuffle {
    /// Which lane's.
    pub(super) from: From,
    /// The element of those that it holds.
    pub(super) slot: i64,
    /// Consecutive elements from there on.
    pub(super) lanes: u32,
    /// The lanes that hold it themselves, and take no other's.
    pub(super) own: Option<Own>,
}

/// Half of the lanes: those whose number has a bit that is set, or one that is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Own {
    /// What the bit counts: a power of two.
    pub(super) bit: i64,
    /// Whether it is set.
    pub(super) is_set: bool,
    /// The element of those that each of them holds.
    pub(super) slot: i64,
}

/// A lane as seen from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// The same for all.
    Lane(i64),
    /// So many lanes further.
    Further(i64),
}

/// An access of a dealt buffer.
struct Access {
    writes: bool,
    indices: Vec<Expr>,
    around: Around,
    /// Who runs it.
    threads: Vec<(u32, u32)>,
    /// The part that the thread decides, in each of them, and the constant part.
    positions: Vec<i64>,
    constant: i64,
    /// Lanes of a vector that access consecutive elements.
    lanes: u32,
    block: String,
}

/// Deals the registers of a nest out to its threads.
///
/// # Errors
/// Where threads would hold the same element, or read what no lane of their warp can give them.
pub(super) fn deal(nest: &Nest<'_>, all: Threads) -> Result<Deal, FlattenError> {
    if all == Threads::ONE {
        return Ok(Deal::default());
    }
    if let Some(torn) = threads::torn_array(nest, all) {
        let name = &nest.func.buffers[torn].name;
        let reason =
            format!("stack buffer `{name}` is used in several loops of threads, or outside of them too");
        return Err(FlattenError::of(nest.func, "", reason));
    }
    let mut deal = Deal { dealt: Dealt::of(nest), ..Deal::default() };
    let mut collect =
        Collect { nest, all, deal: &mut deal, atoms: Atoms::default(), found: FxHashMap::default() };
    collect.stmts(&nest.body, Around::default(), None)?;
    let mut found: Vec<(Buffer, Vec<Access>)> = collect.found.into_iter().collect();
    found.sort_by_key(|(buffer, _)| *buffer);
    for (buffer, accesses) in found {
        deal_buffer(nest, all, buffer, &accesses, &mut deal)?;
    }
    Ok(deal)
}

struct Collect<'c, 'n> {
    nest: &'c Nest<'n>,
    all: Threads,
    deal: &'c mut Deal,
    atoms: Atoms,
    found: FxHashMap<Buffer, Vec<Access>>,
}

impl Collect<'_, '_> {
    fn stmts(
        &mut self,
        stmts: &[Stmt<'_>],
        around: Around,
        vector: Option<(Var, u32)>,
    ) -> Result<(), FlattenError> {
        for stmt in stmts {
            match stmt {
                Stmt::Loop(l) => {
                    let vector = match (l.kind, l.end.as_int()) {
                        (LoopKind::Vectorized, Some(lanes)) => Some((l.var, lanes as u32)),
                        _ => vector,
                    };
                    if matches!(l.kind, LoopKind::Thread(_)) {
                        self.deal.vars.insert(l.var);
                    }
                    self.stmts(&l.body.stmts, around.enter(l), vector)?;
                }
                Stmt::If(branch) => {
                    self.stmts(&branch.then.stmts, around, vector)?;
                    self.stmts(&branch.otherwise.stmts, around, vector)?;
                }
                Stmt::Masked(masked) => self.stmts(&masked.stmts, around, vector)?,
                Stmt::Stores(stores) => self.stores(stores, around, vector)?,
                Stmt::Copies(stmts) => self.stmts(stmts, around, vector)?,
                Stmt::Block(_) | Stmt::Prefetch(_) => {}
                Stmt::Barrier | Stmt::CommitCopies | Stmt::WaitCopies(_) => {}
            }
        }
        Ok(())
    }

    fn stores(
        &mut self,
        stores: &Stores<'_>,
        around: Around,
        vector: Option<(Var, u32)>,
    ) -> Result<(), FlattenError> {
        let everyone = self.deal.dealt.is_for_everyone(self.nest.func, stores);
        let threads = around.threads(self.all, everyone);
        let mut accesses: Vec<(Buffer, Vec<Expr>, bool)> = Vec::new();
        for store in &stores.stores {
            accesses.push((store.buffer, store.indices.clone(), true));
            for e in store.indices.iter().chain([&store.value]) {
                e.walk(&mut |x| {
                    if let ExprKind::Load(buffer, indices) = x.kind() {
                        accesses.push((*buffer, indices.clone(), false));
                    }
                });
            }
        }
        for (buffer, indices, writes) in accesses {
            let known = self.found.get(&buffer).into_iter().flatten();
            let mut known =
                known.filter(|a| a.writes == writes && a.indices == indices && a.around == around);
            if !self.deal.dealt.contains(buffer) || known.any(|a| a.threads == threads) {
                continue;
            }
            let access = self.access(buffer, indices, writes, around, threads.clone(), vector);
            let access = access.map_err(|reason| FlattenError::of(self.nest.func, stores.block, reason))?;
            let access = Access { block: stores.block.to_string(), ..access };
            self.found.entry(buffer).or_default().push(access);
        }
        Ok(())
    }

    fn access(
        &mut self,
        buffer: Buffer,
        indices: Vec<Expr>,
        writes: bool,
        around: Around,
        threads: Vec<(u32, u32)>,
        vector: Option<(Var, u32)>,
    ) -> Result<Access, String> {
        let name = &self.nest.func.buffers[buffer].name;
        let poly = self.atoms.position(self.nest.func, buffer, &indices);
        let mut positions = vec![0; threads.len()];
        let mut lanes = 1;
        for (product, coefficient) in &poly.terms {
            let uses = |var: Var| product.iter().any(|&atom| self.atoms.uses(atom, var));
            if !self.deal.vars.iter().any(|&var| uses(var)) {
                lanes = vector.filter(|(var, _)| uses(*var)).map_or(lanes, |(_, lanes)| lanes);
                continue;
            }
            for (position, &thread) in positions.iter_mut().zip(&threads) {
                let mut value = *coefficient;
                for &atom in product {
                    let factor = evaluate_index(self.atoms.expr(atom), &|var| around.value(var, thread));
                    let factor = factor
                        .map_err(|_| format!("register buffer `{name}` is indexed by threads and more"));
                    value *= factor?;
                }
                *position += value;
            }
        }
        let constant = poly.constant;
        Ok(Access { writes, indices, around, threads, positions, constant, lanes, block: String::new() })
    }
}

/// Threads that hold elements, as far as they can be told apart: those in whose loop of a level all accesses are each have a
/// copy of their own, and so do warps where elements are dealt out to lanes alone.
struct Owners {
    /// Levels of which each thread has a copy.
    has_own: (bool, bool),
    /// By element: who writes it.
    of: FxHashMap<i64, (u32, u32)>,
}

impl Owners {
    fn same(&self, a: (u32, u32), b: (u32, u32)) -> bool {
        (self.has_own.0 || a.0 == b.0) && (self.has_own.1 || a.1 == b.1)
    }
}

fn deal_buffer(
    nest: &Nest<'_>,
    all: Threads,
    buffer: Buffer,
    accesses: &[Access],
    deal: &mut Deal,
) -> Result<(), FlattenError> {
    let name = &nest.func.buffers[buffer].name;
    let fail = |access: &Access, what: &str| {
        Err(FlattenError::of(nest.func, &access.block, format!("register buffer `{name}`: {what}")))
    };
    let Some(first) = accesses.first() else { return Ok(()) };
    let in_one = |level: ThreadLevel| {
        let loop_of = first.around.of(level);
        loop_of.is_some() && accesses.iter().all(|access| access.around.of(level) == loop_of)
    };
    let has_own =
        (in_one(ThreadLevel::Warp) || deal.dealt.is_of_every_warp(buffer), in_one(ThreadLevel::Lane));
    // What each thread decides of the positions, where it writes.
    let mut shares: FxHashMap<(u32, u32), i64> = FxHashMap::default();
    let mut owners = Owners { has_own, of: FxHashMap::default() };
    for access in accesses.iter().filter(|access| access.writes) {
        for (&thread, &position) in access.threads.iter().zip(&access.positions) {
            if *shares.entry(thread).or_insert(position) != position {
                return fail(access, "its elements are dealt out in another way elsewhere");
            }
            for lane in 0..i64::from(access.lanes) {
                let owner = *owners.of.entry(position + access.constant + lane).or_insert(thread);
                if !owners.same(owner, thread) {
                    return fail(access, "several threads write the same element");
                }
            }
        }
    }
    for access in accesses.iter().filter(|access| !access.writes) {
        let is_own = |(thread, position): (&(u32, u32), &i64)| {
            let owner = owners.of.get(&(position + access.constant));
            shares.get(thread) == Some(position) && owner.is_none_or(|&owner| owners.same(owner, *thread))
        };
        if access.threads.iter().zip(&access.positions).all(is_own) {
            continue;
        }
        match shuffle(access, &shares, &owners, all) {
            Ok(found) => {
                let key = (buffer, access.indices.clone());
                let known = deal.shuffles.insert(key, found);
                if known.is_some_and(|known| known != found) {
                    return fail(access, "the same elements come from different lanes");
                }
            }
            Err(reason) => return fail(access, reason),
        }
    }
    Ok(())
}

/// How a load gets what other lanes hold.
fn shuffle(
    access: &Access,
    shares: &FxHashMap<(u32, u32), i64>,
    owners: &Owners,
    all: Threads,
) -> Result<Shuffle, &'static str> {
    let mut sources: Vec<(u32, u32, i64)> = Vec::new();
    for (&thread, &position) in access.threads.iter().zip(&access.positions) {
        let element = position + access.constant;
        let Some(&owner) = owners.of.get(&element) else {
            return Err("an element is read that no thread writes");
        };
        if owner.0 != thread.0 && !owners.has_own.0 {
            return Err("an element is read that another warp holds");
        }
        let share = shares.get(&owner).copied().unwrap_or_default();
        sources.push((thread.1, owner.1, element - share));
    }
    let lanes = access.lanes;
    match from_one_place(&sources, all) {
        Ok((from, slot)) => Ok(Shuffle { from, slot, lanes, own: None }),
        Err(reason) => {
            let Some(own) = own_half(&sources) else { return Err(reason) };
            sources.retain(|(lane, ..)| (i64::from(*lane) & own.bit != 0) != own.is_set);
            let (from, slot) = from_one_place(&sources, all)?;
            Ok(Shuffle { from, slot, lanes, own: Some(own) })
        }
    }
}

/// Which lanes' registers lanes read, and which of these, if they are all alike: of readers, sources and places.
fn from_one_place(sources: &[(u32, u32, i64)], all: Threads) -> Result<(From, i64), &'static str> {
    let Some(&(lane, source, slot)) = sources.first() else { return Err("no thread reads it") };
    let lanes = i64::from(all.lanes);
    let distance = |lane: u32, source: u32| (i64::from(source) - i64::from(lane)).rem_euclid(lanes);
    if sources.iter().any(|s| s.2 != slot) {
        return Err("lanes take different ones of another lane's registers");
    }
    if sources.iter().all(|s| s.1 == source) {
        Ok((From::Lane(i64::from(source)), slot))
    } else if sources.iter().all(|s| distance(s.0, s.1) == distance(lane, source)) {
        Ok((From::Further(distance(lane, source)), slot))
    } else {
        Err("lanes read from others that are neither one lane nor all as far away")
    }
}

/// The half of the lanes that hold what they read, all in the same place, while the other half does not: likewise. Where lanes have parts of sums
/// and each lane of a pair is to sum other results, each keeps what is its own and gives away what is the other's.
fn own_half(sources: &[(u32, u32, i64)]) -> Option<Own> {
    let (lane, _, slot) = *sources.iter().find(|(lane, source, _)| lane == source)?;
    let (others, _, _) = *sources.iter().find(|(lane, source, _)| lane != source)?;
    let bits = (0..u32::BITS).map(|n| 1 << n).filter(|bit| (lane ^ others) & bit != 0);
    let is_half = |bit: &u32| {
        sources.iter().all(|&(reader, source, of)| match (reader ^ lane) & bit {
            0 => reader == source && of == slot,
            _ => reader != source,
        })
    };
    let bit = bits.into_iter().find(is_half)?;
    Some(Own { bit: bit.into(), is_set: lane & bit != 0, slot })
}
