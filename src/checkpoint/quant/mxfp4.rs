//! `quant_method: mxfp4`: gpt-oss's experts, in groups of 32 columns.

use serde_json::Value;
use tilewright_graph::models::keys::{FALSE, Keys, KnownKey, known};

use super::scheme::GPT_OSS;
use crate::checkpoint::quant::stored::{Module, Presence, Scales, take_names};
use crate::checkpoint::{QuantPlan, StoredModule};

pub(super) const KNOWN: &[KnownKey] = &[known("dequantize", "whether a program converts when it loads", FALSE)];

/// The modules of experts have names with this.
const EXPERTS: &str = ".experts.";

/// Takes the keys: what is not converted, which is everything but experts.
pub(super) fn read(keys: &mut Keys, modules: &[Module]) -> QuantPlan {
    const KEY: &str = "modules_to_not_convert";
    let names = take_names(keys, KEY);
    if let Some(name) = names.iter().find(|name| name.contains("experts")) {
        let meaning = "says that experts are not converted, which this method converts";
        keys.unsupported(KEY, &Value::from(name.as_str()), meaning, "names of other modules");
    }
    let absent = Presence::Absent;
    let stored =
        StoredModule { scheme: &GPT_OSS, scales: Scales::Group(32), zeros: absent, symmetric: true, order: absent };
    let mut plan = QuantPlan::default();
    let experts = modules.iter().filter(|module| module.name.contains(EXPERTS));
    plan.modules.extend(experts.map(|module| (module.name.clone(), stored)));
    plan
}
