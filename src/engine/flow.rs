//! Sparse attention by a flow: what an engine is told of it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tilewright_flow::program::{FlowSettings, Lowered, Phase, observed_names};
use tilewright_megakernel::vm::StepCells;

use super::error::EngineError;

/// A flow in the programs of a session: its settings, and how many requests keep states at once.
#[derive(Clone)]
pub(super) struct SessionFlow {
    pub settings: Arc<FlowSettings>,
    pub slots: usize,
    /// The callback that receives each selection.
    pub observer: Option<OnChosen>,
}

/// The blocks that a row attended to in a layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// The request of the row: the number of a session's sequence, or of a batcher's
    /// [ticket](super::Ticket::number).
    #[serde(default)]
    pub request: u64,
    /// Position of the row's token.
    pub position: usize,
    /// The layer.
    pub layer: usize,
    /// The key head.
    pub kv_head: usize,
    /// Places of the blocks in the sequence: first blocks, winners by score, last blocks.
    pub blocks: Vec<usize>,
}

/// The number of a request in a place where another of that number was. States carry it as f32,
/// which has all whole numbers below 2²⁴; 0 belongs to no request.
pub(super) fn next_request(number: i32) -> i32 {
    const NUMBERS: i32 = (1 << 24) - 1;
    number % NUMBERS + 1
}

/// A callback that receives the blocks that each row attended to.
pub type OnChosen = Arc<dyn Fn(&Chosen) + Send + Sync>;

/// The facts about a program that an observer needs.
#[derive(Clone, Copy)]
pub(super) struct ObservedShape {
    pub layers: usize,
    pub kv_heads: usize,
    pub page_tokens: usize,
}

/// The number of a block in its sequence, from its number in the pool and the sequence's page
/// table; `None` if no page of the table holds it. Entries without a block are negative.
fn place_in_sequence(table: &[i32], block: i32, per_page: usize) -> Option<usize> {
    let block = usize::try_from(block).ok()?;
    let page = i32::try_from(block.checked_div(per_page)?).ok()?;
    Some(table.iter().position(|&entry| entry == page)? * per_page + block % per_page)
}

impl SessionFlow {
    /// The flow's part of a lowering.
    pub fn lowered(&self, phase: Phase) -> Lowered<'_> {
        Lowered::new(&self.settings, phase, self.slots)
    }

    /// Whether an observer receives the blocks that rows attend to, step by step.
    pub fn is_observed(&self) -> bool {
        self.observer.is_some()
    }

    /// Passes the selections of a step's rows, which belong to these requests, to the observer;
    /// `output` returns outputs by name.
    pub fn observe(
        &self,
        shape: ObservedShape,
        cells: &StepCells,
        requests: &[u64],
        output: &dyn Fn(&str) -> Result<Vec<i32>, EngineError>,
    ) -> Result<(), EngineError> {
        let Some(observer) = &self.observer else { return Ok(()) };
        let ObservedShape { layers, kv_heads, page_tokens } = shape;
        let block_tokens = self.settings.block_tokens();
        let per_page = page_tokens / block_tokens;
        let width = cells.page_table.len() / cells.positions.len().max(1);
        for layer in 0..layers {
            let [blocks, last] = observed_names(layer).map(|name| output(&name));
            let blocks = blocks?;
            let last = last?;
            let most = blocks.len() / last.len().max(1);
            for at in 0..last.len() {
                let row = at / kv_heads;
                let kv_head = at % kv_heads;
                let last = last[kv_head * cells.positions.len() + row];
                let (Ok(position), Ok(last)) = (usize::try_from(cells.positions[row]), usize::try_from(last)) else {
                    continue;
                };
                let table = &cells.page_table[row * width..][..width];
                let Some(&request) = requests.get(row) else { continue };
                let chosen = blocks[at * most..][..last / block_tokens + 1].iter();
                let blocks = chosen.filter_map(|&block| place_in_sequence(table, block, per_page)).collect();
                observer(&Chosen { request, position, layer, kv_head, blocks });
            }
        }
        Ok(())
    }

    /// Tokens up to which rows attend to all of their blocks, and no observer is called.
    pub fn covered_tokens(&self) -> usize {
        if self.is_observed() { 0 } else { self.settings.covered_tokens() }
    }

    /// Whether requests carry something from step to step.
    pub fn is_stateful(&self) -> bool {
        !self.settings.traced().declared.states.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::place_in_sequence;

    #[test]
    fn a_block_lies_where_the_page_table_has_its_page_and_an_empty_entry_nowhere() {
        let table = [7, 2, 0];
        assert_eq!(place_in_sequence(&table, 2 * 4 + 3, 4), Some(4 + 3));
        assert_eq!(place_in_sequence(&table, 1, 4), Some(2 * 4 + 1));
        assert_eq!(place_in_sequence(&table, 5 * 4, 4), None, "no page of this sequence");
        // Rounded towards zero, -1 / 4 would be page 0.
        assert_eq!(place_in_sequence(&table, -1, 4), None);
        assert_eq!(place_in_sequence(&table, 3, 0), None);
    }
}
