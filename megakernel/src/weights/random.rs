//! Random weights of a model's shape, for benches and tests: the same for the same name and seed,
//! whatever the machine.

use std::collections::HashMap;
use std::sync::Arc;

use bytemuck::Pod;
use half::{bf16, f16};
use rayon::prelude::*;
use tilewright_codegen::frozen::fnv1a;
use tilewright_kernels::tile::Float;
use tilewright_layout::DType;

use super::{AlignedBytes, SharedBytes, WeightError, WeightTensor, Weights, byte_len};
use crate::model::{Architecture, ModelSpec, TensorSpec};
use crate::program::float_of;

/// Distinct values that one tensor can take: few enough for the table of them to stay in L1.
const LEVELS: usize = 1 << LEVEL_BITS;
const LEVEL_BITS: usize = 12;

/// Elements drawn from one 64-bit word.
const PER_WORD: usize = 64 / LEVEL_BITS;

/// The seed of [`RandomWeights::with_independent_rows`].
const SEED_OF_ROWS: u64 = 1;

/// Words that one thread draws at a time.
const WORDS_PER_CHUNK: usize = 1 << 14;

/// Every tensor of a model, filled with small random values.
///
/// A matrix of `n` columns is uniform with mean 0 and standard deviation `1/sqrt(n)`, so that
/// activations keep their size; a norm's weight is uniform in 0.9 to 1.1, a bias in -0.02 to 0.02.
/// Values are quantised to 4096 levels.
///
/// ```
/// use tilewright_layout::DType;
/// use tilewright_graph::models::Llama;
/// use tilewright_megakernel::weights::{RandomWeights, Weights};
/// let spec = Llama::small().hidden(8).inner(16);
/// let weights = RandomWeights::new(&spec, DType::BF16, 1)?;
/// let down = weights.tensor("model.layers.0.mlp.down_proj.weight").expect("a tensor of the model");
/// assert_eq!(down.shape(), [8, 16]);
/// # Ok::<(), tilewright_megakernel::weights::WeightError>(())
/// ```
#[derive(Clone, Debug)]
pub struct RandomWeights {
    tensors: HashMap<String, WeightTensor>,
}

impl RandomWeights {
    /// Makes every tensor of [`ModelSpec::tensors`](crate::model::ModelSpec::tensors) in element
    /// type f32, f16 or bf16.
    ///
    /// # Errors
    /// [`WeightError::RandomDtype`] for another element type, [`WeightError::Overflow`] for a shape
    /// beyond the address space.
    pub fn new(spec: &impl Architecture, dtype: DType, seed: u64) -> Result<RandomWeights, WeightError> {
        let tensor = |tensor: TensorSpec| Ok((tensor.name.clone(), random_tensor(&tensor, dtype, seed)?));
        let tensors = spec.model()?.tensors().into_iter().map(tensor).collect::<Result<_, WeightError>>()?;
        Ok(RandomWeights { tensors })
    }

    /// Draws the embedding anew, with a standard deviation of 1: what a row has of its own then
    /// outweighs what attention averages over all rows, so that rows choose experts independently of
    /// each other. With the embedding of [`RandomWeights::new`] the rows of a sequence choose alike.
    ///
    /// ```
    /// use tilewright_layout::DType;
    /// use tilewright_graph::models::Llama;
    /// use tilewright_megakernel::model::Architecture;
    /// use tilewright_megakernel::weights::{RandomWeights, Weights};
    /// let spec = Llama::small();
    /// let weights = RandomWeights::new(&spec, DType::F32, 1)?.with_independent_rows(&*spec.model().unwrap())?;
    /// let table = weights.tensor("model.embed_tokens.weight").expect("a tensor of the model");
    /// let values = table.as_f32().expect("f32");
    /// let mean_square = values.iter().map(|x| x * x).sum::<f32>() / values.len() as f32;
    /// assert!((mean_square - 1.0).abs() < 0.1);
    /// # Ok::<(), tilewright_megakernel::weights::WeightError>(())
    /// ```
    ///
    /// # Errors
    /// As [`RandomWeights::new`].
    pub fn with_independent_rows(mut self, spec: &ModelSpec) -> Result<RandomWeights, WeightError> {
        make_rows_independent(&mut self.tensors, spec)?;
        Ok(self)
    }
}

/// Draws the embedding among a model's tensors anew, with a standard deviation of 1.
pub(super) fn make_rows_independent(
    tensors: &mut HashMap<String, WeightTensor>,
    spec: &ModelSpec,
) -> Result<(), WeightError> {
    for name in spec.embedding_tables() {
        let Some(table) = tensors.get_mut(&name) else { continue };
        let tensor = TensorSpec { name, shape: table.shape().to_vec() };
        *table = drawn(&tensor, table.dtype(), SEED_OF_ROWS, Uniform::with_deviation(1.0))?;
    }
    Ok(())
}

