//! Parsing of kernels: the inverse of printing.
//!
//! A text that parses has a type for every value and a place for every name. Whether values are defined before they are used
//! and operations fit their types is for [`Kernel::verify`] to say.

use std::str::FromStr;

use cranelift_entity::{EntityRef, PrimaryMap};
use rustc_hash::FxHashMap;
use tilewright_dtype::DType;

use super::kernel::access_name;
use super::parse::Parser;
use super::tokens::{At, ParseError, Result, Token};
use crate::expr::{BinaryOp, CompareOp, UnaryOp};
use crate::func::VarKind;
use crate::kernel::{
    Access, Carried, Inst, Join, Kernel, KernelBuffer, KernelLocal, KernelOp, KernelSize, MemRef, TaskGrid,
    Threads, Type, Value,
};

/// Values that a text may speak of: arenas are as large as the greatest number in it.
const MAX_VALUES: i64 = 1 << 20;

impl FromStr for Kernel {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Kernel> {
        KernelParser {
            parser: Parser::new(text)?,
            buffers: Vec::new(),
            locals: Vec::new(),
            shared: Vec::new(),
            sizes: Vec::new(),
            places: FxHashMap::default(),
            types: FxHashMap::default(),
            used: Vec::new(),
        }
        .kernel()
    }
}

struct KernelParser {
    /// The tokens, and the sizes as variables of a function.
    parser: Parser,
    buffers: Vec<KernelBuffer>,
    locals: Vec<KernelLocal>,
    shared: Vec<KernelLocal>,
    sizes: Vec<KernelSize>,
    places: FxHashMap<String, MemRef>,
    /// Types of the values defined so far.
    types: FxHashMap<Value, Type>,
    /// Every use of a value.
    used: Vec<(Value, At)>,
}

impl KernelParser {
    fn kernel(mut self) -> Result<Kernel> {
        self.parser.expect_word("kernel")?;
        let name = self.parser.name()?;
        self.parser.expect("(")?;
        while !self.parser.take(")") {
            self.parameter()?;
            self.parser.comma_or(")")?;
        }
        self.parser.expect_word("tasks")?;
        let mut grid = TaskGrid::single();
        grid.per_round = self.parser.index()?;
        if self.parser.take_word("rounds") {
            let in_order = self.parser.take_word("in");
            if in_order {
                self.parser.expect_word("order")?;
            }
            self.parser.expect_word("of")?;
            grid = TaskGrid { rounds: grid.per_round, per_round: self.parser.index()?, in_order };
        }
        let mut threads = Threads::ONE;
        if self.parser.take_word("threads") {
            threads.warps = self.unsigned()?;
            self.parser.expect_word("x")?;
            threads.lanes = self.unsigned()?;
        }
        self.parser.expect_word("task")?;
        let task = self.defined(|_| Ok(Type::scalar(DType::I64)))?;
        self.parser.expect("{")?;
        while self.parser.at_word("local") && !self.parser.next_is("[") {
            let local = self.array("local", MemRef::Local(self.locals.len() as u32))?;
            self.locals.push(local);
        }
        while self.parser.at_word("shared") && !self.parser.next_is("[") {
            let shared = self.array("shared", MemRef::Shared(self.shared.len() as u32))?;
            self.shared.push(shared);
        }
        let body = self.insts()?;
        self.parser.end()?;
        let values = self.values()?;
        let KernelParser { buffers, locals, shared, sizes, .. } = self;
        Ok(Kernel { name, buffers, locals, threads, shared, sizes, grid, values, task, body })
    }

    /// The types of all values; numbers that do not occur are scalars that nothing defines.
    fn values(&self) -> Result<PrimaryMap<Value, Type>> {
        if let Some(&(value, at)) = self.used.iter().find(|(value, _)| !self.types.contains_key(value)) {
            return self.parser.fail_at(at, format!("nothing defines {value}"));
        }
        let n = self.types.keys().map(|value| value.index() + 1).max().unwrap_or(0);
        let ty = |i| self.types.get(&Value::new(i)).copied().unwrap_or(Type::scalar(DType::I64));
        Ok((0..n).map(ty).collect())
    }

