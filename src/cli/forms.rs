//! The quantised weights, by the configuration or the command line, and the bytes that a step reads
//! of them.

use std::collections::BTreeMap;

use thiserror::Error;
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::program::Quantised;

use super::Failure;
use crate::checkpoint::{QuantPlan, Scheme};

/// The forms and columns of quantised weights by tensor name; all other weights are bf16.
#[derive(Default)]
pub struct Forms {
    forms: BTreeMap<String, (Quantised, usize)>,
    /// Their name in results, such as `w4a16`.
    name: Option<String>,
}

/// `--weights` for a model that is quantised already.
#[derive(Debug, Error)]
#[error("the configuration has {modules} quantised modules; --weights is for dense weights, leave it out")]
struct Already {
    modules: usize,
}

/// A weight that several devices cannot share.
#[derive(Debug, Error)]
#[error("weight `{weight}` has an act-order of groups, whose columns {devices} devices cannot share; plan for one")]
pub struct NotShared {
    weight: String,
    devices: usize,
}

impl Forms {
    pub fn of(spec: &ModelSpec, quantization: Option<QuantPlan>, scheme: Option<Scheme>) -> Result<Forms, Failure> {
        let plan = quantization.filter(|plan| !plan.is_empty());
        match (plan, scheme) {
            (Some(plan), Some(_)) => Err(Already { modules: plan.len() }.into()),
            (Some(plan), None) => {
                let forms = plan.forms(spec);
                let order = forms.values().any(|(form, _)| form.ordered).then_some("act-order");
                let name: Vec<&str> = plan.schemes().into_iter().chain(order).collect();
                Ok(Forms { forms, name: Some(name.join(", ")) })
            }
            (None, Some(scheme)) => Ok(Forms { forms: scheme.forms(spec)?, name: Some(scheme.to_string()) }),
            (None, None) => Ok(Forms::default()),
        }
    }

    /// Whether all weights are bf16.
    pub fn is_empty(&self) -> bool {
        self.forms.is_empty()
    }

    /// Their name in results, if any weight is quantised.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The fewest bits of a code.
    pub fn bits(&self) -> Option<usize> {
        self.forms.values().map(|(form, _)| form.code.bits()).min()
    }

    pub fn get(&self, tensor: &str) -> Option<(Quantised, usize)> {
        self.forms.get(tensor).copied()
    }

    /// The first weight whose columns the devices would share, but cannot.
    pub fn not_shared(&self, devices: usize) -> Option<NotShared> {
        let by_columns = |name: &str| ["o_proj.weight", "down_proj.weight"].iter().any(|kind| name.ends_with(kind));
        let mut ordered = self.forms.iter().filter(|(_, (form, _))| form.ordered && form.group.is_some());
        let (weight, _) = ordered.find(|(name, _)| devices > 1 && by_columns(name))?;
        Some(NotShared { weight: weight.clone(), devices })
    }

    /// Bytes of weights that a step of `rows` rows reads; of an untied embedding only the rows that
    /// are looked up.
    pub fn bytes(&self, spec: &ModelSpec, rows: usize) -> u64 {
        let mut all = 0.0;
        for tensor in spec.tensors() {
            let (n, inner) = tensor.shape.split_first().map_or((1, &[][..]), |(&n, inner)| (n, inner));
            let is_looked_up = tensor.name.contains("embed_tokens") && !spec.tied_embeddings;
            let n = if is_looked_up { rows.min(n) } else { n };
            let elements = inner.iter().fold(n as f64, |all, &extent| all * extent as f64);
            let codes = self.get(&tensor.name).and_then(|(form, k)| Some(form.codes().ok()?.bits(k as u32)));
            all += elements * codes.unwrap_or(16.0) / 8.0;
        }
        all as u64
    }
}
