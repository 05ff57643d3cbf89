//! The forms in which the weights of a program are stored.

use std::collections::HashMap;

use super::{Buffer, BufferKind, Program, Quantised, Source};
use crate::weights::Weights;
use tilewright_layout::DType;

impl Program {
    /// Gives every weight the form in which it is stored: quantised where these have it so, and
    /// pools of codes with the scales that these bring for them. Before it is scheduled, since
    /// fewer bytes are less work.
    #[must_use]
    pub fn stored_as(mut self, weights: &dyn Weights) -> Program {
        let is_codes = |buffer: &&mut Buffer| buffer.kind == BufferKind::KvPool && buffer.dtype == DType::F8E4M3;
        for buffer in self.buffers.iter_mut().filter(is_codes) {
            buffer.scale = weights.cache_scale(&buffer.name);
        }
        let of = |name: &str| weights.quantized(name).map(|matrix| (Quantised::of(&matrix), matrix.k()));
        self.with_forms(&of)
    }

    /// Marks as quantised every weight that `form` has a form for, with the columns of its matrix:
    /// by the names of tensors.
    #[must_use]
    pub fn with_forms(mut self, form: &dyn Fn(&str) -> Option<(Quantised, usize)>) -> Program {
        // What several devices share is asked for once.
        let mut known: HashMap<String, Option<(Quantised, usize)>> = HashMap::new();
        let mut of = |name: &String| *known.entry(name.clone()).or_insert_with(|| form(name));
        for buffer in self.buffers.iter_mut().filter(|buffer| buffer.kind == BufferKind::Weight) {
            match &buffer.source {
                Some(Source::Tensor(name)) => buffer.quantised = of(name).map(|(form, _)| form),
                Some(Source::Part { tensor, index, .. }) => {
                    let columns = index.get(1).copied();
                    let part = of(tensor).zip(columns).map(|((form, k), columns)| form.of_columns(k, columns));
                    buffer.quantised = part;
                }
                Some(Source::Experts { index, .. }) => {
                    // The codes of all experts lie in one form; binding refuses others.
                    let first = buffer.of_expert(0).and_then(|first| first.source);
                    let Some(Source::Part { tensor, .. }) = first else { continue };
                    let columns = index.get(1).copied();
                    buffer.quantised = of(&tensor).zip(columns).map(|((form, k), columns)| form.of_columns(k, columns));
                }
                // Their rows are stored in another order.
                Some(Source::Heads { .. } | Source::Random(_) | Source::Values(_)) | None => {}
            }
        }
        self
    }
}
