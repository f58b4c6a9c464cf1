//! Functions over buffers: loop nests of blocks, in the manner of TensorIR.
//!
//! A [`Func`] is what one fused group of operators computes. Its body is a sequence of loops; each innermost
//! statement is a [`Block`]: stores whose meaning is given over the block's own iteration variables, bound
//! to expressions of the loop variables around it. Schedule primitives rearrange loops and rewrite
//! bindings; they rarely touch what a block computes.
//!
//! Meaning of a function: run the body in order. A loop runs its variable from 0 to `extent` (exclusive);
//! loop kinds are promises about order, never a change of meaning. A block evaluates its bindings; where
//! the predicate is false it does nothing; where it has an `init` and all its reduction variables are 0 it
//! runs `init` first; then its stores in order, each value evaluated before it is written.
//! Reading an element of a non-input buffer that nothing has written is an error the interpreter reports.

use std::collections::BTreeSet;
use std::fmt;

use cranelift_entity::PrimaryMap;
use serde::{Deserialize, Serialize};
use tilewright_dtype::DType;

use crate::expr::{Buffer, Expr, Rewritten, Var, Visited};

/// A tensor function: parameters, buffers, and a loop nest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Func {
    /// Name, a valid symbol name.
    pub name: String,
    /// Every variable: sizes, loop counters, iteration variables.
    pub vars: PrimaryMap<Var, VarData>,
    /// Every buffer: parameters and temporaries.
    pub buffers: PrimaryMap<Buffer, BufferData>,
    /// Parameters: first the `n_inputs` inputs, then the outputs.
    pub params: Vec<Buffer>,
    /// How many of `params` are inputs.
    pub n_inputs: usize,
    /// Symbolic extents, in the order in which a caller passes them.
    pub sizes: Vec<Var>,
    /// The statements.
    pub body: Vec<Stmt>,
}

/// A variable's name and role.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VarData {
    /// Name in the text form; unique within the function.
    pub name: String,
    /// What binds the variable.
    pub kind: VarKind,
}

/// What binds a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VarKind {
    /// A symbolic extent, at least `min` (0 or 1) and at most `max` where that is known.
    Size {
        /// Least value.
        min: i64,
        /// Greatest value.
        max: i64,
        /// A value as good as any to choose algorithms for, where one is known.
        typical: Option<i64>,
    },
    /// The counter of a loop.
    Loop,
    /// An iteration variable of a block.
    Iter,
}

/// A buffer: element type, logical shape (row-major), and where it lives.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BufferData {
    /// Name in the text form; unique within the function.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first; expressions over size variables. A scalar has no extents.
    pub shape: Vec<Expr>,
    /// Where the elements live.
    pub scope: Scope,
    /// How far apart rows shall lie, where they are not next to each other. Only until the array is shrunk to what is live: then its
    /// shape says so.
    pub row_align: Option<RowAlign>,
}

/// A distance between rows: so many elements more than a multiple of a factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowAlign {
    factor: i64,
    offset: i64,
}

/// `4 of 32`.
impl fmt::Display for RowAlign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.offset, self.factor)
    }
}

impl RowAlign {
    /// Larger distances would waste more than banks that collide do.
    pub const MAX_FACTOR: i64 = 1024;

    /// A distance, if the factor is from 1 to [`RowAlign::MAX_FACTOR`] and the offset from 0 to below it.
    pub fn new(factor: i64, offset: i64) -> Option<RowAlign> {
        let is_distance = (1..=RowAlign::MAX_FACTOR).contains(&factor) && (0..factor).contains(&offset);
        is_distance.then_some(RowAlign { factor, offset })
    }

    /// The least distance for rows of so many elements.
    pub fn distance(self, elements: i64) -> i64 {
        elements + (self.offset - elements).rem_euclid(self.factor)
    }
}

/// Where a buffer lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Scope {
    /// Memory given by the caller: a parameter, or (for a temporary) workspace planned by the caller.
    Global,
    /// An array of the task that all its threads see; every task has its own.
    Shared,
    /// A fixed array of the task that uses it; every task has its own, and in a loop of threads every thread.
    Stack,
    /// SSA values: indexed by constants once unrolled loops are unrolled. Where threads index it, its elements are dealt
    /// out to them.
    Register,
}

