//! A stage of a pipeline: consecutive layers of a model, and what they need of the rest of it.
//!
//! | stage | takes | gives | weights besides its layers' |
//! |---|---|---|---|
//! | first | token ids | the residual stream of its rows | the embedding |
//! | between | the residual stream | the residual stream | none |
//! | last | the residual stream | logits, and the choice | the last norm, the head |
//!
//! The residual stream is handed on in f32, as one program keeps it: stages one after the other
//! compute what the whole does, bit for bit. A program of all layers is the first stage and the
//! last.

use super::nodes::LoweredNode;
use super::options::{LayerParts, LowerError, LowerOptions};
use crate::model::{ModelSizes, ModelSpec, TensorSpec};
use crate::program::Span;

/// A range of consecutive layers of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stage {
    layers: Span,
    /// Layers of the whole model.
    all: usize,
    parts: LayerParts,
}

impl Stage {
    /// The stage of the options' layers; of all where none are named.
    pub fn of(spec: &ModelSizes, options: &LowerOptions) -> Result<Stage, LowerError> {
        let all = spec.layers;
        let layers = options.layers.unwrap_or(Span::all(all));
        if layers.is_empty() || layers.hi > all {
            return Err(LowerError::Layers { found: layers, layers: all });
        }
        let is_half = matches!(options.parts, LayerParts::Attention | LayerParts::Mlp);
        if is_half && layers.len() > 1 {
            return Err(LowerError::Half { found: layers.len() });
        }
        Ok(Stage { layers, all, parts: options.parts })
    }

    /// The nodes of the half of a layer, where the stage is one; else all.
    pub fn nodes<'n, 'g>(self, nodes: &'n [LoweredNode<'g>]) -> Result<&'n [LoweredNode<'g>], LowerError> {
        let half = match self.parts {
            LayerParts::Stage | LayerParts::Layers => return Ok(nodes),
            LayerParts::Attention => "attention",
            LayerParts::Mlp => "MLP",
        };
        let layer = self.layers.lo;
        let refused = LowerError::NoHalf { half, layer };
        let is_first = |node: &LoweredNode<'_>| node.cache() == Some(layer);
        let Some(first) = nodes.iter().position(is_first) else { return Err(refused) };
        let nodes = &nodes[first..];
        let end = nodes[1..].iter().position(LoweredNode::begins_layer).map_or(nodes.len(), |end| end + 1);
        let sums = nodes[..end].iter().position(|node| matches!(node, LoweredNode::Added(_)));
        let Some(middle) = sums.map(|place| place + 1).filter(|middle| *middle < end) else { return Err(refused) };
        let (attention, mlp) = nodes[..end].split_at(middle);
        let half = if self.parts == LayerParts::Attention { attention } else { mlp };
        // The stream is one value in, and of it the sums.
        let mut sum = half.iter().find_map(LoweredNode::stream);
        let input = sum;
        let is_alone = half.iter().all(|node| match node {
            LoweredNode::Added(added) => sum.replace(added.out) == Some(added.residual),
            LoweredNode::Heads(_)
            | LoweredNode::Latents(_)
            | LoweredNode::Attention(_)
            | LoweredNode::Gated(_)
            | LoweredNode::Routed(_) => node.stream().is_none_or(|stream| Some(stream) == input),
            LoweredNode::Embed { .. } | LoweredNode::Choice(_) => false,
        });
        if is_alone { Ok(half) } else { Err(refused) }
    }

    /// Whether it keeps keys and values.
    pub fn attends(self) -> bool {
        self.parts != LayerParts::Mlp
    }

    /// The numbers of its layers.
    pub fn layers(self) -> std::ops::Range<usize> {
        self.layers.iter()
    }

    /// Whether it begins with token ids.
    pub fn embeds(self) -> bool {
        self.parts == LayerParts::Stage && self.layers.lo == 0
    }

    /// Whether it ends with logits.
    pub fn chooses(self) -> bool {
        self.parts == LayerParts::Stage && self.layers.hi == self.all
    }

    /// Whether it is the whole model.
    pub fn is_whole(self) -> bool {
        self.embeds() && self.chooses()
    }

    /// Whether a layer's input is what another stage gave.
    pub fn takes(self, layer: usize) -> bool {
        !self.embeds() && layer == self.layers.lo
    }

    /// Whether a layer's result is for another stage.
    pub fn gives(self, layer: usize) -> bool {
        !self.chooses() && layer + 1 == self.layers.hi
    }

    /// The tensors of the model that it reads.
    pub fn tensors(self, spec: &ModelSpec) -> impl Iterator<Item = TensorSpec> {
        let is_tied = spec.tied_embeddings;
        spec.tensors().into_iter().filter(move |tensor| self.reads(&tensor.name, is_tied))
    }

    fn reads(self, tensor: &str, is_tied: bool) -> bool {
        let layer = tensor.strip_prefix("model.layers.").and_then(|rest| rest.split('.').next()?.parse().ok());
        match layer {
            Some(layer) => self.layers().contains(&layer),
            None if tensor.starts_with("model.embed_tokens.") => self.embeds() || (self.chooses() && is_tied),
            None => self.chooses(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tilewright_graph::models::Llama;

    use super::*;
    use crate::model::{Architecture, ModelSpec};

    fn spec(layers: usize, tied_embeddings: bool) -> ModelSpec {
        let known = Llama::named("llama-3.1-8b").expect("a known model");
        known.layers(layers).tied(tied_embeddings).model().expect("sizes that fit").into_owned()
    }

    fn options(lo: usize, hi: usize) -> LowerOptions {
        LowerOptions { layers: Some(Span::new(lo, hi)), ..LowerOptions::for_context(16) }
    }

    proptest! {
        /// Every tensor belongs to some stage; only the table of tied embeddings is read by two
        /// stages.
        #[test]
        fn stages_read_every_tensor_once(layers in 2usize..9, cut in 1usize..8, tied: bool) {
            let spec = spec(layers, tied);
            let cut = cut.min(layers - 1);
            let read = |lo, hi| {
                let stage = Stage::of(&spec, &options(lo, hi)).expect("layers of the model");
                stage.tensors(&spec).map(|tensor| tensor.name).collect::<Vec<_>>()
            };
            let mut found = [read(0, cut), read(cut, layers)].concat();
            let mut expected = read(0, layers);
            if tied {
                expected.push("model.embed_tokens.weight".to_owned());
            }
            found.sort();
            expected.sort();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn layers_that_a_model_lacks_are_refused_with_numbers() {
        let text = |lo, hi| match Stage::of(&spec(4, true), &options(lo, hi)) {
            Ok(stage) => format!("{stage:?}"),
            Err(error) => error.to_string(),
        };
        let expected = |found| {
            format!("a stage has the layers {found}, the model has 0:4; name at least one, and none beyond the last")
        };
        assert_eq!([text(2, 2), text(3, 5), text(9, 4)], ["2:2", "3:5", "9:4"].map(expected));
    }
}
