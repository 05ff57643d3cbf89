//! Random quantised weights of a model's shape, for benches and tests: codes are drawn, nothing is rounded to them.

use std::collections::HashMap;
use std::sync::Arc;

use half::bf16;
use rayon::prelude::*;
use tilewright_kernels::quant::{Code, QuantMatrix, QuantParts, Zeros};
use tilewright_layout::DType;

use super::random::{GOLDEN, fnv1a, random_tensor, splitmix};
use super::{WeightError, WeightTensor, Weights};
use crate::model::{ModelSpec, TensorSpec};

/// Bytes of codes that one thread draws at a time.
const TILE_BYTES: usize = 1 << 16;

/// Every tensor of a model at random: linear layers of the decoder as codes, all else as [`RandomWeights`](super::RandomWeights)
/// has it.
///
/// Codes are uniform over all that are numbers and have a counterpart, so that their mean is zero; scales of bf16 vary by a fourth, so that a matrix of `n` columns has a standard
/// deviation of about `1/sqrt(n)`.
///
/// ```
/// use tilewright_kernels::quant::Code;
/// use tilewright_layout::DType;
/// use tilewright_megakernel::model::ModelSpec;
/// use tilewright_megakernel::weights::{RandomCodes, Weights};
/// let spec = ModelSpec { layers: 1, vocab: 32, intermediate: 256, ..ModelSpec::named("llama-3.2-1b").expect("known") };
/// let weights = RandomCodes::new(&spec, DType::BF16, 7, Code::U4, Some(128))?;
/// let down = weights.quantized("model.layers.0.mlp.down_proj.weight").expect("quantised");
/// assert_eq!((down.k(), down.group(), down.has_zeros()), (256, 128, false));
/// assert!(weights.tensor("model.norm.weight").is_some());
/// # Ok::<(), tilewright_megakernel::weights::WeightError>(())
/// ```
#[derive(Clone, Debug)]
pub struct RandomCodes {
    tensors: HashMap<String, WeightTensor>,
    codes: HashMap<String, Arc<QuantMatrix>>,
}

impl RandomCodes {
    /// Makes every tensor of [`ModelSpec::tensors`]: codes in groups of `group` columns (`None`: a row is one), the rest in
    /// element type f32, f16 or bf16.
    ///
    /// # Errors
    /// As [`RandomWeights::new`](super::RandomWeights::new); [`WeightError::Codes`] for extents that no matrix has.
    pub fn new(
        spec: &ModelSpec,
        dtype: DType,
        seed: u64,
        code: Code,
        group: Option<usize>,
    ) -> Result<RandomCodes, WeightError> {
        let (mut tensors, mut codes) = (HashMap::new(), HashMap::new());
        for tensor in spec.tensors() {
            if tensor.name.ends_with("_proj.weight") {
                let matrix = random_codes(&tensor, seed, code, group)?;
                codes.insert(tensor.name, Arc::new(matrix));
            } else {
                let weight = random_tensor(&tensor, dtype, seed)?;
                tensors.insert(tensor.name, weight);
            }
        }
        Ok(RandomCodes { tensors, codes })
    }
}

impl Weights for RandomCodes {
    fn tensor(&self, name: &str) -> Option<WeightTensor> {
        self.tensors.get(name).cloned()
    }

    fn quantized(&self, name: &str) -> Option<Arc<QuantMatrix>> {
        self.codes.get(name).cloned()
    }
}

/// Drawn codes whose mean is zero: the NaNs of e4m3 become their neighbours, an integer without a counterpart the middle. A mean that is
/// not zero would grow with every layer, until logits tell nothing of the rest.
fn symmetric(code: Code, drawn: u8) -> u8 {
    let halves = |from: u8, to: u8| {
        [0x0f, 0xf0]
            .into_iter()
            .fold(drawn, |byte, half| if byte & half == from & half { byte & !half | to & half } else { byte })
    };
    match code {
        Code::U4 => halves(0x00, 0x88),
        Code::I4 => halves(0x88, 0x00),
        Code::U8 if drawn == 0 => 0x80,
        Code::I8 if drawn == 0x80 => 0,
        Code::E4m3 if drawn & 0x7f == 0x7f => drawn ^ 1,
        Code::U8 | Code::I8 | Code::E4m3 | Code::E2m1 => drawn,
    }
}

/// A function of the name, the seed, the code and the group alone.
fn random_codes(tensor: &TensorSpec, seed: u64, code: Code, group: Option<usize>) -> Result<QuantMatrix, WeightError> {
    let refused = || WeightError::Codes { tensor: tensor.name.clone(), shape: tensor.shape.clone() };
    let &[n, k] = tensor.shape.as_slice() else { return Err(refused()) };
    let key = splitmix(fnv1a(tensor.name.as_bytes()) ^ splitmix(seed));
    let word = |counter: u64| splitmix(key.wrapping_add(counter.wrapping_mul(GOLDEN)));
    let mut codes = vec![0u8; n * k.div_ceil(8 / code.bits())];
    codes.par_chunks_mut(TILE_BYTES).enumerate().for_each(|(chunk, codes)| {
        for (at, bytes) in codes.chunks_mut(8).enumerate() {
            let drawn = word((chunk * TILE_BYTES / 8 + at) as u64).to_le_bytes();
            for (byte, drawn) in bytes.iter_mut().zip(drawn) {
                *byte = symmetric(code, drawn);
            }
        }
    });
    let zero = code.middle();
    let squares =
        code.values().into_iter().filter(|value| !value.is_nan()).map(|value| (value - f32::from(zero)).powi(2));
    let deviation = (squares.sum::<f32>() / code.count() as f32).sqrt();
    let scale = 1.0 / ((k.max(1) as f32).sqrt() * deviation);
    let group = group.unwrap_or(k).max(1);
    let quarter = |at: usize| 0.75 + 0.5 * (word(!(at as u64)) >> 40) as f32 / (1u64 << 24) as f32;
    let scales: Vec<f32> = (0..n * k.div_ceil(group)).map(|at| bf16::from_f32(scale * quarter(at)).to_f32()).collect();
    let parts = QuantParts { n, k, code, group, codes, scales, zeros: Zeros::Same(zero), order: None };
    QuantMatrix::new(parts).map_err(|_| refused())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_what_is_drawn_is_zero() {
        for code in Code::ALL {
            let values = code.values();
            let value = |byte: u8| -> f32 {
                let numbers = match code.bits() {
                    4 => vec![byte & 15, byte >> 4],
                    _ => vec![byte],
                };
                numbers.into_iter().map(|number| values[usize::from(number)] - f32::from(code.middle())).sum()
            };
            let sum: f32 = (0..=255u8).map(|drawn| value(symmetric(code, drawn))).sum();
            assert_eq!(sum, 0.0, "{code:?}");
        }
    }
}
