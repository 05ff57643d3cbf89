//! The next tokens of a step's rows, where the best of every tile of the logits is known: the
//! likeliest, a warp for each row, or as each row's request says.

use tilewright_codegen::build::{Global, Ptr, Val};

use super::key::{NO_TOKEN, chosen, largest};
use super::{Logits, Request, SampleScratch, argmax as likeliest, hide, sample as draw};
use crate::collective::{ranked_key, unranked};
use crate::warps::ConsumerWarps;

/// The largest logit of every tile of some rows, and its index.
#[derive(Clone, Copy)]
pub struct TileBests<'k> {
    /// Largest logit of every tile, f32 `[rows, tiles]`.
    pub value: Ptr<'k, Global, f32>,
    /// Its index, i32 `[rows, tiles]`.
    pub index: Ptr<'k, Global, i32>,
    /// Tiles.
    pub tiles: u32,
}

impl<'k> TileBests<'k> {
    /// Stores a tile's best of a row, by one thread.
    pub(crate) fn store(self, row: Val<'k, u32>, tile: Val<'k, u32>, best: Val<'k, u64>) {
        let (value, index) = unranked(best);
        let at = row * self.tiles + tile;
        self.value.at(at).store(value);
        self.index.at(at).store(index.cast::<i32>());
    }

    /// The index of the largest value of a row's tiles, of equals the lowest, or [`NO_TOKEN`] where
    /// that value is infinite; by a whole warp, the same in all of its lanes.
    fn best(self, row: Val<'k, u32>) -> Val<'k, u32> {
        let k = row.builder();
        let best = k.var(0u64);
        for start in (0..self.tiles).step_by(32) {
            let tile = k.lane() + start;
            k.when(tile.lt(self.tiles), || {
                let at = row * self.tiles + tile;
                let value = self.value.at(at).load();
                let index = self.index.at(at).load().cast::<u32>();
                best.set(best.get().max(ranked_key(value, index)));
            });
        }
        chosen(largest(best.get(), 32))
    }
}

/// Rows to decide.
#[derive(Clone, Copy)]
pub struct Argmax<'k> {
    /// The best of their tiles.
    pub bests: TileBests<'k>,
    /// The chosen ids, i32 `[rows]`; -1 where nothing is chosen.
    pub out: Ptr<'k, Global, i32>,
    /// Rows.
    pub rows: u32,
    /// First row.
    pub first_row: Val<'k, u32>,
}

/// Decides: of the largest the lowest index, or -1 where the largest is infinite; NaN counts as −∞.
pub fn argmax<'k>(consumers: ConsumerWarps<'k>, argmax: Argmax<'k>) {
    let k = consumers.k;
    k.for_step(k.warp(), argmax.rows, consumers.warps, |row| {
        let row = argmax.first_row + row;
        let best = argmax.bests.best(row);
        k.when(k.lane().eq(0), || argmax.out.at(row).store(best.cast::<i32>()));
    });
}

/// Rows to choose for.
#[derive(Clone, Copy)]
pub struct Sample<'k> {
    /// Logits, f32 `[rows, vocab]`.
    pub logits: Ptr<'k, Global, f32>,
    /// Tokens that there are, at most 2¹⁸.
    pub vocab: u32,
    /// The best of their tiles.
    pub bests: TileBests<'k>,
    /// Position of every row, i32 `[rows]`; negative: nothing is chosen.
    pub position: Ptr<'k, Global, i32>,
    /// A [`Request`] for every row.
    pub requests: Ptr<'k, Global, u8>,
    /// The chosen ids, i32 `[rows]`; -1 where nothing is chosen.
    pub out: Ptr<'k, Global, i32>,
    /// Rows.
    pub rows: u32,
    /// First row.
    pub first_row: Val<'k, u32>,
}

/// The masks of rows whose tokens are restricted ([`hide`]).
#[derive(Clone, Copy)]
pub struct RowMasks<'k, 'm> {
    /// Of every row not 0 if it has a mask, u32 `[rows]`.
    pub masked: Ptr<'k, Global, u32>,
    /// The masks, `pitch` words a row.
    pub masks: Ptr<'k, Global, u32>,
    /// Words from a row's mask to the next one's.
    pub pitch: u32,
    /// Waits until the mask of a row is there; by one thread, between two barriers.
    pub wait: &'m dyn Fn(Val<'k, u32>),
}

/// Chooses as [`naive::sample`](crate::naive::sample) does, row after row, each by all consumers.
/// The logits that a row's mask hides become −∞ before.
///
/// The likeliest token is known from the tiles, so that logits are only read where one is drawn at
/// random, or some are hidden.
pub fn sample<'k>(
    consumers: ConsumerWarps<'k>,
    scratch: SampleScratch<'k>,
    sample: Sample<'k>,
    masks: Option<RowMasks<'k, '_>>,
) {
    let k = consumers.k;
    let each = |row: Val<'k, u32>| {
        let token = k.var(NO_TOKEN);
        k.when(sample.position.at(row).load().ge(0), || {
            // Equal in all lanes already; taking one lane's proves it to the verifier.
            let mut best = sample.bests.best(row).shfl_idx(0);
            let logits = Logits { at: sample.logits.at(row.mul_wide(sample.vocab)), count: k.lit(sample.vocab) };
            if let Some(RowMasks { masked, masks, pitch, wait }) = masks {
                let allowed = k.var(best);
                k.when(masked.at(row).load().ne(0), || {
                    consumers.sync();
                    k.when(k.tid().eq(0), || wait(row));
                    consumers.sync();
                    hide(consumers, logits, masks.at(row.mul_wide(pitch)));
                    consumers.sync();
                    allowed.set(likeliest(consumers, scratch, logits));
                });
                best = allowed.get();
            }
            let request = Request::load(sample.requests.at(row * size_of::<Request>() as u32));
            token.set(draw(consumers, scratch, logits, best, request));
        });
        k.when(k.tid().eq(0), || sample.out.at(row).store(token.get().cast::<i32>()));
    };
    // The next row uses the scratch again, with no barrier between: nothing of it is written before
    // its first barrier that is still read after this row's last.
    k.for_(0u32, sample.rows, |row| each(sample.first_row + row));
}
