//! `quant_method: compressed-tensors`: groups of modules, each with its format and arguments.

use serde_json::{Map, Value};
use tilewright_graph::models::keys::{ANY, EMPTY, Inert, Keys, KnownKey, known};

use super::args;
use super::pattern::{Pattern, Rank, RegexBudget};
use crate::checkpoint::fault::ConfigFault;
use crate::checkpoint::quant::stored::{ACTIVATIONS, KV_CACHE, Module, take_names};
use crate::checkpoint::{QuantPlan, StoredModule};

const COMPRESSED: Inert =
    Inert { text: "\"compressed\"", test: |value| value.is_null() || value.as_str() == Some("compressed") };

/// Nothing, or a format that leaves weights as they are.
const DENSE: Inert = Inert {
    text: "nothing in it, or format dense",
    test: |value| (EMPTY.test)(value) || value.get("format").and_then(Value::as_str) == Some("dense"),
};

/// Nothing, or an object of nothing.
const HOLLOW: Inert = Inert {
    text: "nothing in it",
    test: |value| (EMPTY.test)(value) || value.as_object().is_some_and(|map| map.values().all(EMPTY.test)),
};

pub(super) const KNOWN: &[KnownKey] = &[
    known("quantization_status", "how far the checkpoint is compressed", COMPRESSED),
    known("global_compression_ratio", "a figure about the file", ANY),
    known("version", "the program that wrote the file", ANY),
    known("sparsity_config", "leaves out weights that are 0", DENSE),
    known("transform_config", "transforms activations before the linear layers", HOLLOW),
];

/// A group of `config_groups`.
struct ConfigGroup {
    name: String,
    targets: Vec<Pattern>,
    /// `None`: the group's weights are not quantised.
    stored: Option<StoredModule>,
}

/// Takes the keys.
pub(super) fn read(keys: &mut Keys, modules: &[Module]) -> QuantPlan {
    let mut plan = QuantPlan::default();
    let format = keys.take_value("format");
    args::check_format(keys, format.as_ref());
    let names = take_names(keys, "ignore");
    let work = RegexBudget::default();
    let ignore = patterns(keys, &work, "ignore", names);
    if keys.take_value("kv_cache_scheme").is_some() {
        plan.note(KV_CACHE);
    }
    let groups = match keys.take("config_groups") {
        Some(Value::Object(groups)) => groups,
        Some(value) => {
            keys.wrong_type("config_groups", &value, "an object");
            return plan;
        }
        None => {
            let key = keys.name("config_groups");
            keys.faults.push(ConfigFault::Missing { key });
            return plan;
        }
    };
    let mut read = Vec::new();
    for (name, value) in groups {
        let prefix = format!("config_groups.{name}");
        let (targets, stored, activations) = match value {
            Value::Array(_) => of_preset(keys, &name, value, format.as_ref()),
            Value::Object(map) => of_group(keys, &prefix, map, format.as_ref()),
            value => {
                keys.wrong_type(&prefix, &value, "an object, or a list of names under a preset");
                continue;
            }
        };
        if activations {
            plan.note(ACTIVATIONS);
        }
        read.push(ConfigGroup { targets: patterns(keys, &work, &format!("{prefix}.targets"), targets), stored, name });
    }
    for module in
        modules.iter().filter(|module| !ignore.iter().any(|pattern| pattern.matches(&work, &module.name).is_some()))
    {
        if let Some(stored) = choose(keys, &work, &read, &module.name) {
            plan.modules.insert(module.name.clone(), stored);
        }
    }
    work.finish(keys);
    plan
}

/// A list of names under a preset.
fn of_preset(
    keys: &mut Keys,
    name: &str,
    value: Value,
    format: Option<&Value>,
) -> (Vec<String>, Option<StoredModule>, bool) {
    let mut list = Keys::new(keys.name("config_groups."), Map::from_iter([(name.to_owned(), value)]));
    let targets = take_names(&mut list, name);
    keys.faults.append(&mut list.faults);
    let found = args::of_preset(keys, name, format);
    (targets, found.map(|found| found.0), found.is_some_and(|found| found.1))
}

/// A group with arguments of its own: targets, scheme, and whether it quantises activations.
fn of_group(
    keys: &mut Keys,
    prefix: &str,
    map: Map<String, Value>,
    format: Option<&Value>,
) -> (Vec<String>, Option<StoredModule>, bool) {
    let prefix = keys.name(prefix);
    let mut group = Keys::new(format!("{prefix}."), map);
    let targets = take_names(&mut group, "targets");
    let own = group.take_value("format");
    args::check_format(&mut group, own.as_ref());
    let inputs = [group.take_value("input_activations"), group.take_value("output_activations")];
    let activations = inputs.iter().any(Option::is_some);
    let stored = match group.take("weights") {
        None | Some(Value::Null) => None,
        Some(Value::Object(map)) => {
            let mut weights = Keys::new(format!("{prefix}.weights."), map);
            let stored = args::read(&mut weights, own.as_ref().or(format));
            group.faults.extend(weights.finish(args::KNOWN));
            stored
        }
        Some(value) => {
            group.wrong_type("weights", &value, "an object or null");
            None
        }
    };
    keys.faults.extend(group.finish(&[]));
    (targets, stored, activations)
}

fn patterns(keys: &mut Keys, work: &RegexBudget, key: &str, names: Vec<String>) -> Vec<Pattern> {
    let mut patterns = Vec::with_capacity(names.len());
    for name in names {
        match Pattern::target(work, &name) {
            Some(pattern) => patterns.push(pattern),
            None => keys.unsupported(
                key,
                &name.into(),
                "is not a regular expression, or too large",
                "names, classes, or re: and one",
            ),
        }
    }
    patterns
}

/// The scheme of a module: that of the group that names it most specifically.
fn choose(keys: &mut Keys, work: &RegexBudget, groups: &[ConfigGroup], module: &str) -> Option<StoredModule> {
    let rank = |group: &ConfigGroup| group.targets.iter().filter_map(|target| target.matches(work, module)).max();
    let ranked: Vec<(Rank, &ConfigGroup)> = groups.iter().filter_map(|group| Some((rank(group)?, group))).collect();
    let best = ranked.iter().map(|(rank, _)| *rank).max()?;
    let mut of_best = ranked.iter().filter(|(rank, _)| *rank == best).map(|(_, group)| *group);
    let first = of_best.next()?;
    if let Some(other) = of_best.find(|other| other.stored != first.stored) {
        let named = |group: &ConfigGroup| keys.name(&format!("config_groups.{}", group.name));
        let first_key = named(first);
        let second_key = named(other);
        let text = |group: &ConfigGroup| match group.stored {
            Some(stored) => format!("{} for {module}", stored.scheme.name),
            None => format!("dense for {module}"),
        };
        let first = text(first);
        let second = text(other);
        keys.faults.push(ConfigFault::Disagree { first_key, first, second_key, second });
        return None;
    }
    first.stored
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_nothing_out_is_inert() {
        let dense = serde_json::json!({"format": "dense", "global_sparsity": 0.1});
        assert!((DENSE.test)(&dense) && (DENSE.test)(&serde_json::json!({})));
        assert!(!(DENSE.test)(&serde_json::json!({"format": "sparse-24-bitmask"})));
        assert!((HOLLOW.test)(&serde_json::json!({"config_groups": {}})));
        assert!(!(HOLLOW.test)(&serde_json::json!({"config_groups": {"u": {"type": "hadamard"}}})));
    }
}
