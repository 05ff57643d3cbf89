//! Rust source as tokens: names, marks and paths, without comments, strings and attributes.

/// A token of source text.
#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    /// A name or a keyword.
    Name(String),
    /// `::`.
    Separator,
    /// Any other character of punctuation.
    Mark(char),
    /// An attribute, `#[..]` or `#![..]`, with its text.
    Attribute(String),
    /// A literal.
    Literal,
}

impl Token {
    /// Whether this is the mark.
    pub fn is(&self, mark: char) -> bool {
        *self == Token::Mark(mark)
    }

    /// Whether this is the name or keyword.
    pub fn named(&self, name: &str) -> bool {
        matches!(self, Token::Name(own) if own == name)
    }
}

/// The tokens of a file.
pub fn tokens(text: &str) -> Vec<Token> {
    let characters: Vec<char> = text.chars().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < characters.len() {
        let (token, end) = token(&characters, at);
        found.extend(token);
        at = end;
    }
    found
}

/// The token that starts at `at`, if any, and where the next one starts.
fn token(text: &[char], at: usize) -> (Option<Token>, usize) {
    let rest = &text[at..];
    let starts = |mark: &str| rest.iter().zip(mark.chars()).filter(|(own, mark)| *own == mark).count() == mark.len();
    if starts("//") {
        return (None, at + rest.iter().position(|c| *c == '\n').unwrap_or(rest.len()));
    }
    if starts("/*") {
        return (None, after_comment(text, at));
    }
    if let Some(end) = after_literal(text, at) {
        return (Some(Token::Literal), end);
    }
    if starts("#[") || starts("#![") {
        let open = at + rest.iter().position(|c| *c == '[').unwrap_or_default();
        let end = after_brackets(text, open);
        return (Some(Token::Attribute(text[open..end].iter().collect())), end);
    }
    if starts("::") {
        return (Some(Token::Separator), at + 2);
    }
    let word = rest.iter().take_while(|c| c.is_alphanumeric() || **c == '_').count();
    match rest[0] {
        space if space.is_whitespace() => (None, at + 1),
        digit if digit.is_ascii_digit() => (Some(Token::Literal), at + word),
        _ if word > 0 => (Some(Token::Name(rest[..word].iter().collect())), at + word),
        mark => (Some(Token::Mark(mark)), at + 1),
    }
}

/// The end of a block comment, which may hold others.
fn after_comment(text: &[char], at: usize) -> usize {
    let mut depth = 0;
    let mut end = at;
    while end < text.len() {
        match text[end..] {
            ['/', '*', ..] => (depth, end) = (depth + 1, end + 2),
            ['*', '/', ..] => (depth, end) = (depth - 1, end + 2),
            _ => end += 1,
        }
        if depth == 0 {
            break;
        }
    }
    end
}

/// The end of the string, character or lifetime that starts at `at`, if one does.
fn after_literal(text: &[char], at: usize) -> Option<usize> {
    let prefix = text[at..].iter().take_while(|c| matches!(c, 'b' | 'c' | 'r')).count();
    let raw = text[at..at + prefix].contains(&'r');
    let hashes = if raw { text[at + prefix..].iter().take_while(|c| **c == '#').count() } else { 0 };
    let open = at + prefix + hashes;
    match text.get(open)? {
        '"' if raw => {
            let closes = |end: &usize| text[*end] == '"' && text[end + 1..].iter().take(hashes).all(|c| *c == '#');
            Some((open + 1..text.len()).find(closes)? + 1 + hashes)
        }
        '"' if prefix <= 1 => Some(after_quote(text, open, '"')),
        '\'' if prefix == 0 || (prefix == 1 && text[at] == 'b') => match text[open + 1..] {
            ['\\', ..] => Some(after_quote(text, open, '\'')),
            [_, '\'', ..] => Some(open + 3),
            _ => Some(open + 1 + text[open + 1..].iter().take_while(|c| c.is_alphanumeric() || **c == '_').count()),
        },
        _ => None,
    }
}

/// The end of a quoted text with escapes.
fn after_quote(text: &[char], open: usize, quote: char) -> usize {
    let mut end = open + 1;
    while end < text.len() && text[end] != quote {
        end += if text[end] == '\\' { 2 } else { 1 };
    }
    end + 1
}

/// The end of a pair of brackets, with strings inside skipped.
fn after_brackets(text: &[char], open: usize) -> usize {
    let mut depth = 0;
    let mut end = open;
    while end < text.len() {
        if let Some(after) = after_literal(text, end) {
            end = after;
            continue;
        }
        match text[end] {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        end += 1;
        if depth == 0 {
            break;
        }
    }
    end
}
