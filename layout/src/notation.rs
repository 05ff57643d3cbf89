//! Reading the notation: `8`, `(2,(3,4))`, `(2,3):(3,1)`.

use crate::{Coord, IntTuple, Layout, LayoutError, MAX_NODES};

/// Deepest parentheses: one per node at most.
const MAX_DEPTH: usize = MAX_NODES;

impl IntTuple {
    /// Reads an integer or a tuple, such as `((2,3),4)`. Blanks may stand between the parts.
    ///
    /// ```
    /// use tilewright_layout::IntTuple;
    /// assert_eq!(IntTuple::parse("( 2, (3,-4) )").unwrap().to_string(), "(2,(3,-4))");
    /// assert_eq!(
    ///     IntTuple::parse("(2,").unwrap_err().to_string(),
    ///     "notation: expected an integer or a tuple at byte 3"
    /// );
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Syntax`] with the byte where the text stops making sense;
    /// [`LayoutError::Capacity`].
    pub const fn parse(text: &str) -> Result<IntTuple, LayoutError> {
        let mut reader = NotationReader { bytes: text.as_bytes(), at: 0, wild: None };
        let tuple = tri!(reader.tuple());
        tri!(reader.end());
        Ok(tuple)
    }
}

impl Layout {
    /// Reads `shape:stride`, such as `((2,3),4):((1,2),6)`. Blanks may stand between the parts.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// const TILE: Layout = Layout::constant(Layout::parse("(8, 8) : (8, 1)"));
    /// assert_eq!(TILE.size(), 64);
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Syntax`] with the byte where the text stops making sense, and what
    /// [`Layout::new`] refuses.
    pub const fn parse(text: &str) -> Result<Layout, LayoutError> {
        let mut reader = NotationReader { bytes: text.as_bytes(), at: 0, wild: None };
        let shape = tri!(reader.tuple());
        reader.blanks();
        if !reader.eat(b':') {
            return Err(LayoutError::Syntax { at: reader.at, expected: "':' between shape and stride" });
        }
        let stride = tri!(reader.tuple());
        tri!(reader.end());
        Layout::new(&shape, &stride)
    }
}

impl Coord {
    /// Reads a coordinate, such as `(1,(_,2))`, where `_` keeps a mode.
    ///
    /// # Errors
    /// As [`IntTuple::parse`].
    pub const fn parse(text: &str) -> Result<Coord, LayoutError> {
        let mut reader = NotationReader { bytes: text.as_bytes(), at: 0, wild: Some(0) };
        let tuple = tri!(reader.tuple());
        tri!(reader.end());
        let wild = match reader.wild {
            Some(wild) => wild,
            None => 0,
        };
        Ok(Coord { tuple, wild })
    }
}

struct NotationReader<'t> {
    bytes: &'t [u8],
    at: usize,
    /// A bit for each integer that was `_`; `None` if `_` is not allowed.
    wild: Option<u32>,
}

impl NotationReader<'_> {
    const fn blanks(&mut self) {
        while self.at < self.bytes.len() && self.bytes[self.at].is_ascii_whitespace() {
            self.at += 1;
        }
    }

    const fn peek(&self, byte: u8) -> bool {
        self.at < self.bytes.len() && self.bytes[self.at] == byte
    }

    const fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek(byte);
        if found {
            self.at += 1;
        }
        found
    }

    const fn end(&mut self) -> Result<(), LayoutError> {
        self.blanks();
        if self.at < self.bytes.len() {
            return Err(LayoutError::Syntax { at: self.at, expected: "the end" });
        }
        Ok(())
    }

    const fn tuple(&mut self) -> Result<IntTuple, LayoutError> {
        let mut out = IntTuple::NOTHING;
        // The node and the number of modes of every open tuple.
        let mut open = [(0usize, 0usize); MAX_DEPTH];
        let mut depth = 0;
        loop {
            self.blanks();
            if self.eat(b'(') {
                open[depth] = (tri!(out.profile.push_tuple(0)), 0);
                depth += 1;
                self.blanks();
                if !self.eat(b')') {
                    continue;
                }
                depth -= 1;
            } else if let (Some(wild), true) = (self.wild, self.peek(b'_')) {
                self.at += 1;
                tri!(out.push(0));
                self.wild = Some(wild | 1 << (out.profile.leaves() - 1));
            } else {
                let value = tri!(self.integer());
                tri!(out.push(value));
            }
            loop {
                if depth == 0 {
                    return Ok(out);
                }
                let (node, modes) = open[depth - 1];
                open[depth - 1] = (node, modes + 1);
                out.profile.set_arity(node, modes + 1);
                self.blanks();
                if self.eat(b',') {
                    break;
                }
                if !self.eat(b')') {
                    return Err(LayoutError::Syntax { at: self.at, expected: "',' or ')'" });
                }
                depth -= 1;
            }
        }
    }

    const fn integer(&mut self) -> Result<i64, LayoutError> {
        let start = self.at;
        let negative = self.eat(b'-');
        let digits = self.at;
        let mut value = 0i64;
        while self.at < self.bytes.len() && self.bytes[self.at].is_ascii_digit() {
            let digit = (self.bytes[self.at] - b'0') as i64;
            value = match value.checked_mul(10) {
                Some(tens) if tens <= i64::MAX - digit => tens + digit,
                _ => return Err(LayoutError::Syntax { at: start, expected: "an integer of at most 63 bits" }),
            };
            self.at += 1;
        }
        if self.at == digits {
            self.at = start;
            return Err(LayoutError::Syntax { at: start, expected: "an integer or a tuple" });
        }
        Ok(if negative { -value } else { value })
    }
}
