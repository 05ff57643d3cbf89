//! The storage of a checkpoint's modules, and the keys that define it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tilewright_graph::models::keys::Keys;

use super::scheme::Scheme;
use crate::checkpoint::fault::ConfigFault;

/// The quantised modules of a checkpoint, with the storage of each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuantPlan {
    pub(super) modules: BTreeMap<String, StoredModule>,
    /// Notes for the user, one line each.
    pub(super) notes: Vec<String>,
}

/// The storage of a module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoredModule {
    pub(super) scheme: &'static Scheme,
    pub(super) scales: Scales,
    pub(super) zeros: Presence,
    /// Whether zero points must all be the scheme's own, since the configuration says symmetric.
    pub(super) symmetric: bool,
    pub(super) order: Presence,
}

/// The range of weights that share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scales {
    /// The whole matrix.
    Tensor,
    /// A row.
    Channel,
    /// A group of columns of a row.
    Group(usize),
    /// A block of rows and columns.
    Block(usize, usize),
}

/// The presence of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    Absent,
    Optional,
    Required,
}

/// A linear layer that may be quantised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Module {
    pub name: String,
    /// Whether it is the output projection, which is outside of the decoder's layers.
    pub is_head: bool,
}

impl QuantPlan {
    /// The storage of a module, if it is quantised. The module's name is that of its weight without
    /// `.weight`.
    pub fn stored(&self, module: &str) -> Option<StoredModule> {
        self.modules.get(module).copied()
    }

    /// Quantised modules.
    pub fn len(&self) -> usize {
        self.modules.len()
    }

    /// Whether nothing is quantised.
    pub fn is_empty(&self) -> bool {
        self.modules.is_empty()
    }

    /// The schemes' names, each once.
    pub fn schemes(&self) -> BTreeSet<&'static str> {
        self.modules.values().map(StoredModule::scheme).collect()
    }

    /// Notes for the user, one line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    pub(super) fn note(&mut self, line: &str) {
        if !self.notes.iter().any(|note| note == line) {
            self.notes.push(line.to_owned());
        }
    }
}

impl StoredModule {
    /// The scheme's name.
    pub fn scheme(&self) -> &'static str {
        self.scheme.name
    }
}

/// The note on a checkpoint that asks for quantised activations.
pub(super) const ACTIVATIONS: &str =
    "the checkpoint wants activations quantised as well; they are computed in bf16 or f32 here";

/// The note on a checkpoint that asks for a quantised KV cache.
pub(super) const KV_CACHE: &str =
    "the checkpoint wants keys and values quantised; they are kept in bf16 or f32 unless --kv fp8 is given";

/// Takes a list of names; null and absent are the empty list.
pub(super) fn take_names(keys: &mut Keys, key: &str) -> Vec<String> {
    let Some(value) = keys.take_value(key) else { return Vec::new() };
    let name = |value: &Value| value.as_str().map(str::to_owned);
    match value.as_array().and_then(|list| list.iter().map(name).collect()) {
        Some(names) => names,
        None => {
            keys.wrong_type(key, &value, "a list of names");
            Vec::new()
        }
    }
}

/// Takes the columns of a group: a number, or -1 for whole rows.
pub(super) fn take_group(keys: &mut Keys, key: &str) -> Scales {
    match keys.take(key) {
        Some(value) if value.as_i64() == Some(-1) => Scales::Channel,
        Some(value) => match value.as_u64().and_then(|group| u32::try_from(group).ok()).filter(|&group| group > 0) {
            Some(group) => Scales::Group(group as usize),
            None => {
                keys.wrong_type(key, &value, "the columns of a group, or -1 for whole rows");
                Scales::Channel
            }
        },
        None => {
            let key = keys.name(key);
            keys.faults.push(ConfigFault::Missing { key });
            Scales::Channel
        }
    }
}

/// Takes a number of bits, of which 4 and 8 are read.
pub(super) fn take_bits(keys: &mut Keys, key: &str, accepted: &[u64], text: &'static str) -> u64 {
    let value = keys.take(key).unwrap_or(Value::Null);
    match value.as_u64().filter(|bits| accepted.contains(bits)) {
        Some(bits) => bits,
        None => {
            keys.unsupported(key, &value, "is a width of codes that is not read", text);
            accepted[0]
        }
    }
}
