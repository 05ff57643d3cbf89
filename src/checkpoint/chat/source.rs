//! The text of a template before it is compiled: bounds on its size, and edits that leave its
//! meaning unchanged.
//!
//! The engine's recursion follows the nesting of expressions and values. Nesting of brackets and
//! blocks is bounded by the engine's parser; chains of operators, filters and `elif` are bounded
//! here. Values are bounded where they could grow in a loop or become cyclic, which is an
//! assignment to a namespace: each such assignment passes through the filter [`BOUNDED`].

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

/// The filter that bounds values assigned to a namespace. A template cannot replace a filter,
/// unlike a function.
pub(super) const BOUNDED: &str = "tilewright_bounded";

/// Most bytes of a template. Published ones have at most some tens of thousands.
pub(super) const MAX_BYTES: usize = 256 << 10;
/// Most operators, filters, attributes and subscripts in one tag, and most `elif` tags.
const MAX_CHAIN: usize = 2000;

/// Checks the bounds and makes the edits. A text that cannot be tokenised is returned as it is:
/// compiling it gives the error.
pub(super) fn prepare(source: &str, syntax: SyntaxConfig) -> Result<String, String> {
    if source.len() > MAX_BYTES {
        return Err(format!("it has {} bytes; at most {MAX_BYTES} are accepted", source.len()));
    }
    let tokens: Result<Vec<_>, _> = tokenize(source, false, syntax).collect();
    let Ok(tokens) = tokens else { return Ok(source.to_owned()) };
    let mut edits: Vec<(usize, usize, &str)> = Vec::new();
    let mut elifs = 0;
    let mut rest = tokens.as_slice();
    while let Some(start) = rest.iter().position(|(token, _)| matches!(token, Token::BlockStart | Token::VariableStart))
    {
        let is_block = matches!(rest[start].0, Token::BlockStart);
        let tag = &rest[start + 1..];
        let end = tag.iter().position(|(token, _)| matches!(token, Token::BlockEnd | Token::VariableEnd));
        let (tag, after) = tag.split_at(end.unwrap_or(tag.len()));
        rest = after;
        let chain = tag.iter().filter(|(token, _)| chains(token)).count();
        elifs += usize::from(is_block && matches!(tag.first(), Some((Token::Ident("elif"), _))));
        if chain.max(elifs) > MAX_CHAIN {
            let line = tag.first().map_or(1, |(_, span)| span.start_line);
            return Err(format!("it chains more than {MAX_CHAIN} operators or elif tags (line {line})"));
        }
        let Some((Token::Ident(word), span)) = tag.first().filter(|_| is_block) else { continue };
        let word_range = (span.start_offset as usize, span.end_offset as usize);
        match *word {
            // These blocks mark what an assistant said, for training; they change no text.
            "generation" => edits.push((word_range.0, word_range.1, "if true")),
            "endgeneration" => edits.push((word_range.0, word_range.1, "endif")),
            "set" => {
                let target_end = tag.iter().position(|(token, _)| matches!(token, Token::Assign | Token::Pipe));
                let target = &tag[..target_end.unwrap_or(tag.len())];
                if !target.iter().any(|(token, _)| matches!(token, Token::Dot)) {
                    continue;
                }
                let end = tag.last().map_or(word_range.1, |(_, span)| span.end_offset as usize);
                match target_end.map(|at| &tag[at]) {
                    Some((Token::Assign, span)) => {
                        let start = span.end_offset as usize;
                        edits.extend([(start, start, "("), (end, end, ")|tilewright_bounded")]);
                    }
                    _ => edits.push((end, end, "|tilewright_bounded")),
                }
            }
            _ => {}
        }
    }
    let mut out = String::with_capacity(source.len() + 32 * edits.len());
    let mut at = 0;
    for (start, end, text) in edits {
        out.extend([source.get(at..start).unwrap_or_default(), text]);
        at = end;
    }
    Ok(out + source.get(at..).unwrap_or_default())
}

/// Whether a token makes the tree of an expression deeper.
fn chains(token: &Token) -> bool {
    match token {
        Token::Ident(word) => matches!(*word, "not" | "is" | "in" | "and" | "or" | "if" | "else"),
        Token::Plus
        | Token::Minus
        | Token::Mul
        | Token::Div
        | Token::FloorDiv
        | Token::Pow
        | Token::Mod
        | Token::Dot
        | Token::Tilde
        | Token::Pipe
        | Token::Eq
        | Token::Ne
        | Token::Gt
        | Token::Gte
        | Token::Lt
        | Token::Lte
        | Token::BracketOpen
        | Token::ParenOpen => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(source: &str) -> String {
        prepare(source, SyntaxConfig::default()).expect("is within the bounds")
    }

    #[test]
    fn only_assignments_to_namespaces_are_edited() {
        assert_eq!(BOUNDED, "tilewright_bounded");
        for same in
            ["{% set a = ns.x %}", "{{ a.b }}{# {% set ns.x = 1 %} #}", "{% raw %}{% set ns.x = 1 %}{% endraw %}"]
        {
            assert_eq!(prepared(same), same);
        }
        assert_eq!(prepared("a{%- set ns.x = ns -%}b"), "a{%- set ns.x =( ns)|tilewright_bounded -%}b");
        assert_eq!(prepared("{% set ns.x='%}' ~ 1%}"), "{% set ns.x=('%}' ~ 1)|tilewright_bounded%}");
        assert_eq!(prepared("{% set a, ns.x = 1, ns %}"), "{% set a, ns.x =( 1, ns)|tilewright_bounded %}");
        let block = "{% set ns.x | default(ns, true) %}{% endset %}";
        assert_eq!(prepared(block), block.replacen(" %}", "|tilewright_bounded %}", 1));
        assert_eq!(prepared("{% generation %}x{%- endgeneration -%}"), "{% if true %}x{%- endif -%}");
    }

    #[test]
    fn chains_and_sizes_are_bounded() {
        for long in ["~a", "|trim", ".a", "[0]", " and a", "+1", "()"] {
            let text = format!("{{{{ a{} }}}}", long.repeat(MAX_CHAIN + 1));
            assert!(prepare(&text, SyntaxConfig::default()).expect_err(long).contains("chains more than 2000"));
        }
        let elifs = format!("{{% if a %}}{}{{% endif %}}", "{% elif a %}".repeat(MAX_CHAIN + 1));
        assert!(prepare(&elifs, SyntaxConfig::default()).is_err());
        assert!(prepare(&" ".repeat(MAX_BYTES + 1), SyntaxConfig::default()).is_err());
    }
}
