//! Text to token ids and back, by the `tokenizers` crate, with what it leaves unchecked checked.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use tokenizers::{AddedToken, DecoderWrapper, ModelWrapper, NormalizedString, Normalizer};

use super::bounds::Patterns;
use super::special::{Listed, NamedToken, Special};
use super::{bounds, guard};
use crate::checkpoint::{TokenMismatch, TokenizerError};

/// The tokenizer of a checkpoint, whose every id has a row in the embedding.
///
/// ```
/// use tilewright::checkpoint::Tokenizer;
/// let json = br#"{"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"},
///     "model": {"type": "WordLevel", "vocab": {"in": 0, "the": 1, "beginning": 2}, "unk_token": "the"}}"#;
/// let tokenizer = Tokenizer::from_json(json, 3)?;
/// assert_eq!(tokenizer.encode("in the beginning")?, [0, 1, 2]);
/// assert_eq!(tokenizer.decode(&[2, 0])?, "beginning in");
/// # Ok::<(), tilewright::checkpoint::TokenizerError>(())
/// ```
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    rows: usize,
    patterns: Patterns,
}

impl Tokenizer {
    /// Reads the text of a `tokenizer.json` for a model whose embedding has `rows` rows.
    ///
    /// Truncation and padding that the file may set are switched off: they are settings of a
    /// caller, not of the model.
    ///
    /// # Errors
    /// If the text is not a tokenizer, encodes at random, or has an id that is not less than `rows`
    /// or differs from the listed id.
    pub fn from_json(text: &[u8], rows: usize) -> Result<Tokenizer, TokenizerError> {
        bounds::check(text)?;
        let mut inner = guarded(|| tokenizers::Tokenizer::from_bytes(text).map_err(TokenizerError::Broken))?;
        inner.with_padding(None);
        inner.with_truncation(None).map_err(TokenizerError::Broken)?;
        if let ModelWrapper::BPE(model) = inner.get_model()
            && let Some(dropout) = model.dropout.filter(|&dropout| dropout != 0.0)
        {
            return Err(TokenizerError::Dropout { dropout });
        }
        check_added(text, &inner)?;
        let tokenizer = Tokenizer { inner, rows, patterns: Patterns::of(text) };
        tokenizer.check()?;
        Ok(tokenizer)
    }

    /// Checks every id, and that texts can be encoded.
    fn check(&self) -> Result<(), TokenizerError> {
        check_vocabulary(&guarded(|| Ok(self.inner.get_vocab(true)))?, self.rows)?;
        // Tokens that a template adds carry ids of their own.
        self.encode("")?;
        self.encode("a")?;
        Ok(())
    }

    /// Adds the tokens of the folder's other files that `tokenizer.json` lacks; returns notes on
    /// tokens that are left out, one line each.
    pub(super) fn add(&mut self, special: &Special) -> Result<Vec<String>, TokenizerError> {
        let mut notes: Vec<String> = Vec::new();
        for listed in &special.listed {
            self.add_listed(listed)?;
        }
        for NamedToken { key, content, file } in &special.named {
            if self.inner.token_to_id(content).is_some() {
                self.add_token(AddedToken::from(content.clone(), true))?;
                continue;
            }
            let note = format!("{file} has {key} {content:?}, which no vocabulary has; it is left out");
            if !notes.iter().any(|said| said.ends_with(&note[file.len()..])) {
                notes.push(note);
            }
        }
        self.check()?;
        Ok(notes)
    }

    /// Adds a token with its id, which must be the id in the vocabulary, or the next free id.
    fn add_listed(&mut self, listed: &Listed) -> Result<(), TokenizerError> {
        let wrong = |found| TokenizerError::Beside {
            token: listed.content.clone(),
            file: listed.file,
            listed: listed.id,
            found,
        };
        match (self.inner.token_to_id(&listed.content), self.token(listed.id)) {
            (None, Some(other)) => return Err(wrong(TokenMismatch::Taken(other))),
            (Some(id), _) if id != listed.id => return Err(wrong(TokenMismatch::Other(id))),
            _ => {}
        }
        if listed.id as usize >= self.rows {
            let token = listed.content.clone();
            let id = listed.id;
            let rows = self.rows;
            return Err(TokenizerError::OutsideEmbedding { token, id, rows });
        }
        let token = AddedToken::from(listed.content.clone(), listed.special)
            .single_word(listed.single_word)
            .lstrip(listed.lstrip)
            .rstrip(listed.rstrip)
            .normalized(listed.normalized);
        self.add_token(token)?;
        match self.inner.token_to_id(&listed.content) {
            Some(id) if id != listed.id => Err(wrong(TokenMismatch::Other(id))),
            _ => Ok(()),
        }
    }

    /// Marks a token as one that is matched literally in a text. A token that is marked already may
    /// only become special.
    fn add_token(&mut self, token: AddedToken) -> Result<(), TokenizerError> {
        let vocabulary = self.inner.get_added_vocabulary();
        let is_added = vocabulary.get_vocab().contains_key(&token.content);
        if is_added && (!token.special || vocabulary.is_special_token(&token.content)) {
            return Ok(());
        }
        guarded(|| {
            self.inner.add_tokens(&[token]);
            Ok(())
        })
    }

