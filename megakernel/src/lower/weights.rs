//! The weight buffers of a device: one per tensor of the model or its part of it, and the rotary
//! table.

use std::collections::HashMap;

use tilewright_graph::Graph;
use tilewright_graph::graph::RopeTable;
use tilewright_layout::DType;

use super::nodes::WeightProduct;
use super::options::LowerError;
use super::share::{TensorShare, part};
use super::stage::Stage;
use crate::model::{ModelSizes, ModelSpec};
use crate::ops::Projection;
use crate::program::{BufferId, BufferKind, DeviceId, Program, Source, Span};

/// Buffers of the model's tensors by name, as one device has them.
pub(super) struct WeightBuffers {
    by_name: HashMap<String, BufferId>,
    /// Rotary frequencies, f32 `[head_dim / 2]`.
    pub inv_freq: BufferId,
}

/// The inputs from which the weight buffers of a stage are derived.
pub(super) struct StageWeights<'a> {
    pub spec: &'a ModelSpec,
    /// The model's graph as it is lowered.
    pub graph: &'a Graph,
    pub rope: &'a RopeTable,
    /// Extents of a device's parts.
    pub share: &'a ModelSizes,
    pub stage: Stage,
    /// The type of a tensor.
    pub dtype_of: &'a dyn Fn(&str) -> DType,
}

impl WeightBuffers {
    /// Adds the weight buffers of every device to a stage's program.
    pub fn add(program: &mut Program, of: StageWeights<'_>) -> Result<Vec<WeightBuffers>, LowerError> {
        let StageWeights { spec, graph, rope, share, stage, dtype_of } = of;
        let devices = program.devices;
        let mut by_name = vec![HashMap::new(); devices];
        let mut offsets = HashMap::new();
        for weight in &graph.parts().weights {
            let known = *offsets.entry(weight.tensor.as_str()).or_insert(weight.offset);
            if known != weight.offset {
                return Err(LowerError::Offsets { name: weight.tensor.clone(), offsets: [known, weight.offset] });
            }
        }
        for tensor in stage.tensors(spec) {
            let dtype = dtype_of(&tensor.name);
            if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
                return Err(LowerError::WeightDType { name: tensor.name, found: dtype });
            }
            let name = &tensor.name;
            let offset = offsets.get(name.as_str()).copied().filter(|offset| *offset != 0.0);
            let dtype = if offset.is_some() { DType::F32 } else { dtype };
            // A weight that every device has whole is one buffer, with a copy on each device.
            let mut whole = None;
            for (device, by_name) in by_name.iter_mut().enumerate() {
                let part = if devices == 1 { TensorShare::All } else { part(name, spec, share, device, devices) };
                let id = match part {
                    TensorShare::None => continue,
                    TensorShare::All => *whole.get_or_insert_with(|| {
                        let id = program.add_buffer(name, BufferKind::Weight, dtype, &tensor.shape);
                        let buffer = &mut program.buffers[id.index()];
                        buffer.source = Some(Source::Tensor(name.clone()));
                        buffer.offset = offset;
                        id
                    }),
                    TensorShare::Of { dim, span } => {
                        let mut index: Vec<Span> = tensor.shape.iter().map(|&extent| Span::all(extent)).collect();
                        index[dim] = span;
                        let shape: Vec<usize> = index.iter().map(|span| span.len()).collect();
                        let id = program.add_buffer(format!("{name}.dev{device}"), BufferKind::Weight, dtype, &shape);
                        let buffer = &mut program.buffers[id.index()];
                        buffer.source = Some(Source::Part { tensor: name.clone(), index });
                        buffer.offset = offset;
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
    pub fn projection(&self, product: &WeightProduct<'_>) -> Projection {
        Projection { weight: self.get(product.weight), bias: product.bias.and_then(|bias| self.find(bias)) }
    }
}
