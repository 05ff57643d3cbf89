//! The queries as operands, and where they are packets the newest token's keys and values beside them.

use tilewright_codegen::build::{RegArray, Val};

use super::device::Pass;
use crate::kv::{Newest, TokenBlock};
use crate::tile::Array;

/// Of each run of dimensions the queries' words, and what their type rounds off them.
type Queries<'k> = Vec<[Vec<Val<'k, u32>>; 2]>;

/// What a warp that takes in the newest token has of it, as [`TokenBlock`] has that of a block: the words of a run of a token.
pub(super) struct NewestToken<'k> {
    keys: Vec<RegArray<'k, u32>>,
    values: Vec<RegArray<'k, u32>>,
}

impl<'k> Pass<'k> {
    /// The queries as A operands, times the scales and log2 e.
    pub fn queries(self) -> Queries<'k> {
        let (q, run) = (self.head_queries(), self.lanes().run);
        self.operands(&|_, at| (0..run).step_by(4).map(|four| q.load4(at + four)).collect())
    }

    /// The same of queries that are packets. A warp that takes in the newest token (`mine`) looks for its keys and values too, all in
    /// flight together.
    pub fn arriving(self, newest: Newest<'k>, mine: Val<'k, bool>) -> (Queries<'k>, NewestToken<'k>) {
        let (k, heads, run) = (self.team.k, self.work.heads, self.lanes().run);
        let (row, column) = (k.lane() / 4 * run, k.lane() % 4 * run);
        let q = self.head_queries();
        let token = (self.row * heads.kv_heads + self.work.kv_head) * heads.dim;
        let [keys, values] = [newest.keys, newest.values].map(|array| array.from(token));
        // A run behind the last dimension is read in place of another, and not looked at.
        let inside = |at: Val<'k, u32>| at.lt(heads.dim).select(at, 0u32);
        let key = |at: u32| (keys, inside(column + self.lanes().width() * at));
        let value = |at: u32| (values, inside(row + self.lanes().height() * at));
        let query =
            |at: u32| (0..run).step_by(4).map(move |four| (q, inside(column + self.lanes().width() * at) + four));
        let queries: Vec<(Array, Val<u32>)> = (0..self.lanes().runs()).flat_map(query).collect();
        let all = [
            &queries[..],
            &(0..self.lanes().runs()).map(key).chain((0..self.lanes().rows()).map(value)).collect::<Vec<_>>(),
        ];
        let all = all.concat();
        let mut kept: Vec<RegArray<u32>> = all.iter().map(|_| k.regs(4, 0u32)).collect();
        let look = |from: &[(Array<'k>, Val<'k, u32>)]| {
            for (words, kept) in Array::packets(from).into_iter().zip(&kept) {
                words.into_iter().zip(0..).for_each(|(word, i)| kept.set(i, word));
            }
        };
        k.if_else(mine, || look(&all), || look(&queries));
        let mut keys = kept.split_off(queries.len());
        let values = keys.split_off(self.lanes().runs() as usize);
        let fours = |at: u32, _| {
            let fours = kept.chunks(run as usize / 4).nth(at as usize).unwrap_or_default();
            fours.iter().map(|four| std::array::from_fn(|i| four.get(i as u32).bits())).collect()
        };
        (self.operands(&fours), NewestToken { keys, values })
    }

    /// The queries of this lane's head.
    fn head_queries(self) -> Array<'k> {
        let head = (self.team.k.lane() / 4).min(self.count - 1);
        self.work.q.from((self.row * self.work.heads.heads + self.first + head) * self.work.heads.dim)
    }

    /// The queries of a lane as A operands: `fours` gives those of a run, which begins with a dimension, four by four.
    fn operands(self, fours: &dyn Fn(u32, Val<'k, u32>) -> Vec<[Val<'k, f32>; 4]>) -> Queries<'k> {
        let (k, lanes) = (self.team.k, self.lanes());
        let column = k.lane() % 4 * lanes.run;
        let factor = k.lit(self.work.scale * std::f32::consts::LOG2_E);
        let factor = self.scale_of(self.work.keys).map_or(factor, |scale| scale * factor);
        let pairs = lanes.run / 2;
        let run = |run: u32| {
            let words = k.regs(2 * pairs, 0u32);
            self.lanes().guarded(self.lanes().width() * run, self.lanes().width(), column, |at| {
                let fours = fours(run, at);
                for (pair, two) in fours.iter().flat_map(|four| four.chunks(2)).enumerate() {
                    let (word, [rest_x, rest_y]) = lanes.narrow(two[0] * factor, two[1] * factor);
                    words.set(pair as u32, word);
                    words.set(pairs + pair as u32, lanes.narrow(rest_x, rest_y).0);
                }
            });
            [0, pairs].map(|first| (first..first + pairs).map(|at| words.get(at)).collect())
        };
        (0..self.lanes().runs()).map(run).collect()
    }
}

impl<'k> NewestToken<'k> {
    /// Puts it into a block, of which it is token `number`.
    pub fn put(&self, pass: Pass<'k>, number: Val<'k, u32>, to: &TokenBlock<'k>) {
        let k = pass.team.k;
        let (row, column) = (k.lane() / 4, k.lane() % 4);
        let words = |to: &RegArray<'k, u32>, from: &RegArray<'k, u32>| (0..4).for_each(|i| to.set(i, from.get(i)));
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
