//! The choice of tokens: the norms of some rows, their logits, the likeliest token or one at random, and how it is fed back.

use tilewright_kernels::embed::{EmbedShape, TableOrder, embed_rows};
use tilewright_kernels::sample::{FeedShape, argmax_rows, feed_rows, sample_rows};
use tilewright_kernels::tile::Float;

use super::launch::{Launch, LaunchArg, LaunchGrid, LaunchMemory, Scratch};
use super::plan::ChoicePlan;
use super::planner::{GraphPlanner, WARPS};
use super::products::Multiply;
use crate::program::BufferId;
use crate::vm::device::{MAX_ENDS, Unsupported};

/// Most rows that are chosen for at a time, and most that decode beside each other.
pub(crate) const MOST_ALONE: u32 = 64;
/// Warps of a block that chooses.
const CHOOSING: u32 = 32;
/// Most tokens that are chosen among at random.
const MOST_TOKENS: u32 = 1 << 18;

/// Blocks of decode attention for each multiprocessor that a step of few rows should have.
const BLOCKS: u32 = 4;
/// Rows that decode beside a chunk of a prompt, for which blocks are shared out.
const BESIDE: u32 = 16;

impl GraphPlanner<'_> {
    /// Rows at a step's beginning that may be sequences of their own.
    pub(crate) fn rows_alone(&mut self, rows: u32) -> u32 {
        self.plan.alone = rows.min(MOST_ALONE);
        self.plan.alone
    }

    /// Blocks that share the tokens of a row and kv head: as the width has it, whatever rows there are, so that a row's sums have one order.
    pub(crate) fn splits(&self, rows: u32, kv_heads: u32) -> u32 {
        let rows = if rows > MOST_ALONE { BESIDE } else { rows };
        (BLOCKS * self.multiprocessors / (rows * kv_heads)).clamp(1, 8)
    }

    /// The logits of rows that are named: their norms below each other, and a product of them.
    pub(super) fn wanted(
        &mut self,
        [rows, width, vocab]: [u32; 3],
        layer: (BufferId, Option<BufferId>),
    ) -> Result<Vec<Launch>, Unsupported> {
        let choices = rows.min(MOST_ALONE);
        let wanted = self.scratch(Scratch::Wanted, u64::from(choices) * u64::from(width) * 2);
        let logits = self.scratch(Scratch::WantedLogits, u64::from(choices) * u64::from(vocab) * 4);
        let shape = EmbedShape { table: TableOrder::Rows(width), out: Float::Bf16, warps: WARPS, norm: None };
        let arch = self.arch;
        let kernel = self.kernel(format!("{shape:?}"), || embed_rows(arch, shape));
        let rows = LaunchMemory::WantedRows;
        let args = [rows, rows, LaunchMemory::Scratch(Scratch::Normed), wanted].map(LaunchArg::Pointer).into();
        let mut launches = vec![Launch { kernel, grid: LaunchGrid::Blocks(choices), args }];
        let (layers, results) = (&[layer][..], vocab.into());
        launches.extend(self.multiply(&Multiply {
            rows: choices,
            a: wanted,
            layers,
            results,
            to: logits,
            wide: true,
            added: false,
        })?);
        Ok(launches)
    }

    /// The device chooses tokens: the likeliest, or where it is `sampled` as requests say.
    pub(crate) fn choose(&mut self, sampled: bool) -> Result<(), Unsupported> {
        let Some(logits) = &self.plan.logits else {
            return Err(Unsupported::Launch { what: "a choice of tokens before their logits" });
        };
        let (vocab, mut launches) = (logits.vocab, logits.of_wanted.clone());
        if sampled && vocab > MOST_TOKENS {
            let (what, found) = ("tokens that are chosen among at random", vocab as usize);
            return Err(Unsupported::Number { what, found, expected: "at most 2^18" });
        }
        let (arch, rows) = (self.arch, self.plan.rows.min(MOST_ALONE));
        let kernel = match sampled {
            true => self.kernel("sample".into(), || sample_rows(arch, CHOOSING)),
            false => self.kernel("argmax".into(), || argmax_rows(arch, CHOOSING)),
        };
        let mut args = [vocab, vocab].map(LaunchArg::Number).to_vec();
        let requests = sampled.then_some(LaunchMemory::Requests);
        let memory = [LaunchMemory::Scratch(Scratch::WantedLogits)].into_iter().chain(requests);
        args.extend(memory.chain([LaunchMemory::Chosen]).map(LaunchArg::Pointer));
        launches.push(Launch { kernel, grid: LaunchGrid::Blocks(rows), args });
        let shape = FeedShape { rows, ends: MAX_ENDS as u32, requests: sampled };
        let kernel = self.kernel(format!("{shape:?}"), || feed_rows(arch, shape));
        let cells = [LaunchMemory::Chosen, LaunchMemory::Ends, LaunchMemory::Tokens, LaunchMemory::Positions];
        let steps = [LaunchMemory::Lengths, LaunchMemory::Steps, LaunchMemory::History];
        let args = cells.into_iter().chain(steps).chain(requests).map(LaunchArg::Pointer).collect();
        let feed = vec![Launch { kernel, grid: LaunchGrid::Blocks(1), args }];
        match self.plan.choice.replace(ChoicePlan { rows, sampled, launches, feed }) {
            None => Ok(()),
            Some(_) => Err(Unsupported::Launch { what: "a second choice of tokens" }),
        }
    }
}
