//! Grammars that a text follows: JSON schemas, regular expressions, choices, Lark grammars, by the
//! `llguidance` crate.

use std::sync::{Arc, Mutex, PoisonError};

use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};
use thiserror::Error;

use super::Engine;
use super::requests::{LogitsHook, TokenMask};
use crate::checkpoint::{Tokenizer, catching};

/// Most bytes of a grammar.
const MOST_BYTES: usize = 1 << 18;
/// Most brackets inside each other in a Lark grammar: its parser calls itself for each.
const MOST_NESTED: usize = 100;
/// Most bytes of a token in the trie of tokens.
const MOST_TOKEN: usize = 255;

/// The grammar that a text follows.
///
/// ```
/// use tilewright::engine::Grammar;
/// let answer = Grammar::Choice(vec!["yes".into(), "no".into()]);
/// assert_ne!(answer, Grammar::Regex("yes|no".into()));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Grammar {
    /// Any JSON object.
    JsonObject,
    /// JSON that a schema accepts.
    JsonSchema(Value),
    /// A regular expression, in the syntax of the `regex` crate, that the whole text matches.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// A context-free grammar in Lark's syntax, as `llguidance` reads it.
    Lark(String),
}

/// A grammar that cannot be compiled.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum GrammarError {
    /// The model has no token that ends a text.
    #[error("the model has no end-of-sequence token, which would end a text that is complete")]
    Endless,
    /// There is no text to choose.
    #[error("the choice has no texts, or an empty one")]
    NoChoice,
    /// The grammar is too long.
    #[error("the grammar has {bytes} bytes; at most {MOST_BYTES} are accepted")]
    Long {
        /// Its bytes.
        bytes: usize,
    },
    /// Its brackets are too deep.
    #[error("the grammar has more than {MOST_NESTED} brackets inside each other")]
    Nested,
    /// What the compiler says.
    #[error("{0}")]
    Refused(String),
}

/// Compiles grammars for the tokens of a model. Made by [`Engine::grammars`], once for all grammars:
/// it holds a trie of all tokens.
pub struct GrammarCompiler {
    factory: ParserFactory,
}

impl Engine {
    /// Creates a compiler of grammars for the model's tokens.
    ///
    /// ```no_run
    /// use std::path::Path;
    /// use tilewright::engine::{Device, Engine, Grammar, Request, Submission};
    /// let engine = Engine::load(Path::new("models/tiny-llama"), Device::cpu())?;
    /// let grammar = engine.grammars()?.compile(&Grammar::Regex("[a-z]+".into()))?;
    /// let request = Request::new(engine.prompt_ids("In the beginning")?, 20);
    /// let submission = Submission { processor: Some(grammar), ..Submission::from(request) };
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The model has no token that ends a text.
    pub fn grammars(&self) -> Result<GrammarCompiler, GrammarError> {
        GrammarCompiler::new(self.tokenizer(), self.spec().vocab, self.ends())
    }
}

impl GrammarCompiler {
    fn new(tokenizer: &Tokenizer, vocab: usize, ends: &[u32]) -> Result<GrammarCompiler, GrammarError> {
        let &end = ends.first().ok_or(GrammarError::Endless)?;
        let words: Vec<Vec<u8>> = (0..vocab as u32).map(|id| word(tokenizer, id)).collect();
        let factory = refusing(|| {
            let trie = TokTrie::from(&TokRxInfo::new(vocab as u32, end), &words).with_eos_tokens(ends);
            let tokens: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
            let slices = SlicedBiasComputer::general_slices();
            let factory = ParserFactory::new(&tokens, InferenceCapabilities::default(), &slices);
            let mut factory = factory.map_err(|error| error.to_string())?;
            factory.quiet();
            *factory.limits_mut() = limits();
            Ok(factory)
        })?;
        Ok(GrammarCompiler { factory })
    }

    /// Compiles a grammar. The text of a request with this processor follows it from the first new
    /// token on, and ends where the grammar does.
    ///
    /// # Errors
    /// The grammar is not one, or is too large.
    pub fn compile(&self, grammar: &Grammar) -> Result<LogitsHook, GrammarError> {
        let grammar = grammar.checked()?;
        let matcher = refusing(|| {
            let parser = self.factory.create_parser(grammar).map_err(|error| error.to_string())?;
            let matcher = Matcher::new(Ok(parser));
            // Some faults show when the first token is looked for.
            matcher.deep_clone().compute_mask().map_err(|error| error.to_string())?;
            Ok(matcher)
        })?;
        // What parsers of one grammar learn of its tokens is shared.
        let start = Mutex::new(matcher);
        Ok(LogitsHook::masking(move || {
            let matcher = start.lock().unwrap_or_else(PoisonError::into_inner).deep_clone();
            Box::new(Follower { matcher, heard: 0 })
        }))
    }
}