    /// `NAME: ACCESS DTYPE align N` or `NAME: size`.
    fn parameter(&mut self) -> Result<()> {
        let name = self.parser.name()?;
        self.parser.expect(":")?;
        if self.parser.take_word("size") {
            let var = self.parser.bind(&name, VarKind::Size { min: 0, max: i64::MAX, typical: None })?;
            self.sizes.push(KernelSize { var, name });
            return Ok(());
        }
        let all = [Access::Read, Access::Write, Access::ReadWrite];
        let Some(access) = all.into_iter().find(|access| self.parser.take_word(access_name(*access))) else {
            let found = self.parser.describe();
            return self
                .parser
                .fail(format!("expected `read`, `write`, `read_write` or `size`, found {found}"));
        };
        let dtype = self.parser.dtype()?;
        self.parser.expect_word("align")?;
        let align = self.unsigned()?;
        self.declare(&name, MemRef::Param(self.buffers.len() as u32))?;
        self.buffers.push(KernelBuffer { name, dtype, access, align });
        Ok(())
    }

    /// `local NAME: DTYPE[LEN]`, or `shared ..`.
    fn array(&mut self, word: &str, place: MemRef) -> Result<KernelLocal> {
        self.parser.expect_word(word)?;
        let name = self.parser.name()?;
        self.parser.expect(":")?;
        let dtype = self.parser.dtype()?;
        self.parser.expect("[")?;
        let len = self.unsigned()?;
        self.parser.expect("]")?;
        self.declare(&name, place)?;
        Ok(KernelLocal { name, dtype, len })
    }

    fn declare(&mut self, name: &str, place: MemRef) -> Result<()> {
        match self.places.insert(name.to_string(), place) {
            None => Ok(()),
            Some(_) => self.parser.fail_last(format!("`{name}` is declared twice")),
        }
    }

    fn unsigned<T: TryFrom<i64>>(&mut self) -> Result<T> {
        let value = self.parser.integer()?;
        T::try_from(value).or_else(|_| self.parser.fail_last(format!("{value} is out of range")))
    }

    /// `%N`.
    fn value(&mut self) -> Result<Value> {
        if !self.parser.take("%") {
            return self.parser.fail(format!("expected a value, found {}", self.parser.describe()));
        }
        match self.parser.integer()? {
            number @ 0..MAX_VALUES => Ok(Value::new(number as usize)),
            number => self.parser.fail_last(format!("%{number} is no value: there may be {MAX_VALUES}")),
        }
    }

    /// A value that is used.
    fn operand(&mut self) -> Result<Value> {
        let place = self.parser.place();
        let value = self.value()?;
        self.used.push((value, place));
        Ok(value)
    }

    /// Operands with commas between.
    fn operands<const N: usize>(&mut self) -> Result<[Value; N]> {
        let mut operands = [Value::new(0); N];
        for (i, operand) in operands.iter_mut().enumerate() {
            if i > 0 {
                self.parser.expect(",")?;
            }
            *operand = self.operand()?;
        }
        Ok(operands)
    }

    /// A value that is defined here, and its type.
    fn defined(&mut self, ty: impl FnOnce(&mut Self) -> Result<Type>) -> Result<Value> {
        let at = self.parser.place();
        let value = self.value()?;
        let ty = ty(self)?;
        self.declare_value(value, ty, at)?;
        Ok(value)
    }

