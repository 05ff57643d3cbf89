//! Parameters of a flow in a file: a safetensors file with a tensor for each layer and parameter.
//!
//! Tensor `layers.L.NAME` is f32 `[key heads, d0, d1]`; the text `flow` of `__metadata__` names the
//! flow.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Metadata, TensorView, serialize};
use safetensors::{Dtype, SafeTensorError, SafeTensors};
use thiserror::Error;
use tilewright_flow::program::FlowSettings;
use tilewright_flow::{BindError, ModelShape, Parameters};
use tilewright_megakernel::model::{ModelSizes, ModelSpec};

use crate::input;

/// Key of the flow's name in a file's text.
const FLOW: &str = "flow";
/// Most bytes of a file of parameters.
const LIMIT: u64 = 1 << 30;

/// Why a file does not have the parameters of a flow.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the message names every field")]
#[non_exhaustive]
pub enum ParametersError {
    #[error("flow parameters `{}` cannot be read", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("flow parameters `{}` are no safetensors file", path.display())]
    Format { path: PathBuf, source: SafeTensorError },
    #[error("flow `{flow}` has no parameters; leave `{}` out", path.display())]
    None { path: PathBuf, flow: String },
    #[error("`{}` has the parameters of flow `{found}`, and flow `{flow}` is asked for", path.display())]
    OtherFlow { path: PathBuf, found: String, flow: String },
    #[error("`{}` lacks tensor `{tensor}`, which flow `{flow}` needs of each layer of this model", path.display())]
    Missing { path: PathBuf, tensor: String, flow: String },
    #[error("`{}` has a tensor `{tensor}`, which flow `{flow}` does not know in a model of {layers} layers", path.display())]
    Unknown { path: PathBuf, tensor: String, flow: String, layers: usize },
    #[error(
        "tensor `{tensor}` of `{}` is {dtype:?} {found:?}; flow `{flow}` takes F32 {wanted:?} of this model", path.display()
    )]
    Shape { path: PathBuf, tensor: String, dtype: Dtype, found: Vec<usize>, wanted: [usize; 3], flow: String },
    #[error("tensor `{tensor}` of `{}` has a value that is not a finite number, at {at}", path.display())]
    NotFinite { path: PathBuf, tensor: String, at: usize },
    #[error(transparent)]
    Bind(#[from] BindError),
}

fn tensor_name(layer: usize, parameter: &str) -> String {
    format!("layers.{layer}.{parameter}")
}

/// Names and shapes of a flow's parameters in each layer of a model, `[key heads, d0, d1]`.
fn declared(flow: &FlowSettings, spec: &ModelSizes) -> Result<Vec<(String, [usize; 3])>, BindError> {
    let ModelSizes { kv_heads, head_dim, .. } = *spec;
    let model = ModelShape { kv_heads, group: spec.group(), head_dim, block_tokens: flow.block_tokens() };
    let extents = flow.traced().extents(&model)?;
    let each = flow.traced().declared.parameters.iter().zip(extents.parameters);
    Ok(each.map(|(parameter, [d0, d1])| (parameter.name.clone(), [kv_heads, d0, d1])).collect())
}

