//! What rules look for in a block: how its accesses move with its variables.

use std::ops::Range;

use tilewright_te::simplify::Simplifier;
use tilewright_te::{BinaryOp, Block, Buffer, Expr, ExprKind, Func, Iter, IterKind, Store, UnaryOp, Var};

/// How far an access moves in flat memory when a variable grows by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stride {
    /// It does not move.
    Zero,
    /// By this many elements.
    Constant(i64),
    /// By a symbolic distance, or differently from place to place.
    Unknown,
}

/// An access of a block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AccessInfo {
    /// The buffer.
    pub buffer: Buffer,
    /// The indices, over the block's variables.
    pub indices: Vec<Expr>,
}

impl AccessInfo {
    /// The place that a store writes.
    pub fn of_store(store: &Store) -> AccessInfo {
        AccessInfo { buffer: store.buffer, indices: store.indices.clone() }
    }

    /// Whether an index uses the variable.
    pub fn uses(&self, var: Var) -> bool {
        self.indices.iter().any(|e| e.uses(var))
    }
}

/// Every load of a block's stores (inits excluded).
pub fn loads(block: &Block) -> Vec<AccessInfo> {
    let mut out = Vec::new();
    for store in &block.body {
        let mut collect = |e: &Expr| {
            e.walk(&mut |x| {
                if let ExprKind::Load(buffer, indices) = x.kind() {
                    out.push(AccessInfo { buffer: *buffer, indices: indices.clone() });
                }
            });
        };
        collect(&store.value);
        store.indices.iter().for_each(&mut collect);
    }
    out
}

/// A simplifier that knows the sizes and the block's domain.
pub fn domain_simplifier(func: &Func, block: &Block) -> Simplifier {
    let mut simplifier = Simplifier::for_sizes(func);
    for iter in &block.iters {
        simplifier.bind_range(iter.var, Expr::int(0), iter.extent.clone());
    }
    simplifier
}

/// The flat element index of an access, row-major.
pub fn flat_index(func: &Func, access: &AccessInfo) -> Expr {
    let mut flat = Expr::int(0);
    for (index, extent) in access.indices.iter().zip(&func.buffers[access.buffer].shape) {
        flat = flat * extent.clone() + index.clone();
    }
    flat
}

/// The stride of an access in a variable.
pub fn stride(func: &Func, simplifier: &Simplifier, access: &AccessInfo, var: Var) -> Stride {
    if !access.indices.iter().any(|i| i.uses(var)) {
        return Stride::Zero;
    }
    let flat = flat_index(func, access);
    let next = flat.substitute_var(var, &(Expr::var(var) + 1));
    match simplifier.simplify(&(next - flat)).as_int() {
        Some(0) => Stride::Zero,
        Some(n) => Stride::Constant(n),
        None => Stride::Unknown,
    }
}

/// Whether an index is the variable itself, or 0 where that is its only value.
pub fn is_identity(index: &Expr, iter: &Iter) -> bool {
    index.as_var() == Some(iter.var) || (index.as_int() == Some(0) && iter.extent.as_int() == Some(1))
}

/// Whether an expression is cheap enough to be computed at each use.
pub fn is_cheap(expr: &Expr) -> bool {
    let is_root = |e: &Expr| matches!(e.kind(), ExprKind::Unary(UnaryOp::Sqrt, _));
    let is_quotient =
        |e: &Expr| matches!(e.kind(), ExprKind::Binary(BinaryOp::Div, ..)) && e.dtype().is_float();
    !expr.any(&mut |e| e.is_intrinsic() || is_root(e) || is_quotient(e))
}

/// The product of extents, if all are constants.
pub fn constant_product<'a>(extents: impl IntoIterator<Item = &'a Expr>) -> Option<i64> {
    extents.into_iter().try_fold(1i64, |n, e| n.checked_mul(e.as_int()?))
}

/// The block's variables of a kind with their positions.
pub fn iters_of(block: &Block, kind: IterKind) -> Vec<usize> {
    block.iters.iter().enumerate().filter(|(_, i)| i.kind == kind).map(|(n, _)| n).collect()
}

/// Whether a block stores each result at its data-parallel variables, in order.
pub fn stores_at_its_variables(block: &Block) -> bool {
    let spatial = iters_of(block, IterKind::Spatial);
    block.body.iter().all(|store| {
        store.indices.len() == spatial.len()
            && store.indices.iter().zip(&spatial).all(|(e, &n)| e.as_var() == Some(block.iters[n].var))
    })
}