    /// The ids of a text, with special tokens added by the file's post-processor. A special token's
    /// name in the text becomes that token.
    ///
    /// # Errors
    /// The tokenizer has no way to write the text, or gives an id beyond the embedding.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.ids_of(text, true)
    }

    /// Encodes a text that contains all its special tokens by name: the post-processor adds none.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.ids_of(text, false)
    }

    fn ids_of(&self, text: &str, with_template: bool) -> Result<Vec<u32>, TokenizerError> {
        self.patterns.check(text)?;
        if let Some(normalizer) = self.inner.get_normalizer().filter(|_| !self.patterns.is_empty()) {
            let normalized = guarded(|| {
                let mut normalized = NormalizedString::from(text);
                let failed = |source| TokenizerError::Encode { bytes: text.len(), source };
                normalizer.normalize(&mut normalized).map_err(failed)?;
                Ok(normalized)
            })?;
            self.patterns.check(normalized.get())?;
        }
        let encoding = guarded(|| {
            self.inner
                .encode_fast(text, with_template)
                .map_err(|source| TokenizerError::Encode { bytes: text.len(), source })
        })?;
        let ids = encoding.get_ids();
        match ids.iter().position(|&id| id as usize >= self.rows) {
            None => Ok(ids.to_vec()),
            Some(at) => {
                let token = encoding.get_tokens().get(at).cloned().unwrap_or_default();
                Err(TokenizerError::OutsideEmbedding { token, id: ids[at], rows: self.rows })
            }
        }
    }

    /// The text of ids, special tokens left out. An id without a token (embeddings often have more
    /// rows than there are tokens) gives no text.
    ///
    /// # Errors
    /// The file's decoder cannot take the ids.
    pub fn decode(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        guarded(|| self.inner.decode(ids, true).map_err(|source| TokenizerError::Decode { count: ids.len(), source }))
    }

    /// The token with that id, as the vocabulary writes it.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// The bytes of text that a token stands for when it follows itself; a special token gives its
    /// name.
    ///
    /// Of byte-level vocabularies these may be a part of a character.
    pub fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        let token = self.token(id)?;
        if self.inner.get_added_vocabulary().get_vocab().contains_key(&token) {
            return Some(token.into_bytes());
        }
        let is_byte_level = |decoder: &DecoderWrapper| match decoder {
            DecoderWrapper::ByteLevel(_) => true,
            DecoderWrapper::Sequence(steps) => {
                steps.get_decoders().iter().any(|step| matches!(step, DecoderWrapper::ByteLevel(_)))
            }
            _ => false,
        };
        if self.inner.get_decoder().is_some_and(is_byte_level)
            && let Some(bytes) = token.chars().map(byte_level).collect()
        {
            return Some(bytes);
        }
        let once = self.decode(&[id]).ok()?;
        // A byte token decodes to its byte, or to U+FFFD if that alone is not UTF-8; other tokens
        // decode to their text.
        if let Some(byte) = byte_of(&token).filter(|_| once.chars().count() == 1) {
            return Some(vec![byte]);
        }
        let twice = self.decode(&[id, id]).ok()?;
        Some(twice.strip_prefix(once.as_str()).unwrap_or(&once).as_bytes().to_vec())
    }

    /// The id of a special token, which decoding leaves out, by its name.
    pub fn special_id(&self, token: &str) -> Option<u32> {
        let is_special = self.inner.get_added_vocabulary().is_special_token(token);
        self.inner.token_to_id(token).filter(|_| is_special)
    }

    /// The token with that id, where decoding lets it through: not a special one.
    pub(super) fn visible_token(&self, id: u32) -> Option<String> {
        self.token(id).filter(|token| !self.inner.get_added_vocabulary().is_special_token(token))
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokenizer({} tokens)", self.inner.get_vocab_size(true))
    }
}

/// Checks that each id has a row in the embedding and belongs to one token.
fn check_vocabulary(vocab: &HashMap<String, u32>, rows: usize) -> Result<(), TokenizerError> {
    let mut tokens: Vec<_> = vocab.iter().map(|(token, &id)| (id, token)).collect();
    tokens.sort_unstable();
    if let Some(&(id, token)) = tokens.last()
        && id as usize >= rows
    {
        return Err(TokenizerError::OutsideEmbedding { token: token.clone(), id, rows });
    }
    match tokens.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        None => Ok(()),
        Some(pair) => {
            Err(TokenizerError::SharedId { id: pair[0].0, first: pair[0].1.clone(), second: pair[1].1.clone() })
        }
    }
}

/// Checks that each added token has the id that the file lists it with. The crate only logs where
/// they differ.
fn check_added(text: &[u8], tokenizer: &tokenizers::Tokenizer) -> Result<(), TokenizerError> {
    #[derive(Deserialize)]
    struct File {
        #[serde(default)]
        added_tokens: Vec<Added>,
    }
    #[derive(Deserialize)]
    struct Added {
        id: u32,
        content: String,
    }
    let file: File = serde_json::from_slice(text).map_err(|error| TokenizerError::Broken(error.into()))?;
    for Added { id: listed, content: token } in file.added_tokens {
        let found = tokenizer.token_to_id(&token);
        if found != Some(listed) {
            return Err(TokenizerError::AddedToken { token, listed, found });
        }
    }
    Ok(())
}

/// The byte that a character of a byte-level vocabulary stands for: printable bytes stand for
/// themselves, the others for the characters from U+0100 on, in order. The alphabet is that of
/// GPT-2.
fn byte_level(character: char) -> Option<u8> {
    let is_plain = |byte: &u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    match u32::from(character) {
        code @ 0..=0xff => u8::try_from(code).ok().filter(is_plain),
        code => (0..=0xff).filter(|byte| !is_plain(byte)).nth((code - 0x100) as usize),
    }
}

/// Runs the crate's code. Some inconsistent files make it panic (a merge shorter than the prefix
/// that it should carry, a decoder that strips more than a token has); the panic becomes an error
/// here.
fn guarded<T>(work: impl FnOnce() -> Result<T, TokenizerError>) -> Result<T, TokenizerError> {
    guard::catching(work).unwrap_or_else(|message| Err(TokenizerError::Stopped { message }))
}

/// The byte that a token such as `<0xE4>` stands for.
pub(super) fn byte_of(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}
