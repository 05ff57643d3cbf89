//! `quant_method: modelopt`, or `hf_quant_config.json`: FP8, MXFP8 and NVFP4 of ModelOpt.

use serde_json::Value;
use tilewright_graph::models::keys::{ANY, FALSE, Keys, KnownKey, NULL, known};

use super::pattern::{Pattern, RegexBudget};
use super::scheme::{FLOAT8, MODELOPT_NVFP4, MXFP8, Scheme};
use crate::checkpoint::quant::stored::{ACTIVATIONS, KV_CACHE, Module, Presence, Scales, take_names};
use crate::checkpoint::{QuantPlan, StoredModule};

pub(super) const KNOWN: &[KnownKey] = &[
    known("producer", "the program that wrote the file", ANY),
    known("config_groups", "the algorithm once more, in detail", ANY),
    known("has_zero_point", "whether codes have zero points", FALSE),
    known("pre_quant_scale", "multiplies activations before the linear layers", FALSE),
    known("clamp_val", "bounds activations", NULL),
    known("use_meta_recipe", "leaves layers unquantised by their numbers", FALSE),
    known("smoothquant_val", "used by the SmoothQuant algorithms only", ANY),
    known("mamba_ssm_cache_dtype", "the element type of states that these models lack", ANY),
    known("calibration", "how the codes were found", ANY),
];

/// `quant_algo`: scheme, what a scale covers, whether it quantises activations.
const ALGORITHMS: [(&str, &Scheme, Scales, bool); 5] = [
    ("FP8", &FLOAT8, Scales::Tensor, true),
    ("FP8_PER_CHANNEL_PER_TOKEN", &FLOAT8, Scales::Channel, true),
    ("MXFP8", &MXFP8, Scales::Group(32), true),
    ("NVFP4", &MODELOPT_NVFP4, Scales::Group(16), true),
    ("W4A16_NVFP4", &MODELOPT_NVFP4, Scales::Group(16), false),
];

/// Takes the keys: those of `config.json`, or those in `quantization` of `hf_quant_config.json`.
pub(super) fn read(keys: &mut Keys, modules: &[Module]) -> QuantPlan {
    match keys.take_value("quantization") {
        Some(Value::Object(map)) => {
            let mut inner = Keys::new(format!("{}.", keys.name("quantization")), map);
            let plan = read_algorithm(&mut inner, modules);
            keys.faults.extend(inner.finish(KNOWN));
            plan
        }
        Some(value) => {
            keys.wrong_type("quantization", &value, "an object");
            QuantPlan::default()
        }
        None => read_algorithm(keys, modules),
    }
}

fn read_algorithm(keys: &mut Keys, modules: &[Module]) -> QuantPlan {
    let value = keys.take("quant_algo").unwrap_or(Value::Null);
    let name = value.as_str().map(str::to_ascii_uppercase).unwrap_or_default();
    let Some(&(_, scheme, scales, activations)) = ALGORITHMS.iter().find(|row| row.0 == name) else {
        const ACCEPTED: &str = "FP8, FP8_PER_CHANNEL_PER_TOKEN, MXFP8, NVFP4 or W4A16_NVFP4";
        keys.unsupported("quant_algo", &value, "stores weights in a way that is not read", ACCEPTED);
        return QuantPlan::default();
    };
    if let Some(value) = keys.take_value("group_size")
        && scales != value.as_u64().map_or(Scales::Channel, |group| Scales::Group(group as usize))
    {
        keys.unsupported("group_size", &value, "is another group than the algorithm's", "16 with NVFP4, 32 with MXFP8");
    }
    let mut plan = QuantPlan::default();
    if activations {
        plan.note(ACTIVATIONS);
    }
    let caches = [keys.take_value("kv_cache_quant_algo"), keys.take_value("kv_cache_scheme")];
    if caches.iter().flatten().any(|value| value.as_str() != Some("none")) {
        plan.note(KV_CACHE);
    }
    let mut names = take_names(keys, "exclude_modules");
    names.extend(take_names(keys, "ignore"));
    let mut dense = Vec::new();
    let work = RegexBudget::default();
    for name in names {
        match Pattern::wildcard(&work, &name) {
            Some(pattern) => dense.push(pattern),
            None => {
                let meaning = "has a set of characters among its wildcards, or is too long";
                keys.unsupported("exclude_modules", &name.into(), meaning, "* and ? alone");
            }
        }
    }
    let stored = StoredModule { scheme, scales, zeros: Presence::Absent, symmetric: true, order: Presence::Absent };
    let is_dense = |module: &&Module| dense.iter().any(|pattern| pattern.matches(&work, &module.name).is_some());
    let quantised = modules.iter().filter(|module| !is_dense(module));
    plan.modules = quantised.map(|module| (module.name.clone(), stored)).collect();
    work.finish(keys);
    plan
}