impl Grammar {
    /// The grammar as the compiler takes it.
    fn checked(&self) -> Result<TopLevelGrammar, GrammarError> {
        let short = |text: &str| match text.len() {
            ..=MOST_BYTES => Ok(()),
            bytes => Err(GrammarError::Long { bytes }),
        };
        match self {
            Grammar::JsonObject => Ok(TopLevelGrammar::from_json_schema(spaced(json!({ "type": "object" })))),
            Grammar::JsonSchema(schema) => {
                short(&schema.to_string())?;
                Ok(TopLevelGrammar::from_json_schema(spaced(schema.clone())))
            }
            Grammar::Regex(pattern) => {
                short(pattern)?;
                check_nesting(pattern)?;
                Ok(TopLevelGrammar::from_regex(pattern))
            }
            Grammar::Choice(texts) => {
                if texts.is_empty() || texts.iter().any(String::is_empty) {
                    return Err(GrammarError::NoChoice);
                }
                let literals: Vec<String> = texts.iter().map(|text| Value::from(text.as_str()).to_string()).collect();
                let lark = format!("start: {}", literals.join(" | "));
                short(&lark)?;
                Ok(TopLevelGrammar::from_lark(lark))
            }
            Grammar::Lark(text) => {
                short(text)?;
                check_nesting(text)?;
                Ok(TopLevelGrammar::from_lark(text.clone()))
            }
        }
    }
}

/// A schema whose texts have a space, or a new line with its indentation, wherever JSON has white
/// space: a model that writes nothing else would never end. A schema that says itself is left as it is.
fn spaced(mut schema: Value) -> Value {
    if let Value::Object(keys) = &mut schema {
        keys.entry("x-guidance").or_insert_with(|| json!({ "whitespace_pattern": r"[ ]?|\n[ \t]{0,16}" }));
    }
    schema
}

/// What a grammar may take: 20,000 states are 40 MB for each text that is being written, and a mask
/// takes about 5 ms at most, during which other requests wait.
fn limits() -> ParserLimits {
    ParserLimits {
        max_lexer_states: 20_000,
        max_grammar_size: 100_000,
        step_lexer_fuel: 50_000,
        step_max_items: 20_000,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

/// Refuses a text with too many opening brackets that no closing one follows; those of literals
/// count too.
fn check_nesting(text: &str) -> Result<(), GrammarError> {
    let mut depth = 0usize;
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MOST_NESTED {
            return Err(GrammarError::Nested);
        }
    }
    Ok(())
}

/// The bytes of a token in the trie: a special token is marked, and is no text.
fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let bytes = tokenizer.token_bytes(id).unwrap_or_default();
    let is_special = tokenizer.token(id).is_some_and(|token| tokenizer.special_id(&token).is_some());
    let marker = TokTrie::SPECIAL_TOKEN_MARKER;
    let bytes = if is_special { [&[marker], &bytes[..]].concat() } else { bytes };
    // No UTF-8 text has the marker.
    if bytes.len() > MOST_TOKEN || (!is_special && bytes.first() == Some(&marker)) { Vec::new() } else { bytes }
}

/// Runs the library's code; an error or a panic is a refusal, whose first line is kept.
fn refusing<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, GrammarError> {
    catching(work).and_then(|done| done).map_err(|reason| GrammarError::Refused(first_line(&reason)))
}

/// The first line of what the library says: others are for its authors.
fn first_line(reason: &impl ToString) -> String {
    reason.to_string().lines().next().unwrap_or_default().to_owned()
}

/// A text that follows a grammar.
struct Follower {
    matcher: Matcher,
    /// Tokens of the text that the matcher knows.
    heard: usize,
}

impl TokenMask for Follower {
    fn allow(&mut self, new: &[u32], mask: &mut [u32]) -> Result<(), String> {
        let rest = new.get(self.heard..).unwrap_or_default();
        self.matcher.consume_tokens(rest).map_err(|error| first_line(&error))?;
        self.heard = new.len();
        let allowed = self.matcher.compute_mask_or_eos().map_err(|error| first_line(&error))?;
        mask.iter_mut().zip(allowed.as_slice()).for_each(|(word, &bits)| *word = bits);
        Ok(())
    }
}