/// A statement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Stmt {
    /// A loop.
    Loop(Box<Loop>),
    /// A block.
    Block(Box<Block>),
}

/// A counted loop from 0 to `extent`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Loop {
    /// The counter.
    pub var: Var,
    /// Number of iterations; an expression over sizes and outer loop variables.
    pub extent: Expr,
    /// How it runs.
    pub kind: LoopKind,
    /// What each iteration asks for before its statements.
    pub prefetches: Vec<Prefetch>,
    /// How many iterations the copies to shared memory at the beginning of its body may be ahead, with the one that is computed; 1 if they
    /// are not. Only for how fast it runs: its iterations mean what they do one after the other.
    pub stages: u32,
    /// The statements, at least one.
    pub body: Vec<Stmt>,
}

/// A hint that an element will be needed soon: its cache line may be brought near. It never faults, and has no
/// other effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prefetch {
    /// The buffer. A hint for one that the kernel does not access in global memory is dropped.
    pub buffer: Buffer,
    /// Row-major position of the element, over loop variables; may lie outside of the buffer.
    pub element: Expr,
    /// The hint is given only where this holds, over loop variables.
    pub condition: Option<Expr>,
}

impl Prefetch {
    /// Calls `visit` on its expressions.
    pub fn for_each_expr_mut(&mut self, mut visit: impl FnMut(&mut Expr)) {
        visit(&mut self.element);
        self.condition.iter_mut().for_each(visit);
    }
}

/// How a loop runs. Only `Serial` orders its iterations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LoopKind {
    /// One iteration after the other.
    Serial,
    /// Iterations are tasks, run by several threads; outermost loops only. Of two such loops, one directly and alone inside
    /// the other, the iterations of the inner are shared by the threads, and each keeps its part in every iteration of
    /// the outer.
    Parallel,
    /// Iterations are lanes of vectors; constant extent.
    Vectorized,
    /// The body is repeated; constant extent.
    Unrolled,
    /// Iterations are threads of the task, independent of each other; constant extent. On a path there is at most one loop
    /// of each level, inside the parallel loops and outside of vectorized ones. Nests of threads stand side by side in
    /// a task, which means that all threads have done the one before any begins the next.
    Thread(ThreadLevel),
}

/// Which threads of a task run the iterations of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ThreadLevel {
    /// Its warps.
    Warp,
    /// The lanes of a warp, which run in step.
    Lane,
}

/// Stores over iteration variables.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Block {
    /// Name, unique within the function; how schedules refer to the block.
    pub name: String,
    /// Iteration variables with their domains and bindings.
    pub iters: Vec<Iter>,
    /// Over loop variables: the iterations where it is false do nothing.
    pub predicate: Option<Expr>,
    /// For a reduction: the stores that start it.
    pub init: Vec<Store>,
    /// The stores; for a reduction they read what they write.
    pub body: Vec<Store>,
}

/// An iteration variable of a block.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Iter {
    /// The variable.
    pub var: Var,
    /// Its domain is 0 to `extent` (exclusive).
    pub extent: Expr,
    /// Data-parallel or reduction.
    pub kind: IterKind,
    /// Its value in terms of the loop variables around the block.
    pub value: Expr,
}

/// Kinds of iteration variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum IterKind {
    /// Iterations are independent.
    Spatial,
    /// Iterations accumulate into the same elements.
    Reduce,
}

/// `buffer[indices] = value`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Store {
    /// The buffer written.
    pub buffer: Buffer,
    /// One index a dimension.
    pub indices: Vec<Expr>,
    /// The value; its type is the buffer's.
    pub value: Expr,
}

impl Func {
    /// An empty function.
    pub fn new(name: impl Into<String>) -> Func {
        Func {
            name: name.into(),
            vars: PrimaryMap::new(),
            buffers: PrimaryMap::new(),
            params: Vec::new(),
            n_inputs: 0,
            sizes: Vec::new(),
            body: Vec::new(),
        }
    }

