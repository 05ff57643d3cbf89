//! Where the sums go: by tensor map through shared memory, element by element, or as partial sums.

use super::finish::{Epilogue, Finish, Output};
use super::tiling::Tiles;
use crate::mma::{Accumulator, OutputType, Pack, Pair, store_pairs};
use crate::tile::{Index, LayoutTensor, Modes, Share};
use core::marker::PhantomData;
use tilewright_codegen::build::{Builder, Global, Param, Ptr, Scalar, Shared, TensorMap, Val};
use tilewright_codegen::ir::attr::ProxyFence;

/// How the result is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Store {
    /// By tensor map, in tiles that were staged in shared memory; the map clips them at the edges.
    Tiles(Epilogue),
    /// Element by element, each with its predicate: for results that no tensor map describes.
    Elements(Epilogue),
    /// As they are, f32 or s32, each share of the contraction by itself, to be added up by the reduction.
    Partials,
}

impl Store {
    /// What is done before.
    pub fn epilogue(self) -> Epilogue {
        match self {
            Store::Tiles(epilogue) | Store::Elements(epilogue) => epilogue,
            Store::Partials => Epilogue::default(),
        }
    }
}

/// The result's side of a kernel.
pub(super) struct Results<'k, S, D, T> {
    k: &'k Builder,
    finish: Finish<'k, D>,
    extents: [Val<'k, u32>; 2],
    to: To<'k, S, D>,
    tiles: PhantomData<T>,
}

