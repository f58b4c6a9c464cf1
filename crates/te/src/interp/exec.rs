//! The machine: runs bytecode over lane registers.

use tilewright_dtype::DType;
use tilewright_dtype::float_format::round_to;

use crate::expr::{BinaryOp, CompareOp, UnaryOp};

use super::InterpError;
use super::code::{Access, BlockCode, Class, Fold, Index, Inst, InterpOp, LANES, Node, Step, Unit};
use super::memory::{Memory, SKIP, Span};
use super::scalar;
use super::watch::{Party, Race, Watch};
use crate::func::Func;

/// State of a run: registers, memory, and where it is.
pub(super) struct Machine<'a> {
    int: Vec<Vec<i64>>,
    single: Vec<Vec<f32>>,
    double: Vec<Vec<f64>>,
    /// By buffer number.
    pub(super) memories: Vec<Memory<'a>>,
    /// Who accesses what, where that is watched.
    watch: Option<Watch>,
    /// Scratch: positions of the elements of an access.
    positions: Vec<usize>,
    /// Active lanes, and the lane variable in lane 0.
    active: usize,
    base: i64,
    block: usize,
}

/// Why a run stopped, before names are known.
pub(super) enum Fault {
    OutOfBounds { buffer: usize, block: usize, indices: Vec<i64> },
    Unwritten { buffer: usize, block: usize, position: usize },
    Race { buffer: usize, race: Race },
}

/// `out[l] = value` for the first `n` lanes, the operands being lane `l` of their registers.
macro_rules! compute {
    ($m:ident, $n:expr, $out:ident[$dst:expr], |$($x:ident: $file:ident[$reg:expr]),+| $value:expr) => {{
        let mut out = std::mem::take(&mut $m.$out[$dst as usize]);
        {
            $(let $x = &$m.$file[$reg as usize][..$n];)+
            for (l, out) in out[..$n].iter_mut().enumerate() {
                $(let $x = $x[l];)+
                *out = $value;
            }
        }
        $m.$out[$dst as usize] = out;
    }};
}

/// A `match` over all operations in which `OP` is a constant inside each arm.
macro_rules! specialize {
    ($op:expr, $kind:ident: $($variant:ident)+, |$constant:ident| $body:expr) => {
        match $op {
            $($kind::$variant => {
                const $constant: $kind = $kind::$variant;
                $body
            })+
        }
    };
}

macro_rules! each_binary {
    ($op:expr, |$c:ident| $body:expr) => {
        specialize!($op, BinaryOp: Add Sub Mul Div Rem FloorDiv FloorMod Min Max And Or Xor Shl Shr Pow Atan2 Fmod,
            |$c| $body)
    };
}

macro_rules! each_unary {
    ($op:expr, |$c:ident| $body:expr) => {
        specialize!($op, UnaryOp: Neg Abs Not Sqrt Floor Ceil Trunc Round IsNan Exp ExpFtz Exp2Ftz Log Tanh Erf NormCdf Sigmoid Sin Cos Tan
            Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Log1p Expm1, |$c| $body)
    };
}

macro_rules! each_compare {
    ($op:expr, |$c:ident| $body:expr) => {
        specialize!($op, CompareOp: Eq Ne Lt Le Gt Ge, |$c| $body)
    };
}

