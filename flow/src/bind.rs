//! A flow for a model: every extent a number, every parameter with its values.

use std::collections::BTreeMap;

use tilewright_graph::Graph;
use tilewright_graph::dim::ModelShape;
use tilewright_graph::dim::{Dim, ExtentError, InnerShape};
use tilewright_graph::graph::ValueId;
use tilewright_graph::op::Op;
use tilewright_graph::rows::Source;
use tilewright_layout::DType;
use tilewright_layout::tensor::{ShapeError, TensorId, TensorPlace, VTensor};

use crate::declare::Declarations;
use crate::error::BindError;
use crate::flow::{FlowPass, Traced};

/// The inner extents of everything in a flow, for a model. Only [`Traced::extents`] makes one.
#[derive(Clone, Debug)]
pub struct FlowExtents {
    /// The model.
    pub model: ModelShape,
    /// The shapes of the cache pass's values.
    pub cache: Vec<[usize; 2]>,
    /// The shapes of the indexer's values.
    pub indexer: Vec<[usize; 2]>,
    /// The shapes of the fields.
    pub fields: Vec<[usize; 2]>,
    /// The shapes of the states.
    pub states: Vec<[usize; 2]>,
    /// The shapes of the parameters.
    pub parameters: Vec<[usize; 2]>,
}

impl FlowExtents {
    /// The shapes of a pass's values.
    pub fn of(&self, pass: FlowPass) -> &[[usize; 2]] {
        match pass {
            FlowPass::Cache => &self.cache,
            FlowPass::Indexer => &self.indexer,
        }
    }
}

/// Values of parameters by name: row-major `[key heads, d0, d1]`, for one layer.
pub type Parameters = BTreeMap<String, Vec<f64>>;

/// A flow bound to a model and its parameters: what machines take. Only [`Traced::bind`] makes one.
#[derive(Clone, Debug)]
pub struct BoundFlow<'f> {
    /// The flow.
    pub traced: &'f Traced,
    /// Its extents.
    pub extents: FlowExtents,
    /// Its parameters, by number.
    parameters: Vec<Vec<f64>>,
}

impl Traced {
    /// The extents of the flow in a model.
    ///
    /// # Errors
    /// [`BindError`]: what the flow asks for and the model does not have.
    pub fn extents(&self, model: &ModelShape) -> Result<FlowExtents, BindError> {
        for dim in [Dim::GROUP, Dim::HEAD_DIM, Dim::BLOCK] {
            dim.bind(model)?;
        }
        if model.kv_heads == 0 {
            return Err(BindError::NoHeads);
        }
        // The query and the keys of a block, which machines hold for all heads.
        for dim in [Dim::GROUP, Dim::BLOCK] {
            InnerShape([dim, Dim::HEAD_DIM]).bind(model)?;
        }
        for requirement in &self.requirements {
            requirement.check(model)?;
        }
        let of_graph =
            |graph: &Graph| graph.ids().map(|id| graph.row(id).shape.bind(model)).collect::<Result<Vec<_>, _>>();
        let Declarations { fields, states, parameters } = &self.declared;
        Ok(FlowExtents {
            model: *model,
            cache: of_graph(&self.cache)?,
            indexer: of_graph(&self.indexer)?,
            fields: fields.iter().map(|field| field.shape.bind(model)).collect::<Result<_, _>>()?,
            states: states.iter().map(|state| state.shape.bind(model)).collect::<Result<_, _>>()?,
            parameters: parameters.iter().map(|parameter| parameter.shape.bind(model)).collect::<Result<_, _>>()?,
        })
    }

    /// The flow for a model, with its parameters.
    ///
    /// # Errors
    /// [`BindError`]: what the flow asks for and the model does not have; a parameter that is
    /// missing or of another size.
    pub fn bind(&self, model: &ModelShape, parameters: &Parameters) -> Result<BoundFlow<'_>, BindError> {
        let extents = self.extents(model)?;
        let mut values = Vec::new();
        for (decl, shape) in self.declared.parameters.iter().zip(&extents.parameters) {
            let elements = shape[0] * shape[1];
            let too_many = || ExtentError::Extent { dim: decl.shape.elements(), model: *model };
            let wanted = elements.checked_mul(model.kv_heads).ok_or_else(too_many)?;
            let given = parameters
                .get(&decl.name)
                .ok_or_else(|| BindError::ParameterMissing { name: decl.name.clone(), elements })?;
            if given.len() != wanted {
                let name = decl.name.clone();
                let found = given.len();
                let heads = model.kv_heads;
                return Err(BindError::ParameterLength { name, found, wanted, heads, shape: *shape });
            }
            values.push(given.clone());
        }
        Ok(BoundFlow { traced: self, extents, parameters: values })
    }

    /// The metadata of a value of the indexer: shape with an unknown number of rows, type, format.
    ///
    /// # Errors
    /// [`ShapeError`] where an extent has no padded one.
    pub fn vtensor(&self, extents: &FlowExtents, id: ValueId) -> Result<VTensor, ShapeError> {
        let [d0, d1] = extents.indexer[id.index()];
        let dtype = self.dtype(self.indexer.op(id));
        VTensor::new(
            &[0, d0, d1],
            dtype,
            TensorPlace::Device(0),
            self.indexer.row(id).format,
            TensorId(id.index() as u32),
        )
    }

    /// The type that an op's value is kept in: what was declared, bf16 for queries, keys and
    /// values, f32 in between.
    pub fn dtype(&self, op: &Op) -> DType {
        let declared = &self.declared;
        match *op {
            Op::Load { from: source } | Op::Store { to: source, .. } => match source {
                Source::Query | Source::Keys | Source::Values | Source::Parameter(_) => DType::BF16,
                Source::Field(id) => declared.fields[id.index()].dtype,
                Source::State(id) => declared.states[id.index()].dtype,
                Source::Positions => DType::U32,
            },
            Op::Fill { field, .. } => declared.fields[field.index()].dtype,
            Op::Select { .. } => DType::U32,
            _ => DType::F32,
        }
    }
}

impl BoundFlow<'_> {
    /// The values of a parameter for a key head, row-major.
    pub fn parameter(&self, index: usize, head: usize) -> &[f64] {
        let [d0, d1] = self.extents.parameters[index];
        &self.parameters[index][head * d0 * d1..][..d0 * d1]
    }
}
