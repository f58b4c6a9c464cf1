//! Parsing of functions: the inverse of printing.

use std::str::FromStr;

use rustc_hash::FxHashMap;
use tilewright_dtype::DType;

use crate::expr::{BinaryOp, Buffer, CompareOp, Expr, ExprKind, UnaryOp, Var};
use crate::func::{
    Block, Func, Iter, IterKind, Loop, LoopKind, Prefetch, RowAlign, Scope, Stmt, Store, VarKind,
};
use crate::text::func::LOOP_KINDS;
use crate::text::tokens::{At, ParseError, Result, Token, tokens};

impl FromStr for Func {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Func> {
        let mut parser = Parser::new(text)?;
        parser.func()?;
        Ok(parser.func)
    }
}

/// A function being read; kernels are read with its help.
pub(super) struct Parser {
    tokens: Vec<(Token, At)>,
    position: usize,
    /// Nesting of expressions and statements.
    depth: usize,
    func: Func,
    vars: FxHashMap<String, Var>,
    buffers: FxHashMap<String, Buffer>,
}

/// Nesting that is refused, so that no text exhausts the stack.
const MAX_DEPTH: usize = 500;

impl Parser {
    pub(super) fn new(text: &str) -> Result<Parser> {
        Ok(Parser {
            tokens: tokens(text)?,
            position: 0,
            depth: 0,
            func: Func::new(""),
            vars: FxHashMap::default(),
            buffers: FxHashMap::default(),
        })
    }

    /// The place of the next token; at the end, that of the last.
    pub(super) fn place(&self) -> At {
        self.tokens.get(self.position).or(self.tokens.last()).map_or((1, 1), |token| token.1)
    }

    pub(super) fn fail<T>(&self, reason: impl Into<String>) -> Result<T> {
        self.fail_at(self.place(), reason)
    }

    /// Fails at a place.
    pub(super) fn fail_at<T>(&self, (line, column): At, reason: impl Into<String>) -> Result<T> {
        Err(ParseError { line, column, reason: reason.into() })
    }

    /// Fails because of the token just read.
    pub(super) fn fail_last<T>(&self, reason: impl Into<String>) -> Result<T> {
        let last = self.position.checked_sub(1).and_then(|last| self.tokens.get(last));
        self.fail_at(last.map_or((1, 1), |token| token.1), reason)
    }

