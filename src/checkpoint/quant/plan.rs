//! Reads the quantised modules of a model and their schemes, from `quantization_config` or the
//! separate file that older writers store next to `config.json`.

use std::path::Path;

use serde_json::{Map, Value};
use tilewright_graph::models::keys::{Keys, KnownKey};
use tilewright_graph::models::quote;
use tilewright_megakernel::model::ModelSpec;

use super::{awq, compressed, fp8, gptq, modelopt, mxfp4};
use crate::checkpoint::error::{CheckpointError, Faults};
use crate::checkpoint::fault::ConfigFault;
use crate::checkpoint::quant::stored::Module;
use crate::checkpoint::{QuantPlan, files, json};

/// A `quant_method`: its reader, and the keys that it does not use.
struct Method {
    name: &'static str,
    read: fn(&mut Keys, &[Module]) -> QuantPlan,
    known: &'static [&'static [KnownKey]],
}

const METHODS: [Method; 7] = [
    Method { name: "awq", read: awq::read, known: &[awq::KNOWN, gptq::WRITTEN] },
    Method { name: "gptq", read: gptq::read, known: &[gptq::KNOWN, gptq::WRITTEN] },
    Method { name: "compressed-tensors", read: compressed::read, known: &[compressed::KNOWN] },
    Method { name: "fp8", read: fp8::read, known: &[fp8::KNOWN] },
    Method { name: "fbgemm_fp8", read: fp8::read_fbgemm, known: &[fp8::KNOWN_FBGEMM] },
    Method { name: "modelopt", read: modelopt::read, known: &[modelopt::KNOWN] },
    Method { name: "mxfp4", read: mxfp4::read, known: &[mxfp4::KNOWN] },
];

/// The key of `config.json`.
const KEY: &str = "quantization_config";

/// Reads the key of `config.json` that defines the quantisation of weights. `keys` has no faults
/// yet, so the model is sound.
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

/// Files of the folder with the same settings as `config.json`, and the method of a file that does
/// not name it.
const BESIDE: [(&str, &str); 3] =
    [("quantize_config.json", "gptq"), ("quant_config.json", "awq"), ("hf_quant_config.json", "modelopt")];

/// Reads the additional files of the folder. Their settings must agree with those of `config.json`,
/// if it has any.
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
                let first_key = format!("{KEY} of config.json");
                let second_key = file.to_owned();
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
    let stated = keys.take_value("quant_method");
    let other = keys.take_value("method");
    keys.agree(("quant_method", stated.as_ref()), ("method", other.as_ref()));
    let stated = stated.or(other).or_else(|| method.map(Value::from)).unwrap_or(Value::Null);
    let name = stated.as_str().map(str::to_ascii_lowercase);
    let Some(method) = METHODS.iter().find(|method| name.as_deref() == Some(method.name)) else {
        const ACCEPTED: &str = "awq, gptq, compressed-tensors, fp8, fbgemm_fp8, modelopt or mxfp4";
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
