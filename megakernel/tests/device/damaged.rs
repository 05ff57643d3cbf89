//! Random weights of which some are changed, so that a model has no token to choose.

use half::bf16;
use tilewright_graph::models::Llama;
use tilewright_layout::DType;
use tilewright_megakernel::weights::{RandomWeights, SharedBytes, WeightTensor, Weights};

/// Random weights whose tensors are changed when they are asked for.
pub struct Damaged {
    weights: RandomWeights,
    damage: Damage,
}

/// What is changed of a model whose output projection is its own.
#[derive(Clone, Copy, Debug)]
pub enum Damage {
    /// The embedding of this token is NaN: so are all logits of a row that is fed it.
    Token(u32),
    /// Every logit of every row is this: NaN or infinite.
    Logits(f32),
}

impl Damaged {
    pub fn new(spec: &Llama, damage: Damage) -> Damaged {
        assert!(!spec.decoder.tied, "what an embedding is must not be a logit");
        Damaged { weights: RandomWeights::new(spec, DType::BF16, 7).unwrap(), damage }
    }

    /// The layers add nothing and embeddings are positive, so that the sums of a projection of
    /// largest numbers overflow to the infinity of their sign.
    fn change(damage: Damage, name: &str, width: usize, values: &mut [bf16]) {
        match damage {
            Damage::Token(token) if name.contains("embed_tokens") => {
                values[token as usize * width..][..width].fill(bf16::NAN);
            }
            Damage::Logits(_) if name.contains("embed_tokens") => {
                values.iter_mut().for_each(|x| *x = bf16::from_f32(x.to_f32().abs() + 0.5));
            }
            Damage::Logits(_) if name.contains("o_proj") || name.contains("down_proj") => values.fill(bf16::ZERO),
            Damage::Logits(logit) if name.contains("lm_head") => {
                let number = if logit.is_nan() { bf16::NAN } else { bf16::MAX };
                values.fill(if logit < 0.0 { -number } else { number });
            }
            Damage::Token(_) | Damage::Logits(_) => {}
        }
    }
}

impl Weights for Damaged {
    fn tensor(&self, name: &str) -> Option<WeightTensor> {
        let tensor = self.weights.tensor(name)?;
        let mut values = tensor.as_bf16()?.to_vec();
        Damaged::change(self.damage, name, *tensor.shape().last()?, &mut values);
        let bytes = SharedBytes::aligned_copy(bytemuck::cast_slice(&values));
        WeightTensor::new(DType::BF16, tensor.shape().to_vec(), bytes).ok()
    }
}

/// What steps of a damaged model choose, one line a step: as steps of the healthy one do, until a
/// row is fed the damaged token and has no token from then on.
pub fn until_damage(healthy: &[Vec<u32>], first: &[i32], token: u32, none: u32) -> Vec<Vec<u32>> {
    let mut fed: Vec<u32> = first.iter().map(|&token| token as u32).collect();
    let mut ended = vec![false; fed.len()];
    let mut seen = Vec::new();
    for tokens in healthy {
        ended.iter_mut().zip(&fed).for_each(|(ended, fed)| *ended |= *fed == token);
        seen.push(tokens.iter().zip(&ended).map(|(&token, &ended)| if ended { none } else { token }).collect());
        if ended.iter().all(|&ended| ended) {
            break;
        }
        fed.clone_from(tokens);
    }
    seen
}
