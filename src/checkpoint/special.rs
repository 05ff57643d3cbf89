//! The files of the folder, besides `tokenizer.json`, that name special tokens and hold the chat
//! template: `tokenizer_config.json`, `special_tokens_map.json`, `added_tokens.json`,
//! `chat_template.jinja`. Each may be absent.
//!
//! Other tokenizers keep most of their settings in these files, so unknown keys are not errors
//! here: their meaning is unknown. The keys read are tokens with ids, names of special tokens, and
//! templates.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use super::chat::{ChatTemplate, Templates};
use super::error::{CheckpointError, Faults};
use super::fault::ConfigFault;
use super::files;
use super::json;
use tilewright_graph::models::quote;

const CONFIG: &str = "tokenizer_config.json";
const MAP: &str = "special_tokens_map.json";
const ADDED: &str = "added_tokens.json";
const TEMPLATE: &str = "chat_template.jinja";
const MORE_TEMPLATES: &str = "additional_chat_templates";
/// Most templates that are read of that folder.
const MOST_TEMPLATES: usize = 64;

/// The parts that a special token can play, as keys of `tokenizer_config.json` and
/// `special_tokens_map.json`.
const ROLES: [&str; 7] = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
/// Keys of special tokens without a part, in lists.
const MORE: [&str; 2] = ["additional_special_tokens", "extra_special_tokens"];

/// A token that a file lists with its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub content: String,
    pub id: u32,
    pub special: bool,
    pub single_word: bool,
    pub lstrip: bool,
    pub rstrip: bool,
    pub normalized: bool,
    pub file: &'static str,
}

/// A token that a file calls special, without an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedToken {
    pub key: &'static str,
    pub content: String,
    pub file: &'static str,
}

/// The special tokens and the chat template of a folder's files.
#[derive(Debug, Default)]
pub(super) struct Special {
    /// The tokens with their ids.
    pub listed: Vec<Listed>,
    pub named: Vec<NamedToken>,
    pub chat: Option<ChatTemplate>,
}

impl Special {
    /// Reads the files of a folder.
    pub fn read(dir: &Path) -> Result<Special, CheckpointError> {
        let mut special = Special::default();
        let mut template = None;
        if let Some(mut file) = SpecialTokensFile::open(dir, CONFIG)? {
            file.listed(&mut special.listed);
            file.named(&mut special.named);
            template = file.template();
            file.finish()?;
        }
        if let Some(mut file) = SpecialTokensFile::open(dir, MAP)? {
            file.named(&mut special.named);
            file.finish()?;
        }
        if let Some(mut file) = SpecialTokensFile::open(dir, ADDED)? {
            file.added(&mut special.listed);
            file.finish()?;
        }
        special.listed.sort_by_key(|listed| listed.id);
        if let Some(own) = own_templates(dir)? {
            template = Some((TEMPLATE, own));
        }
        special.chat = template.map(|(file, sources)| {
            // The first file that names a part has the say.
            let mut parts = BTreeMap::new();
            for named in special.named.iter().filter(|named| ROLES.contains(&named.key)) {
                parts.entry(named.key).or_insert_with(|| named.content.clone());
            }
            ChatTemplate::of(file, sources, parts)
        });
        Ok(special)
    }
}

/// A file of special tokens that is being read.
struct SpecialTokensFile<'d> {
    dir: &'d Path,
    name: &'static str,
    map: Map<String, Value>,
    faults: Vec<ConfigFault>,
}

