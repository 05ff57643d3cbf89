//! `quant_method: awq`, version gemm.

use serde_json::Value;

use super::pattern::Pattern;
use super::plan::{Module, Plan, Presence, Stored, take_bits, take_group, take_names};
use super::scheme::AWQ_GEMM;
use crate::checkpoint::keys::{ANY, Inert, Keys, KnownKey, known};

const AUTOAWQ: Inert =
    Inert { text: "\"autoawq\"", test: |value| value.is_null() || value.as_str() == Some("autoawq") };

pub(super) const KNOWN: &[KnownKey] = &[
    known("backend", "the program that wrote the file, and with it the order of codes", AUTOAWQ),
    known("do_fuse", "which kernels run", ANY),
    known("fuse_max_seq_len", "which kernels run", ANY),
    known("modules_to_fuse", "which kernels run", ANY),
    known("exllama_config", "which kernels run", ANY),
];

/// Takes the keys, under today's names or those of `quant_config.json`.
pub(super) fn read(keys: &mut Keys, modules: &[Module]) -> Plan {
    let either = |keys: &Keys, new: &'static str, old: &'static str| if keys.has(new) { new } else { old };
    let key = either(keys, "bits", "w_bit");
    take_bits(keys, key, &[4], "4");
    let key = either(keys, "group_size", "q_group_size");
    let scales = take_group(keys, key);
    let zero_point = keys.boolean("zero_point", true);
    let version = keys.take_value("version").unwrap_or_else(|| Value::from("gemm"));
    if !version.as_str().is_some_and(|version| version.eq_ignore_ascii_case("gemm")) {
        keys.unsupported("version", &version, "orders codes in a way that is not read", "\"gemm\"");
    }
    let dense: Vec<Pattern> = take_names(keys, "modules_to_not_convert").into_iter().map(Pattern::Part).collect();
    // Without a zero point a writer may leave the tensor of zeros out.
    let zeros = if zero_point { Presence::Required } else { Presence::Optional };
    let stored = Stored { scheme: &AWQ_GEMM, scales, zeros, symmetric: !zero_point, order: Presence::Absent };
    let quantised = modules.iter().filter(|module| !module.is_head);
    let quantised = quantised.filter(|module| !dense.iter().any(|pattern| pattern.matches(&module.name).is_some()));
    Plan { modules: quantised.map(|module| (module.name.clone(), stored)).collect(), notes: Vec::new() }
}
