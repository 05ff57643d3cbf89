//! Bounds on a `tokenizer.json`: tables no larger than the file, texts that do not grow without
//! bound, few steps, and regular expressions that do not backtrack without end. All but the last
//! are checked before the crate that reads tokenizers allocates for them.

use std::time::{Duration, Instant};

use data_encoding::BASE64;
use fancy_regex::Regex;
use serde::Deserialize;
use serde_json::Value;

use crate::checkpoint::TokenizerError;

/// The largest factor by which a text may grow. SentencePiece's marks make it three times as long.
const MAX_GROWTH: u64 = 4096;

/// Most steps of all parts together. Published tokenizers have some dozens.
const MAX_STEPS: usize = 256;
/// Most bytes of a regular expression; published ones have some hundreds.
const MAX_PATTERN_BYTES: usize = 16 << 10;
/// Most tokens that a post-processor adds to a text.
const MAX_ADDED: usize = 1024;
/// Time that the regular expressions may take on a text, and more for each MiB.
const TIME: Duration = Duration::from_secs(10);
const TIME_PER_MIB: Duration = Duration::from_secs(2);

/// The parts that are looked at; the others, a vocabulary of megabytes, are passed over.
#[derive(Deserialize)]
struct TokenizerParts {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
}

/// Checks the text of a `tokenizer.json`. Text that is not JSON is left to the reader to refuse.
pub(super) fn check(text: &[u8]) -> Result<(), TokenizerError> {
    let Ok(parts) = serde_json::from_slice(text) else { return Ok(()) };
    let TokenizerParts { normalizer, pre_tokenizer, post_processor, decoder } = parts;
    let bounded = |what: &'static str, found: usize, limit: usize| match found > limit {
        true => Err(TokenizerError::Large { what, found, limit }),
        false => Ok(()),
    };
    let all = [&normalizer, &pre_tokenizer, &post_processor, &decoder];
    bounded("steps", all.map(count).into_iter().sum(), MAX_STEPS)?;
    bounded("tokens that are added to each text", added(&post_processor), MAX_ADDED)?;
    for pattern in all.into_iter().flat_map(patterns) {
        bounded("bytes of a regular expression", pattern.len(), MAX_PATTERN_BYTES)?;
    }
    check_tables(&normalizer)?;
    for (part, steps) in [("normalizer", normalizer), ("decoder", decoder)] {
        let growth = growth(&steps);
        if growth > MAX_GROWTH {
            return Err(TokenizerError::Growth { part, growth, limit: MAX_GROWTH });
        }
    }
    Ok(())
}

/// The steps of a sequence.
fn steps(part: &Value) -> Option<&Vec<Value>> {
    ["normalizers", "pretokenizers", "processors", "decoders"].into_iter().find_map(|key| part[key].as_array())
}

/// Steps of a part, those of sequences in it included.
fn count(part: &Value) -> usize {
    steps(part).map_or(1, |steps| steps.iter().map(count).sum())
}

/// Tokens that a post-processor adds at most: the ids of each special token, once per occurrence in
/// its template.
fn added(part: &Value) -> usize {
    if let Some(steps) = steps(part) {
        return steps.iter().map(added).fold(0, usize::saturating_add);
    }
    let named = ["single", "pair"].into_iter().flat_map(|key| part[key].as_array().into_iter().flatten());
    let ids = |piece: &Value| {
        let name = piece["SpecialToken"]["id"].as_str()?;
        part["special_tokens"][name]["ids"].as_array().map(Vec::len)
    };
    named.map(|piece| ids(piece).unwrap_or(1)).fold(0, usize::saturating_add)
}

/// The regular expressions of a part.
fn patterns(part: &Value) -> Vec<&str> {
    match steps(part) {
        Some(steps) => steps.iter().flat_map(patterns).collect(),
        None => part["pattern"]["Regex"].as_str().into_iter().collect(),
    }
}

/// The regular expressions that a tokenizer applies to texts.
///
/// The crate that reads tokenizers treats an expression that gave up as one that does not match,
/// and would encode a text differently. A text that makes an expression give up is therefore
/// refused first.
pub(super) struct Patterns(Vec<Regex>);

impl Patterns {
    /// Takes the expressions out of the text of a `tokenizer.json`.
    pub fn of(text: &[u8]) -> Patterns {
        let Ok(parts) = serde_json::from_slice::<TokenizerParts>(text) else { return Patterns(Vec::new()) };
        let all = [&parts.normalizer, &parts.pre_tokenizer];
        // A malformed one was refused when the tokenizer was read.
        Patterns(all.into_iter().flat_map(patterns).filter_map(|pattern| Regex::new(pattern).ok()).collect())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks that every expression gets through a text.
    pub fn check(&self, text: &str) -> Result<(), TokenizerError> {
        let mib = u32::try_from(text.len() >> 20).unwrap_or(u32::MAX);
        let deadline = Instant::now() + TIME + TIME_PER_MIB.saturating_mul(mib);
        for pattern in &self.0 {
            for found in pattern.find_iter(text) {
                if found.is_err() || Instant::now() > deadline {
                    let pattern = pattern.as_str().chars().take(60).collect();
                    let bytes = text.len();
                    return Err(TokenizerError::Backtracks { pattern, bytes });
                }
            }
        }
        Ok(())
    }
}

/// A table of SentencePiece begins with the bytes of its first part, which is allocated at once.
fn check_tables(part: &Value) -> Result<(), TokenizerError> {
    if let Some(steps) = steps(part) {
        return steps.iter().try_for_each(check_tables);
    }
    let Some(table) = part["precompiled_charsmap"].as_str() else { return Ok(()) };
    let bytes = table.trim_end_matches('=').len() * 3 / 4;
    // Eight digits are six bytes.
    let start = table.get(..8).and_then(|digits| BASE64.decode(digits.as_bytes()).ok());
    let claimed = start.and_then(|start| start.first_chunk().map(|size| u32::from_le_bytes(*size)));
    match claimed.filter(|claimed| *claimed as usize + 4 > bytes) {
        Some(claimed) => Err(TokenizerError::Charsmap { claimed, bytes }),
        None => Ok(()),
    }
}

/// The largest factor by which a part lengthens a text, in bytes.
fn growth(part: &Value) -> u64 {
    if let Some(steps) = steps(part) {
        return steps.iter().map(growth).fold(1, u64::saturating_mul);
    }
    if part["type"] == "Prepend" {
        return part["prepend"].as_str().map_or(0, str::len) as u64 + 1;
    }
    if part["type"] != "Replace" {
        return 1;
    }
    let content = part["content"].as_str().map_or(0, str::len) as u64;
    // A regular expression may match nothing at all, before every byte.
    match part["pattern"]["String"].as_str() {
        Some(pattern) if !pattern.is_empty() => content.div_ceil(pattern.len() as u64).max(1),
        _ => content + 1,
    }
}
