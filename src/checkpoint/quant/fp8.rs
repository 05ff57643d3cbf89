//! `quant_method: fp8` (a scale a block or a tensor) and `fbgemm_fp8` (a scale a row).

use serde_json::Value;
use tilewright_graph::models::keys::{ANY, FALSE, Inert, Keys, KnownKey, known};

use super::pattern::{Pattern, RegexBudget};
use super::scheme::{FLOAT8, FP8_BLOCK, FP8_BLOCK_E8M0, Scheme};
use crate::checkpoint::quant::stored::{ACTIVATIONS, Module, Presence, Scales, take_names};
use crate::checkpoint::{QuantPlan, StoredModule};

const E4M3: Inert = Inert {
    text: "\"e4m3\"",
    test: |value| value.is_null() || matches!(value.as_str(), Some("e4m3" | "float8_e4m3fn")),
};

pub(super) const KNOWN: &[KnownKey] = &[
    known("fmt", "the minifloat of the codes", E4M3),
    known("dequantize", "whether a program converts when it loads", FALSE),
];

pub(super) const KNOWN_FBGEMM: &[KnownKey] = &[known("activation_scale_ub", "a bound on scales of activations", ANY)];

/// Takes the keys of `fp8`.
pub(super) fn read(keys: &mut Keys, modules: &[Module]) -> QuantPlan {
    let scheme = keys.take_value("activation_scheme");
    if let Some(value) = scheme.filter(|value| !matches!(value.as_str(), Some("dynamic" | "static"))) {
        let meaning = "quantises activations in a way that is not known";
        keys.unsupported("activation_scheme", &value, meaning, "dynamic or static");
    }
    let block = keys.take_value("weight_block_size");
    let scales = block.map_or(Scales::Tensor, |value| read_block(keys, "weight_block_size", &value));
    let exponents = keys.take_value("scale_fmt");
    let scheme = match (scales, exponents.as_ref().map(|value| value.as_str().unwrap_or_default())) {
        (Scales::Tensor, None) => &FLOAT8,
        (Scales::Block(..), None) => &FP8_BLOCK,
        (Scales::Block(..), Some("ue8m0")) => &FP8_BLOCK_E8M0,
        _ => {
            let value = exponents.unwrap_or_default();
            keys.unsupported("scale_fmt", &value, "stores scales in a way that is not read", "ue8m0, with blocks");
            &FP8_BLOCK
        }
    };
    plan(keys, modules, scheme, scales)
}

/// Takes the keys of `fbgemm_fp8`.
pub(super) fn read_fbgemm(keys: &mut Keys, modules: &[Module]) -> QuantPlan {
    plan(keys, modules, &FLOAT8, Scales::Channel)
}

fn plan(keys: &mut Keys, modules: &[Module], scheme: &'static Scheme, scales: Scales) -> QuantPlan {
    let mut names = take_names(keys, "modules_to_not_convert");
    names.extend(take_names(keys, "ignored_layers"));
    let dense: Vec<Pattern> = names.into_iter().map(Pattern::Path).collect();
    let zeros = Presence::Absent;
    let order = Presence::Absent;
    let stored = StoredModule { scheme, scales, zeros, symmetric: true, order };
    let mut plan = QuantPlan::default();
    let work = RegexBudget::default();
    for module in modules.iter().filter(|module| !module.is_head) {
        if !dense.iter().any(|pattern| pattern.matches(&work, &module.name).is_some()) {
            plan.modules.insert(module.name.clone(), stored);
        }
    }
    plan.note(ACTIVATIONS);
    work.finish(keys);
    plan
}

/// The rows and columns of a block.
pub(super) fn read_block(keys: &mut Keys, key: &str, value: &Value) -> Scales {
    let old = |text: &str| {
        let (rows, columns) = text.split_once('x')?;
        Some((rows.parse::<u32>().ok()?, columns.parse::<u32>().ok()?))
    };
    let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
    let block = match value {
        Value::Array(list) if list.len() == 2 => number(&list[0]).zip(number(&list[1])),
        Value::String(text) => old(text),
        _ => None,
    };
    match block {
        Some((rows @ 1.., columns @ 1..)) => Scales::Block(rows as usize, columns as usize),
        _ => {
            keys.wrong_type(key, value, "the rows and columns of a block, such as [128, 128]");
            Scales::Block(128, 128)
        }
    }
}
