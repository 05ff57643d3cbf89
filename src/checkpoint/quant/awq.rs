//! `quant_method: awq`, version gemm.

use serde_json::Value;
use tilewright_graph::models::keys::{ANY, EMPTY, FALSE, Inert, Keys, KnownKey, known};

use super::pattern::{Pattern, RegexBudget};
use super::scheme::AWQ_GEMM;
use crate::checkpoint::fault::ConfigFault;
use crate::checkpoint::quant::stored::{Module, Presence, take_bits, take_group, take_names};
use crate::checkpoint::{QuantPlan, StoredModule};

const AUTOAWQ: Inert =
    Inert { text: "\"autoawq\"", test: |value| value.is_null() || value.as_str() == Some("autoawq") };

/// A text that names the order of codes that is read.
const GEMM: Inert = Inert {
    text: "\"gemm\"",
    test: |value| value.is_null() || value.as_str().is_some_and(|text| text.eq_ignore_ascii_case("gemm")),
};

pub(super) const KNOWN: &[KnownKey] = &[
    known("backend", "the program that wrote the file, and with it the order of codes", AUTOAWQ),
    known("checkpoint_format", "the order of codes", GEMM),
    known("format", "the order of codes", GEMM),
    known("dynamic", "gives modules settings of their own", EMPTY),
    known("desc_act", "orders columns by their activations", FALSE),
    known("lm_head", "quantises the output projection", FALSE),
    known("modules_in_block_to_quantize", "leaves modules unquantised", EMPTY),
    known("do_fuse", "which kernels run", ANY),
    known("fuse_max_seq_len", "which kernels run", ANY),
    known("modules_to_fuse", "which kernels run", ANY),
];

/// Takes the keys, under today's names or those of `quant_config.json`.
pub(super) fn read(keys: &mut Keys, modules: &[Module]) -> QuantPlan {
    let either = |keys: &Keys, new: &'static str, old: &'static str| if keys.has(new) { new } else { old };
    let key = either(keys, "bits", "w_bit");
    take_bits(keys, key, &[4], "4");
    let key = either(keys, "group_size", "q_group_size");
    let scales = take_group(keys, key);
    let stated = ["zero_point", "sym"].map(|key| keys.has(key));
    let zero_point = keys.boolean("zero_point", true);
    let symmetric = keys.boolean("sym", !zero_point);
    if stated == [true, true] && zero_point == symmetric {
        let first_key = keys.name("zero_point");
        let second_key = keys.name("sym");
        let first = zero_point.to_string();
        let second = symmetric.to_string();
        keys.faults.push(ConfigFault::Disagree { first_key, first, second_key, second });
    }
    let zero_point = zero_point && !symmetric;
    let version = keys.take_value("version").unwrap_or_else(|| Value::from("gemm"));
    if !version.as_str().is_some_and(|version| version.eq_ignore_ascii_case("gemm")) {
        keys.unsupported("version", &version, "orders codes in a way that is not read", "\"gemm\"");
    }
    let dense: Vec<Pattern> = take_names(keys, "modules_to_not_convert").into_iter().map(Pattern::Part).collect();
    let work = RegexBudget::default();
    // Without a zero point a writer may leave the tensor of zeros out.
    let zeros = if zero_point { Presence::Required } else { Presence::Optional };
    let stored = StoredModule { scheme: &AWQ_GEMM, scales, zeros, symmetric: !zero_point, order: Presence::Absent };
    let quantised = modules.iter().filter(|module| !module.is_head);
    let quantised =
        quantised.filter(|module| !dense.iter().any(|pattern| pattern.matches(&work, &module.name).is_some()));
    let modules = quantised.map(|module| (module.name.clone(), stored)).collect();
    work.finish(keys);
    QuantPlan { modules, notes: Vec::new() }
}
