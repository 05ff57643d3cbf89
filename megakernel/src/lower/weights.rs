//! The weight buffers of a device: one per weight of the model's graph or the device's part of it,
//! and the rotary tables.

use std::collections::HashMap;

use tilewright_graph::Graph;
use tilewright_graph::graph::{RopeId, Weight};
use tilewright_layout::DType;

use super::nodes::{LoweredNode, ProductRole, WeightProduct};
use super::options::LowerError;
use super::share::{TensorShare, WeightRole, part};
use super::stage::Stage;
use crate::model::{LatentSizes, ModelSizes, ModelSpec};
use crate::ops::{Projection, Rotation};
use crate::program::{BufferId, BufferKind, DeviceId, Program, Source, Span};

/// Buffers of the model's weights, as one device has them.
pub(super) struct WeightBuffers {
    by_name: HashMap<String, BufferId>,
    rotations: Vec<Rotation>,
}

/// The inputs from which the weight buffers of a stage are derived.
pub(super) struct StageWeights<'a> {
    pub spec: &'a ModelSpec,
    /// The model's graph as it is lowered, and its nodes.
    pub graph: &'a Graph,
    pub nodes: &'a [LoweredNode<'a>],
    /// Extents of a device's parts.
    pub share: &'a ModelSizes,
    pub stage: Stage,
    /// The type of a tensor.
    pub dtype_of: &'a dyn Fn(&str) -> DType,
}

