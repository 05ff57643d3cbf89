//! `quant_method: gptq`, the formats v1 and v2.

use serde_json::{Map, Value};
use tilewright_graph::models::keys::{ANY, EMPTY, FALSE, Inert, Keys, KnownKey, NULL, known};

use super::pattern::{Pattern, RegexBudget};
use super::scheme::{GPTQ_V1_U4, GPTQ_V1_U8, GPTQ_V2_U4, GPTQ_V2_U8};
use crate::checkpoint::quant::stored::{Module, Presence, Scales, take_bits, take_group};
use crate::checkpoint::{QuantPlan, StoredModule};

const INT32: Inert = Inert { text: "\"int32\"", test: |value| value.is_null() || value.as_str() == Some("int32") };

/// Keys of GPTQModel, AutoGPTQ, Optimum and transformers that say how codes were found or which
/// kernels run. GPTQModel and transformers write them for AWQ, too.
///
/// Sources: `QuantizeConfig.to_dict` of GPTQModel 1 to 6, `BaseQuantizeConfig` of AutoGPTQ 0.7,
/// `GPTQQuantizer.to_dict` of Optimum 1 and 2, `GPTQConfig` and `AwqConfig` of transformers 4
/// and 5.
pub(super) const WRITTEN: &[KnownKey] = &[
    known("pack_dtype", "the width of the words that codes are packed in", INT32),
    known("meta", "notes of the program that wrote the file", ANY),
    known("quantizer", "the program that wrote the file", ANY),
    known("model_name_or_path", "where the model was loaded from", ANY),
    known("model_file_base_name", "the name of the file of weights", ANY),
    known("static_groups", "how the codes were found", ANY),
    known("true_sequential", "how the codes were found", ANY),
    known("damp_percent", "how the codes were found", ANY),
    known("damp_auto_increment", "how the codes were found", ANY),
    known("act_group_aware", "how the codes were found", ANY),
    known("gptaq", "how the codes were found", ANY),
    known("foem", "how the codes were found", ANY),
    known("hessian", "how the codes were found", ANY),
    known("failsafe", "how the codes were found", ANY),
    known("fallback", "how the codes were found", ANY),
    known("v2", "how the codes were found", ANY),
    known("v2_alpha", "how the codes were found", ANY),
    known("v2_memory_device", "how the codes were found", ANY),
    known("mock_quantization", "leaves the codes unfitted", FALSE),
    known("calibrationless", "how the codes were found", ANY),
    known("mse", "how the codes were found", ANY),
    known("dataset", "what the codes were found with", ANY),
    known("tokenizer", "what the codes were found with", ANY),
    known("model_seqlen", "what the codes were found with", ANY),
    known("batch_size", "what the codes were found with", ANY),
    known("cache_block_outputs", "how the codes were found", ANY),
    known("pad_token_id", "how the codes were found", ANY),
    known("block_name_to_quantize", "the name of the decoder's layers", ANY),
    known("module_name_preceding_first_block", "names of modules before the decoder's layers", ANY),
    known("offload_to_disk", "how the writer used its memory", ANY),
    known("offload_to_disk_path", "how the writer used its memory", ANY),
    known("vram_strategy", "how the writer used its memory", ANY),
    known("gc_mode", "how the writer used its memory", ANY),
    known("auto_forward_data_parallel", "how the writer used its devices", ANY),
    known("compute_device_filter", "how the writer used its devices", ANY),
    known("wait_for_submodule_finalizers", "how the writer used its memory", ANY),
    known("pack_impl", "how the writer packed codes", ANY),
    known("device", "where the writer ran", ANY),
    known("moe", "how the writer treated experts", ANY),
    known("adapter", "adds a low-rank adapter to the weights", EMPTY),
    known("rotation", "rotates activations before the linear layers", NULL),
    known("use_cuda_fp16", "which kernels run", ANY),
    known("use_exllama", "which kernels run", ANY),
    known("disable_exllama", "which kernels run", ANY),
    known("exllama_config", "which kernels run", ANY),
    known("max_input_length", "which kernels run", ANY),
];

pub(super) const KNOWN: &[KnownKey] =
    &[known("is_marlin_format", "shuffles codes for one kernel", FALSE), known("backend", "which kernels run", ANY)];

/// The settings that can differ between modules.
#[derive(Clone, Copy)]
struct Settings {
    bits: u64,
    scales: Scales,
    sym: bool,
    desc_act: bool,
}

/// An entry of `dynamic`.
struct Rule {
    pattern: Pattern,
    /// `None`: the modules are not quantised.
    settings: Option<Settings>,
}

