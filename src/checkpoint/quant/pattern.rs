//! Patterns over names of modules, in the dialects of the formats.

use std::cell::{Cell, RefCell};

use fancy_regex::{Regex, RegexBuilder};

use crate::checkpoint::fault::ConfigFault;
use tilewright_graph::models::keys::Keys;

/// A pattern that selects modules.
#[derive(Debug)]
pub(super) enum Pattern {
    /// The module of that name.
    Name(String),
    /// Every linear layer.
    Class,
    /// Names with a match at their start.
    Regex(Box<Regex>),
    /// Names that have this text in them.
    Part(String),
    /// The module of that name, the modules in it, or those whose last names are these.
    Path(String),
}

/// The specificity of a match; the most specific group of a configuration wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Class,
    Regex,
    Name,
}

/// Most regular expressions of one configuration.
const MAX_REGEXES: usize = 4096;
/// Most bytes of a regular expression.
const MAX_REGEX_BYTES: usize = 1024;
/// Most bytes that a compiled expression takes; published ones take some kilobytes.
const MAX_COMPILED_BYTES: usize = 256 << 10;
/// Most steps back in one match. Expressions that look ahead over a module's name take some dozens.
const MAX_BACKTRACKS: usize = 2000;
/// Most matches of expressions with modules, in a configuration. Each takes a microsecond, unless
/// it backtracks.
const MAX_MATCHES: usize = 2_000_000;

/// Bounds the work of a configuration's regular expressions, and records which bound was hit.
///
/// A configuration that hits a bound is refused: an expression that gave up may have matched.
#[derive(Default)]
pub(super) struct RegexBudget {
    regexes: Cell<usize>,
    matches: Cell<usize>,
    fault: RefCell<Option<ConfigFault>>,
}

impl RegexBudget {
    /// Compiles a regular expression; `None` if it is malformed or too large.
    fn compile(&self, regex: &str) -> Option<Pattern> {
        self.regexes.set(self.regexes.get() + 1);
        if self.regexes.get() > MAX_REGEXES || regex.len() > MAX_REGEX_BYTES {
            return None;
        }
        let mut builder = RegexBuilder::new(regex);
        builder.backtrack_limit(MAX_BACKTRACKS).delegate_size_limit(MAX_COMPILED_BYTES);
        builder.build().ok().map(|regex| Pattern::Regex(Box::new(regex)))
    }

    fn is_match(&self, regex: &Regex, module: &str) -> bool {
        let matches = self.matches.get() + 1;
        self.matches.set(matches);
        let found = if matches > MAX_MATCHES { None } else { regex.is_match(module).ok() };
        if found.is_none() && self.fault.borrow().is_none() {
            let pattern = regex.as_str().to_owned();
            let module = module.to_owned();
            *self.fault.borrow_mut() = Some(ConfigFault::Pattern { pattern, module, limit: MAX_BACKTRACKS });
        }
        found.unwrap_or(false)
    }

    /// Adds the fault of a bound that was hit.
    pub fn finish(self, keys: &mut Keys) {
        keys.faults.extend(self.fault.into_inner());
    }
}

/// The class of the modules that can be quantised.
const LINEAR: &str = "Linear";

impl Pattern {
    /// Parses a pattern of compressed-tensors: a name, a class, or `re:` and a regular expression.
    pub fn target(work: &RegexBudget, text: &str) -> Option<Pattern> {
        match text.strip_prefix("re:") {
            Some(regex) => Pattern::anchored(work, regex),
            None if text == LINEAR => Some(Pattern::Class),
            None => Some(Pattern::Name(text.to_owned())),
        }
    }

    /// A regular expression that must match from the start of a name; `None` where it is not one.
    pub fn anchored(work: &RegexBudget, regex: &str) -> Option<Pattern> {
        // By itself first, so that no bracket of the expression closes the group.
        work.compile(regex)?;
        work.compile(&format!("^(?:{regex})"))
    }

    /// A shell's wildcards over the whole name (`*`, `?`), or the name of a module or of one around
    /// it.
    pub fn wildcard(work: &RegexBudget, text: &str) -> Option<Pattern> {
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
        work.compile(&regex)
    }

