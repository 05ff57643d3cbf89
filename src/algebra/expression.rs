//! The expression language: the field's notation with function calls.
//!
//! ```text
//! expression := term ("o" term)*                composition, or a swizzle and an offset before a layout
//! term       := atom (":" atom)?                shape:stride is a layout
//! atom       := integer | "_" | tuple | swizzle | call | word
//! tuple      := "(" [expression ("," expression)*] ")"
//! swizzle    := "S<" integer "," integer "," integer ">"
//! call       := word "(" [expression ("," expression)*] ")"
//! ```
//!
//! A text that was read prints back as itself, without its blanks. [`Parsed`] also keeps where each
//! part stands, so that a refusal points at the part that was refused ([`Mistake`]).

use std::fmt;
use std::ops::Range;

use tilewright_layout::Layout;

use super::mistake::Mistake;
use super::swizzle_operations::checked;
use super::value::LayoutValue;
use super::{ExpressionRefusal, operations};

/// Deepest nesting of parentheses.
const MAX_DEPTH: usize = 64;

/// An expression as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// An integer.
    Int(i64),
    /// `_`.
    Open,
    /// A word, such as `LayoutRight`.
    Word(String),
    /// A tuple.
    Tuple(Vec<Expression>),
    /// `shape:stride`.
    Layout(Box<Expression>, Box<Expression>),
    /// `S<bits,base,shift>`.
    Swizzle(i64, i64, i64),
    /// `name(arguments)`.
    Call(String, Vec<Expression>),
    /// `a o b o ..`, applied from the right.
    Compose(Vec<Expression>),
}

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// [`ExpressionRefusal::Syntax`] with the column of the first token that is not allowed;
    /// [`ExpressionRefusal::TooDeep`].
    pub fn parse(text: &str) -> Result<Expression, ExpressionRefusal> {
        Ok(Parsed::new(text).map_err(|mistake| mistake.refusal)?.expression)
    }

    /// The expression's value.
    ///
    /// # Errors
    /// Errors of the operations.
    pub fn evaluate(&self) -> Result<LayoutValue, ExpressionRefusal> {
        self.evaluate_counting(&mut 0)
    }

    /// The value, and how many parts were evaluated before this one was done or refused: each part
    /// follows its own parts.
    fn evaluate_counting(&self, done: &mut usize) -> Result<LayoutValue, ExpressionRefusal> {
        let mut all =
            |items: &[Expression]| items.iter().map(|item| item.evaluate_counting(done)).collect::<Result<Vec<_>, _>>();
        let value = match self {
            Expression::Int(value) => LayoutValue::Int(*value),
            Expression::Open => LayoutValue::Open,
            Expression::Word(word) => LayoutValue::Word(word.clone()),
            Expression::Tuple(items) => LayoutValue::List(all(items)?),
            Expression::Layout(shape, stride) => {
                let shape = shape.evaluate_counting(done)?;
                let stride = stride.evaluate_counting(done)?;
                Layout::new(&shape.tuple()?, &stride.tuple()?)?.into()
            }
            Expression::Swizzle(bits, base, shift) => {
                LayoutValue::Swizzle(tilewright_layout::Swizzle::new(*bits, *base, *shift)?)
            }
            Expression::Call(name, arguments) => operations::apply(name, &all(arguments)?)?,
            Expression::Compose(parts) => compose(&all(parts)?)?,
        };
        *done += 1;
        Ok(value)
    }
}

/// An expression with the places of its parts in the text.
pub struct Parsed<'t> {
    text: &'t str,
    /// The expression.
    pub expression: Expression,
    /// Bytes of the text: each part follows its own parts.
    places: Vec<Range<usize>>,
}