impl<'a> Machine<'a> {
    pub(super) fn new(memories: Vec<Memory<'a>>, watched: bool) -> Machine<'a> {
        let elements = || memories.iter().map(Memory::elements).collect::<Vec<_>>();
        let watch = watched.then(|| Watch::new(&elements()));
        Machine {
            int: Vec::new(),
            single: Vec::new(),
            double: Vec::new(),
            memories,
            watch,
            positions: Vec::new(),
            active: 1,
            base: 0,
            block: 0,
        }
    }

    /// Runs one top-level statement.
    pub(super) fn run(&mut self, unit: &Unit, sizes: &[i64]) -> Result<(), Fault> {
        fn file<T: Clone + Default>(registers: &[bool]) -> Vec<Vec<T>> {
            registers.iter().map(|&lanes| vec![T::default(); if lanes { LANES } else { 1 }]).collect()
        }
        self.int = file(&unit.registers[Class::Int as usize]);
        self.single = file(&unit.registers[Class::Single as usize]);
        self.double = file(&unit.registers[Class::Double as usize]);
        for (&reg, &size) in unit.sizes.iter().zip(sizes) {
            self.int[reg as usize][0] = size;
        }
        self.code(&unit.prologue)?;
        self.nodes(&unit.body)
    }

    fn nodes(&mut self, nodes: &[Node]) -> Result<(), Fault> {
        for node in nodes {
            match node {
                Node::Loop { var, extent, fresh, watched, prologue, body } => {
                    if let (Some(watch), Some(watched)) = (&mut self.watch, watched) {
                        watch.enter(watched);
                    }
                    for i in 0..self.int[*extent as usize][0] {
                        if let (Some(watch), Some(watched)) = (&mut self.watch, watched) {
                            watch.iterate(watched, i);
                        }
                        self.int[*var as usize][0] = i;
                        for &buffer in fresh {
                            self.memories[buffer].forget();
                        }
                        self.code(prologue)?;
                        self.nodes(body)?;
                    }
                    if let (Some(watch), Some(watched)) = (&mut self.watch, watched) {
                        watch.leave(watched);
                    }
                }
                Node::Lanes { var, extent, prologue, body } => {
                    let extent = self.int[*extent as usize][0];
                    let mut base = 0;
                    while base < extent {
                        self.base = base;
                        self.active = (extent - base).min(LANES as i64) as usize;
                        for (value, i) in self.int[*var as usize].iter_mut().zip(base..) {
                            *value = i;
                        }
                        self.code(prologue)?;
                        self.nodes(body)?;
                        base += LANES as i64;
                    }
                    self.active = 1;
                }
                Node::Block(block) => self.block(block)?,
            }
        }
        Ok(())
    }

    fn block(&mut self, block: &BlockCode) -> Result<(), Fault> {
        self.block = block.name;
        self.code(&block.prologue)?;
        if block.guard.is_some_and(|guard| self.int[guard as usize][0] == 0) {
            return Ok(());
        }
        if let Some((due, init)) = &block.init
            && self.int[*due as usize][0] != 0
        {
            self.code(init)?;
        }
        self.code(&block.body)
    }

    fn code(&mut self, code: &[Inst]) -> Result<(), Fault> {
        for inst in code {
            self.step(inst)?;
        }
        Ok(())
    }

    #[expect(clippy::too_many_lines, reason = "a table of one computation an instruction")]
    fn step(&mut self, inst: &Inst) -> Result<(), Fault> {
        let n = if inst.lanes { self.active } else { 1 };
        let d = inst.dst;
        let m = self;
        match &inst.op {
            InterpOp::IntConst(value) => m.int[d as usize].fill(*value),
            InterpOp::FloatConst(Class::Single, value) => m.single[d as usize].fill(*value as f32),
            InterpOp::FloatConst(_, value) => m.double[d as usize].fill(*value),
            // All lanes, not only the active ones: the value may have been hoisted out of the lane loop.
            InterpOp::Splat(Class::Int, a) => {
                let value = m.int[*a as usize][0];
                m.int[d as usize].fill(value);
            }
            InterpOp::Splat(Class::Single, a) => {
                let value = m.single[*a as usize][0];
                m.single[d as usize].fill(value);
            }
            InterpOp::Splat(Class::Double, a) => {
                let value = m.double[*a as usize][0];
                m.double[d as usize].fill(value);
            }
            InterpOp::IntUnary(op, dtype, a) => {
                compute!(m, n, int[d], |x: int[*a]| scalar::int_unary(*op, *dtype, x))
            }
            InterpOp::IntBinary(op, unsigned, a, b) => each_binary!(*op, |OP| {
                compute!(m, n, int[d], |x: int[*a], y: int[*b]| scalar::int_binary(OP, *unsigned, x, y))
            }),
            InterpOp::IntCompare(op, unsigned, a, b) => each_compare!(*op, |OP| {
                compute!(m, n, int[d], |x: int[*a], y: int[*b]| scalar::int_compare(OP, *unsigned, x, y) as i64)
            }),
            InterpOp::Wrap(dtype, a) => match dtype {
                DType::I32 => compute!(m, n, int[d], |x: int[*a]| x as i32 as i64),
                DType::U32 => compute!(m, n, int[d], |x: int[*a]| x as u32 as i64),
                _ => compute!(m, n, int[d], |x: int[*a]| crate::expr::wrap(*dtype, x)),
            },
            InterpOp::FloatUnary(Class::Double, op, a) => {
                each_unary!(*op, |OP| compute!(m, n, double[d], |x: double[*a]| scalar::f64_unary(OP, x)))
            }
            InterpOp::FloatUnary(_, op, a) => {
                each_unary!(*op, |OP| compute!(m, n, single[d], |x: single[*a]| scalar::f32_unary(OP, x)))
            }
            InterpOp::FloatBinary(Class::Double, op, a, b) => each_binary!(*op, |OP| {
                compute!(m, n, double[d], |x: double[*a], y: double[*b]| scalar::f64_binary(OP, x, y))
            }),
            InterpOp::FloatBinary(_, op, a, b) => each_binary!(*op, |OP| {
                compute!(m, n, single[d], |x: single[*a], y: single[*b]| scalar::f32_binary(OP, x, y))
            }),
            InterpOp::FloatCompare(Class::Double, op, a, b) => each_compare!(*op, |OP| {
                compute!(m, n, int[d], |x: double[*a], y: double[*b]| scalar::f64_compare(OP, x, y) as i64)
            }),
            InterpOp::FloatCompare(_, op, a, b) => each_compare!(*op, |OP| {
                compute!(m, n, int[d], |x: single[*a], y: single[*b]| scalar::f32_compare(OP, x, y) as i64)
            }),
            InterpOp::Fma(Class::Double, a, b, c) => {
                compute!(m, n, double[d], |x: double[*a], y: double[*b], z: double[*c]| x.mul_add(y, z))
            }
            InterpOp::Fma(_, a, b, c) => {
                compute!(m, n, single[d], |x: single[*a], y: single[*b], z: single[*c]| scalar::f32_fma(x, y, z))
            }
            InterpOp::IsNan(Class::Double, a) => compute!(m, n, int[d], |x: double[*a]| x.is_nan() as i64),
            InterpOp::IsNan(_, a) => compute!(m, n, int[d], |x: single[*a]| x.is_nan() as i64),
            InterpOp::Round(Class::Double, dtype, a) => {
                compute!(m, n, double[d], |x: double[*a]| round_to(*dtype, x))
            }
            InterpOp::Round(_, DType::F16, a) => {
                compute!(m, n, single[d], |x: single[*a]| half::f16::from_f32(x).to_f32())
            }
            InterpOp::Round(_, DType::BF16, a) => {
                compute!(m, n, single[d], |x: single[*a]| half::bf16::from_f32(x).to_f32())
            }
            InterpOp::Round(_, dtype, a) => {
                compute!(m, n, single[d], |x: single[*a]| round_to(*dtype, x as f64) as f32)
            }
            InterpOp::Select(Class::Int, c, a, b) => {
                compute!(m, n, int[d], |c: int[*c], x: int[*a], y: int[*b]| if c != 0 { x } else { y })
            }
            InterpOp::Select(Class::Single, c, a, b) => {
                compute!(m, n, single[d], |c: int[*c], x: single[*a], y: single[*b]| if c != 0 { x } else { y })
            }
            InterpOp::Select(Class::Double, c, a, b) => {
                compute!(m, n, double[d], |c: int[*c], x: double[*a], y: double[*b]| if c != 0 { x } else { y })
            }
            InterpOp::IntToFloat(Class::Double, unsigned, a) => {
                compute!(m, n, double[d], |x: int[*a]| if *unsigned { x as u64 as f64 } else { x as f64 })
            }
            InterpOp::IntToFloat(_, unsigned, a) => {
                compute!(m, n, single[d], |x: int[*a]| if *unsigned { x as u64 as f32 } else { x as f32 })
            }
            InterpOp::FloatToInt(Class::Double, dtype, a) => {
                compute!(m, n, int[d], |x: double[*a]| scalar::float_to_int(*dtype, x))
            }
            InterpOp::FloatToInt(_, dtype, a) => {
                compute!(m, n, int[d], |x: single[*a]| scalar::float_to_int(*dtype, x as f64))
            }
            InterpOp::SingleToDouble(a) => compute!(m, n, double[d], |x: single[*a]| x as f64),
            InterpOp::DoubleToSingle(DType::F32, a) => compute!(m, n, single[d], |x: double[*a]| x as f32),
            InterpOp::DoubleToSingle(dtype, a) => {
                compute!(m, n, single[d], |x: double[*a]| round_to(*dtype, x) as f32)
            }
            InterpOp::ToBits(Class::Double, dtype, a) => {
                compute!(m, n, int[d], |x: double[*a]| scalar::to_bits(*dtype, x))
            }
            InterpOp::ToBits(_, DType::F32, a) => compute!(m, n, int[d], |x: single[*a]| x.to_bits() as i64),
            InterpOp::ToBits(_, dtype, a) => {
                compute!(m, n, int[d], |x: single[*a]| scalar::to_bits(*dtype, x as f64))
            }
            InterpOp::FromBits(Class::Double, dtype, a) => {
                compute!(m, n, double[d], |x: int[*a]| scalar::from_bits(*dtype, x))
            }
            InterpOp::FromBits(_, DType::F32, a) => {
                compute!(m, n, single[d], |x: int[*a]| f32::from_bits(x as u32))
            }
            InterpOp::FromBits(_, dtype, a) => {
                compute!(m, n, single[d], |x: int[*a]| scalar::from_bits(*dtype, x) as f32)
            }
            InterpOp::Load(class, access) => m.load(*class, access, d as usize, n)?,
            InterpOp::Store(class, access, value) => m.store(*class, access, *value as usize, n)?,
            InterpOp::Fold(fold) => m.fold(fold, n)?,
        }
        Ok(())
    }

    fn load(&mut self, class: Class, access: &Access, dst: usize, n: usize) -> Result<(), Fault> {
        let mut positions = std::mem::take(&mut self.positions);
        let span = self.resolve(access, n, &mut positions)?;
        let memory = &self.memories[access.buffer];
        if let Some(position) = memory.find_unwritten(&span) {
            return Err(Fault::Unwritten { buffer: access.buffer, block: self.block, position });
        }
        watch(&mut self.watch, access.buffer, &span, false, self.block)?;
        match class {
            Class::Int => memory.load_int(&span, &mut self.int[dst][..n]),
            Class::Single => memory.load_single(&span, &mut self.single[dst][..n]),
            Class::Double => memory.load_double(&span, &mut self.double[dst][..n]),
        }
        self.positions = positions;
        Ok(())
    }

    fn store(&mut self, class: Class, access: &Access, value: usize, n: usize) -> Result<(), Fault> {
        let mut positions = std::mem::take(&mut self.positions);
        let span = self.resolve(access, n, &mut positions)?;
        watch(&mut self.watch, access.buffer, &span, true, self.block)?;
        let memory = &mut self.memories[access.buffer];
        match class {
            Class::Int => memory.store_int(&span, &self.int[value][..n]),
            Class::Single => memory.store_single(&span, &self.single[value][..n]),
            Class::Double => memory.store_double(&span, &self.double[value][..n]),
        }
        self.positions = positions;
        Ok(())
    }

    /// Accumulates the lanes of a register into one element, in order.
    fn fold(&mut self, fold: &Fold, n: usize) -> Result<(), Fault> {
        let mut positions = std::mem::take(&mut self.positions);
        let span = self.resolve(&fold.access, 1, &mut positions)?;
        let memory = &mut self.memories[fold.access.buffer];
        if let Some(position) = memory.find_unwritten(&span) {
            return Err(Fault::Unwritten { buffer: fold.access.buffer, block: self.block, position });
        }
        let [first, second] = fold.values.map(|reg| reg as usize);
        macro_rules! accumulate {
            ($file:ident, $load:ident, $store:ident, |$x:ident, $y:ident, $OP:ident| $value:expr) => {{
                let mut sum = [Default::default()];
                memory.$load(&span, &mut sum);
                let values = &self.$file[first][..n];
                match fold.step {
                    Step::Fma => {
                        for (&a, &b) in values.iter().zip(&self.$file[second]) {
                            sum[0] = fused!($file, a, b, sum[0]);
                        }
                    }
                    Step::Binary(op, true) => each_binary!(op, |$OP| {
                        for &$y in values {
                            let $x = sum[0];
                            sum[0] = $value;
                        }
                    }),
                    Step::Binary(op, false) => each_binary!(op, |$OP| {
                        for &$x in values {
                            let $y = sum[0];
                            sum[0] = $value;
                        }
                    }),
                }
                memory.$store(&span, &sum);
            }};
        }
        macro_rules! fused {
            (int, $a:expr, $b:expr, $c:expr) => {
                $a.wrapping_mul($b).wrapping_add($c)
            };
            (single, $a:expr, $b:expr, $c:expr) => {
                scalar::f32_fma($a, $b, $c)
            };
            (double, $a:expr, $b:expr, $c:expr) => {
                f64::mul_add($a, $b, $c)
            };
        }
        match fold.class {
            Class::Int => {
                accumulate!(int, load_int, store_int, |x, y, OP| scalar::int_binary(OP, false, x, y))
            }
            Class::Single => {
                accumulate!(single, load_single, store_single, |x, y, OP| scalar::f32_binary(OP, x, y))
            }
            Class::Double => {
                accumulate!(double, load_double, store_double, |x, y, OP| scalar::f64_binary(OP, x, y))
            }
        }
        self.positions = positions;
        Ok(())
    }

    /// The positions of an access's elements, all checked against the buffer's shape.
    fn resolve<'s>(
        &self,
        access: &Access,
        n: usize,
        positions: &'s mut Vec<usize>,
    ) -> Result<Span<'s>, Fault> {
        let memory = &self.memories[access.buffer];
        let mask: Option<&[i64]> = match access.mask {
            None => None,
            Some((reg, true)) => {
                let mask = &self.int[reg as usize][..n];
                if mask.iter().all(|&on| on != 0) { None } else { Some(mask) }
            }
            Some((reg, false)) if self.int[reg as usize][0] != 0 => None,
            Some(_) => {
                positions.clear();
                positions.resize(n, SKIP);
                return Ok(Span::Each(positions));
            }
        };
        // Affine part: position of lane 0 and step; bounds hold for all lanes if they do at both ends.
        let (mut start, mut step, mut in_bounds, mut affine) = (0i64, 0i64, true, true);
        for ((index, &extent), &stride) in access.indices.iter().zip(&memory.shape).zip(&memory.strides) {
            match *index {
                Index::Affine { rest, step: s } => {
                    let first = self.int[rest as usize][0].wrapping_add(s.wrapping_mul(self.base));
                    let last = first.wrapping_add(s.wrapping_mul(n as i64 - 1));
                    in_bounds &= first >= 0 && first < extent && last >= 0 && last < extent;
                    start = start.wrapping_add(first.wrapping_mul(stride));
                    step = step.wrapping_add(s.wrapping_mul(stride));
                }
                Index::Lanes(_) => affine = false,
            }
        }
        if affine && mask.is_none() && in_bounds {
            if step == 1 || n == 1 {
                return Ok(Span::Run { start: start as usize, from: 0, to: n });
            }
            if step > 1 {
                let (start, step) = (start as usize, step as usize);
                return Ok(Span::Even { start, step, last: start + (n - 1) * step });
            }
            positions.clear();
            positions.extend((0..n as i64).map(|l| (start + l * step) as usize));
            return Ok(Span::Each(positions));
        }
        if affine
            && let Some(mask) = mask
            && let Some((from, to)) = self.active_run(access, mask)
        {
            let at = |l: usize| start.wrapping_add(step.wrapping_mul(l as i64)) as usize;
            if from == to {
                return Ok(Span::Run { start: 0, from, to });
            }
            if (step == 1 || to - from == 1) && (mask[from..to].iter().all(|&on| on != 0)) {
                return Ok(Span::Run { start: at(from), from, to });
            }
            positions.clear();
            positions.extend(mask.iter().enumerate().map(|(l, &on)| if on != 0 { at(l) } else { SKIP }));
            return Ok(Span::Each(positions));
        }
        positions.clear();
        for l in 0..n {
            if mask.is_some_and(|mask| mask[l] == 0) {
                positions.push(SKIP);
                continue;
            }
            let mut position = 0i64;
            for ((index, &extent), &stride) in access.indices.iter().zip(&memory.shape).zip(&memory.strides) {
                let at = self.index(index, l);
                if at < 0 || at >= extent {
                    let indices = access.indices.iter().map(|index| self.index(index, l)).collect();
                    return Err(Fault::OutOfBounds { buffer: access.buffer, block: self.block, indices });
                }
                position += at * stride;
            }
            positions.push(position as usize);
        }
        Ok(Span::Each(positions))
    }

    /// The range from the first to the last lane that takes part, if the affine access is in bounds at both
    /// and hence between them.
    fn active_run(&self, access: &Access, mask: &[i64]) -> Option<(usize, usize)> {
        let Some(from) = mask.iter().position(|&on| on != 0) else { return Some((0, 0)) };
        let to = mask.iter().rposition(|&on| on != 0).map_or(from, |last| last + 1);
        let inside = |l: usize| {
            let dims = access.indices.iter().zip(&self.memories[access.buffer].shape);
            dims.into_iter().all(|(index, extent)| (0..*extent).contains(&self.index(index, l)))
        };
        (inside(from) && inside(to - 1)).then_some((from, to))
    }

    #[inline(always)]
    fn index(&self, index: &Index, lane: usize) -> i64 {
        match *index {
            Index::Affine { rest, step } => {
                self.int[rest as usize][0].wrapping_add(step.wrapping_mul(self.base + lane as i64))
            }
            Index::Lanes(reg) => self.int[reg as usize][lane],
        }
    }
}