    /// The specificity of the match; `None` if the pattern does not select the module.
    pub fn matches(&self, work: &RegexBudget, module: &str) -> Option<Rank> {
        let (hit, rank) = match self {
            Pattern::Name(name) => (name == module, Rank::Name),
            Pattern::Class => (true, Rank::Class),
            Pattern::Regex(regex) => (work.is_match(regex, module), Rank::Regex),
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
        let work = RegexBudget::default();
        let rank = |pattern: Option<Pattern>| pattern.expect("a pattern").matches(&work, DOWN);
        assert_eq!(rank(Pattern::target(&work, DOWN)), Some(Rank::Name));
        assert_eq!(rank(Pattern::target(&work, "Linear")), Some(Rank::Class));
        assert_eq!(rank(Pattern::target(&work, "re:.*down_proj")), Some(Rank::Regex));
        assert_eq!(rank(Pattern::target(&work, "re:model.layers.1")), Some(Rank::Regex), "anchored at the start alone");
        assert_eq!(rank(Pattern::target(&work, "re:down_proj")), None);
        assert_eq!(rank(Pattern::target(&work, "re:a|model.*")), Some(Rank::Regex));
        assert_eq!(rank(Pattern::target(&work, "re:^(?!.*mlp).*$")), None, "looks ahead");
        assert_eq!(rank(Pattern::target(&work, "down_proj")), None);
        assert_eq!(rank(Some(Pattern::Part("layers.1".into()))), Some(Rank::Name));
        assert_eq!(rank(Pattern::wildcard(&work, "*.mlp.*")), Some(Rank::Regex));
        assert_eq!(rank(Pattern::wildcard(&work, "*.mlp")), None, "a wildcard is the whole name");
        assert_eq!(rank(Pattern::wildcard(&work, "model.layers.10")), Some(Rank::Name));
        assert_eq!(rank(Pattern::wildcard(&work, "model.layers.1")), None, "a path is cut at dots");
        assert_eq!(rank(Pattern::wildcard(&work, "down_proj")), Some(Rank::Name));
        assert!(Pattern::target(&work, "re:(").is_none());
    }

    #[test]
    fn an_expression_that_gives_up_is_a_fault_and_not_a_mismatch() {
        let work = RegexBudget::default();
        let pattern = Pattern::target(&work, "re:((?=.).|(?=.).)*!").expect("a pattern");
        assert_eq!(pattern.matches(&work, DOWN), None);
        let mut keys = Keys::new("", serde_json::Map::new());
        work.finish(&mut keys);
        assert!(
            matches!(&keys.faults[..], [ConfigFault::Pattern { module, .. }] if module == DOWN),
            "{:?}",
            keys.faults
        );
    }

    #[test]
    fn a_match_beyond_the_bound_is_a_fault_and_not_a_mismatch() {
        let work = RegexBudget::default();
        let pattern = Pattern::target(&work, "re:model.*").expect("a pattern");
        work.matches.set(MAX_MATCHES - 1);
        assert_eq!(pattern.matches(&work, DOWN), Some(Rank::Regex), "the last one within it");
        assert_eq!(pattern.matches(&work, DOWN), None);
        let mut keys = Keys::new("", serde_json::Map::new());
        work.finish(&mut keys);
        assert!(matches!(&keys.faults[..], [ConfigFault::Pattern { .. }]), "{:?}", keys.faults);
    }

    #[test]
    fn many_and_large_expressions_are_refused() {
        let work = RegexBudget::default();
        assert!(Pattern::target(&work, &format!("re:{}", "a".repeat(MAX_REGEX_BYTES + 1))).is_none());
        assert!(Pattern::target(&work, "re:((a{1000}){1000}){1000}").is_none());
        assert!(Pattern::target(&work, "re:a)|(?:b").is_none(), "brackets are balanced by themselves");
        (0..MAX_REGEXES).for_each(|_| _ = Pattern::target(&work, "re:a"));
        assert!(Pattern::target(&work, "re:a").is_none());
    }
}