/// Takes the keys.
pub(super) fn read(keys: &mut Keys, modules: &[Module]) -> QuantPlan {
    let bits = take_bits(keys, "bits", &[4, 8], "4 or 8");
    let scales = take_group(keys, "group_size");
    let work = RegexBudget::default();
    let settings = Settings { bits, scales, sym: keys.boolean("sym", true), desc_act: keys.boolean("desc_act", false) };
    let first_format = read_format(keys);
    let head = keys.boolean("lm_head", false);
    let listed = read_listed(keys);
    let rules = read_dynamic(keys, settings, &work);
    let mut plan = QuantPlan::default();
    for module in modules.iter().filter(|module| head || !module.is_head) {
        let is_listed = |names: &Vec<String>| module.is_head || names.iter().any(|name| ends_with(&module.name, name));
        if listed.as_ref().is_some_and(|names| !is_listed(names)) {
            continue;
        }
        let rule = rules.iter().find(|rule| rule.pattern.matches(&work, &module.name).is_some());
        let Some(settings) = rule.map_or(Some(settings), |rule| rule.settings) else { continue };
        plan.modules.insert(module.name.clone(), settings.stored(first_format));
    }
    work.finish(keys);
    plan
}

impl Settings {
    fn stored(self, first_format: bool) -> StoredModule {
        let scheme = match (self.bits, first_format) {
            (4, true) => &GPTQ_V1_U4,
            (4, false) => &GPTQ_V2_U4,
            (_, true) => &GPTQ_V1_U8,
            (_, false) => &GPTQ_V2_U8,
        };
        // A group index of one group has no effect; writers may omit a trivial index.
        let ordered = self.desc_act && self.scales != Scales::Channel;
        let order = if ordered { Presence::Required } else { Presence::Optional };
        StoredModule { scheme, scales: self.scales, zeros: Presence::Required, symmetric: self.sym, order }
    }
}

/// Whether it is the first format, which stores zero points minus one.
fn read_format(keys: &mut Keys) -> bool {
    let older = keys.take_value("checkpoint_format");
    let newer = keys.take_value("format");
    keys.agree(("checkpoint_format", older.as_ref()), ("format", newer.as_ref()));
    let format = older.or(newer).unwrap_or_else(|| Value::from("gptq"));
    match format.as_str() {
        Some("gptq") => true,
        // The planes of `gptq_p` are one plane at 4 and 8 bits.
        Some("gptq_v2" | "gptq_p") => false,
        _ => {
            let meaning = "orders codes in a way that is not read";
            keys.unsupported("checkpoint_format", &format, meaning, "gptq, gptq_v2 or gptq_p");
            true
        }
    }
}

/// Takes the names of modules in a layer that alone are quantised: a list of lists.
fn read_listed(keys: &mut Keys) -> Option<Vec<String>> {
    const KEY: &str = "modules_in_block_to_quantize";
    let value = keys.take_value(KEY)?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let list = |value: &Value| match value {
        Value::Array(names) => names.iter().map(text).collect::<Option<Vec<_>>>(),
        name => text(name).map(|name| vec![name]),
    };
    let names = value.as_array().and_then(|lists| lists.iter().map(list).collect::<Option<Vec<_>>>());
    if names.is_none() {
        keys.wrong_type(KEY, &value, "lists of names");
    }
    names.map(|names| names.concat())
}

/// Whether a module's last names are these.
fn ends_with(module: &str, name: &str) -> bool {
    module.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

/// Takes the regular expressions with settings of their own; the first that matches a module
/// decides.
fn read_dynamic(keys: &mut Keys, settings: Settings, work: &RegexBudget) -> Vec<Rule> {
    let map = match keys.take_value("dynamic") {
        None | Some(Value::Bool(false)) => return Vec::new(),
        Some(Value::Object(map)) => map,
        Some(value) => {
            keys.wrong_type("dynamic", &value, "an object");
            return Vec::new();
        }
    };
    map.into_iter().filter_map(|(key, value)| read_rule(keys, &key, value, settings, work)).collect()
}

fn read_rule(keys: &mut Keys, key: &str, value: Value, settings: Settings, work: &RegexBudget) -> Option<Rule> {
    let excluded = key.strip_prefix("-:");
    let regex = excluded.or_else(|| key.strip_prefix("+:")).unwrap_or(key);
    let name = format!("dynamic.{key}");
    let Some(pattern) = Pattern::anchored(work, regex) else {
        keys.unsupported(
            &name,
            &value,
            "is not a regular expression, or too large",
            "an expression over names of modules",
        );
        return None;
    };
    if excluded.is_some() {
        return Some(Rule { pattern, settings: None });
    }
    let map = match value {
        Value::Object(map) => map,
        Value::Null => Map::new(),
        value => {
            keys.wrong_type(&name, &value, "an object");
            return None;
        }
    };
    let mut own = Keys::new(format!("{}.", keys.name(&name)), map);
    let mut settings = settings;
    if own.has("bits") {
        settings.bits = take_bits(&mut own, "bits", &[4, 8], "4 or 8");
    }
    if own.has("group_size") {
        settings.scales = take_group(&mut own, "group_size");
    }
    settings.sym = own.boolean("sym", settings.sym);
    settings.desc_act = own.boolean("desc_act", settings.desc_act);
    keys.faults.extend(own.finish(&[KNOWN, WRITTEN].concat()));
    Some(Rule { pattern, settings: Some(settings) })
}
