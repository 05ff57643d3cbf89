//! What each family's page gives, and what its reader is told.

use std::any::Any;

use super::decoder::Decoder;
use crate::build::{Builder, Value};
use crate::error::GraphErrors;
use crate::graph::Graph;

/// A family's page.
pub(super) trait Page: Any {
    /// Sizes and other keys that every decoder has.
    fn decoder(&self) -> &Decoder;

    /// Builds the graph up to its logits.
    fn build<'b>(&self, b: &'b Builder) -> Value<'b>;

    /// The graph, under a name for people. The outputs are the logits of each row, and the token
    /// with the largest.
    fn graph(&self, name: &str) -> Result<Graph, GraphErrors> {
        let decoder = self.decoder();
        let builder = Builder::new(name, decoder.sizes, decoder.eps);
        let logits = self.build(&builder);
        let token = builder.root().choose(logits);
        builder.finish(&[logits, token])
    }
}

/// What a reader of configurations can use. What it cannot is a fault that names the key.
#[derive(Clone, Copy, Debug)]
pub struct Accept {
    /// Whether a family is one of those, by its `model_type`.
    pub family: fn(&str) -> bool,
    /// Longest sequence that is needed; `None`: that of the training. A window that no such
    /// sequence exceeds changes nothing.
    pub max_context: Option<usize>,
}

impl Accept {
    /// Everything that a graph can express.
    pub const ALL: Accept = Accept { family: |_| true, max_context: None };
}
