//! Assigns a part of the model to each rank: layers, so that the slowest stage is as fast as
//! possible, or a shard of every layer.

use std::fmt;

use tilewright_megakernel::lower::LowerOptions;
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::program::Span;

use super::error::PipelineError;

/// The part of a model that a rank computes.
///
/// ```
/// use tilewright::engine::pipeline::ModelPart;
/// assert_eq!(ModelPart::Shard { rank: 1, size: 4 }.to_string(), "shard 1 of 4 of every layer");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelPart {
    /// Whole layers: a stage of a pipeline.
    Layers(Span),
    /// A shard of every layer, whose sums all ranks add up: tensor parallelism.
    Shard {
        /// The rank.
        rank: usize,
        /// The number of ranks.
        size: usize,
    },
}

impl ModelPart {
    /// The lowering options of this part's programs.
    pub(super) fn options(self, base: LowerOptions) -> LowerOptions {
        match self {
            ModelPart::Layers(layers) => LowerOptions { layers: Some(layers), ..base },
            ModelPart::Shard { size, .. } => LowerOptions { devices: size, ..base },
        }
    }
}

impl fmt::Display for ModelPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelPart::Layers(layers) => write!(f, "layers {} to {}", layers.lo, layers.hi - 1),
            ModelPart::Shard { rank, size } => write!(f, "shard {rank} of {size} of every layer"),
        }
    }
}

/// The layers of each rank, in order. A stage's time is that of the weights it reads: all layers
/// have as many, the last stage has the head besides, and the embedding is a row for each token.
///
/// # Errors
/// If there are more ranks than layers.
pub(super) fn cut(spec: &ModelSpec, size: usize) -> Result<Vec<Span>, PipelineError> {
    let layers = spec.layers;
    if size == 0 || size > layers {
        return Err(PipelineError::Stages { size, layers });
    }
    if size == 1 {
        return Ok(vec![Span::all(layers)]);
    }
    let tensors = spec.tensors();
    let weights = |prefix: &str| {
        let of = tensors.iter().filter(|tensor| tensor.name.starts_with(prefix));
        of.map(|tensor| tensor.shape.iter().product::<usize>()).sum::<usize>()
    };
    let layer = weights("model.layers.0.");
    let head = spec.vocab.saturating_mul(spec.hidden);
    let others = size - 1;
    let longest = |last: usize| {
        let before = (layers - last).div_ceil(others).saturating_mul(layer);
        before.max(last.saturating_mul(layer).saturating_add(head))
    };
    let last = (1..=layers - others).min_by_key(|&last| longest(last)).unwrap_or(1);
    let share = (layers - last) / others;
    let extra = (layers - last) % others;
    let sizes = (0..others).map(|rank| share + usize::from(rank < extra)).chain([last]);
    let stages = sizes.scan(0, |at, size| {
        let lo = std::mem::replace(at, *at + size);
        Some(Span::new(lo, *at))
    });
    Ok(stages.collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use tilewright_graph::models::Llama;
    use tilewright_megakernel::model::{Architecture, ModelSpec};

    use super::*;

    fn spec(layers: usize, vocab: usize) -> ModelSpec {
        let known = Llama::named("llama-3.2-1b").expect("a known model");
        known.layers(layers).vocab(vocab).model().expect("sizes that fit").into_owned()
    }

    proptest! {
        #[test]
        fn stages_are_all_layers_in_order(layers in 1usize..90, vocab in 1usize..200_000, size in 1usize..12) {
            match cut(&spec(layers, vocab), size) {
                Ok(stages) => {
                    prop_assert_eq!(stages.len(), size);
                    prop_assert_eq!((stages[0].lo, stages[size - 1].hi), (0, layers));
                    prop_assert!(stages.iter().all(|stage| !stage.is_empty()));
                    prop_assert!(stages.windows(2).all(|pair| pair[0].hi == pair[1].lo));
                }
                Err(error) => prop_assert!(size > layers, "{}", error),
            }
        }
    }

    #[test]
    fn a_large_head_takes_layers_from_the_last_stage() {
        let sizes = |vocab, size| {
            let stages = cut(&spec(16, vocab), size).expect("layers for all");
            stages.iter().map(|stage| stage.len()).collect::<Vec<_>>()
        };
        // A layer of this shape has 61 million weights, a head of 128,256 rows 263 million.
        assert_eq!(sizes(1, 4), [4, 4, 4, 4]);
        assert_eq!(sizes(128_256, 4), [5, 5, 5, 1]);
        assert_eq!(sizes(128_256, 2), [10, 6]);
    }
}
