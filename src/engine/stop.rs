//! Texts that end a generation, found while the text streams, wherever the borders of tokens are.

/// Finds stop texts in a text that arrives in pieces, and releases the text that certainly precedes
/// one.
///
/// The text ends at the stop text whose last character comes first; of several that end there, the
/// longest counts. So what is given out does not depend on how the text is cut into pieces.
///
/// ```
/// use tilewright::engine::StopTexts;
/// let mut stop = StopTexts::new(["\n\n".to_owned(), "END".to_owned()])?;
/// assert_eq!(stop.push("one\n"), "one");
/// assert_eq!(stop.push("two E"), "\ntwo ");
/// assert_eq!(stop.push("ND three"), "");
/// assert!(stop.is_found());
/// assert_eq!(stop.finish(), "");
/// # Ok::<(), tilewright::engine::EmptyStop>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct StopTexts {
    texts: Vec<String>,
    /// Text that may be the beginning of a stop text.
    held: String,
    found: Option<usize>,
}

/// A stop text without characters, which every text would contain at its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a stop text is empty; give it at least one character")]
pub struct EmptyStop;

impl StopTexts {
    /// Creates the search for these texts; for none, all text is released at once.
    ///
    /// # Errors
    /// A text is empty.
    pub fn new(texts: impl IntoIterator<Item = String>) -> Result<StopTexts, EmptyStop> {
        let texts: Vec<String> = texts.into_iter().collect();
        if texts.iter().any(String::is_empty) {
            return Err(EmptyStop);
        }
        Ok(StopTexts { texts, held: String::new(), found: None })
    }

    /// Takes the next piece and returns the text that certainly precedes any stop text, perhaps
    /// none. After a stop text there is none.
    pub fn push(&mut self, piece: &str) -> String {
        let mut out = String::new();
        for character in piece.chars() {
            if self.found.is_some() {
                break;
            }
            self.held.push(character);
            let ends = self.texts.iter().enumerate().filter(|(_, text)| self.held.ends_with(*text));
            if let Some((at, text)) = ends.max_by_key(|(at, text)| (text.len(), std::cmp::Reverse(*at))) {
                self.found = Some(at);
                out.push_str(&self.held[..self.held.len() - text.len()]);
                self.held.clear();
            } else {
                let certain = self.held.len() - self.begun();
                out.extend(self.held.drain(..certain));
            }
        }
        out
    }

    /// Bytes at the end of what is held that may be the beginning of a stop text.
    fn begun(&self) -> usize {
        let begins = |at: &usize| self.texts.iter().any(|text| text.starts_with(&self.held[*at..]));
        let mut starts = self.held.char_indices().map(|(at, _)| at);
        starts.find(begins).map_or(0, |at| self.held.len() - at)
    }

    /// Whether a stop text was found.
    pub fn is_found(&self) -> bool {
        self.found.is_some()
    }

    /// The index of the stop text that was found, in the order they were given.
    pub fn found(&self) -> Option<usize> {
        self.found
    }

    /// The text that was held back, at the end of the input.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The text before the stop text that ends first, found by trying every prefix.
    fn naive(text: &str, stops: &[String]) -> String {
        let mut ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
        let first = ends.find_map(|end| {
            let stop = stops.iter().filter(|stop| text[..end].ends_with(*stop)).map(String::len).max()?;
            Some(end - stop)
        });
        text[..first.unwrap_or(text.len())].to_owned()
    }

    proptest! {
        #[test]
        fn the_text_before_the_first_stop_comes_out_however_it_is_cut(
            pieces in prop::collection::vec("[abé]{0,3}", 0..12),
            stops in prop::collection::vec("[abé]{1,4}", 0..4),
        ) {
            let mut stop = StopTexts::new(stops.clone()).expect("no stop is empty");
            let mut out: String = pieces.iter().map(|piece| stop.push(piece)).collect();
            out += &stop.finish();
            let text = pieces.concat();
            prop_assert_eq!(&out, &naive(&text, &stops));
            prop_assert_eq!(stop.is_found(), stops.iter().any(|stop| text.contains(stop.as_str())));
        }

        #[test]
        fn nothing_is_held_that_begins_no_stop(text in "[abé]{0,12}", stops in prop::collection::vec("[abé]{1,4}", 0..4)) {
            let mut stop = StopTexts::new(stops.clone()).expect("no stop is empty");
            let out = stop.push(&text);
            if !stop.is_found() {
                let held = &text[out.len()..];
                prop_assert!(held.is_empty() || stops.iter().any(|stop| stop.starts_with(held)));
            }
        }
    }

    #[test]
    fn an_empty_stop_text_is_refused() {
        let error = StopTexts::new([String::new()]).expect_err("it is empty");
        insta::assert_snapshot!(error, @"a stop text is empty; give it at least one character");
    }
}
