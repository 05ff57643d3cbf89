//! Tables by which activations come in the order of codes: of weights with an act-order, and of
//! groups that are halves of a step.
//!
//! Codes lie in the image place by place. A table says where the columns of activations belong
//! ([`Reordering`]), one for each way in which a stream's tasks bring them; the weights of their
//! norm lie after it. It is made at load, in the plain weights.

use tilewright_kernels::gemv::Strip;
use tilewright_kernels::gemv::linear::{Reordering, columns};

use super::planner::Planner;
use crate::program::{BufferId, Program};
use crate::vm::resident::kv::ALIGN;
use crate::vm::resident::stored::BoundWeights;
use crate::vm::{BindError, Unsupported};

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

impl Planner<'_> {
    /// Whether weights whose rows are streamed together have an act-order.
    ///
    /// # Errors
    /// If some have one and others none.
    pub fn has_order(&self, weights: &[BufferId]) -> Result<bool, Unsupported> {
        let of = |&id: &BufferId| self.buffer(id).map(|buffer| (buffer, buffer.quantised.is_some_and(|q| q.ordered)));
        let all = weights.iter().map(of).collect::<Result<Vec<_>, _>>()?;
        let Some((&(first, ordered), rest)) = all.split_first() else { return Ok(false) };
        match rest.iter().find(|(_, other)| *other != ordered) {
            None => Ok(ordered),
            Some((other, _)) => Err(Unsupported::Mixed { first: first.name.clone(), second: other.name.clone() }),
        }
    }

    /// Whether the codes of weights whose rows are streamed together, as these strips, lie in an
    /// order of their own.
    ///
    /// # Errors
    /// As [`Planner::has_order`].
    pub fn is_ordered(&self, weights: &[BufferId], strip: Strip) -> Result<bool, Unsupported> {
        Ok(self.has_order(weights)? || strip.is_halved())
    }

    /// The operand of the act-order table by which activations of these weights are reordered. All
    /// these weights share one order. The weights of a norm follow it.
    ///
    /// # Errors
    /// If there is none that a device has.
    pub fn order(
        &mut self,
        weights: &[BufferId],
        strip: Strip,
        norm: Option<BufferId>,
        reordering: Reordering,
    ) -> Result<u32, Unsupported> {
        norm.map(|norm| self.float("norm weight", norm)).transpose()?;
        let known = |t: &&OrderTable| t.weights == weights && t.norm == norm && t.reordering == reordering;
        if let Some(table) = self.orders.iter().find(known) {
            return Ok((table.start / 16) as u32);
        }
        let table = OrderTable { weights: weights.to_vec(), norm, reordering, strip, start: self.plain_bytes };
        let start = (table.start / 16) as u32;
        self.plain_bytes = (table.start + table.bytes()).next_multiple_of(ALIGN);
        self.orders.push(table);
        Ok(start)
    }
}
