//! Tokens of the text forms, with their places.

/// A text that is no function or kernel: where and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {reason}")]
pub struct ParseError {
    /// Line, counted from 1.
    pub line: usize,
    /// Column of the first character, counted from 1.
    pub column: usize,
    /// What is wrong.
    pub reason: String,
}

pub(super) type Result<T> = std::result::Result<T, ParseError>;

/// Line and column, counted from 1.
pub(super) type At = (usize, usize);

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A name or keyword; may hold a dot (`cast.f32`).
    Word(String),
    /// A quoted name.
    Quoted(String),
    /// Digits, perhaps with a fraction or exponent, without a sign.
    Number(String),
    /// Anything else: `(`, `->`, `..=` and so on.
    Symbol(&'static str),
}

const SYMBOLS: [&str; 28] = [
    "..=", "..", "->", "==", "!=", "<=", ">=", "<", ">", "=", "(", ")", "[", "]", "{", "}", ",", ":", "+",
    "-", "*", "/", "&", "|", "^", "?", ";", "%",
];

pub(super) fn tokens(text: &str) -> Result<Vec<(Token, At)>> {
    let mut out = Vec::new();
    for (index, whole) in text.lines().enumerate() {
        let line = index + 1;
        let mut rest = whole.trim_start();
        while !rest.is_empty() && !rest.starts_with("//") {
            let column = whole[..whole.len() - rest.len()].chars().count() + 1;
            let unexpected = || ParseError { line, column, reason: format!("unexpected `{rest}`") };
            let (token, length) = token(rest).ok_or_else(unexpected)?;
            out.push((token, (line, column)));
            rest = rest[length..].trim_start();
        }
    }
    Ok(out)
}

/// The first token of a text and its length.
fn token(text: &str) -> Option<(Token, usize)> {
    let first = text.chars().next()?;
    let run = |accept: &dyn Fn(char) -> bool| text.find(|c| !accept(c)).unwrap_or(text.len());
    if first.is_ascii_alphabetic() || first == '_' {
        let mut length = run(&|c| c.is_ascii_alphanumeric() || c == '_');
        let after = &text.as_bytes()[length..];
        if after.first() == Some(&b'.') && after.get(1).is_some_and(u8::is_ascii_alphabetic) {
            let tail = &text[length + 1..];
            length += 1 + tail.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(tail.len());
        }
        return Some((Token::Word(text[..length].to_string()), length));
    }
    if first.is_ascii_digit() {
        let mut length = run(&|c| c.is_ascii_digit());
        let after = &text[length..];
        if after.starts_with('.') && after[1..].starts_with(|c: char| c.is_ascii_digit()) {
            length += 1 + after[1..].find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len() - 1);
        }
        if let Some(exponent) = text[length..].strip_prefix('e') {
            let digits = exponent.strip_prefix('-').unwrap_or(exponent);
            let sign = exponent.len() - digits.len();
            length += 1 + sign + digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        }
        return Some((Token::Number(text[..length].to_string()), length));
    }
    if first == '"' {
        return quoted(text);
    }
    SYMBOLS.iter().find(|s| text.starts_with(**s)).map(|s| (Token::Symbol(s), s.len()))
}

/// A name in quotes, with the escapes that Rust's `{:?}` writes for strings.
fn quoted(text: &str) -> Option<(Token, usize)> {
    let mut name = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((Token::Quoted(name), at + 1)),
            '\\' => match chars.next()?.1 {
                'n' => name.push('\n'),
                't' => name.push('\t'),
                'r' => name.push('\r'),
                '0' => name.push('\0'),
                'u' => {
                    let digits: String =
                        chars.by_ref().map(|x| x.1).skip(1).take_while(|c| *c != '}').collect();
                    name.push(char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?);
                }
                other => name.push(other),
            },
            other => name.push(other),
        }
    }
    None
}
