//! Orders of weights, as ops ask a planner for them.

use tilewright_kernels::gemv::activations::Reordering;
use tilewright_kernels::weights::Strip;

use super::orders::OrderTable;
use super::planner::Planner;
use crate::program::BufferId;
use crate::vm::Unsupported;
use crate::vm::resident::kv::ALIGN;

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

    /// Where the table lies by which activations come in the order of these weights, which is the
    /// same for all of them, as records have it; of a norm its weights after it.
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