/// The last of some variables that has more than one value: the results lie consecutive along it, row-major.
pub fn last_of_several(block: &Block, variables: &[usize]) -> Option<usize> {
    variables.iter().copied().rfind(|&n| block.iters[n].extent.as_int() != Some(1))
}

/// The one data-parallel block that reads a block's results, each once, at its own index.
pub fn epilogue_of<'a>(func: &'a Func, block: &Block) -> Option<&'a Block> {
    let &[consumer] = &func.consumers(block)[..] else { return None };
    let buffer = block.body.first()?.buffer;
    let is_identity = |a: &AccessInfo| {
        a.indices.len() == consumer.iters.len()
            && a.indices.iter().zip(&consumer.iters).all(|(e, i)| is_identity(e, i))
    };
    let fits = !consumer.is_reduction()
        && consumer.body.len() == 1
        && !func.params.contains(&buffer)
        && loads(consumer).iter().filter(|a| a.buffer == buffer).all(is_identity);
    fits.then_some(consumer)
}

/// The two loads whose products the block sums.
pub fn operands(block: &Block) -> Option<(AccessInfo, AccessInfo)> {
    let [store] = &block.body[..] else { return None };
    let load = |e: &Expr| match e.kind() {
        ExprKind::Load(buffer, indices) => Some(AccessInfo { buffer: *buffer, indices: indices.clone() }),
        _ => None,
    };
    let ExprKind::Fma(a, b, c) = store.value.kind() else { return None };
    let is_accumulator = load(c).is_some_and(|x| x.buffer == store.buffer && x.indices == store.indices);
    if !is_accumulator {
        return None;
    }
    Some((load(a)?, load(b)?))
}

/// Whether an operand is read by windows: a data-parallel and a reduction variable in one index.
pub fn is_window(block: &Block, access: &AccessInfo) -> bool {
    let uses = |e: &Expr, kind: IterKind| block.iters.iter().any(|i| i.kind == kind && e.uses(i.var));
    access.indices.iter().any(|e| uses(e, IterKind::Spatial) && uses(e, IterKind::Reduce))
}

/// For each index of an operand the position of the one variable that it is, or `None` if it is a constant; nothing
/// if another index is among them.
pub fn plain_variables(block: &Block, access: &AccessInfo) -> Option<Vec<Option<usize>>> {
    let variable = |e: &Expr| match e.as_int() {
        Some(_) => Some(None),
        None => block.iters.iter().position(|i| e.as_var() == Some(i.var)).map(Some),
    };
    access.indices.iter().map(variable).collect()
}

/// Whether accesses move by one element with a variable or not at all, and one of them moves.
pub fn walks(strides: &[Stride]) -> bool {
    strides.iter().all(|s| matches!(s, Stride::Zero | Stride::Constant(1)))
        && strides.contains(&Stride::Constant(1))
}

/// How many leading dimensions of the last block's domain count rows, where the others make them ([`row_dims`]).
pub fn leading_dims(func: &Func, last: &Block, producers: &[&Block]) -> Option<usize> {
    let row = row_dims(func, last, producers)?;
    (row.end == last.iters.len()).then_some(row.start)
}

/// Which dimensions of the last block's domain make a row, the last ones if possible: every other block has the same dimensions, or, if it
/// computes one value a row, those that count rows; and what it reads of others is of its own row. Nothing where no block reduces a row.
pub fn row_dims(func: &Func, last: &Block, producers: &[&Block]) -> Option<Range<usize>> {
    let rank = last.iters.len();
    let is_output = last.body.iter().all(|s| func.is_output(s.buffer));
    if last.is_reduction() || !is_output || !producers.iter().any(|block| block.is_reduction()) {
        return None;
    }
    let trailing = (1..rank).map(|start| start..rank);
    let others = (1..rank).flat_map(|end| (0..end).map(move |start| start..end));
    trailing.chain(others).find(|row| {
        let rows = Rows { func, all: extents(last, IterKind::Spatial), row: row.clone() };
        let reads_own = |block: &Block| rows.reads_own(block, producers);
        is_plain(last) && producers.iter().all(|b| rows.has(b) && reads_own(b)) && reads_own(last)
    })
}