    pub(super) fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.position).map(|t| &t.0)
    }

    pub(super) fn at(&self, symbol: &str) -> bool {
        matches!(self.peek(), Some(Token::Symbol(s)) if *s == symbol)
    }

    pub(super) fn at_word(&self, word: &str) -> bool {
        matches!(self.peek(), Some(Token::Word(w)) if w == word)
    }

    pub(super) fn take(&mut self, symbol: &str) -> bool {
        let found = self.at(symbol);
        self.position += found as usize;
        found
    }

    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let found = self.at_word(word);
        self.position += found as usize;
        found
    }

    pub(super) fn expect(&mut self, symbol: &str) -> Result<()> {
        if self.take(symbol) {
            Ok(())
        } else {
            self.fail(format!("expected `{symbol}`, found {}", self.describe()))
        }
    }

    pub(super) fn expect_word(&mut self, word: &str) -> Result<()> {
        if self.take_word(word) {
            Ok(())
        } else {
            self.fail(format!("expected `{word}`, found {}", self.describe()))
        }
    }

    pub(super) fn describe(&self) -> String {
        match self.peek() {
            None => "the end".into(),
            Some(Token::Word(t) | Token::Number(t)) => format!("`{t}`"),
            Some(Token::Quoted(t)) => format!("{t:?}"),
            Some(Token::Symbol(t)) => format!("`{t}`"),
        }
    }

    pub(super) fn name(&mut self) -> Result<String> {
        match self.peek() {
            Some(Token::Word(w) | Token::Quoted(w)) => {
                let name = w.clone();
                self.position += 1;
                Ok(name)
            }
            _ => self.fail(format!("expected a name, found {}", self.describe())),
        }
    }

    pub(super) fn dtype(&mut self) -> Result<DType> {
        let name = self.name()?;
        name.parse().or_else(|_| self.fail_last(format!("`{name}` is no element type")))
    }

    pub(super) fn integer(&mut self) -> Result<i64> {
        let sign = if self.take("-") { "-" } else { "" };
        match self.peek() {
            Some(Token::Number(digits)) => match format!("{sign}{digits}").parse() {
                Ok(value) => {
                    self.position += 1;
                    Ok(value)
                }
                Err(_) => self.fail(format!("`{sign}{digits}` is no 64-bit integer")),
            },
            _ => self.fail(format!("expected an integer, found {}", self.describe())),
        }
    }

    fn func(&mut self) -> Result<()> {
        self.expect_word("func")?;
        self.func.name = self.name()?;
        self.expect("(")?;
        while !self.take(")") {
            let name = self.name()?;
            self.expect(":")?;
            if self.take_word("size") {
                let min = self.integer()?;
                let max = if self.take("..=") {
                    self.integer()?
                } else {
                    self.expect("..")?;
                    i64::MAX
                };
                let typical = if self.take_word("about") { Some(self.integer()?) } else { None };
                let var = self.bind(&name, VarKind::Size { min, max, typical })?;
                self.func.sizes.push(var);
            } else {
                let buffer = self.declare(&name)?;
                self.func.params.push(buffer);
                self.func.n_inputs += 1;
            }
            self.comma_or(")")?;
        }
        self.expect("->")?;
        self.expect("(")?;
        while !self.take(")") {
            let name = self.name()?;
            self.expect(":")?;
            let buffer = self.declare(&name)?;
            self.func.params.push(buffer);
            self.comma_or(")")?;
        }
        self.expect("{")?;
        while self.take_word("buffer") {
            let name = self.name()?;
            self.expect(":")?;
            let buffer = self.declare(&name)?;
            let scope = self.name()?;
            let scopes = [Scope::Global, Scope::Shared, Scope::Stack, Scope::Register];
            match scopes.into_iter().find(|s| super::func::scope_name(*s) == scope) {
                Some(scope) => self.func.buffers[buffer].scope = scope,
                None => return self.fail_last(format!("`{scope}` is no scope")),
            }
            if self.take_word("rows") {
                self.func.buffers[buffer].row_align = Some(self.row_align()?);
            }
        }
        self.func.body = self.stmts()?;
        self.end()
    }

    /// `4 of 32`: rows that lie four more than a multiple of 32 elements apart.
    fn row_align(&mut self) -> Result<RowAlign> {
        let offset = self.integer()?;
        if !self.take_word("of") {
            return self.fail(format!("expected `of`, found {}", self.describe()));
        }
        let factor = self.integer()?;
        match RowAlign::new(factor, offset) {
            Some(align) => Ok(align),
            None => {
                self.fail_last(format!("rows cannot lie {offset} more than a multiple of {factor} apart"))
            }
        }
    }

    pub(super) fn end(&self) -> Result<()> {
        match self.peek() {
            None => Ok(()),
            Some(_) => self.fail(format!("expected the end, found {}", self.describe())),
        }
    }

    /// A comma, or the closing symbol, which stays.
    pub(super) fn comma_or(&mut self, close: &str) -> Result<()> {
        if self.take(",") || self.at(close) { Ok(()) } else { self.expect(close) }
    }

    fn declare(&mut self, name: &str) -> Result<Buffer> {
        let dtype = self.dtype()?;
        let shape = self.list()?;
        if self.buffers.contains_key(name) {
            return self.fail_last(format!("buffer `{name}` is declared twice"));
        }
        let buffer = self.func.add_buffer(name, dtype, shape, Scope::Global);
        self.buffers.insert(name.to_string(), buffer);
        Ok(buffer)
    }

    pub(super) fn bind(&mut self, name: &str, kind: VarKind) -> Result<Var> {
        if self.vars.contains_key(name) {
            return self.fail(format!("variable `{name}` is bound twice"));
        }
        let var = self.func.add_var(name, kind);
        self.vars.insert(name.to_string(), var);
        Ok(var)
    }

    /// Statements up to the closing brace, which is taken.
    fn stmts(&mut self) -> Result<Vec<Stmt>> {
        let mut out = Vec::new();
        while !self.take("}") {
            if self.take_word("for") {
                out.push(self.nested(Self::loop_)?);
            } else if self.take_word("block") {
                out.push(self.block()?);
            } else {
                return self.fail(format!("expected `for`, `block` or `}}`, found {}", self.describe()));
            }
        }
        Ok(out)
    }

    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.descend()?;
        let result = parse(self);
        self.ascend();
        result
    }

    /// Enters one level of nesting.
    pub(super) fn descend(&mut self) -> Result<()> {
        if self.depth >= MAX_DEPTH {
            return self.fail("nested too deeply");
        }
        self.depth += 1;
        Ok(())
    }

    /// Leaves it.
    pub(super) fn ascend(&mut self) {
        self.depth -= 1;
    }

    /// Whether the symbol stands behind the next token.
    pub(super) fn next_is(&self, symbol: &str) -> bool {
        matches!(self.tokens.get(self.position + 1), Some((Token::Symbol(s), _)) if *s == symbol)
    }

    /// Whether `%N:` stands here.
    pub(super) fn is_definition(&self) -> bool {
        matches!(self.tokens.get(self.position + 2), Some((Token::Symbol(":"), _)))
    }

    fn loop_(&mut self) -> Result<Stmt> {
        let name = self.name()?;
        self.expect_word("in")?;
        if self.integer()? != 0 {
            return self.fail_last("loops start at 0");
        }
        self.expect("..")?;
        let extent = self.index()?;
        let var = self.bind(&name, VarKind::Loop)?;
        let mut kind = LoopKind::Serial;
        let mut prefetches = Vec::new();
        let mut stages = 1;
        while !self.at("{") {
            let word = self.name()?;
            match LOOP_KINDS.iter().find(|k| k.0 == word) {
                Some(found) if prefetches.is_empty() => kind = found.1,
                None if word == "pipeline" && stages == 1 => {
                    let read = u32::try_from(self.integer()?).ok().filter(|&n| n > 1);
                    stages = match read {
                        Some(read) => read,
                        None => return self.fail_last("a pipeline has two stages or more"),
                    };
                }
                None if word == "prefetch" => prefetches.push(self.prefetch()?),
                Some(_) | None => return self.fail_last(format!("`{word}` is no kind of loop")),
            }
        }
        self.expect("{")?;
        let body = self.stmts()?;
        Ok(Stmt::Loop(Box::new(Loop { var, extent, kind, prefetches, stages, body })))
    }

    /// `BUFFER[ELEMENT]`, and `where CONDITION`.
    fn prefetch(&mut self) -> Result<Prefetch> {
        let name = self.name()?;
        let buffer = self.buffer(&name)?;
        self.expect("[")?;
        let element = self.index()?;
        self.expect("]")?;
        let condition = if self.take_word("where") { Some(self.expr()?) } else { None };
        if condition.as_ref().is_some_and(|c| c.dtype() != DType::Bool) {
            return self.fail_last("the condition is no truth value");
        }
        Ok(Prefetch { buffer, element, condition })
    }

    fn block(&mut self) -> Result<Stmt> {
        let name = self.name()?;
        self.expect("(")?;
        let mut iters = Vec::new();
        while !self.take(")") {
            let name = self.name()?;
            self.expect(":")?;
            let kind = match self.name()?.as_str() {
                "spatial" => IterKind::Spatial,
                "reduce" => IterKind::Reduce,
                other => return self.fail_last(format!("`{other}` is no kind of iteration variable")),
            };
            let extent = self.index()?;
            self.expect("=")?;
            let value = self.index()?;
            let var = self.bind(&name, VarKind::Iter)?;
            iters.push(Iter { var, extent, kind, value });
            self.comma_or(")")?;
        }
        let predicate = if self.take_word("where") { Some(self.expr()?) } else { None };
        if predicate.as_ref().is_some_and(|p| p.dtype() != DType::Bool) {
            return self.fail_last("the predicate is no truth value");
        }
        self.expect("{")?;
        let (mut init, mut body) = (Vec::new(), Vec::new());
        while !self.take("}") {
            let is_init = self.take_word("init");
            let store = self.store()?;
            if is_init { init.push(store) } else { body.push(store) }
        }
        Ok(Stmt::Block(Box::new(Block { name, iters, predicate, init, body })))
    }

    fn store(&mut self) -> Result<Store> {
        let name = self.name()?;
        let buffer = self.buffer(&name)?;
        let indices = self.list()?;
        self.expect("=")?;
        let at = self.place();
        let value = self.expr()?;
        let (expected, found) = (self.func.buffers[buffer].dtype, value.dtype());
        if expected != found {
            return self.fail_at(at, format!("a {found} is stored to `{name}`, which holds {expected}"));
        }
        Ok(Store { buffer, indices, value })
    }

    fn buffer(&self, name: &str) -> Result<Buffer> {
        match self.buffers.get(name) {
            Some(buffer) => Ok(*buffer),
            None => self.fail_last(format!("there is no buffer `{name}`")),
        }
    }

    /// Index expressions in square brackets.
    fn list(&mut self) -> Result<Vec<Expr>> {
        self.expect("[")?;
        let mut out = Vec::new();
        while !self.take("]") {
            out.push(self.index()?);
            self.comma_or("]")?;
        }
        Ok(out)
    }

    pub(super) fn index(&mut self) -> Result<Expr> {
        let at = self.place();
        let e = self.expr()?;
        if e.dtype() == DType::I64 {
            Ok(e)
        } else {
            self.fail_at(at, format!("an index has type {}", e.dtype()))
        }
    }

    fn expr(&mut self) -> Result<Expr> {
        self.nested(Self::expr_inner)
    }

    fn expr_inner(&mut self) -> Result<Expr> {
        match self.peek().cloned() {
            Some(Token::Symbol("(")) => {
                self.position += 1;
                let a = self.expr()?;
                if self.take(")") {
                    return Ok(a);
                }
                let Some(Token::Symbol(symbol)) = self.peek().cloned() else {
                    return self.fail(format!("expected an operator, found {}", self.describe()));
                };
                let at = self.place();
                self.position += 1;
                let b = self.expr()?;
                self.expect(")")?;
                self.infix(symbol, at, a, b)
            }
            Some(Token::Symbol("-") | Token::Number(_)) => self.integer().map(Expr::int),
            Some(Token::Word(word)) if word == "true" || word == "false" => {
                self.position += 1;
                Ok(Expr::bool(word == "true"))
            }
            Some(Token::Word(name) | Token::Quoted(name)) => {
                let at = self.place();
                self.position += 1;
                if self.take("(") {
                    return self.call(&name, at);
                }
                if self.at("[") {
                    let buffer = self.buffer(&name)?;
                    let indices = self.list()?;
                    return Ok(Expr::load(self.func.buffers[buffer].dtype, buffer, indices));
                }
                match self.vars.get(&name) {
                    Some(var) => Ok(Expr::var(*var)),
                    None => self.fail_last(format!("there is no variable `{name}`")),
                }
            }
            Some(Token::Symbol(_)) | None => {
                self.fail(format!("expected an expression, found {}", self.describe()))
            }
        }
    }

    fn infix(&self, symbol: &str, at: At, a: Expr, b: Expr) -> Result<Expr> {
        if a.dtype() != b.dtype() {
            return self
                .fail_at(at, format!("operands of `{symbol}` have types {} and {}", a.dtype(), b.dtype()));
        }
        if let Some(op) = CompareOp::ALL.into_iter().find(|op| op.symbol() == symbol) {
            return Ok(Expr::new(DType::Bool, ExprKind::Compare(op, a, b)));
        }
        let op = match symbol {
            "+" => BinaryOp::Add,
            "-" => BinaryOp::Sub,
            "*" => BinaryOp::Mul,
            "/" => BinaryOp::Div,
            "&" => BinaryOp::And,
            "|" => BinaryOp::Or,
            "^" => BinaryOp::Xor,
            other => return self.fail_at(at, format!("`{other}` is no operator")),
        };
        Ok(Expr::new(a.dtype(), ExprKind::Binary(op, a, b)))
    }

    /// After `name(`: a constant of that type, an operation or a conversion.
    fn call(&mut self, name: &str, at: At) -> Result<Expr> {
        if let Ok(dtype) = name.parse::<DType>() {
            let constant = self.constant(dtype)?;
            self.expect(")")?;
            return Ok(constant);
        }
        let mut operands = Vec::new();
        while !self.take(")") {
            operands.push(self.expr()?);
            self.comma_or(")")?;
        }
        let conversion = name.split_once('.').and_then(|(what, to)| Some((what, to.parse::<DType>().ok()?)));
        let unary = UnaryOp::ALL.into_iter().find(|op| op.name() == name);
        let binary = BinaryOp::ALL.into_iter().find(|op| op.name() == name);
        let same = |a: &Expr, b: &Expr| a.dtype() == b.dtype();
        match (&operands[..], unary, binary, conversion) {
            ([a], Some(op), _, _) => Ok(Expr::unary(op, a.clone())),
            ([a, b], _, Some(op), _) if same(a, b) => {
                Ok(Expr::new(a.dtype(), ExprKind::Binary(op, a.clone(), b.clone())))
            }
            ([a], _, _, Some(("cast", to))) => Ok(Expr::new(to, ExprKind::Cast(a.clone()))),
            ([a], _, _, Some(("bitcast", to))) if a.dtype().bytes() == to.bytes() => {
                Ok(Expr::new(to, ExprKind::Bitcast(a.clone())))
            }
            ([c, a, b], ..) if name == "select" && c.dtype() == DType::Bool && same(a, b) => {
                Ok(Expr::new(a.dtype(), ExprKind::Select(c.clone(), a.clone(), b.clone())))
            }
            ([a, b, c], ..) if name == "fma" && same(a, b) && same(b, c) => {
                Ok(Expr::new(a.dtype(), ExprKind::Fma(a.clone(), b.clone(), c.clone())))
            }
            _ => self.fail_at(at, format!("`{name}` is no operation on these operands")),
        }
    }

    pub(super) fn constant(&mut self, dtype: DType) -> Result<Expr> {
        if !dtype.is_float() {
            return Ok(Expr::new(dtype, ExprKind::Int(self.integer()?)));
        }
        Ok(Expr::new(dtype, ExprKind::Float(self.float()?)))
    }

    /// The bits of a real number: digits, `inf`, `NaN`, or `nan(BITS)`.
    pub(super) fn float(&mut self) -> Result<u64> {
        let sign = if self.take("-") { -1.0 } else { 1.0 };
        let magnitude = match self.peek() {
            Some(Token::Number(text)) => text.parse::<f64>().ok(),
            Some(Token::Word(word)) if word == "inf" => Some(f64::INFINITY),
            Some(Token::Word(word)) if word == "NaN" => Some(f64::NAN),
            Some(Token::Word(word)) if word == "nan" => return self.nan_bits(),
            Some(Token::Word(_) | Token::Quoted(_) | Token::Symbol(_)) | None => None,
        };
        match magnitude {
            Some(magnitude) => {
                self.position += 1;
                Ok((magnitude * sign).to_bits())
            }
            None => self.fail(format!("expected a number, found {}", self.describe())),
        }
    }

    /// `nan(BITS)`.
    fn nan_bits(&mut self) -> Result<u64> {
        self.expect_word("nan")?;
        self.expect("(")?;
        let bits = match self.peek() {
            Some(Token::Number(digits)) => digits.parse().ok().filter(|bits| f64::from_bits(*bits).is_nan()),
            Some(_) | None => None,
        };
        let Some(bits) = bits else {
            return self.fail(format!("expected the bits of a NaN, found {}", self.describe()));
        };
        self.position += 1;
        self.expect(")")?;
        Ok(bits)
    }
}