    /// A new variable; `hint` gets a numeric suffix where the name is taken.
    pub fn add_var(&mut self, hint: &str, kind: VarKind) -> Var {
        let name = unique(hint, self.vars.values().map(|v| v.name.as_str()));
        self.vars.push(VarData { name, kind })
    }

    /// A new symbolic extent.
    pub fn add_size(&mut self, name: &str, min: i64, max: i64) -> Var {
        let var = self.add_var(name, VarKind::Size { min, max, typical: None });
        self.sizes.push(var);
        var
    }

    /// The value of a size variable that algorithms are chosen for, where one is known.
    pub fn typical(&self, size: Var) -> Option<i64> {
        match self.vars.get(size)?.kind {
            VarKind::Size { typical, .. } => typical,
            VarKind::Loop | VarKind::Iter => None,
        }
    }

    /// Says which value of a size variable algorithms are chosen for.
    pub fn set_typical(&mut self, size: Var, value: Option<i64>) {
        if let Some(VarData { kind: VarKind::Size { typical, .. }, .. }) = self.vars.get_mut(size) {
            *typical = value;
        }
    }

    /// A new temporary buffer; `hint` gets a numeric suffix where the name is taken.
    pub fn add_buffer(&mut self, hint: &str, dtype: DType, shape: Vec<Expr>, scope: Scope) -> Buffer {
        let name = unique(hint, self.buffers.values().map(|b| b.name.as_str()));
        self.buffers.push(BufferData { name, dtype, shape, scope, row_align: None })
    }

    /// A new input parameter; inputs come before outputs.
    pub fn add_input(&mut self, name: &str, dtype: DType, shape: Vec<Expr>) -> Buffer {
        let buffer = self.add_buffer(name, dtype, shape, Scope::Global);
        self.params.insert(self.n_inputs, buffer);
        self.n_inputs += 1;
        buffer
    }

    /// A new output parameter.
    pub fn add_output(&mut self, name: &str, dtype: DType, shape: Vec<Expr>) -> Buffer {
        let buffer = self.add_buffer(name, dtype, shape, Scope::Global);
        self.params.push(buffer);
        buffer
    }

    /// Makes a temporary an output parameter.
    pub fn promote_to_output(&mut self, buffer: Buffer) {
        debug_assert!(!self.params.contains(&buffer));
        self.buffers[buffer].scope = Scope::Global;
        self.params.push(buffer);
    }

    /// Whether the buffer is an input parameter.
    pub fn is_input(&self, buffer: Buffer) -> bool {
        self.params[..self.n_inputs].contains(&buffer)
    }

    /// Whether the buffer is an output parameter.
    pub fn is_output(&self, buffer: Buffer) -> bool {
        self.params[self.n_inputs..].contains(&buffer)
    }

    /// Temporaries in global memory: what the caller must provide as workspace, in id order.
    pub fn workspaces(&self) -> impl Iterator<Item = Buffer> + '_ {
        let is_workspace =
            |&(b, data): &(Buffer, &BufferData)| data.scope == Scope::Global && !self.params.contains(&b);
        self.buffers.iter().filter(is_workspace).map(|(b, _)| b)
    }

    /// An element of a buffer.
    pub fn load(&self, buffer: Buffer, indices: Vec<Expr>) -> Expr {
        debug_assert_eq!(
            indices.len(),
            self.buffers[buffer].shape.len(),
            "rank of {}",
            self.buffers[buffer].name
        );
        Expr::load(self.buffers[buffer].dtype, buffer, indices)
    }

    /// Every block in execution order.
    pub fn blocks(&self) -> Vec<&Block> {
        fn collect<'a>(stmts: &'a [Stmt], out: &mut Vec<&'a Block>) {
            for stmt in stmts {
                match stmt {
                    Stmt::Loop(l) => collect(&l.body, out),
                    Stmt::Block(b) => out.push(b),
                }
            }
        }
        let mut out = Vec::new();
        collect(&self.body, &mut out);
        out
    }

    /// The block of that name.
    pub fn block(&self, name: &str) -> Option<&Block> {
        self.blocks().into_iter().find(|b| b.name == name)
    }

    /// A block name that is not taken.
    pub fn unique_block_name(&self, hint: &str) -> String {
        unique(hint, self.blocks().into_iter().map(|b| b.name.as_str()))
    }
}

