//! The choice of tokens: the norms of some rows, their logits, the likeliest token or one at
//! random, and how it is fed back.

use tilewright_kernels::embed::{EmbedShape, TableOrder, embed_rows};
use tilewright_kernels::epilogue::ResultFunctions;
use tilewright_kernels::gemv::hopper;
use tilewright_kernels::sample::{FeedShape, argmax_rows, best_rows, feed_rows, hide_rows, mask_pitch, sample_rows};
use tilewright_kernels::tile::Float;

use super::activations::{Multiply, OutputProjection};
use super::launch::{Launch, LaunchArg, LaunchGrid, LaunchMemory, Scratch};
use super::plan::{ChoicePlan, LINES, LogitsPlan, MOST_ALONE};
use super::planner::{GraphPlanner, copying_warps};
use crate::vm::{MAX_ENDS, Unsupported};

/// Warps of a block that chooses.
const CHOOSING: u32 = 32;
/// Most tokens that are chosen among at random.
const MOST_TOKENS: u32 = 1 << 18;
/// Looks for a row's mask, some seconds of the host's.
const MASK_POLLS: u32 = 1 << 24;

/// Shares of rows and kv heads that decode attention should have: two for each of an H200's 132
/// multiprocessors. Of 32 rows and 8 heads each is a whole row, whose parts need no merge. The
/// number is that of every device, so that the order of a row's sums is that of its width alone.
const SHARES: u32 = 264;
/// The number of shares when a prompt chunk is in the step, and the number of decoding rows in that
/// case.
const BESIDE: [u32; 2] = [2 * SHARES, 16];

