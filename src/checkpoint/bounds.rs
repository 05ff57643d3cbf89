//! What a `tokenizer.json` may ask of its reader: tables no larger than the file, texts that do not grow without bound. Both are
//! looked at before the crate that reads tokenizers allocates for them.

use data_encoding::BASE64;
use serde::Deserialize;
use serde_json::Value;

use super::tokenizer::TokenizerError;

/// How many times longer a text may become: SentencePiece's marks make it three times as long.
const MAX_GROWTH: u64 = 4096;

/// The parts that are looked at; the others, a vocabulary of megabytes, are passed over.
#[derive(Deserialize)]
struct Parts {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    decoder: Value,
}

/// Checks the text of a `tokenizer.json`. One that is not JSON is the reader's to refuse.
pub(super) fn check(text: &[u8]) -> Result<(), TokenizerError> {
    let Ok(Parts { normalizer, decoder }) = serde_json::from_slice(text) else { return Ok(()) };
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
    ["normalizers", "decoders"].into_iter().find_map(|key| part[key].as_array())
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

/// How many times longer a part makes a text at most, by bytes.
fn growth(part: &Value) -> u64 {
    if let Some(steps) = steps(part) {
        return steps.iter().map(growth).fold(1, u64::saturating_mul);
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