/// The roles of weights, by the names of their buffers.
fn roles(nodes: &[LoweredNode<'_>], latent: Option<LatentSizes>) -> HashMap<String, WeightRole> {
    let mut roles = HashMap::new();
    for node in nodes {
        let products = match node {
            LoweredNode::Embed { table, .. } => {
                roles.insert(table.label(), WeightRole::Table);
                continue;
            }
            LoweredNode::Choice(choice) => {
                roles.insert(choice.table.label(), WeightRole::Table);
                continue;
            }
            LoweredNode::Heads(heads) => heads.products.to_vec(),
            LoweredNode::Latents(heads) => {
                let (products, expansion) = heads.weights();
                if let Some(LatentSizes { plain, value, .. }) = latent {
                    roles.insert(expansion.label(), WeightRole::Expansion { plain, value });
                }
                products
            }
            LoweredNode::Added(added) => vec![added.product],
            LoweredNode::Gated(gated) => [gated.gate].into_iter().chain(gated.up).collect(),
            LoweredNode::Routed(routed) => {
                roles.extend(routed.correction.map(|correction| (correction.label(), WeightRole::Correction)));
                vec![routed.router]
            }
            LoweredNode::Attention(attended) => {
                roles.extend(attended.sinks.map(|sinks| (sinks.label(), WeightRole::Sinks)));
                continue;
            }
        };
        for WeightProduct { role, weight, bias, experts } in products {
            let [of_weight, of_bias] = match experts {
                None => [WeightRole::Product(role), WeightRole::Bias(role)],
                Some(_) => {
                    let inner = weight.shape[usize::from(role == ProductRole::Down)] as usize;
                    [WeightRole::Expert { role, inner }, WeightRole::ExpertBias { role, inner }]
                }
            };
            roles.insert(weight.label(), of_weight);
            roles.extend(bias.map(|bias| (bias.label(), of_bias)));
        }
    }
    roles
}

impl WeightBuffers {
    /// Adds the weight buffers of every device to a stage's program.
    pub fn add(program: &mut Program, of: StageWeights<'_>) -> Result<Vec<WeightBuffers>, LowerError> {
        let StageWeights { spec, graph, nodes, share, stage, dtype_of } = of;
        let devices = program.devices;
        let mut by_name = vec![HashMap::new(); devices];
        let roles = roles(nodes, spec.latent);
        for weight in weights_of(spec, graph, stage)? {
            let Weight { tensor, rows, order, experts, .. } = weight;
            let dtype = dtype_of(&first_tensor(weight));
            if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
                return Err(LowerError::WeightDType { name: tensor.clone(), found: dtype });
            }
            let name = weight.label();
            let offset = Some(weight.offset).filter(|offset| *offset != 0.0);
            let multiplier = Some(weight.factor).filter(|factor| *factor != 1.0);
            let role = roles.get(&name).copied().unwrap_or(WeightRole::Whole);
            // Scores of heads and biases of f32 results are f32.
            let is_wide =
                matches!(role, WeightRole::Sinks | WeightRole::Correction | WeightRole::Bias(ProductRole::Router));
            let dtype = if weight.is_plain() && !is_wide { dtype } else { DType::F32 };
            if let WeightRole::Expansion { plain, value } = role {
                let each = plain + value;
                let heads = weight.shape[0] as usize / each.max(1);
                let width = weight.shape[1] as usize;
                let parts = [
                    (Span::new(0, plain), true, [heads * width, plain]),
                    (Span::new(plain, each), false, [heads * value, width]),
                ];
                for (rows, transposed, shape) in parts {
                    let name = expansion_name(&name, !transposed);
                    let id = program.add_buffer(&name, BufferKind::Weight, dtype, &shape);
                    let tensor = tensor.clone();
                    program.buffers[id.index()].source = Some(Source::Heads { tensor, each, rows, transposed });
                    by_name.iter_mut().for_each(|by_name| _ = by_name.insert(name.clone(), id));
                }
                continue;
            }
            let mut whole: Vec<Span> = weight.shape.iter().map(|&extent| Span::all(extent as usize)).collect();
            if let Some(part) = rows {
                whole[part.axis] = Span::new(part.start as usize, part.end as usize);
            }
            let is_tensor = rows.is_none() && order.is_none() && experts.is_none();
            let source = |index: Vec<Span>| match *experts {
                None => Source::Part { tensor: tensor.clone(), index, order: *order },
                Some(experts) => Source::Experts { tensor: tensor.clone(), experts: experts as usize, index },
            };
            // The weights of all experts lie below each other.
            let shape = |index: &[Span]| {
                let mut shape: Vec<usize> = index.iter().map(|span| span.len()).collect();
                shape[0] *= experts.unwrap_or(1) as usize;
                shape
            };
            // A weight that every device has whole is one buffer, with a copy on each device.
            let mut shared = None;
            for (device, by_name) in by_name.iter_mut().enumerate() {
                let part = if devices == 1 { TensorShare::All } else { part(role, spec, share, device, devices) };
                let id = match part {
                    TensorShare::None => continue,
                    TensorShare::All => *shared.get_or_insert_with(|| {
                        let id = program.add_buffer(&name, BufferKind::Weight, dtype, &shape(&whole));
                        let buffer = &mut program.buffers[id.index()];
                        let of_tensor = || Source::Tensor(tensor.clone());
                        buffer.source = Some(if is_tensor { of_tensor() } else { source(whole.clone()) });
                        buffer.offset = offset;
                        buffer.multiplier = multiplier;
                        id
                    }),
                    TensorShare::Of { dim, span } => {
                        let mut index = whole.clone();
                        index[dim] = Span::new(whole[dim].lo + span.lo, whole[dim].lo + span.hi);
                        let own = format!("{name}.dev{device}");
                        let id = program.add_buffer(own, BufferKind::Weight, dtype, &shape(&index));
                        let buffer = &mut program.buffers[id.index()];
                        buffer.source = Some(source(index));
                        buffer.offset = offset;
                        buffer.multiplier = multiplier;
                        buffer.device = Some(DeviceId::from(device));
                        id
                    }
                };
                by_name.insert(name.clone(), id);
            }
        }
        let rotations: Vec<Rotation> = graph
            .parts()
            .ropes
            .iter()
            .enumerate()
            .map(|(place, table)| {
                let name = if place == 0 { "rope.inv_freq".to_owned() } else { format!("rope{place}.inv_freq") };
                let inv_freq = program.add_buffer(name, BufferKind::Weight, DType::F32, &[table.frequencies.len()]);
                program.buffers[inv_freq.index()].source = Some(Source::Values(table.frequencies.clone()));
                Rotation { inv_freq, scale: table.scale }
            })
            .collect();
        Ok(by_name.into_iter().map(|by_name| WeightBuffers { by_name, rotations: rotations.clone() }).collect())
    }

    /// The buffer of a weight that the stage reads and every device has.
    pub fn get(&self, weight: &Weight) -> BufferId {
        self.find(weight).unwrap_or_else(|| unreachable!("the stage's weights have `{}`", weight.tensor))
    }

    /// The buffer of a weight, if the device has it.
    pub fn find(&self, weight: &Weight) -> Option<BufferId> {
        self.by_name.get(&weight.label()).copied()
    }

    /// The rows of an expansion of latent vectors that results are multiplied by, or those that
    /// queries are, transposed.
    pub fn expansion(&self, weight: &Weight, of_values: bool) -> Result<BufferId, LowerError> {
        let name = expansion_name(&weight.label(), of_values);
        self.by_name.get(&name).copied().ok_or(LowerError::Changed { name })
    }

    /// The weight of a product, and its bias if the device adds it.
    pub fn projection(&self, product: &WeightProduct<'_>) -> Projection {
        Projection { weight: self.get(product.weight), bias: product.bias.and_then(|bias| self.find(bias)) }
    }

    /// The rotation by a table.
    pub fn rotation(&self, table: RopeId) -> Rotation {
        self.rotations[table.index()].clone()
    }
}

/// The name of the part of an expansion.
fn expansion_name(label: &str, of_values: bool) -> String {
    format!("{label}.{}", if of_values { "values" } else { "keys" })
}

/// The name of a weight's tensor, of several the first.
fn first_tensor(weight: &Weight) -> String {
    weight.names().into_iter().next().unwrap_or_default()
}

/// The weights of a stage, each once, in the order of the model's tensors and of their rows.
fn weights_of<'g>(spec: &ModelSpec, graph: &'g Graph, stage: Stage) -> Result<Vec<&'g Weight>, LowerError> {
    let places: HashMap<String, usize> =
        stage.tensors(spec).enumerate().map(|(place, tensor)| (tensor.name, place)).collect();
    let mut known: HashMap<String, &Weight> = HashMap::new();
    let mut weights = Vec::new();
    for weight in &graph.parts().weights {
        let Some(&place) = places.get(&first_tensor(weight)) else { continue };
        match known.insert(weight.label(), weight) {
            Some(other) if other != weight => return Err(LowerError::Changed { name: weight.tensor.clone() }),
            Some(_) => {}
            None => weights.push((place, weight.rows.map_or(0, |part| part.start), weight)),
        }
    }
    weights.sort_by_key(|(place, start, _)| (*place, *start));
    Ok(weights.into_iter().map(|(_, _, weight)| weight).collect())
}