impl GraphPlanner<'_> {
    /// Rows at a step's beginning that may be sequences of their own.
    pub(crate) fn rows_alone(&mut self, rows: u32) -> u32 {
        self.plan.alone = rows.min(MOST_ALONE);
        self.plan.alone
    }

    /// Blocks that share the tokens of a row and kv head: as the width has it, whatever rows there
    /// are, so that a row's sums have one order.
    pub(crate) fn splits(&self, rows: u32, kv_heads: u32) -> u32 {
        let [shares, rows] = if rows > MOST_ALONE { BESIDE } else { [SHARES, rows] };
        (shares / (rows * kv_heads)).clamp(1, 8)
    }

    /// The norms of rows that are named, below each other.
    fn named(&mut self, [rows, width]: [u32; 2]) -> Launch {
        let wanted = self.scratch(Scratch::Wanted, u64::from(rows) * u64::from(width) * 2);
        let warps = copying_warps(rows, width);
        let shape =
            EmbedShape { table: TableOrder::Rows(width), out: Float::Bf16, warps, scale: 1.0, shard: None, norm: None };
        let arch = self.arch;
        let kernel = self.kernel(format!("{shape:?}"), || embed_rows(arch, shape));
        let named = LaunchMemory::WantedRows;
        let args = [named, named, LaunchMemory::Scratch(Scratch::Normed), wanted].map(LaunchArg::Pointer).into();
        Launch { kernel, grid: LaunchGrid::Blocks(rows), args }
    }

    /// The likeliest tokens of rows whose norms lie there, where a product of packed weights keeps
    /// the best of its tiles and no logits.
    fn best_of(&mut self, product: &Multiply, rows: u32) -> Result<Option<Vec<Launch>>, Unsupported> {
        let Some(mut packed) = self.packed_of(product) else { return Ok(None) };
        let hopper::HopperPlan { batch, results, strip, tuning, .. } = packed.plan;
        let Ok(plan) = hopper::HopperPlan::new(batch, results, strip, hopper::HopperTuning { splits: 1, ..tuning })
        else {
            return Ok(None);
        };
        (packed.plan, packed.finish.best) = (plan, true);
        if packed.finish.check(&plan).is_err() {
            return Ok(None);
        }
        let bests = self.scratch(Scratch::WantedBests, u64::from(rows) * u64::from(plan.tiles()) * 8);
        packed.to = bests;
        let product = self.multiply_packed(&packed);
        let arch = self.arch;
        let kernel = self.kernel("best".into(), || best_rows(arch));
        let pointers = [bests, LaunchMemory::Chosen].map(LaunchArg::Pointer);
        let args = [LaunchArg::Number(plan.tiles())].into_iter().chain(pointers).collect();
        Ok(Some(vec![product, Launch { kernel, grid: LaunchGrid::Blocks(rows), args }]))
    }

    /// The tokens of rows whose norms lie there.
    fn tokens_of(
        &mut self,
        a: LaunchMemory,
        [rows, vocab]: [u32; 2],
        OutputProjection { layer, soft_cap }: OutputProjection,
        sampled: bool,
    ) -> Result<Vec<Launch>, Unsupported> {
        let layers = &[layer][..];
        let results = vocab.into();
        let to = LaunchMemory::Scratch(Scratch::WantedLogits);
        let functions = ResultFunctions { soft_cap, ..ResultFunctions::default() };
        let product = Multiply { rows, a, layers, results, functions, to, wide: true, added: false };
        if self.program.devices == 1
            && !sampled
            && let Some(launches) = self.best_of(&product, rows)?
        {
            return Ok(launches);
        }
        self.scratch(Scratch::WantedLogits, u64::from(rows) * u64::from(vocab) * 4);
        let mut launches = self.multiply(&product)?;
        if self.program.devices == 1 {
            launches.extend(sampled.then(|| self.hide(to, [rows, vocab])));
            launches.push(self.choice_of(to, [rows, vocab], sampled));
        }
        Ok(launches)
    }

    /// Hides the tokens that the masks of rows exclude.
    fn hide(&mut self, logits: LaunchMemory, [rows, vocab]: [u32; 2]) -> Launch {
        let arch = self.arch;
        let kernel = self.kernel("hide".into(), || hide_rows(arch, CHOOSING));
        let mut args = [vocab, vocab].map(LaunchArg::Number).to_vec();
        args.push(LaunchArg::Pointer(logits));
        args.extend([mask_pitch(vocab), MASK_POLLS].map(LaunchArg::Number));
        let memory = [LaunchMemory::WantedRows, LaunchMemory::Masked, LaunchMemory::Steps, LaunchMemory::Masks];
        args.extend(memory.map(LaunchArg::Pointer));
        Launch { kernel, grid: LaunchGrid::Blocks(rows), args }
    }

    /// The choice of tokens of rows whose logits lie there.
    fn choice_of(&mut self, logits: LaunchMemory, [rows, vocab]: [u32; 2], sampled: bool) -> Launch {
        let arch = self.arch;
        let kernel = match sampled {
            true => self.kernel("sample".into(), || sample_rows(arch, CHOOSING)),
            false => self.kernel("argmax".into(), || argmax_rows(arch, CHOOSING)),
        };
        let mut args = [vocab, vocab].map(LaunchArg::Number).to_vec();
        let requests = sampled.then_some(LaunchMemory::Requests);
        let memory = [logits].into_iter().chain(requests);
        args.extend(memory.chain([LaunchMemory::Chosen]).map(LaunchArg::Pointer));
        Launch { kernel, grid: LaunchGrid::Blocks(rows), args }
    }

    /// The choice of several devices: each has the logits of its part of the vocabulary, and the
    /// first chooses among all. Nothing is fed back by a device.
    fn choose_together(
        &mut self,
        mut launches: Vec<Launch>,
        [rows, part]: [u32; 2],
        sampled: bool,
    ) -> Result<ChoicePlan, Unsupported> {
        launches.push(self.barrier_launch());
        if self.device == 0 {
            let (all, gathered) = self.all_logits(rows, part);
            launches.extend(gathered);
            launches.push(self.choice_of(all, [rows, part * self.program.devices as u32], sampled));
        }
        Ok(ChoicePlan { rows, sampled, launches, fed: Vec::new() })
    }

    /// The device chooses tokens: the likeliest, or where it is `sampled` as requests say.
    pub(crate) fn choose(&mut self, sampled: bool) -> Result<(), Unsupported> {
        let (Some(&LogitsPlan { vocab, width, .. }), Some(head)) = (self.plan.logits.as_ref(), self.head) else {
            return Err(Unsupported::Launch { what: "a choice of tokens before their logits" });
        };
        if sampled && vocab * self.program.devices as u32 > MOST_TOKENS {
            let what = "tokens that are chosen among at random";
            let found = vocab as usize;
            return Err(Unsupported::Number { what, found, expected: "at most 2^18" });
        }
        let arch = self.arch;
        let rows = self.plan.rows.min(MOST_ALONE);
        let mut launches = vec![self.named([rows, width])];
        launches.extend(self.tokens_of(LaunchMemory::Scratch(Scratch::Wanted), [rows, vocab], head, sampled)?);
        if self.program.devices > 1 {
            let choice = self.choose_together(launches, [rows, vocab], sampled)?;
            return self.set_choice(choice);
        }
        let mut fed = self.tokens_of(LaunchMemory::Scratch(Scratch::Normed), [rows, vocab], head, sampled)?;
        let shape = FeedShape { rows, ends: MAX_ENDS as u32, requests: sampled, lines: LINES as u32 };
        let kernel = self.kernel(format!("{shape:?}"), || feed_rows(arch, shape));
        let cells = [LaunchMemory::Chosen, LaunchMemory::Ends, LaunchMemory::Tokens, LaunchMemory::Positions];
        let steps = [LaunchMemory::Lengths, LaunchMemory::Steps, LaunchMemory::History];
        let requests = sampled.then_some(LaunchMemory::Requests);
        let args = cells.into_iter().chain(steps).chain(requests).map(LaunchArg::Pointer).collect();
        fed.push(Launch { kernel, grid: LaunchGrid::Blocks(1), args });
        self.set_choice(ChoicePlan { rows, sampled, launches, fed })
    }

    fn set_choice(&mut self, choice: ChoicePlan) -> Result<(), Unsupported> {
        match self.plan.choice.replace(choice) {
            None => Ok(()),
            Some(_) => Err(Unsupported::Launch { what: "a second choice of tokens" }),
        }
    }
}
