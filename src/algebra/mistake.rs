//! A refused expression, and which part of it was refused.

use std::ops::Range;

use super::ExpressionRefusal;

/// Characters of the expression that an excerpt shows: a line of a terminal.
const SHOWN: usize = 96;

/// An error in an expression, with its place.
#[derive(Debug)]
pub struct Mistake {
    /// The error.
    pub refusal: ExpressionRefusal,
    /// The expression, one character for each of the text's: control characters are blanks.
    text: Vec<char>,
    /// The part that was refused, in characters. At the end of the text it is one beyond.
    place: Range<usize>,
}

impl Mistake {
    /// A mistake in the bytes `place` of the text.
    pub(super) fn new(refusal: ExpressionRefusal, text: &str, place: Range<usize>) -> Mistake {
        let characters = |end: usize| text.char_indices().take_while(|(at, _)| *at < end).count();
        let start = characters(place.start);
        let end = characters(place.end).max(start + 1);
        let text = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        Mistake { refusal, text, place: start..end }
    }

    /// The excerpt of two lines, each with its end: the expression, and carets under the part that
    /// was refused. `None` if that is the whole expression.
    pub fn excerpt(&self) -> Option<String> {
        let Range { start, end } = self.place;
        let blank = |range: &[char]| range.iter().all(|c| c.is_whitespace());
        if blank(&self.text[..start.min(self.text.len())]) && blank(&self.text[end.min(self.text.len())..]) {
            return None;
        }
        // A window that begins a third before the part.
        let first = if self.text.len() < SHOWN { 0 } else { start.saturating_sub(SHOWN / 3) };
        let last = self.text.len().min(first + SHOWN);
        let before = if first > 0 { "..." } else { "" };
        let after = if last < self.text.len() { "..." } else { "" };
        let shown: String = self.text[first..last].iter().collect();
        let margin = " ".repeat(before.len() + start - first);
        let carets = "^".repeat(end.min(first + SHOWN + 1) - start);
        Some(format!("  {before}{shown}{after}\n  {margin}{carets}\n"))
    }
}
