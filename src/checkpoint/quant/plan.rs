//! Which modules of a model are quantised and how: `quantization_config`, or the file that older
//! writers put beside `config.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Map, Value};
use tilewright_megakernel::model::ModelSpec;

use super::scheme::Scheme;
use super::{awq, compressed, fp8, gptq, modelopt};
use crate::checkpoint::error::{CheckpointError, Faults};
use crate::checkpoint::fault::ConfigFault;
use crate::checkpoint::files;
use crate::checkpoint::json;
use tilewright_graph::models::keys::{Keys, KnownKey};
use tilewright_graph::models::quote;

/// Which modules of a checkpoint are quantised, and how each is stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuantPlan {
    pub(super) modules: BTreeMap<String, StoredModule>,
    /// What the user should know: one line each.
    pub(super) notes: Vec<String>,
}

/// How one module is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoredModule {
    pub(super) scheme: &'static Scheme,
    pub(super) scales: Scales,
    pub(super) zeros: Presence,
    /// Whether zero points must all be the scheme's own, since the configuration says symmetric.
    pub(super) symmetric: bool,
    pub(super) order: Presence,
}

/// What one scale covers.
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

/// Whether a tensor is there.
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
    /// Whether it is the output projection, which lies outside of the decoder's layers.
    pub is_head: bool,
}

impl QuantPlan {
    /// How a module is stored, if it is quantised. Its name is that of its weight without
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

    /// What the user should know: one line each.
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

/// What is said where a checkpoint wants quantised activations.
pub(super) const ACTIVATIONS: &str =
    "the checkpoint wants activations quantised as well; they are computed in bf16 or f32 here";
/// What is said where a checkpoint wants a quantised KV cache.
pub(super) const KV_CACHE: &str =
    "the checkpoint wants keys and values quantised; they are kept in bf16 or f32 unless --kv fp8 is given";

/// A `quant_method`: its reader, and the keys that it does not use.
struct Method {
    name: &'static str,
    read: fn(&mut Keys, &[Module]) -> QuantPlan,
    known: &'static [&'static [KnownKey]],
}

const METHODS: [Method; 6] = [
    Method { name: "awq", read: awq::read, known: &[awq::KNOWN, gptq::WRITTEN] },
    Method { name: "gptq", read: gptq::read, known: &[gptq::KNOWN, gptq::WRITTEN] },
    Method { name: "compressed-tensors", read: compressed::read, known: &[compressed::KNOWN] },
    Method { name: "fp8", read: fp8::read, known: &[fp8::KNOWN] },
    Method { name: "fbgemm_fp8", read: fp8::read_fbgemm, known: &[fp8::KNOWN_FBGEMM] },
    Method { name: "modelopt", read: modelopt::read, known: &[modelopt::KNOWN] },
];

/// The key of `config.json`.
const KEY: &str = "quantization_config";

/// Takes the key of `config.json` that says how weights are quantised. `keys` has no faults yet, so
/// the model is sound.
pub(in crate::checkpoint) fn read_key(keys: &mut Keys, spec: &ModelSpec) -> Option<QuantPlan> {
    let value = keys.take_value(KEY)?;
    let Value::Object(map) = value else {
        keys.wrong_type(KEY, &value, "an object");
        return None;
    };
    match interpret(&format!("{KEY}."), map, None, spec) {
        Ok(plan) => Some(plan),
        Err(faults) => {
            keys.faults.extend(faults);
            None
        }
    }
}

/// Files beside `config.json` that say the same, and the method of one that does not name it.
const BESIDE: [(&str, &str); 3] =
    [("quantize_config.json", "gptq"), ("quant_config.json", "awq"), ("hf_quant_config.json", "modelopt")];

/// Reads the files beside `config.json`. What they say must be what `config.json` says, where it
/// says something.
pub(in crate::checkpoint) fn read_beside(
    dir: &Path,
    spec: &ModelSpec,
    plan: Option<QuantPlan>,
) -> Result<Option<QuantPlan>, CheckpointError> {
    let mut plan = plan;
    for (file, method) in BESIDE {
        let path = dir.join(file);
        let Some(text) = files::read_optional(&path)? else { continue };
        let beside = read_file(&path, &text, method, spec)?;
        match &plan {
            None => plan = Some(beside),
            Some(stated) if stated.modules == beside.modules => {}
            Some(stated) => {
                let (first_key, second_key) = (format!("{KEY} of config.json"), file.to_owned());
                let [first, second] = [describe(stated, &beside), describe(&beside, stated)];
                let faults = Faults(vec![ConfigFault::Disagree { first_key, first, second_key, second }]);
                return Err(CheckpointError::Config { path, faults });
            }
        }
    }
    Ok(plan)
}

fn read_file(path: &Path, text: &[u8], method: &'static str, spec: &ModelSpec) -> Result<QuantPlan, CheckpointError> {
    let value = json::parse(text).map_err(|source| CheckpointError::Json { path: path.to_owned(), source })?;
    let plan = match value {
        Value::Object(map) => interpret("", map, Some(method), spec),
        value => Err(vec![ConfigFault::NotAnObject { value: quote(&value) }]),
    };
    plan.map_err(|faults| CheckpointError::Config { path: path.to_owned(), faults: Faults(faults) })
}

/// The first module that `other` has otherwise, in words.
fn describe(plan: &QuantPlan, other: &QuantPlan) -> String {
    let names = plan.modules.keys().chain(other.modules.keys());
    let first = names.into_iter().find(|name| plan.modules.get(*name) != other.modules.get(*name));
    let Some(name) = first else { return "the same".to_owned() };
    match plan.modules.get(name) {
        None => format!("{name} not quantised"),
        Some(stored) => format!("{name} as {} with scales by {:?}", stored.scheme.name, stored.scales),
    }
}

fn interpret(
    prefix: &str,
    map: Map<String, Value>,
    method: Option<&str>,
    spec: &ModelSpec,
) -> Result<QuantPlan, Vec<ConfigFault>> {
    let mut keys = Keys::new(prefix, map);
    // GPTQModel writes both names.
    let (stated, other) = (keys.take_value("quant_method"), keys.take_value("method"));
    keys.agree(("quant_method", stated.as_ref()), ("method", other.as_ref()));
    let stated = stated.or(other).or_else(|| method.map(Value::from)).unwrap_or(Value::Null);
    let name = stated.as_str().map(str::to_ascii_lowercase);
    let Some(method) = METHODS.iter().find(|method| name.as_deref() == Some(method.name)) else {
        const ACCEPTED: &str = "awq, gptq, compressed-tensors, fp8, fbgemm_fp8 or modelopt";
        keys.unsupported("quant_method", &stated, "stores weights in a way that is not read", ACCEPTED);
        return Err(keys.faults);
    };
    let plan = (method.read)(&mut keys, &modules(spec));
    let faults = keys.finish(&method.known.concat());
    if faults.is_empty() { Ok(plan) } else { Err(faults) }
}

/// The linear layers of a model.
fn modules(spec: &ModelSpec) -> Vec<Module> {
    let weights = spec.tensors().into_iter().filter(|tensor| tensor.shape.len() == 2);
    let names = weights.filter_map(|tensor| tensor.name.strip_suffix(".weight").map(str::to_owned));
    let linear = names.filter(|name| !name.ends_with("embed_tokens"));
    linear.map(|name| Module { is_head: name == "lm_head", name }).collect()
}

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