impl<'d> SpecialTokensFile<'d> {
    fn open(dir: &'d Path, name: &'static str) -> Result<Option<SpecialTokensFile<'d>>, CheckpointError> {
        let path = dir.join(name);
        let Some(text) = files::read_optional(&path)? else { return Ok(None) };
        match json::parse(&text) {
            Ok(Value::Object(map)) => Ok(Some(SpecialTokensFile { dir, name, map, faults: Vec::new() })),
            Ok(value) => {
                let faults = Faults(vec![ConfigFault::NotAnObject { value: quote(&value) }]);
                Err(CheckpointError::Config { path, faults })
            }
            Err(source) => Err(CheckpointError::Json { path, source }),
        }
    }

    fn finish(self) -> Result<(), CheckpointError> {
        match self.faults.is_empty() {
            true => Ok(()),
            false => Err(CheckpointError::Config { path: self.dir.join(self.name), faults: Faults(self.faults) }),
        }
    }

    fn wrong(&mut self, key: &str, value: &Value, expected: &'static str) {
        self.faults.push(ConfigFault::Type { key: key.to_owned(), value: quote(value), expected });
    }

    /// `added_tokens_decoder`: ids and tokens.
    fn listed(&mut self, to: &mut Vec<Listed>) {
        const KEY: &str = "added_tokens_decoder";
        let tokens = match self.map.remove(KEY) {
            None | Some(Value::Null) => return,
            Some(Value::Object(tokens)) => tokens,
            Some(value) => return self.wrong(KEY, &value, "an object from ids to tokens"),
        };
        for (id, token) in tokens {
            let flag = |name: &str, absent: bool| token.get(name).and_then(Value::as_bool).unwrap_or(absent);
            let content = token.get("content").and_then(Value::as_str);
            let (Ok(id), Some(content)) = (id.parse(), content) else {
                self.wrong(&format!("{KEY}.{id}"), &token, "a token with its content, under its id");
                continue;
            };
            let special = flag("special", false);
            to.push(Listed {
                content: content.to_owned(),
                id,
                special,
                single_word: flag("single_word", false),
                lstrip: flag("lstrip", false),
                rstrip: flag("rstrip", false),
                normalized: flag("normalized", !special),
                file: self.name,
            });
        }
    }

    /// The whole file: tokens and ids.
    fn added(&mut self, to: &mut Vec<Listed>) {
        for (content, id) in std::mem::take(&mut self.map) {
            let Some(id) = id.as_u64().and_then(|id| u32::try_from(id).ok()) else {
                self.wrong(&content, &id, "a token id");
                continue;
            };
            // A token that another file lists as well has its flags there.
            if to.iter().any(|listed| (listed.id, &listed.content) == (id, &content)) {
                continue;
            }
            let single_word = false;
            let lstrip = false;
            let rstrip = false;
            let special = false;
            let normalized = true;
            let file = self.name;
            to.push(Listed { content, id, special, single_word, lstrip, rstrip, normalized, file });
        }
    }

    /// Special tokens by their parts, and those without one.
    fn named(&mut self, to: &mut Vec<NamedToken>) {
        for key in ROLES {
            match self.map.remove(key) {
                None | Some(Value::Null) => {}
                Some(value) => self.name(key, &value, to),
            }
        }
        for key in MORE {
            match self.map.remove(key) {
                None | Some(Value::Null) => {}
                Some(Value::Array(list)) => list.iter().for_each(|value| self.name(key, value, to)),
                Some(Value::Object(map)) => map.values().for_each(|value| self.name(key, value, to)),
                Some(value) => self.wrong(key, &value, "a list of tokens"),
            }
        }
    }

    /// A token, as its text or as an object with it.
    fn name(&mut self, key: &'static str, value: &Value, to: &mut Vec<NamedToken>) {
        match value.as_str().or_else(|| value.get("content")?.as_str()) {
            Some("") => {}
            Some(content) => to.push(NamedToken { key, content: content.to_owned(), file: self.name }),
            None => self.wrong(key, value, "a token, as text or as an object with its content"),
        }
    }

    /// Takes `chat_template`: a text, or a list of texts with names.
    fn template(&mut self) -> Option<(&'static str, Templates)> {
        const KEY: &str = "chat_template";
        let value = self.map.remove(KEY).filter(|value| !value.is_null())?;
        let named = |entry: &Value| {
            let text = |key: &str| Some(entry.get(key)?.as_str()?.to_owned());
            Some((text("name")?, text("template")?))
        };
        let templates = match &value {
            Value::String(text) => Some(Templates::One(text.clone())),
            Value::Array(list) => list.iter().map(named).collect::<Option<_>>().map(Templates::Named),
            _ => None,
        };
        if templates.is_none() {
            self.wrong(KEY, &value, "a text, or a list of texts with names (`name` and `template`)");
        }
        Some((CONFIG, templates?))
    }
}

/// Reads `chat_template.jinja` and the templates of the folder `additional_chat_templates`, which
/// have names.
fn own_templates(dir: &Path) -> Result<Option<Templates>, CheckpointError> {
    let read = |path: &Path| -> Result<Option<String>, CheckpointError> {
        Ok(files::read_optional(path)?.map(|text| String::from_utf8_lossy(&text).into_owned()))
    };
    let default = read(&dir.join(TEMPLATE))?;
    let mut named = BTreeMap::new();
    for entry in std::fs::read_dir(dir.join(MORE_TEMPLATES)).into_iter().flatten().flatten().take(MOST_TEMPLATES) {
        let path = entry.path();
        let name = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".jinja").map(str::to_owned));
        if let Some(name) = name
            && let Some(text) = read(&path)?
        {
            named.insert(name, text);
        }
    }
    if named.is_empty() {
        return Ok(default.map(Templates::One));
    }
    named.extend(default.map(|text| ("default".to_owned(), text)));
    Ok(Some(Templates::Named(named)))
}
