//! Which weights are codes, where a configuration or the command line says so, and what a step reads of them.

use std::collections::BTreeMap;

use thiserror::Error;
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::program::Quantised;

use crate::checkpoint::{Plan, Scheme};
use crate::cli::Failure;

/// The forms of quantised weights with their columns, by the tensors' names; all others are bf16.
pub(super) struct Forms(BTreeMap<String, (Quantised, usize)>);

/// Weights that are quantised already.
#[derive(Debug, Error)]
#[error("the configuration has {modules} quantised modules; --weights is for dense weights, leave it out")]
struct Already {
    modules: usize,
}

/// A weight that several devices do not share.
#[derive(Debug, Error)]
#[error("weight `{weight}` has an act-order of groups, whose columns {devices} devices cannot share; plan for one")]
pub(super) struct NotShared {
    weight: String,
    devices: usize,
}

impl Forms {
    pub fn of(spec: &ModelSpec, quantization: Option<Plan>, scheme: Option<Scheme>) -> Result<Forms, Failure> {
        let plan = quantization.filter(|plan| !plan.is_empty());
        match (plan, scheme) {
            (Some(plan), Some(_)) => Err(Already { modules: plan.len() }.into()),
            (Some(plan), None) => Ok(Forms(plan.forms(spec))),
            (None, Some(scheme)) => Ok(Forms(scheme.forms(spec)?)),
            (None, None) => Ok(Forms(BTreeMap::new())),
        }
    }

    pub fn get(&self, tensor: &str) -> Option<(Quantised, usize)> {
        self.0.get(tensor).copied()
    }

    /// The first weight that devices would share by columns, and cannot.
    pub fn not_shared(&self, devices: usize) -> Option<NotShared> {
        let by_columns = |name: &str| ["o_proj.weight", "down_proj.weight"].iter().any(|kind| name.ends_with(kind));
        let mut ordered = self.0.iter().filter(|(_, (form, _))| form.ordered && form.group.is_some());
        let (weight, _) = ordered.find(|(name, _)| devices > 1 && by_columns(name))?;
        Some(NotShared { weight: weight.clone(), devices })
    }

    /// Bytes of weights that a step of so many rows reads: of an embedding table that is not the output's, the rows that it looks up.
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
