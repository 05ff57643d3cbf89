//! Patterns over names of modules, in the dialects of the formats.

use fancy_regex::Regex;

/// Which modules are meant.
#[derive(Debug)]
pub(super) enum Pattern {
    /// The module of that name.
    Name(String),
    /// Every linear layer.
    Class,
    /// Names with a match at their start.
    Regex(Regex),
    /// Names that have this text in them.
    Part(String),
    /// The module of that name, the modules in it, or those whose last names are these.
    Path(String),
}

/// How specific a match is; the most specific group of a configuration wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Class,
    Regex,
    Name,
}

/// The class of the modules that can be quantised.
const LINEAR: &str = "Linear";

impl Pattern {
    /// In the dialect of compressed-tensors: a name, a class, or `re:` and a regular expression.
    pub fn target(text: &str) -> Option<Pattern> {
        match text.strip_prefix("re:") {
            Some(regex) => Pattern::anchored(regex),
            None if text == LINEAR => Some(Pattern::Class),
            None => Some(Pattern::Name(text.to_owned())),
        }
    }

    /// A regular expression that must match from the start of a name; `None` where it is not one.
    pub fn anchored(regex: &str) -> Option<Pattern> {
        Regex::new(&format!("^(?:{regex})")).ok().map(Pattern::Regex)
    }

    /// A shell's wildcards over the whole name (`*`, `?`), or the name of a module or of one around it.
    pub fn wildcard(text: &str) -> Option<Pattern> {
        if !text.contains(['*', '?', '[']) {
            return Some(Pattern::Path(text.to_owned()));
        }
        let mut regex = String::from("^");
        for character in text.chars() {
            match character {
                '*' => regex.push_str(".*"),
                '?' => regex.push('.'),
                '[' | ']' => return None,
                other if other.is_alphanumeric() || other == '_' => regex.push(other),
                other => regex.extend(['\\', other]),
            }
        }
        regex.push('$');
        Regex::new(&regex).ok().map(Pattern::Regex)
    }

    /// Whether a module is meant, and how specifically. A regular expression that gives up on a name does not match it.
    pub fn matches(&self, module: &str) -> Option<Rank> {
        let (hit, rank) = match self {
            Pattern::Name(name) => (name == module, Rank::Name),
            Pattern::Class => (true, Rank::Class),
            Pattern::Regex(regex) => (regex.is_match(module).unwrap_or(false), Rank::Regex),
            Pattern::Part(part) => (module.contains(part.as_str()), Rank::Name),
            Pattern::Path(path) => (format!(".{module}.").contains(&format!(".{path}.")), Rank::Name),
        };
        hit.then_some(rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOWN: &str = "model.layers.10.mlp.down_proj";

    #[test]
    fn each_dialect_matches_as_its_library_does() {
        let rank = |pattern: Option<Pattern>| pattern.expect("a pattern").matches(DOWN);
        assert_eq!(rank(Pattern::target(DOWN)), Some(Rank::Name));
        assert_eq!(rank(Pattern::target("Linear")), Some(Rank::Class));
        assert_eq!(rank(Pattern::target("re:.*down_proj")), Some(Rank::Regex));
        assert_eq!(rank(Pattern::target("re:model.layers.1")), Some(Rank::Regex), "anchored at the start alone");
        assert_eq!(rank(Pattern::target("re:down_proj")), None);
        assert_eq!(rank(Pattern::target("re:a|model.*")), Some(Rank::Regex));
        assert_eq!(rank(Pattern::target("re:^(?!.*mlp).*$")), None, "looks ahead");
        assert_eq!(rank(Pattern::target("down_proj")), None);
        assert_eq!(rank(Some(Pattern::Part("layers.1".into()))), Some(Rank::Name));
        assert_eq!(rank(Pattern::wildcard("*.mlp.*")), Some(Rank::Regex));
        assert_eq!(rank(Pattern::wildcard("*.mlp")), None, "a wildcard is the whole name");
        assert_eq!(rank(Pattern::wildcard("model.layers.10")), Some(Rank::Name));
        assert_eq!(rank(Pattern::wildcard("model.layers.1")), None, "a path is cut at dots");
        assert_eq!(rank(Pattern::wildcard("down_proj")), Some(Rank::Name));
        assert!(Pattern::target("re:(").is_none());
    }
}
