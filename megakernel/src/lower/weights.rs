//! The weight buffers of a device: one per tensor of the model or its part of it, and the rotary
//! table.

use std::collections::HashMap;

use tilewright_graph::graph::RopeTable;
use tilewright_layout::DType;

use super::nodes::Product;
use super::options::LowerError;
use super::share::{Part, part};
use super::stage::Stage;
use crate::model::{ModelSizes, ModelSpec};
use crate::program::{BufferId, BufferKind, DeviceId, Program, Projection, Source, Span};

/// Buffers of the model's tensors by name, as one device has them.
pub(super) struct WeightBuffers {
    by_name: HashMap<String, BufferId>,
    /// Rotary frequencies, f32 `[head_dim / 2]`.
    pub inv_freq: BufferId,
}

impl WeightBuffers {
    /// Adds the weight buffers of every device of a stage's program; `share` is the model as each
    /// of them sees it.
    pub fn add(
        program: &mut Program,
        spec: &ModelSpec,
        share: &ModelSizes,
        rope: &RopeTable,
        stage: Stage,
        dtype_of: &dyn Fn(&str) -> DType,
    ) -> Result<Vec<WeightBuffers>, LowerError> {
        let devices = program.devices;
        let mut by_name = vec![HashMap::new(); devices];
        for tensor in stage.tensors(spec) {
            let dtype = dtype_of(&tensor.name);
            if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
                return Err(LowerError::WeightDType { name: tensor.name, found: dtype });
            }
            let name = &tensor.name;
            // What every device has whole is one buffer, of which each has its own.
            let mut whole = None;
            for (device, by_name) in by_name.iter_mut().enumerate() {
                let part = if devices == 1 { Part::All } else { part(name, spec, share, device, devices) };
                let id = match part {
                    Part::None => continue,
                    Part::All => *whole.get_or_insert_with(|| {
                        let id = program.add_buffer(name, BufferKind::Weight, dtype, &tensor.shape);
                        program.buffers[id.index()].source = Some(Source::Tensor(name.clone()));
                        id
                    }),
                    Part::Of { dim, span } => {
                        let mut index: Vec<Span> = tensor.shape.iter().map(|&extent| Span::all(extent)).collect();
                        index[dim] = span;
                        let shape: Vec<usize> = index.iter().map(|span| span.len()).collect();
                        let id = program.add_buffer(format!("{name}.dev{device}"), BufferKind::Weight, dtype, &shape);
                        let buffer = &mut program.buffers[id.index()];
                        buffer.source = Some(Source::Part { tensor: name.clone(), index });
                        buffer.device = Some(DeviceId::from(device));
                        id
                    }
                };
                by_name.insert(name.clone(), id);
            }
        }
        let inv_freq = program.add_buffer("rope.inv_freq", BufferKind::Weight, DType::F32, &[rope.frequencies.len()]);
        program.buffers[inv_freq.index()].source = Some(Source::Values(rope.frequencies.clone()));
        Ok(by_name.into_iter().map(|by_name| WeightBuffers { by_name, inv_freq }).collect())
    }

    /// The buffer of a tensor that the stage reads and every device has.
    pub fn get(&self, name: &str) -> BufferId {
        self.find(name).unwrap_or_else(|| unreachable!("the stage's tensor list has `{name}`"))
    }

    /// The buffer of a tensor, if the device has it.
    pub fn find(&self, name: &str) -> Option<BufferId> {
        self.by_name.get(name).copied()
    }

    /// The weight of a product, and its bias if the device adds it.
    pub fn projection(&self, product: &Product<'_>) -> Projection {
        Projection { weight: self.get(product.weight), bias: product.bias.and_then(|bias| self.find(bias)) }
    }
}