impl Loop {
    /// What ties the loop to its iterations as they are: why it can be neither split nor merged with others.
    pub(crate) fn tied(&self) -> Option<&'static str> {
        match (self.prefetches.is_empty(), self.stages) {
            (false, _) => Some("prefetches"),
            (true, 1) => None,
            (true, _) => Some("is pipelined"),
        }
    }

    /// A loop that runs its iterations in order.
    pub fn serial(var: Var, extent: Expr, body: Vec<Stmt>) -> Loop {
        Loop { var, extent, kind: LoopKind::Serial, prefetches: Vec::new(), stages: 1, body }
    }
}

impl Block {
    /// The block inside serial loops of these variables and extents, outermost first.
    pub fn in_loops(self, loops: Vec<(Var, Expr)>) -> Stmt {
        let around = |stmt, (var, extent)| Stmt::Loop(Box::new(Loop::serial(var, extent, vec![stmt])));
        loops.into_iter().rev().fold(Stmt::Block(Box::new(self)), around)
    }

    /// Whether the block has a reduction variable.
    pub fn is_reduction(&self) -> bool {
        self.iters.iter().any(|i| i.kind == IterKind::Reduce)
    }

    /// Calls `visit` on every expression over iteration variables: indices and values of `init` and `body`.
    pub fn for_each_expr(&self, mut visit: impl FnMut(&Expr)) {
        for store in self.init.iter().chain(&self.body) {
            store.indices.iter().for_each(&mut visit);
            visit(&store.value);
        }
    }

    /// Calls `visit` on every node of these expressions, each with its sub-expressions; a node that several share once.
    pub fn for_each_node(&self, mut visit: impl FnMut(&Expr)) {
        let mut visited = Visited::default();
        let mut visit = |e: &Expr| {
            visit(e);
            false
        };
        self.for_each_expr(|e| _ = e.search(&mut visited, &mut visit));
    }

    /// Rewrites every expression over iteration variables as [`Expr::rewrite`] does; what they share stays shared.
    pub fn rewrite_exprs(&mut self, rewrite: &mut impl FnMut(&Expr) -> Option<Expr>) {
        let mut done = Rewritten::default();
        self.map_exprs(|e| e.rewrite_with(&mut done, rewrite));
    }

    /// Replaces variables in every expression over iteration variables by what `value` returns for them.
    pub fn substitute(&mut self, value: &impl Fn(Var) -> Option<Expr>) {
        self.rewrite_exprs(&mut |e| e.as_var().and_then(value));
    }

    /// Replaces every expression over iteration variables.
    pub fn map_exprs(&mut self, mut map: impl FnMut(&Expr) -> Expr) {
        for store in self.init.iter_mut().chain(&mut self.body) {
            for index in &mut store.indices {
                *index = map(index);
            }
            store.value = map(&store.value);
        }
    }
}

/// `hint`, or `hint_1`, `hint_2`, ... : the first that is not taken.
fn unique<'a>(hint: &str, taken: impl Iterator<Item = &'a str>) -> String {
    let mut is_taken = false;
    let mut numbers: BTreeSet<u64> = BTreeSet::new();
    for name in taken {
        let Some(suffix) = name.strip_prefix(hint) else { continue };
        is_taken |= suffix.is_empty();
        let number = suffix.strip_prefix('_').filter(|digits| !digits.starts_with(['0', '+']));
        numbers.extend(number.and_then(|digits| digits.parse::<u64>().ok()));
    }
    if !is_taken {
        return hint.to_string();
    }
    let free = (1..).find(|n| !numbers.contains(n)).unwrap_or_default();
    format!("{hint}_{free}")
}