impl<'t> Parsed<'t> {
    /// Reads an expression.
    ///
    /// # Errors
    /// A [`Mistake`] where the text stops making sense.
    pub fn new(text: &'t str) -> Result<Parsed<'t>, Mistake> {
        let mut reader = ExpressionReader { text, bytes: text.as_bytes(), at: 0, depth: 0, places: Vec::new() };
        let expression = reader.expression().and_then(|expression| {
            reader.blanks();
            let end = reader.at == reader.bytes.len();
            if end { Ok(expression) } else { Err(reader.unexpected("the end, ',' or 'o'")) }
        });
        match expression {
            Ok(expression) => Ok(Parsed { text, expression, places: reader.places }),
            Err(refusal) => Err(Mistake::new(refusal, text, reader.at..reader.at + 1)),
        }
    }

    /// The expression's value.
    ///
    /// # Errors
    /// A [`Mistake`] with the part that an operation refused.
    pub fn evaluate(&self) -> Result<LayoutValue, Mistake> {
        let mut done = 0;
        self.expression.evaluate_counting(&mut done).map_err(|refusal| {
            let mut place = self.places.get(done).cloned().unwrap_or(0..self.text.len());
            if let ExpressionRefusal::UnknownOperation { name } = &refusal {
                place.end = place.start + name.len();
            }
            Mistake::new(refusal, self.text, place)
        })
    }
}

/// Applies `a o b o ..` from the right.
fn compose(parts: &[LayoutValue]) -> Result<LayoutValue, ExpressionRefusal> {
    let Some((last, rest)) = parts.split_last() else { return Ok(LayoutValue::List(Vec::new())) };
    let mut value = last.clone();
    let mut offset = None;
    for part in rest.iter().rev() {
        value = match (part, offset.take(), value) {
            (LayoutValue::Int(start), None, inner @ LayoutValue::Layout(_)) => {
                offset = Some(*start);
                inner
            }
            (LayoutValue::Swizzle(swizzle), start, LayoutValue::Layout(layout)) => {
                checked(*swizzle, start.unwrap_or(0), *layout)?.into()
            }
            (LayoutValue::Layout(layout), None, LayoutValue::Swizzle(swizzle)) => {
                layout.after_swizzle(&swizzle)?.into()
            }
            (LayoutValue::Layout(layout), None, tile) => layout.compose_tiler(&tile.tiler()?)?.into(),
            (LayoutValue::Swizzled(swizzled), None, tile) => swizzled.compose_tiler(&tile.tiler()?)?.into(),
            (LayoutValue::Swizzle(left), None, LayoutValue::Swizzle(right)) => {
                LayoutValue::Swizzle(left.merge(&right)?)
            }
            (part, ..) => {
                return Err(ExpressionRefusal::Kind {
                    expected: "a layout, or a swizzle and an offset before one",
                    found: part.kind(),
                });
            }
        };
    }
    match offset {
        None => Ok(value),
        Some(_) => Err(ExpressionRefusal::Kind { expected: "a swizzle before an offset", found: "nothing" }),
    }
}

struct ExpressionReader<'t> {
    text: &'t str,
    bytes: &'t [u8],
    at: usize,
    depth: usize,
    places: Vec<Range<usize>>,
}

