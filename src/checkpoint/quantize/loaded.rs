//! Quantising while loading: what a written checkpoint would hold, without writing it.

use std::sync::Arc;

use rayon::prelude::*;
use tilewright_kernels::quant::QuantMatrix;

use super::recipe::{QuantizeRecipe, Scheme};
use super::{QuantizeError, write};
use crate::checkpoint::Checkpoint;

impl Checkpoint {
    /// Quantises the linear layers of the decoder, as [`quantize`](super::quantize) writes them.
    ///
    /// ```no_run
    /// use tilewright::checkpoint::{Checkpoint, Scheme};
    /// let dense = Checkpoint::open("models/tiny-llama".as_ref(), &mut |_| ())?;
    /// let quantised = dense.quantised(Scheme::W4A16, Some(64))?;
    /// assert_eq!(quantised.quantized_modules().len(), 28);
    /// # Ok::<(), tilewright::checkpoint::QuantizeError>(())
    /// ```
    ///
    /// # Errors
    /// [`QuantizeError`]: for a checkpoint that is quantised already, groups that do not fit, or
    /// weights that are not numbers.
    pub fn quantised(mut self, scheme: Scheme, group: Option<usize>) -> Result<Checkpoint, QuantizeError> {
        if !self.quantized.is_empty() {
            return Err(QuantizeError::Quantized { modules: self.quantized.len() });
        }
        let recipe = QuantizeRecipe::new(scheme, group, &self.spec)?;
        let matrices = self
            .tensors
            .par_iter()
            .filter_map(|(name, weight)| {
                let module = name.strip_suffix(".weight").filter(|module| recipe.group(module).is_some())?;
                Some(write::matrix(&recipe, module, weight).map(|matrix| (name.clone(), Arc::new(matrix))))
            })
            .collect::<Result<Vec<(String, Arc<QuantMatrix>)>, QuantizeError>>()?;
        for (name, matrix) in matrices {
            self.tensors.remove(&name);
            self.quantized.insert(name, matrix);
        }
        Ok(self)
    }
}