/// Draws one tensor of [`RandomWeights`]: a function of its name, shape, element type and seed
/// alone.
///
/// # Errors
/// As [`RandomWeights::new`].
pub fn random_tensor(tensor: &TensorSpec, dtype: DType, seed: u64) -> Result<WeightTensor, WeightError> {
    drawn(tensor, dtype, seed, Uniform::of(tensor))
}

/// Draws a tensor from a distribution.
fn drawn(tensor: &TensorSpec, dtype: DType, seed: u64, values: Uniform) -> Result<WeightTensor, WeightError> {
    let fill: fn(Uniform, &str, u64, &mut AlignedBytes) = match float_of(dtype) {
        Some(Float::F32) => fill::<f32>,
        Some(Float::F16) => fill::<f16>,
        Some(Float::Bf16) => fill::<bf16>,
        None => return Err(WeightError::RandomDtype { found: dtype }),
    };
    let Some(bytes) = byte_len(dtype, &tensor.shape) else {
        return Err(WeightError::Overflow { dtype, shape: tensor.shape.clone() });
    };
    let mut data = AlignedBytes::zeroed(bytes);
    fill(values, &tensor.name, seed, &mut data);
    WeightTensor::new(dtype, tensor.shape.clone(), SharedBytes { owner: Arc::new(data), range: 0..bytes })
}

impl Weights for RandomWeights {
    fn tensor(&self, name: &str) -> Option<WeightTensor> {
        self.tensors.get(name).cloned()
    }
}

/// An element type that random values are rounded to.
trait RandomElement: Pod + Send + Sync {
    fn round(value: f32) -> Self;
}

impl RandomElement for f32 {
    fn round(value: f32) -> f32 {
        value
    }
}

impl RandomElement for f16 {
    fn round(value: f32) -> f16 {
        f16::from_f32(value)
    }
}

impl RandomElement for bf16 {
    fn round(value: f32) -> bf16 {
        bf16::from_f32(value)
    }
}

/// A uniform distribution, quantised to 4096 levels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Uniform {
    /// The mean.
    pub centre: f32,
    /// The most that a value differs from it.
    pub half_width: f32,
}

impl Uniform {
    /// Mean 0 and a standard deviation: a uniform variable of half width h has h / sqrt(3).
    ///
    /// ```
    /// use tilewright_megakernel::weights::Uniform;
    /// let values = Uniform::with_deviation(1.0).bf16("keys of a test", 1, 1000);
    /// assert_eq!(values[..10], Uniform::with_deviation(1.0).bf16("keys of a test", 1, 10));
    /// assert!(values.iter().all(|value| value.to_f32().abs() <= 1.7343750));
    /// ```
    pub fn with_deviation(deviation: f32) -> Uniform {
        Uniform { centre: 0.0, half_width: 3f32.sqrt() * deviation }
    }

    /// `count` values that a name and a seed stand for; fewer are the first of more.
    pub fn bf16(self, name: &str, seed: u64, count: usize) -> Vec<bf16> {
        let mut values = vec![bf16::ZERO; count];
        self.fill(name, seed, &mut values);
        values
    }

    /// The distribution of a tensor's values.
    fn of(tensor: &TensorSpec) -> Uniform {
        match tensor.shape[..] {
            [_, columns] => Uniform { centre: 0.0, half_width: (3.0 / columns.max(1) as f32).sqrt() },
            _ if tensor.name.ends_with(".bias") => Uniform { centre: 0.0, half_width: 0.02 },
            _ => Uniform { centre: 1.0, half_width: 0.1 },
        }
    }

    /// Word `w` of the values depends on the name, the seed and `w` alone, so threads cannot change
    /// them.
    fn fill<T: RandomElement>(self, name: &str, seed: u64, elements: &mut [T]) {
        let table: Vec<T> = (0..LEVELS)
            .map(|level| {
                let unit = (2 * level + 1) as f32 / LEVELS as f32 - 1.0;
                T::round(self.centre + self.half_width * unit)
            })
            .collect();
        let key = splitmix(fnv1a(name.bytes()) ^ splitmix(seed));
        elements.par_chunks_mut(WORDS_PER_CHUNK * PER_WORD).enumerate().for_each(|(chunk, elements)| {
            for (word, elements) in elements.chunks_mut(PER_WORD).enumerate() {
                let counter = (chunk * WORDS_PER_CHUNK + word) as u64;
                let mut bits = splitmix(key.wrapping_add(counter.wrapping_mul(GOLDEN)));
                for element in elements {
                    *element = table[bits as usize % LEVELS];
                    bits >>= LEVEL_BITS;
                }
            }
        });
    }
}

/// Fills a tensor.
fn fill<T: RandomElement>(values: Uniform, name: &str, seed: u64, data: &mut AlignedBytes) {
    values.fill::<T>(name, seed, bytemuck::cast_slice_mut(&mut data.0));
}

pub(super) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The output function of the generator SplitMix64 (Steele, Lea and Flood, 2014).
pub(super) fn splitmix(state: u64) -> u64 {
    let mut z = state.wrapping_add(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