impl ExpressionReader<'_> {
    fn blanks(&mut self) {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        self.blanks();
        let found = self.bytes.get(self.at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    /// The column of the place that is read, in characters from 1.
    fn column(&self) -> usize {
        self.text.char_indices().take_while(|(at, _)| *at < self.at).count() + 1
    }

    fn unexpected(&self, expected: &'static str) -> ExpressionRefusal {
        let found = match self.text.get(self.at..).and_then(|rest| rest.chars().next()) {
            Some(character) => format!("`{}`", character.escape_debug()),
            None => "the end".to_owned(),
        };
        ExpressionRefusal::Syntax { column: self.column(), expected, found }
    }

    /// Notes that the part which begins at `start` ends here.
    fn place(&mut self, start: usize) {
        let mut end = self.at;
        while end > start && self.bytes[end - 1].is_ascii_whitespace() {
            end -= 1;
        }
        self.places.push(start..end);
    }

    fn expression(&mut self) -> Result<Expression, ExpressionRefusal> {
        if self.depth == MAX_DEPTH {
            return Err(ExpressionRefusal::TooDeep { column: self.column(), limit: MAX_DEPTH });
        }
        self.depth += 1;
        self.blanks();
        let start = self.at;
        let first = self.term()?;
        let mut parts = vec![first];
        while self.eat_compose() {
            parts.push(self.term()?);
        }
        self.depth -= 1;
        if parts.len() == 1 {
            return Ok(parts.remove(0));
        }
        self.place(start);
        Ok(Expression::Compose(parts))
    }

    /// Eats an `o` that is not the beginning of a longer word.
    fn eat_compose(&mut self) -> bool {
        self.blanks();
        let alone = self.bytes.get(self.at) == Some(&b'o') && !self.bytes.get(self.at + 1).is_some_and(|b| is_word(*b));
        self.at += usize::from(alone);
        alone
    }

    fn term(&mut self) -> Result<Expression, ExpressionRefusal> {
        self.blanks();
        let start = self.at;
        let shape = self.atom()?;
        if !self.eat(b':') {
            return Ok(shape);
        }
        let stride = self.atom()?;
        self.place(start);
        Ok(Expression::Layout(Box::new(shape), Box::new(stride)))
    }

    fn atom(&mut self) -> Result<Expression, ExpressionRefusal> {
        self.blanks();
        let start = self.at;
        let atom = self.atom_itself()?;
        self.place(start);
        Ok(atom)
    }

    fn atom_itself(&mut self) -> Result<Expression, ExpressionRefusal> {
        match self.bytes.get(self.at) {
            Some(b'(') => {
                self.at += 1;
                Ok(Expression::Tuple(self.list()?))
            }
            Some(b'_') if !self.bytes.get(self.at + 1).is_some_and(|b| is_word(*b)) => {
                self.at += 1;
                Ok(Expression::Open)
            }
            Some(b'-' | b'0'..=b'9') => Ok(Expression::Int(self.integer()?)),
            Some(b'S') if self.bytes.get(self.at + 1) == Some(&b'<') => {
                self.at += 2;
                let bits = self.integer()?;
                self.expect(b',', "','")?;
                let base = self.integer()?;
                self.expect(b',', "','")?;
                let shift = self.integer()?;
                self.expect(b'>', "'>'")?;
                Ok(Expression::Swizzle(bits, base, shift))
            }
            Some(byte) if byte.is_ascii_alphabetic() => {
                let start = self.at;
                while self.bytes.get(self.at).is_some_and(|b| is_word(*b)) {
                    self.at += 1;
                }
                let word = String::from_utf8_lossy(&self.bytes[start..self.at]).into_owned();
                Ok(if self.eat(b'(') { Expression::Call(word, self.list()?) } else { Expression::Word(word) })
            }
            _ => Err(self.unexpected("an integer, a tuple, a layout, a swizzle or an operation")),
        }
    }

    /// Reads up to the closing parenthesis.
    fn list(&mut self) -> Result<Vec<Expression>, ExpressionRefusal> {
        let mut items = Vec::new();
        if self.eat(b')') {
            return Ok(items);
        }
        loop {
            items.push(self.expression()?);
            if self.eat(b')') {
                return Ok(items);
            }
            self.expect(b',', "',' or ')'")?;
        }
    }

    fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), ExpressionRefusal> {
        if self.eat(byte) { Ok(()) } else { Err(self.unexpected(expected)) }
    }

    fn integer(&mut self) -> Result<i64, ExpressionRefusal> {
        self.blanks();
        let start = self.at;
        self.at += usize::from(self.bytes.get(self.at) == Some(&b'-'));
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        let digits = std::str::from_utf8(&self.bytes[start..self.at]).unwrap_or_default();
        digits.parse().map_err(|_| {
            self.at = start;
            self.unexpected("an integer of at most 63 bits")
        })
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn list(f: &mut fmt::Formatter<'_>, items: &[Expression]) -> fmt::Result {
    for (i, item) in items.iter().enumerate() {
        write!(f, "{}{item}", if i > 0 { "," } else { "" })?;
    }
    Ok(())
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expression::Int(value) => write!(f, "{value}"),
            Expression::Open => f.write_str("_"),
            Expression::Word(word) => f.write_str(word),
            Expression::Tuple(items) => {
                f.write_str("(")?;
                list(f, items)?;
                f.write_str(")")
            }
            Expression::Layout(shape, stride) => write!(f, "{shape}:{stride}"),
            Expression::Swizzle(bits, base, shift) => write!(f, "S<{bits},{base},{shift}>"),
            Expression::Call(name, arguments) => {
                write!(f, "{name}(")?;
                list(f, arguments)?;
                f.write_str(")")
            }
            Expression::Compose(parts) => {
                for (i, part) in parts.iter().enumerate() {
                    write!(f, "{}{part}", if i > 0 { " o " } else { "" })?;
                }
                Ok(())
            }
        }
    }
}

/// The value of an expression.
///
/// # Errors
/// If the text is not an expression, or an operation is refused.
pub fn evaluate(text: &str) -> Result<LayoutValue, ExpressionRefusal> {
    locate(text).map_err(|mistake| mistake.refusal)
}

/// The value of an expression, or what is wrong with it and where.
///
/// # Errors
/// As [`evaluate`].
pub fn locate(text: &str) -> Result<LayoutValue, Mistake> {
    Parsed::new(text)?.evaluate()
}