#[derive(Clone, Copy)]
enum To<'k, S, D> {
    Tiles { map: Ptr<'k, Param, TensorMap>, staged: Ptr<'k, Shared, u16>, pack: Pack<'k> },
    Elements { base: Ptr<'k, Global, D>, stride: Val<'k, u32> },
    Partials(Ptr<'k, Global, S>),
}

/// What a tile covers of a result from a corner on; it may run over the edge.
#[track_caller]
fn part<'k, T: Scalar>(
    whole: LayoutTensor<'k, T, Modes<'k, 2>, Global>,
    [row, column]: [Val<'k, u32>; 2],
    [rows, columns]: [u32; 2],
) -> LayoutTensor<'k, T, Modes<'k, 2>, Global> {
    whole.range(0, row.into(), rows).range(1, column.into(), columns)
}

impl<'k, S: OutputType, D: Output, T: Tiles> Results<'k, S, D, T> {
    /// Declares `c` (a tensor map; a pointer and `c_stride`; a pointer to partial sums) and the epilogue's parameters.
    #[track_caller]
    pub(super) fn parameters(k: &'k Builder, store: Store, extents: [Val<'k, u32>; 2]) -> Self {
        let to = match (store, D::pack()) {
            (Store::Tiles(_), Some(pack)) => {
                let map = k.tensor_map("c");
                To::Tiles { map, staged: k.shared_aligned("c", T::CONSUMERS * T::BUFFERS * Self::STAGE, 1024), pack }
            }
            (Store::Tiles(_) | Store::Elements(_), _) => {
                let base = k.global("c");
                To::Elements { base, stride: k.param("c_stride") }
            }
            (Store::Partials, _) => To::Partials(k.global("partials")),
        };
        let finish = Finish::parameters(k, store.epilogue(), extents);
        Results { k, finish, extents, to, tiles: PhantomData }
    }

    /// Elements that a warpgroup stages at a time.
    const STAGE: u32 = T::ROWS * T::STAGED;

    /// Columns of the result per tile: half of B's where the other half are gates.
    pub(super) fn columns(&self) -> u32 {
        if self.finish.gated() { T::N / 2 } else { T::N }
    }

    /// What this block fetches of its cluster's tile of B, whose part of the result begins at `column`: shares of the tile,
    /// and where the tensor has the row that would be the tile's first.
    #[track_caller]
    pub(super) fn shares(
        &self,
        cluster: u32,
        rank: Val<'k, u32>,
        column: Val<'k, u32>,
    ) -> Vec<(Share<'k>, Val<'k, i32>)> {
        let gate = column.cast::<i32>();
        let value = (self.extents[1] + column).cast::<i32>() - self.columns() as i32;
        match (self.finish.gated(), cluster) {
            (false, parts) => vec![(Share { part: Index::below(rank, parts), parts }, gate)],
            (true, 1) => {
                vec![(Share { part: 0.into(), parts: 2 }, gate), (Share { part: 1.into(), parts: 2 }, value)]
            }
            (true, parts) => {
                let row = rank.lt(parts / 2).select(gate, value);
                vec![(Share { part: Index::below(rank, parts), parts }, row)]
            }
        }
    }

    /// Finishes sums whose first stands at `corner` of the result, and writes them.
    #[track_caller]
    pub(super) fn store(
        &self,
        sums: Accumulator<'k, S>,
        thread: Index<'k>,
        corner: [Val<'k, u32>; 2],
        split: Val<'k, u32>,
    ) {
        let (rows, columns) = (sums.extents()[0], self.columns());
        let pairs: Vec<_> = sums.pairs(thread).into_iter().filter(|pair| pair.column.constant() < columns).collect();
        match self.to {
            To::Tiles { map, staged, pack } => self.store_tiles(sums, corner, (map, staged), pack),
            To::Elements { base, stride } => {
                let c = LayoutTensor::new(base, Modes::row_major(self.extents.map(Index::any), stride));
                store_pairs(&part(c, corner, [rows, columns]), &pairs, |pair, i| self.value(sums, pair, i, corner));
            }
            To::Partials(partials) => {
                let plane = partials.at((split * self.extents[0]).mul_wide(self.extents[1]));
                let plane = LayoutTensor::new(plane, Modes::row_major(self.extents.map(Index::any), self.extents[1]));
                store_pairs(&part(plane, corner, [rows, columns]), &pairs, |pair, i| sums.get(pair.first + i));
            }
        }
    }

    /// Stages the tile by columns, a warpgroup's buffers in turn, and sends them off.
    #[track_caller]
    fn store_tiles(
        &self,
        sums: Accumulator<'k, S>,
        corner: [Val<'k, u32>; 2],
        (map, staged): (Ptr<'k, Param, TensorMap>, Ptr<'k, Shared, u16>),
        pack: Pack<'k>,
    ) {
        let k = self.k;
        let (warpgroup, thread) = (k.warp() / 4, Index::below(k.tid() % 128, 128));
        let sender = (k.tid() % 128).eq(0);
        let count = self.columns() / T::STAGED;
        for number in 0..count {
            let buffer = staged.at(warpgroup * (T::BUFFERS * Self::STAGE)).at(number % T::BUFFERS * Self::STAGE);
            let tile = LayoutTensor::new(buffer, T::C::default());
            let first = number * T::STAGED;
            // The buffer's last user is as many sends ago as there are buffers; where those do not divide the tile, at
            // worst the last of the tile before.
            let pending = if number == 0 && !count.is_multiple_of(T::BUFFERS) { 0 } else { T::BUFFERS - 1 };
            k.when(sender, || k.bulk_wait_read(pending));
            self.warpgroup_barrier();
            sums.stage(thread, first..first + T::STAGED, tile, |pair| {
                pack(self.value(sums, pair, 0, corner), self.value(sums, pair, 1, corner))
            });
            k.fence_proxy_async(ProxyFence::Shared);
            self.warpgroup_barrier();
            k.when(sender, || {
                tile.send(map, [corner[0].cast(), (corner[1] + first).cast()]);
                k.bulk_commit();
            });
        }
    }

    /// Waits until everything that was sent off has been read.
    #[track_caller]
    pub(super) fn drain(&self) {
        if let To::Tiles { .. } = self.to {
            self.k.when((self.k.tid() % 128).eq(0), || self.k.bulk_wait_read(0));
        }
    }

    /// One of a pair of results, whose first sum stands at `corner` of the whole result.
    #[track_caller]
    fn value(&self, sums: Accumulator<'k, S>, pair: Pair<'k>, i: u32, corner: [Val<'k, u32>; 2]) -> Val<'k, f32> {
        // Summed up as the masks of the store are, so that both are the same numbers.
        let [row, column] = corner.map(Index::any);
        let at = || [row + pair.row, column + pair.column + i].map(|at| at.get(self.k));
        let sum = |register| sums.get(register).cast::<f32>();
        let other = self.finish.gated().then(|| sum(pair.first + i + T::N / 4));
        self.finish.apply(at, sum(pair.first + i), other)
    }

    /// A barrier of the warpgroup by itself.
    #[track_caller]
    fn warpgroup_barrier(&self) {
        let k = self.k;
        let roles = (0..T::CONSUMERS).map(|number| {
            let role: Box<dyn FnOnce()> = Box::new(move || k.bar_sync(1 + number, 128));
            (4 * (number + 1), role)
        });
        k.roles(roles.collect());
    }
}
