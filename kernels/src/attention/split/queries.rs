//! The queries as operands and, if they are flagged words, the current token's keys and values.

use tilewright_codegen::build::{Ptr, RegArray, Shared, Val};

use super::HeadCounts;
use crate::attention::split::pass::AttentionPass;
use crate::attention::split::problem::TOGETHER;
use crate::gemv::task::LinearScratch;
use crate::kv::{CurrentToken, PagedPool, PoolArray, TokenBlock};
use crate::tile::Array;

/// For each run of dimensions, the queries' words, and the remainders of their rounding.
pub(super) type QueryWords<'k> = Vec<[Vec<Val<'k, u32>>; 2]>;

/// The part of the current token that a warp holds, as [`TokenBlock`] holds that of a block: the
/// words of a run of a token.
pub(super) struct CurrentTokenWords<'k> {
    keys: Vec<[Val<'k, u32>; 4]>,
    values: Vec<[Val<'k, u32>; 4]>,
}

impl HeadCounts {
    /// Words from a head's queries to the next: heads that would lie in the same banks are half of
    /// them apart.
    fn query_pitch(self) -> u32 {
        let half = self.dim / 2;
        if half.is_multiple_of(32) { half + 16 } else { half }
    }

    /// Bytes of shared memory for the queries of a pass as words of operands, and what is rounded
    /// off them: where sums would lie.
    pub fn query_bytes(self) -> u32 {
        2 * self.group().min(TOGETHER) * self.query_pitch() * 4
    }
}

impl<'k> AttentionPass<'_, 'k> {
    /// The queries as A operands, times the scales and log2 e. The consumer warps brings them to shared
    /// memory, two dimensions a thread: every lane has those of a head, so that each warp would
    /// load all of them.
    pub fn queries(self, scratch: LinearScratch<'k>) -> QueryWords<'k> {
        let consumers = self.consumers;
        let heads = self.work.heads;
        let lanes = self.lanes();
        let half = heads.dim / 2;
        let [high, low] = [0, self.count].map(|before| scratch.sums.cast::<u32>().at(before * heads.query_pitch()));
        let q = self.work.q.from((self.row * heads.heads + self.first) * heads.dim);
        let factor = consumers.k.lit(self.work.scale * std::f32::consts::LOG2_E);
        let factor = self.scale_of(self.work.keys).map_or(factor, |scale| scale * factor);
        let all = self.count * half;
        let items: Vec<_> = consumers.items(all).into_iter().map(|item| item.clamped(all)).collect();
        let loaded = q.gather::<2>(&items.iter().map(|item| item.at * 2).collect::<Vec<_>>());
        for (item, [a, b]) in items.iter().zip(loaded) {
            let place = item.at / half * heads.query_pitch() + item.at % half;
            item.alone(|| {
                let (word, [rest_a, rest_b]) = lanes.narrow(a * factor, b * factor);
                high.at(place).store(word);
                low.at(place).store(lanes.narrow(rest_a, rest_b).0);
            });
        }
        consumers.sync();
        let head = (consumers.k.lane() / 4).min(self.count - 1) * heads.query_pitch();
        (0..self.lanes().runs()).map(|run| [high, low].map(|part| self.query_words(part.at(head), run))).collect()
    }

    /// The factor of a pool's codes.
    pub(super) fn scale_of(self, pages: PagedPool<'k>) -> Option<Val<'k, f32>> {
        match pages.pool {
            PoolArray::Float(_) => None,
            PoolArray::E4m3 { scale, .. } => Some(scale),
        }
    }

    /// Loads this lane's words of a run of its head's dimensions.
    fn query_words(self, head: Ptr<'k, Shared, u32>, run: u32) -> Vec<Val<'k, u32>> {
        let k = self.consumers.k;
        let each = self.lanes().run;
        let words = k.regs(each / 2, 0u32);
        self.lanes().guarded(self.lanes().width() * run, self.lanes().width(), k.lane() % 4 * each, |at| {
            for first in (0..each / 2).step_by(4) {
                let loaded: [Val<u32>; 4] = head.at(at / 2 + first).load_vec();
                loaded.into_iter().zip(first..).for_each(|(word, i)| words.set(i, word));
            }
        });
        (0..each / 2).map(|i| words.get(i)).collect()
    }

    /// Loads the newest token's keys and values, all in flight together, and waits for them after
    /// `meanwhile` if this warp adds the token (`mine`).
    pub fn arriving(
        self,
        newest: CurrentToken<'k>,
        mine: Val<'k, bool>,
        meanwhile: impl FnOnce(),
    ) -> CurrentTokenWords<'k> {
        let k = self.consumers.k;
        let heads = self.work.heads;
        let run = self.lanes().run;
        let row = k.lane() / 4 * run;
        let column = k.lane() % 4 * run;
        let token = (self.row * heads.kv_heads + self.work.kv_head) * heads.dim;
        let [keys, values] = [newest.keys, newest.values].map(|array| array.from(token));
        // A run beyond the last dimension is read in place of another, and ignored.
        let inside = |at: Val<'k, u32>| at.lt(heads.dim).select(at, 0u32);
        let key = |at: u32| (keys, inside(column + self.lanes().width() * at));
        let value = |at: u32| (values, inside(row + self.lanes().height() * at));
        let all: Vec<_> = (0..self.lanes().runs()).map(key).chain((0..self.lanes().rows()).map(value)).collect();
        let mut keys = Array::packets(&all, mine, meanwhile);
        let values = keys.split_off(self.lanes().runs() as usize);
        CurrentTokenWords { keys, values }
    }
}

impl<'k> CurrentTokenWords<'k> {
    /// Stores the token into a block, as its token `number`.
    pub fn put(&self, pass: AttentionPass<'_, 'k>, number: Val<'k, u32>, to: &TokenBlock<'k>) {
        let k = pass.consumers.k;
        let row = k.lane() / 4;
        let column = k.lane() % 4;
        let words = |to: &RegArray<'k, u32>, from: &[Val<'k, u32>; 4]| {
            (0u32..).zip(from).for_each(|(i, word)| to.set(i, *word));
        };
        for (half, to) in [0u32, 8].into_iter().zip(&to.keys) {
            k.when((row + half).eq(number), || to.iter().zip(&self.keys).for_each(|(to, from)| words(to, from)));
        }
        for (to, from) in to.values.iter().zip(&self.values) {
            for (to, of) in to.iter().zip([0u32, 1, 8, 9]) {
                k.when((column * 2 + of).eq(number), || words(to, from));
            }
        }
    }
}