/// Whether a block stores one result at its variables, and has any.
fn is_plain(block: &Block) -> bool {
    block.body.len() == 1
        && stores_at_its_variables(block)
        && block.iters.iter().all(|i| i.extent.as_int() != Some(0))
}

fn extents(block: &Block, kind: IterKind) -> Vec<Expr> {
    iters_of(block, kind).into_iter().map(|n| block.iters[n].extent.clone()).collect()
}

/// A domain some of whose dimensions make a row.
struct Rows<'a> {
    func: &'a Func,
    all: Vec<Expr>,
    row: Range<usize>,
}

impl Rows<'_> {
    /// The dimensions that count rows: those before the row's and those after.
    fn counts<'b, T>(&self, dims: &'b [T]) -> Option<[&'b [T]; 2]> {
        let after = dims.len().checked_sub(self.all.len() - self.row.end)?;
        (self.row.start <= after).then(|| [&dims[..self.row.start], &dims[after..]])
    }

    /// Whether a block with this domain has a value a row: the row's own dimensions are missing or have one element.
    fn is_value(&self, spatial: &[Expr]) -> bool {
        let (Some(own), Some(all)) = (self.counts(spatial), self.counts(&self.all)) else { return false };
        let between = own[0].len()..spatial.len() - own[1].len();
        own == all && spatial[between].iter().all(|extent| extent.as_int() == Some(1))
    }

    /// Whether a block makes a temporary value of each row, or of each of its elements.
    fn has(&self, block: &Block) -> bool {
        let (spatial, reduced) = (extents(block, IterKind::Spatial), extents(block, IterKind::Reduce));
        let is_temporary = block.body.iter().all(|s| !self.func.params.contains(&s.buffer));
        let shares_rows = match reduced.is_empty() {
            true => self.is_value(&spatial) || spatial == self.all,
            false => self.is_value(&spatial) && reduced == self.all[self.row.clone()],
        };
        is_plain(block) && is_temporary && shares_rows
    }

    /// Whether what a block reads of these others is of its own row. Extents alone do not tell: those of different dimensions may be the same.
    fn reads_own(&self, block: &Block, producers: &[&Block]) -> bool {
        let is_made = |a: &AccessInfo| producers.iter().any(|b| b.body.iter().any(|s| s.buffer == a.buffer));
        let vars: Vec<Var> =
            iters_of(block, IterKind::Spatial).into_iter().map(|n| block.iters[n].var).collect();
        let is_own = |access: &AccessInfo| {
            let counts = (self.counts(&access.indices), self.counts(&vars), self.counts(&self.all));
            let (Some(indices), Some(vars), Some(extents)) = counts else { return false };
            let places = indices.concat().into_iter().zip(vars.concat()).zip(extents.concat());
            let is_row = |((index, row), extent): ((Expr, Var), Expr)| {
                index.as_var() == Some(row) || (extent.as_int() == Some(1) && index.as_int() == Some(0))
            };
            places.into_iter().all(is_row)
        };
        loads(block).iter().filter(|access| is_made(access)).all(is_own)
    }
}

/// Bytes of what blocks compute of a row, values aside.
pub fn row_temporaries(func: &Func, producers: &[&Block], row: i64) -> i64 {
    let elements = producers.iter().filter(|b| !b.is_reduction());
    elements.map(|b| row * func.buffers[b.body[0].buffer].dtype.bytes() as i64).sum()
}

/// The extents of a block's variables of a kind, where known.
pub fn extents_of(block: &Block, kind: IterKind) -> Vec<Option<i64>> {
    iters_of(block, kind).into_iter().map(|n| block.iters[n].extent.as_int()).collect()
}

/// Iterations of a block, where known.
pub fn iterations(block: &Block) -> Option<i64> {
    constant_product(block.iters.iter().map(|i| &i.extent))
}

/// Bytes of a buffer, if they are known.
pub fn bytes_of(func: &Func, buffer: Buffer) -> Option<i64> {
    let data = &func.buffers[buffer];
    constant_product(&data.shape).map(|elements| elements * data.dtype.bytes() as i64)
}

/// A multiple of `unit` that is no less.
pub fn round_up(n: i64, unit: i64) -> i64 {
    (n + unit - 1) / unit * unit
}

/// The number of pieces of `unit` that cover `n`.
pub fn pieces_of(n: i64, unit: i64) -> i64 {
    (n + unit - 1) / unit
}