    /// A value may be defined twice as far as this is concerned, but not as two types.
    fn declare_value(&mut self, value: Value, ty: Type, at: At) -> Result<()> {
        match self.types.insert(value, ty) {
            Some(before) if before != ty => {
                self.parser.fail_at(at, format!("{value} is defined as {before} and as {ty}"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The type of a value that must be defined by now.
    fn type_of(&self, value: Value) -> Result<Type> {
        match self.types.get(&value) {
            Some(ty) => Ok(*ty),
            None => self.parser.fail(format!("{value} is not defined yet, so its type is not known")),
        }
    }

    /// `f32`, or `f32x8`.
    fn ty(&mut self) -> Result<Type> {
        let name = self.parser.name()?;
        let scalar = name.parse().ok().map(Type::scalar);
        let vector = || {
            let (dtype, lanes) = name.rsplit_once('x')?;
            let lanes = lanes.parse().ok().filter(|lanes| *lanes > 1)?;
            Some(Type::vector(dtype.parse().ok()?, lanes))
        };
        scalar.or_else(vector).map_or_else(|| self.parser.fail_last(format!("`{name}` is no type")), Ok)
    }

    /// Instructions up to the closing brace, which is taken.
    fn insts(&mut self) -> Result<Vec<Inst>> {
        let mut insts = Vec::new();
        while !self.parser.take("}") {
            let is_access = self.parser.next_is("[");
            insts.push(if self.parser.at("%") {
                let mut ty = Type::scalar(DType::I64);
                let result = self.defined(|this| {
                    this.parser.expect(":")?;
                    ty = this.ty()?;
                    Ok(ty)
                })?;
                self.parser.expect("=")?;
                Inst::Let { result, op: self.op(ty)? }
            } else if is_access {
                self.store()?
            } else if self.parser.take_word("for") {
                self.deeper(Self::loop_)?
            } else if self.parser.take_word("if") {
                self.deeper(Self::branch)?
            } else if self.parser.take_word("prefetch") {
                let (place, index, offset) = self.access()?;
                Inst::Prefetch { place, index, offset }
            } else if self.parser.take_word("barrier") {
                Inst::Barrier
            } else if self.parser.take_word("copy_async") {
                self.copy()?
            } else if self.parser.take_word("commit_copies") {
                Inst::CommitCopies
            } else if self.parser.take_word("wait_copies") {
                Inst::WaitCopies { pending: self.unsigned()? }
            } else {
                return self
                    .parser
                    .fail(format!("expected an instruction, found {}", self.parser.describe()));
            });
        }
        Ok(insts)
    }

    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.parser.descend()?;
        let result = parse(self);
        self.parser.ascend();
        result
    }

    /// `NAME[VALUE + OFFSET]`.
    fn access(&mut self) -> Result<(MemRef, Value, i64)> {
        let at = self.parser.place();
        let name = self.parser.name()?;
        let Some(&place) = self.places.get(&name) else {
            return self.parser.fail_at(at, format!("there is no buffer `{name}`"));
        };
        self.parser.expect("[")?;
        let index = self.operand()?;
        let offset = if self.parser.take("+") { self.parser.integer()? } else { 0 };
        self.parser.expect("]")?;
        Ok((place, index, offset))
    }

    fn mask(&mut self) -> Result<Option<Value>> {
        if self.parser.take_word("where") { self.operand().map(Some) } else { Ok(None) }
    }

    fn copy(&mut self) -> Result<Inst> {
        let (to, to_index, to_offset) = self.access()?;
        self.parser.expect("=")?;
        let (from, index, offset) = self.access()?;
        self.parser.expect(",")?;
        let elements = self.unsigned()?;
        let mask = self.mask()?;
        Ok(Inst::CopyAsync { to, to_index, to_offset, from, index, offset, elements, mask })
    }

    fn store(&mut self) -> Result<Inst> {
        let (place, index, offset) = self.access()?;
        self.parser.expect("=")?;
        let is_scatter = self.parser.take_word("scatter");
        let value = self.operand()?;
        let mask = self.mask()?;
        Ok(match is_scatter {
            true => Inst::Scatter { place, indices: index, offset, value, mask },
            false => Inst::Store { place, index, offset, value, mask },
        })
    }

    fn loop_(&mut self) -> Result<Inst> {
        let var = self.defined(|_| Ok(Type::scalar(DType::I64)))?;
        self.parser.expect_word("in")?;
        let begin = self.operand()?;
        self.parser.expect("..")?;
        let end = self.operand()?;
        let mut carried = Vec::new();
        while self.parser.take("[") {
            let mut init = Value::new(0);
            let param = self.defined(|this| {
                this.parser.expect("=")?;
                init = this.operand()?;
                this.type_of(init)
            })?;
            self.parser.expect_word("then")?;
            let next = self.operand()?;
            self.parser.expect_word("gives")?;
            let result = self.defined(|this| this.type_of(init))?;
            self.parser.expect("]")?;
            carried.push(Carried { init, param, next, result });
        }
        self.parser.expect("{")?;
        Ok(Inst::Loop { var, begin, end, carried, body: self.insts()? })
    }

    fn branch(&mut self) -> Result<Inst> {
        let condition = self.operand()?;
        let mut joins = Vec::new();
        let mut places = Vec::new();
        while self.parser.take("[") {
            let then_value = self.operand()?;
            self.parser.expect_word("or")?;
            let else_value = self.operand()?;
            self.parser.expect_word("gives")?;
            places.push(self.parser.place());
            joins.push(Join { then_value, else_value, result: self.value()? });
            self.parser.expect("]")?;
        }
        self.parser.expect("{")?;
        let then_body = self.insts()?;
        let else_body = if self.parser.take_word("else") {
            self.parser.expect("{")?;
            self.insts()?
        } else {
            Vec::new()
        };
        for (join, at) in joins.iter().zip(places) {
            let ty = self.type_of(join.then_value)?;
            self.declare_value(join.result, ty, at)?;
        }
        Ok(Inst::If { condition, then_body, else_body, joins })
    }

    fn op(&mut self, ty: Type) -> Result<KernelOp> {
        let is_load = self.parser.next_is("[");
        match self.parser.peek().cloned() {
            Some(Token::Symbol("%")) => {
                let a = self.operand()?;
                let symbols = CompareOp::ALL.into_iter().find(|op| self.parser.take(op.symbol()));
                match symbols {
                    Some(op) => Ok(KernelOp::Compare(op, a, self.operand()?)),
                    None => {
                        self.parser.fail(format!("expected a comparison, found {}", self.parser.describe()))
                    }
                }
            }
            Some(Token::Word(_) | Token::Quoted(_)) if is_load => {
                let (place, index, offset) = self.access()?;
                Ok(KernelOp::Load { place, index, offset, mask: self.mask()? })
            }
            Some(Token::Word(word)) if !matches!(word.as_str(), "inf" | "nan") => self.operation(),
            Some(_) if ty.dtype.is_float() => self.parser.float().map(KernelOp::Float),
            Some(_) => self.parser.integer().map(KernelOp::Int),
            None => self.parser.fail("expected an operation, found the end"),
        }
    }

    /// An operation that begins with its name.
    fn operation(&mut self) -> Result<KernelOp> {
        let name = self.parser.name()?;
        Ok(match name.as_str() {
            "size" => {
                let size = self.parser.name()?;
                match self.sizes.iter().position(|known| known.name == size) {
                    Some(i) => KernelOp::Size(i as u32),
                    None => return self.parser.fail_last(format!("there is no size `{size}`")),
                }
            }
            "warp" => KernelOp::Warp,
            "lane" => KernelOp::Lane,
            "shuffle" => {
                let [value, from] = self.operands()?;
                KernelOp::Shuffle { value, from }
            }
            "iota" => KernelOp::Iota,
            "splat" => KernelOp::Splat(self.operand()?),
            "extract" | "slice" => {
                let a = self.operand()?;
                self.parser.expect(",")?;
                let lane = self.unsigned()?;
                if name == "slice" { KernelOp::Slice(a, lane) } else { KernelOp::Extract(a, lane) }
            }
            "concat" => {
                let mut parts = Vec::new();
                // The next instruction may begin with a value too: that one has a type.
                while self.parser.at("%") && !self.parser.is_definition() {
                    parts.push(self.operand()?);
                }
                KernelOp::Concat(parts)
            }
            "cast" => KernelOp::Cast(self.operand()?),
            "bitcast" => KernelOp::Bitcast(self.operand()?),
            "select" => {
                let [a, b, c] = self.operands()?;
                KernelOp::Select(a, b, c)
            }
            "fma" => {
                let [a, b, c] = self.operands()?;
                KernelOp::Fma(a, b, c)
            }
            "gather" => {
                let (place, indices, offset) = self.access()?;
                KernelOp::Gather { place, indices, offset, mask: self.mask()? }
            }
            _ => {
                if let Some(op) = UnaryOp::ALL.into_iter().find(|op| op.name() == name) {
                    KernelOp::Unary(op, self.operand()?)
                } else if let Some(op) = BinaryOp::ALL.into_iter().find(|op| op.name() == name) {
                    let [a, b] = self.operands()?;
                    KernelOp::Binary(op, a, b)
                } else {
                    return self.parser.fail_last(format!("`{name}` is no operation"));
                }
            }
        })
    }
}
