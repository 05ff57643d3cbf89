//! The weight buffers of a program: one per tensor of the model, and the rotary table.

use std::collections::HashMap;

use tilewright_layout::DType;

use super::options::LowerError;
use crate::model::ModelSpec;
use crate::program::{BufferId, BufferKind, Program, Projection, Source};

/// Buffers of the model's tensors by name.
pub(super) struct WeightBuffers {
    by_name: HashMap<String, BufferId>,
    /// Rotary frequencies, f32 `[head_dim / 2]`.
    pub inv_freq: BufferId,
}

impl WeightBuffers {
    /// Adds a weight buffer for every tensor of the model.
    pub fn add(
        program: &mut Program,
        spec: &ModelSpec,
        dtype_of: &dyn Fn(&str) -> DType,
    ) -> Result<WeightBuffers, LowerError> {
        let mut by_name = HashMap::new();
        for tensor in spec.tensors() {
            let found = dtype_of(&tensor.name);
            if !matches!(found, DType::F32 | DType::F16 | DType::BF16) {
                return Err(LowerError::WeightDType { name: tensor.name, found });
            }
            let id = program.add_buffer(&tensor.name, BufferKind::Weight, found, &tensor.shape);
            program.buffers[id.index()].source = Some(Source::Tensor(tensor.name.clone()));
            by_name.insert(tensor.name, id);
        }
        let inv_freq = program.add_buffer("rope.inv_freq", BufferKind::Weight, DType::F32, &[spec.head_dim / 2]);
        program.buffers[inv_freq.index()].source = Some(Source::Values(spec.rope.inv_freq.clone()));
        Ok(WeightBuffers { by_name, inv_freq })
    }

    /// The buffer of a tensor that [`ModelSpec::tensors`] lists.
    pub fn get(&self, name: &str) -> BufferId {
        self.find(name).unwrap_or_else(|| unreachable!("the model's tensor list has `{name}`"))
    }

    /// The buffer of a tensor, if the model has it.
    pub fn find(&self, name: &str) -> Option<BufferId> {
        self.by_name.get(name).copied()
    }

    /// The weight and the optional bias of a linear layer.
    pub fn projection(&self, prefix: &str) -> Projection {
        Projection { weight: self.get(&format!("{prefix}.weight")), bias: self.find(&format!("{prefix}.bias")) }
    }
}
