//! Random quantised weights of a model's shape, for benches and tests: codes are drawn, nothing is
//! rounded to them.

use std::collections::HashMap;
use std::sync::Arc;

use half::{bf16, f16};
use rayon::prelude::*;
use tilewright_codegen::frozen::fnv1a;
use tilewright_kernels::quant::{Code, CodeFormat, QuantMatrix, QuantParts, Zeros};
use tilewright_kernels::tile::Float;
use tilewright_layout::DType;

use super::random::{GOLDEN, make_rows_independent, random_tensor, splitmix};
use super::{WeightError, WeightTensor, Weights};
use crate::model::{Architecture, ModelSpec, TensorSpec};
use crate::program::{Quantised, float_of};

/// Bytes of codes that one thread draws at a time.
const TILE_BYTES: usize = 1 << 16;

/// Every tensor of a model at random: some matrices as codes, all others as in
/// [`RandomWeights`](super::RandomWeights).
///
/// Codes are uniform over all that are numbers and have a counterpart, so that their mean is zero;
/// scales vary by a fourth, so that a matrix of `n` columns has a standard deviation of about
/// `1/sqrt(n)`. Zeros of groups are the middle code and its two neighbours. An act-order deals
/// columns to groups at random, and leaves those of a group in their order; matrices of one block
/// and width, which read one input, share it.
///
/// ```
/// use tilewright_kernels::quant::Code;
/// use tilewright_layout::DType;
/// use tilewright_graph::models::Llama;
/// use tilewright_megakernel::weights::{RandomCodes, Weights};
/// let spec = Llama::named("llama-3.2-1b").expect("known").layers(1).vocab(32).inner(256);
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
    /// Makes every tensor of [`ModelSpec::tensors`](crate::model::ModelSpec::tensors): the
    /// decoder's linear layers as codes in groups of `group` columns (`None`: a row is one) with
    /// scales of bf16, the rest in element type f32, f16 or bf16.
    ///
    /// # Errors
    /// As [`RandomCodes::of_forms`].
    pub fn new(
        spec: &impl Architecture,
        dtype: DType,
        seed: u64,
        code: Code,
        group: Option<usize>,
    ) -> Result<RandomCodes, WeightError> {
        let form = Quantised { code, group, zeros: false, scale: DType::BF16, ordered: false };
        RandomCodes::of_forms(spec, dtype, seed, |name| name.ends_with("_proj.weight").then_some(form))
    }

    /// Makes every tensor of [`ModelSpec::tensors`](crate::model::ModelSpec::tensors): those with a
    /// form as codes of that form, the rest in element type f32, f16 or bf16.
    ///
    /// ```
    /// use tilewright_kernels::quant::Code;
    /// use tilewright_layout::DType;
    /// use tilewright_graph::models::Llama;
    /// use tilewright_megakernel::program::Quantised;
    /// use tilewright_megakernel::weights::{RandomCodes, Weights};
    /// let spec = Llama::named("llama-3.2-1b").expect("known").layers(1).vocab(32).inner(256);
    /// let form = Quantised { code: Code::U4, group: Some(64), zeros: true, scale: DType::F16, ordered: true };
    /// let weights = RandomCodes::of_forms(&spec, DType::BF16, 7, |name| name.ends_with("down_proj.weight").then_some(form))?;
    /// let down = weights.quantized("model.layers.0.mlp.down_proj.weight").expect("quantised");
    /// assert_eq!(Quantised::of(&down), form);
    /// # Ok::<(), tilewright_megakernel::weights::WeightError>(())
    /// ```
    ///
    /// # Errors
    /// As [`RandomWeights::new`](super::RandomWeights::new); [`WeightError::Codes`] for extents
    /// that no matrix has, and zeros of minifloats.
    pub fn of_forms(
        spec: &impl Architecture,
        dtype: DType,
        seed: u64,
        form: impl Fn(&str) -> Option<Quantised>,
    ) -> Result<RandomCodes, WeightError> {
        let mut tensors = HashMap::new();
        let mut codes = HashMap::new();
        for tensor in spec.model()?.tensors() {
            if let Some(form) = form(&tensor.name) {
                let matrix = random_codes(&tensor, seed, form)?;
                codes.insert(tensor.name, Arc::new(matrix));
            } else {
                let weight = random_tensor(&tensor, dtype, seed)?;
                tensors.insert(tensor.name, weight);
            }
        }
        Ok(RandomCodes { tensors, codes })
    }

    /// As [`RandomWeights::with_independent_rows`](super::RandomWeights::with_independent_rows).
    ///
    /// # Errors
    /// As [`RandomCodes::of_forms`].
    pub fn with_independent_rows(mut self, spec: &ModelSpec) -> Result<RandomCodes, WeightError> {
        make_rows_independent(&mut self.tensors, spec)?;
        Ok(self)
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

/// Drawn codes whose mean is zero: the NaNs of e4m3 become their neighbours, an integer without a
/// counterpart the middle. A mean that is not zero would grow with every layer, until logits tell
/// nothing of the rest.
/// By the byte that is drawn.
fn symmetric(code: Code) -> Vec<u8> {
    let sign = 1u8 << (code.bits() - 1);
    let one = |bits: u8| match code.format() {
        CodeFormat::Unsigned if bits == 0 => sign,
        CodeFormat::Signed if bits == sign => 0,
        CodeFormat::Float { .. } if code.value(bits).is_nan() => bits ^ 1,
        CodeFormat::Unsigned | CodeFormat::Signed | CodeFormat::Float { .. } => bits,
    };
    let byte = |drawn: u8| if code.bits() == 4 { one(drawn & 15) | one(drawn >> 4) << 4 } else { one(drawn) };
    (0..=u8::MAX).map(byte).collect()
}

/// Numbers that a name and a seed stand for, one for each counter.
fn numbers(name: &str, seed: u64) -> impl Fn(u64) -> u64 + Sync {
    let key = splitmix(fnv1a(name.bytes()) ^ splitmix(seed));
    move |counter| splitmix(key.wrapping_add(counter.wrapping_mul(GOLDEN)))
}

/// The columns of `k` places: each group of `group` has any of them, and has them in their order.
fn random_order(name: &str, seed: u64, k: usize, group: usize) -> Vec<u32> {
    // `model.layers.0.mlp` of `model.layers.0.mlp.up_proj.weight`.
    let block = name.rsplitn(3, '.').last().unwrap_or(name);
    let word = numbers(block, seed);
    let mut order: Vec<u32> = (0..k as u32).collect();
    order.sort_by_cached_key(|&column| word(u64::from(column)));
    order.chunks_mut(group).for_each(<[u32]>::sort_unstable);
    order
}

/// Draws one quantised matrix of [`RandomCodes`]: a function of its name, extents, form and seed
/// alone.
///
/// # Errors
/// [`WeightError::Codes`] for what is no matrix, or not in that form.
///
/// ```
/// use tilewright_kernels::quant::Code;
/// use tilewright_layout::DType;
/// use tilewright_megakernel::{model::TensorSpec, program::Quantised, weights::random_codes};
/// let form = Quantised { code: Code::U4, group: Some(32), zeros: false, scale: DType::BF16, ordered: false };
/// let tensor = TensorSpec { name: "gate".to_owned(), shape: vec![8, 64] };
/// let matrix = random_codes(&tensor, 1, form)?;
/// assert_eq!((matrix.n(), matrix.k(), matrix.group()), (8, 64, 32));
/// # Ok::<(), tilewright_megakernel::weights::WeightError>(())
/// ```
pub fn random_codes(tensor: &TensorSpec, seed: u64, form: Quantised) -> Result<QuantMatrix, WeightError> {
    let refused = || WeightError::Codes { tensor: tensor.name.clone(), shape: tensor.shape.clone() };
    let &[n, k] = tensor.shape.as_slice() else { return Err(refused()) };
    let code = form.code;
    let word = numbers(&tensor.name, seed);
    let mut codes = vec![0u8; n * k.div_ceil(8 / code.bits())];
    let symmetric = symmetric(code);
    codes.par_chunks_mut(TILE_BYTES).enumerate().for_each(|(chunk, codes)| {
        for (at, bytes) in codes.chunks_mut(8).enumerate() {
            let drawn = word((chunk * TILE_BYTES / 8 + at) as u64).to_le_bytes();
            for (byte, drawn) in bytes.iter_mut().zip(drawn) {
                *byte = symmetric[usize::from(drawn)];
            }
        }
    });
    let middle = code.middle();
    let squares =
        code.values().into_iter().filter(|value| !value.is_nan()).map(|value| (value - f32::from(middle)).powi(2));
    let deviation = (squares.sum::<f32>() / code.count() as f32).sqrt();
    let scale = 1.0 / ((k.max(1) as f32).sqrt() * deviation);
    let group = form.group.unwrap_or(k).max(1);
    let groups = n * k.div_ceil(group);
    let round: fn(f32) -> f32 = match float_of(form.scale) {
        Some(Float::Bf16) => |scale| bf16::from_f32(scale).to_f32(),
        Some(Float::F16) => |scale| f16::from_f32(scale).to_f32(),
        Some(Float::F32) | None => |scale| scale,
    };
    // Blocks have an `e4m3` near its middle, times the tensor's.
    let of_tensor = (form.scale == DType::F8E4M3).then_some(scale / 16.0);
    let round = |scale: f32| match of_tensor {
        Some(tensor) => Code::E4m3.value(Code::E4m3.nearest(scale / tensor)) * tensor,
        None => round(scale),
    };
    let quarter = |at: usize| 0.75 + 0.5 * (word(!(at as u64)) >> 40) as f32 / (1u64 << 24) as f32;
    let scales = (0..groups).map(|at| round(scale * quarter(at))).collect();
    let neighbour = |at: usize| middle - 1 + (word(!(at as u64)) % 3) as i16;
    let zeros = if form.zeros { Zeros::Each((0..groups).map(neighbour).collect()) } else { Zeros::Same(middle) };
    let order = form.ordered.then(|| random_order(&tensor.name, seed, k, group));
    let parts = QuantParts { n, k, code, group, codes, scales, zeros, order };
    let matrix = QuantMatrix::new(parts).map_err(|_| refused())?;
    Ok(match of_tensor {
        Some(tensor) => matrix.with_tensor_scale(tensor),
        None => matrix,
    })
}

#[cfg(test)]
mod tests {
    use tilewright_graph::models::Llama;

    use super::*;

    #[test]
    fn a_matrix_has_the_form_that_is_asked_for() {
        let spec = Llama::named("llama-3.2-1b").expect("known").layers(2).vocab(32);
        for (at, code) in Code::ALL.into_iter().enumerate() {
            let scale = [DType::BF16, DType::F16, DType::F32][at % 3];
            let form = Quantised {
                code,
                group: Some(16 << at),
                zeros: matches!(code, Code::U4 | Code::I8),
                scale,
                ordered: at % 2 == 0,
            };
            let codes =
                RandomCodes::of_forms(&spec, DType::BF16, 3, |name| name.ends_with("_proj.weight").then_some(form));
            let codes = codes.expect("fits");
            let matrix = |name: &str| codes.quantized(&format!("model.layers.{name}_proj.weight")).expect("codes");
            for name in ["0.self_attn.q", "1.self_attn.o", "0.mlp.down"] {
                assert_eq!(Quantised::of(&matrix(name)), form, "{name}");
            }
            let order = |name: &str| matrix(name).order().map(<[u32]>::to_vec);
            assert_eq!(order("0.mlp.gate"), order("0.mlp.up"), "they read one input");
            assert!(!form.ordered || order("0.mlp.gate") != order("1.mlp.gate"));
        }
    }

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
            let sum: f32 = symmetric(code).into_iter().map(value).sum();
            assert_eq!(sum, 0.0, "{code:?}");
        }
    }
}
