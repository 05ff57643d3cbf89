//! Execution of a flow on the host.
//!
//! [`Interpreter`] runs every op of the graph on every block of a row, by its definition: the
//! oracle of programs and devices. [`attend`] is the attention over a selection, [`kept()`] the
//! share of dense attention that selections keep.

mod attention;
mod interpreter;
mod kept;

use std::ops::Range;

pub use attention::{AttendedHead, attend};
pub use interpreter::Interpreter;
pub use kept::{KeptAttention, LayerActivations, kept};

use crate::bind::BoundFlow;
use crate::error::RunError;
use crate::memory::{BlockSelection, Budget, FlowPool, FlowRequest};
use crate::real::Real;

/// A block that has just become complete.
#[derive(Clone, Copy, Debug)]
pub struct Complete {
    /// The block of the pool.
    pub block: usize,
    /// Its key head.
    pub head: usize,
}

/// A row whose candidates are scored.
#[derive(Debug)]
pub struct ScoredRow<'a, T> {
    /// The pages.
    pub pool: &'a FlowPool<T>,
    /// The key head.
    pub head: usize,
    /// The row's blocks in the pool, all of them.
    pub blocks: &'a [u32],
    /// The range of the candidates among them.
    pub candidates: Range<usize>,
    /// The query heads of the key head, `[group, head_dim]`.
    pub query: &'a [T],
    /// The request's states, by state then key head.
    pub states: &'a mut [Vec<Vec<T>>],
}

/// The result of a step for a row.
#[derive(Clone, Debug, PartialEq)]
pub struct RowOutcome<T> {
    /// Scores of the candidates; empty where all blocks are attended to.
    pub scores: Vec<T>,
    /// The selected blocks.
    pub selected: BlockSelection,
}

/// An execution of a bound flow.
pub trait FlowExecutor<T: Real> {
    /// The flow.
    fn bound(&self) -> &BoundFlow<'_>;

    /// Stores the fields of a complete block.
    ///
    /// # Errors
    /// [`RunError::Graph`]: an extent or a factor has no number in the model.
    fn summarise(&self, pool: &mut FlowPool<T>, complete: Complete) -> Result<(), RunError>;

    /// Scores the candidates of a row and saves its states.
    ///
    /// # Errors
    /// [`RunError::Graph`]: an extent or a factor has no number in the model.
    fn score(&self, row: ScoredRow<'_, T>) -> Result<Vec<T>, RunError>;

    /// Appends tokens to a request: keys and values `[tokens, key heads, head_dim]`. Each block
    /// that becomes complete is summarised once for each key head.
    ///
    /// # Errors
    /// [`RunError`]: a slice of another length, a page table that is too short, a pool of another
    /// flow.
    fn append(
        &self,
        pool: &mut FlowPool<T>,
        request: &mut FlowRequest<T>,
        keys: &[T],
        values: &[T],
    ) -> Result<(), RunError> {
        pool.check(self.bound())?;
        let model = self.bound().extents.model;
        let token = model.kv_heads * model.head_dim;
        let tokens = keys.len() / token.max(1);
        check_length("keys", keys.len(), tokens * token)?;
        check_length("values", values.len(), keys.len())?;
        request.fits(pool, request.tokens() + tokens)?;
        for (keys, values) in keys.chunks_exact(token).zip(values.chunks_exact(token)) {
            let shape = pool.shape();
            let (page, place) = request.place(shape, request.tokens());
            pool.write(page, place, keys, values);
            request.advance();
            if request.tokens().is_multiple_of(model.block_tokens) {
                for head in 0..model.kv_heads {
                    self.summarise(pool, Complete { block: shape.block(page, head, place), head })?;
                }
            }
        }
        Ok(())
    }

    /// A decode step of a batch: queries `[requests, key heads·group, head_dim]`. Rows come out by
    /// request, then by key head.
    ///
    /// # Errors
    /// [`RunError`]: a slice of another length, a pool of another flow.
    fn step(
        &self,
        pool: &FlowPool<T>,
        requests: &mut [FlowRequest<T>],
        queries: &[T],
        budget: &Budget,
    ) -> Result<Vec<RowOutcome<T>>, RunError> {
        pool.check(self.bound())?;
        let model = self.bound().extents.model;
        let row = model.group * model.head_dim;
        check_length("queries", queries.len(), requests.len() * model.kv_heads * row)?;
        let mut outcomes = Vec::with_capacity(requests.len() * model.kv_heads);
        for (request, queries) in requests.iter_mut().zip(queries.chunks_exact(model.kv_heads * row)) {
            request.grow(self.bound());
            for (head, query) in queries.chunks_exact(row).enumerate() {
                let blocks = request.blocks(pool.shape(), head);
                let candidates = budget.candidates(blocks.len());
                let states = &mut request.states[..];
                let scores = candidates
                    .map(|candidates| self.score(ScoredRow { pool, head, blocks: &blocks, candidates, query, states }));
                let scores = scores.transpose()?.unwrap_or_default();
                let selected = BlockSelection::of(budget, &blocks, &scores);
                outcomes.push(RowOutcome { scores, selected });
            }
        }
        Ok(outcomes)
    }
}

fn check_length(what: &'static str, found: usize, wanted: usize) -> Result<(), RunError> {
    if found == wanted { Ok(()) } else { Err(RunError::Length { what, found, wanted }) }
}