/// Notes an access where that is watched. What runs in lanes is not watched, so nothing is folded there.
fn watch(
    watch: &mut Option<Watch>,
    buffer: usize,
    span: &Span<'_>,
    writes: bool,
    block: usize,
) -> Result<(), Fault> {
    match watch {
        Some(watch) => watch.access(buffer, span, writes, block).map_err(|race| Fault::Race { buffer, race }),
        None => Ok(()),
    }
}

impl Fault {
    /// The error with names.
    pub(super) fn describe(self, memories: &[Memory], func: &Func, blocks: &[String]) -> InterpError {
        let names: Vec<&String> = func.buffers.values().map(|data| &data.name).collect();
        let party = |party: &Party, writes: bool| {
            let name = func.vars.values().nth(party.var).map_or("?", |var| var.name.as_str());
            let does = if writes { "writes" } else { "reads" };
            format!("block {} {does} it at {name} = {}", blocks[party.block], party.value)
        };
        match self {
            Fault::Race { buffer, race } => InterpError::Race {
                buffer: names[buffer].clone(),
                indices: memories[buffer].indices_of(race.position),
                first: party(&race.first, race.writes[0]),
                second: party(&race.second, race.writes[1]),
            },
            Fault::OutOfBounds { buffer, block, indices } => InterpError::OutOfBounds {
                block: blocks[block].clone(),
                buffer: names[buffer].clone(),
                indices,
                shape: memories[buffer].shape.clone(),
            },
            Fault::Unwritten { buffer, block, position } => InterpError::Unwritten {
                block: blocks[block].clone(),
                buffer: names[buffer].clone(),
                indices: memories[buffer].indices_of(position),
            },
        }
    }
}
