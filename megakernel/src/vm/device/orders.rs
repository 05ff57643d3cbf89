//! Tables by which activations come in the order of codes: of weights with an act-order, and of
//! groups that are halves of a step.
//!
//! Codes lie in the image place by place. A table says where the columns of activations belong
//! ([`Reordering`]), one for each way in which a stream's tasks bring them; the weights of their
//! norm lie after it. It is made at load, in the plain weights.

use tilewright_kernels::gemv::activations::{Reordering, columns};
use tilewright_kernels::weights::Strip;

use crate::program::{BufferId, Program};
use crate::vm::BindError;
use crate::vm::resident::stored::BoundWeights;

/// A table of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderTable {
    /// The weights whose order it is, which are streamed together.
    pub weights: Vec<BufferId>,
    /// The weight of the norm that activations are multiplied with on their way, if there is one.
    pub norm: Option<BufferId>,
    /// The reordering that it holds.
    pub reordering: Reordering,
    /// Shape of a strip of their stream.
    pub strip: Strip,
    /// Its start in the plain weights, in bytes.
    pub start: u64,
}

impl OrderTable {
    /// The offset of a norm's weights after the indexes of `k` columns, in bytes: a multiple of 16.
    pub(super) const fn weight_at(k: u32) -> u32 {
        (4 * k).next_multiple_of(16)
    }

    /// Its bytes.
    pub(super) fn bytes(&self) -> u64 {
        let tables = if self.norm.is_some() { 2 } else { 1 };
        tables * u64::from(OrderTable::weight_at(self.strip.k()))
    }

    /// Fails where the weights have different orders: their activations come once for all.
    pub(super) fn check(&self, program: &Program, weights: &BoundWeights) -> Result<(), BindError> {
        let order = |id: BufferId| weights.codes(id).and_then(|matrix| matrix.order());
        let Some((&first, rest)) = self.weights.split_first() else { return Ok(()) };
        let known = order(first);
        match rest.iter().find(|&&other| order(other) != known) {
            None => Ok(()),
            Some(&other) => {
                let [first, second] = [first, other].map(|id| program.buffers[id.index()].name.clone());
                Err(BindError::Orders { first, second })
            }
        }
    }

    /// Its words: indexes, then bits of f32.
    pub(super) fn words(&self, weights: &BoundWeights) -> Vec<u32> {
        let matrix = self.weights.first().and_then(|&weight| weights.codes(weight));
        let order = columns(self.strip, matrix.and_then(|matrix| matrix.order())).unwrap_or_default();
        let mut words = self.reordering.indexes(&order);
        let Some(norm) = self.norm.and_then(|norm| weights.dense(norm)) else { return words };
        words.resize(OrderTable::weight_at(self.strip.k()) as usize / 4, 0);
        let values = norm.to_f32_vec().unwrap_or_default();
        words.extend((0..order.len()).map(|at| values[self.reordering.column(&order, at)].to_bits()));
        words
    }
}