/// Reads the parameters of a flow for a model: by layer, as [`FlowSettings::with_parameters`] takes
/// them.
///
/// ```no_run
/// use tilewright::engine::{Device, Engine, read_flow_parameters};
/// use tilewright_flow::{algorithms, memory::Budget, program::FlowSettings};
///
/// let engine = Engine::load("models/tiny-llama".as_ref(), Device::cpu())?;
/// let flow = FlowSettings::new(algorithms::named("q-filter")?.trace()?, 16, Budget::new(64, 0.0, 1, 1)?)?;
/// let parameters = read_flow_parameters("filters.safetensors".as_ref(), &flow, engine.spec())?;
/// let engine = engine.with_flow(flow.with_parameters(parameters))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`ParametersError`]: if the file cannot be read, belongs to another flow, lacks a tensor, has an
/// additional tensor, or one of another shape.
pub fn read_flow_parameters(
    path: &Path,
    flow: &FlowSettings,
    spec: &ModelSpec,
) -> Result<Vec<Parameters>, ParametersError> {
    let name = || flow.traced().name.clone();
    let declared = declared(flow, spec)?;
    if declared.is_empty() {
        return Err(ParametersError::None { path: path.into(), flow: name() });
    }
    let bytes = input::read_bytes(path, LIMIT)
        .map_err(|error| ParametersError::Read { path: path.into(), source: error.into() })?;
    let format = |source| ParametersError::Format { path: path.into(), source };
    let (_, metadata) = SafeTensors::read_metadata(&bytes).map_err(format)?;
    if let Some(found) = flow_of(&metadata).filter(|found| *found != flow.traced().name) {
        return Err(ParametersError::OtherFlow { path: path.into(), found: found.into(), flow: name() });
    }
    let file = SafeTensors::deserialize(&bytes).map_err(format)?;
    let known = |tensor: &str| {
        let of_layer = |layer| declared.iter().any(|(parameter, _)| tensor == tensor_name(layer, parameter));
        (0..spec.layers).any(of_layer)
    };
    let mut names = file.names();
    names.sort_unstable();
    if let Some(tensor) = names.into_iter().find(|tensor| !known(tensor)) {
        let tensor = tensor.to_owned();
        let layers = spec.layers;
        return Err(ParametersError::Unknown { path: path.into(), tensor, flow: name(), layers });
    }
    let read = |layer: usize| {
        let of = |(parameter, wanted): &(String, [usize; 3])| {
            let tensor = tensor_name(layer, parameter);
            let Ok(view) = file.tensor(&tensor) else {
                return Err(ParametersError::Missing { path: path.into(), tensor, flow: name() });
            };
            if view.dtype() != Dtype::F32 || view.shape() != wanted {
                let dtype = view.dtype();
                let found = view.shape().to_vec();
                let wanted = *wanted;
                return Err(ParametersError::Shape { path: path.into(), tensor, dtype, found, wanted, flow: name() });
            }
            let (words, _) = view.data().as_chunks::<4>();
            let values: Vec<f64> = words.iter().map(|&word| f64::from(f32::from_le_bytes(word))).collect();
            match values.iter().position(|value| !value.is_finite()) {
                Some(at) => Err(ParametersError::NotFinite { path: path.into(), tensor, at }),
                None => Ok((parameter.clone(), values)),
            }
        };
        declared.iter().map(of).collect()
    };
    (0..spec.layers).map(read).collect()
}

fn flow_of(metadata: &Metadata) -> Option<&str> {
    metadata.metadata().as_ref()?.get(FLOW).map(String::as_str)
}

/// The bytes of a file with the parameters of a flow, layer by layer, rounded to f32.
///
/// # Errors
/// If they are not those that the flow has in the model.
pub fn flow_parameters_file(
    flow: &FlowSettings,
    spec: &ModelSpec,
    layers: &[Parameters],
) -> Result<Vec<u8>, FileError> {
    flow.clone().with_parameters(layers.to_vec()).check(spec, flow.block_tokens())?;
    let declared = declared(flow, spec)?;
    let mut tensors = Vec::new();
    for (layer, values) in layers.iter().enumerate() {
        for (parameter, shape) in &declared {
            let bytes: Vec<u8> = values[parameter].iter().flat_map(|&x| (x as f32).to_le_bytes()).collect();
            tensors.push((tensor_name(layer, parameter), shape.to_vec(), bytes));
        }
    }
    let views = tensors.iter().map(|(name, shape, bytes)| {
        TensorView::new(Dtype::F32, shape.clone(), bytes).map(|view| (name.as_str(), view))
    });
    let views = views.collect::<Result<Vec<_>, _>>()?;
    let text = HashMap::from([(FLOW.to_owned(), flow.traced().name.clone())]);
    Ok(serialize(views, Some(text))?)
}

/// Why no file is made of parameters.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FileError {
    /// They do not fit the model.
    #[error(transparent)]
    Settings(#[from] tilewright_flow::program::SettingsError),
    /// The flow does not.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The format has no room for them.
    #[error(transparent)]
    Format(#[from] SafeTensorError),
}
