//! A safetensors file written tensor by tensor: sizes are known before contents, so no more than a
//! few matrices are held.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;

use rayon::prelude::*;
use serde_json::{Map, json};
use tilewright_kernels::quant::QuantMatrix;
use tilewright_megakernel::model::TensorSpec;
use tilewright_megakernel::weights::{WeightTensor, Weights};

use super::QuantizeError;
use super::recipe::{PlannedTensor, QuantizeRecipe, format_name};
use crate::checkpoint::{Checkpoint, Progress};

/// Matrices that are quantised at once.
const BATCH: usize = 16;

/// A tensor of the model, with the module whose weight it is, if that module is quantised.
struct ModelTensor {
    spec: TensorSpec,
    weight: WeightTensor,
    module: Option<String>,
}

/// Writes all tensors; gives the bytes of the weights before and after.
pub(super) fn weights(
    checkpoint: &Checkpoint,
    recipe: &QuantizeRecipe,
    path: &Path,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<[u64; 2], QuantizeError> {
    let failed = |source| QuantizeError::Write { path: path.to_owned(), source };
    let pieces: Vec<ModelTensor> =
        checkpoint.spec().tensors().into_iter().filter_map(|spec| piece(checkpoint, recipe, spec)).collect();
    let planned: Vec<PlannedTensor> = pieces.iter().flat_map(|piece| piece.planned(recipe)).collect();
    let mut out = BufWriter::new(File::create(path).map_err(failed)?);
    out.write_all(&header(&planned)).map_err(failed)?;
    let total: u64 = pieces.iter().map(|piece| piece.bytes().len() as u64).sum();
    let mut done = 0;
    let mut told = |done| match progress(Progress { done, total }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(QuantizeError::Stopped),
    };
    told(done)?;
    for batch in pieces.chunks(BATCH) {
        let contents: Vec<_> = batch.par_iter().map(|piece| piece.contents(recipe)).collect();
        for (piece, contents) in batch.iter().zip(contents) {
            for bytes in contents? {
                out.write_all(&bytes).map_err(failed)?;
            }
            done += piece.bytes().len() as u64;
            told(done)?;
        }
    }
    out.flush().map_err(failed)?;
    Ok([total, planned.iter().map(|tensor| tensor.bytes as u64).sum()])
}

fn piece(checkpoint: &Checkpoint, recipe: &QuantizeRecipe, spec: TensorSpec) -> Option<ModelTensor> {
    let weight = checkpoint.tensor(&spec.name)?;
    let module = spec.name.strip_suffix(".weight").filter(|module| recipe.group(module).is_some()).map(str::to_owned);
    Some(ModelTensor { spec, weight, module })
}

impl ModelTensor {
    fn bytes(&self) -> &[u8] {
        self.weight.bytes().as_ref()
    }

    fn extents(&self) -> [usize; 2] {
        extents(&self.spec.shape)
    }

    fn planned(&self, recipe: &QuantizeRecipe) -> Vec<PlannedTensor> {
        match &self.module {
            Some(module) => recipe.planned(module, self.extents(), self.weight.dtype()),
            None => {
                let name = self.spec.name.clone();
                let shape = self.spec.shape.clone();
                vec![PlannedTensor { name, dtype: format_name(self.weight.dtype()), shape, bytes: self.bytes().len() }]
            }
        }
    }

    fn contents(&self, recipe: &QuantizeRecipe) -> Result<Vec<Vec<u8>>, QuantizeError> {
        let Some(module) = &self.module else { return Ok(vec![self.bytes().to_vec()]) };
        let matrix = matrix(recipe, module, &self.weight)?;
        Ok(recipe.contents(&matrix, self.weight.dtype()))
    }
}

/// A module's weight, quantised.
pub(super) fn matrix(
    recipe: &QuantizeRecipe,
    module: &str,
    weight: &WeightTensor,
) -> Result<QuantMatrix, QuantizeError> {
    let dtype = weight.dtype();
    let wide = weight.to_f32_vec().ok_or_else(|| QuantizeError::Dtype { module: module.to_owned(), found: dtype })?;
    recipe.quantize(module, &wide, extents(weight.shape()), dtype)
}

fn extents(shape: &[usize]) -> [usize; 2] {
    [shape.first().copied().unwrap_or(1), shape.get(1).copied().unwrap_or(1)]
}

/// The file's length field and header, padded so that the data are aligned.
fn header(planned: &[PlannedTensor]) -> Vec<u8> {
    let mut map = Map::new();
    let mut at = 0;
    map.insert("__metadata__".to_owned(), json!({"format": "pt"}));
    for tensor in planned {
        let offsets = [at, at + tensor.bytes];
        at = offsets[1];
        let entry = json!({"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": offsets});
        map.insert(tensor.name.clone(), entry);
    }
    let text = serde_json::Value::Object(map).to_string();
    let padded = text.len().next_multiple_of(8);
    let mut header = (padded as u64).to_le_bytes().to_vec();
    header.extend(format!("{text:padded$}").bytes());
    header
}
