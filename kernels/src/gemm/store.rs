//! The destinations of sums: tensor maps through shared memory, single elements, or partial sums.

use super::finish::{EpilogueOperands, GemmOutput, Reach};
use super::tiling::Tiles;
use crate::epilogue::{CustomEpilogue, Epilogue};
use crate::mma::{Accumulator, OutputType, Pack, RegisterPair, store_pairs};
use crate::tile::{Index, LayoutTensor, Modes, Share, boxes};
use tilewright_codegen::build::{Builder, Global, Param, Ptr, Scalar, Shared, TensorMap, Val};
use tilewright_codegen::ir::Ty;
use tilewright_codegen::ir::attr::ProxyFence;
use tilewright_layout::Swizzled;
use tilewright_layout::swizzle::TensorBoxes;
use tilewright_layout::typed::StaticLayout;

/// The types of partial sums. A host keeps memory of either type for both.
pub(super) const SUMS: [Ty; 2] = [Ty::F32, Ty::S32];

/// The method by which the result is written to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResultStore {
    /// By tensor map, in tiles that were staged in shared memory; the map clips them at the edges.
    Tiles(Epilogue),
    /// Element by element, each with its predicate: for results that no tensor map describes.
    Elements(Epilogue),
    /// Unchanged sums, f32 or s32, each share of the contraction separately, for the reduction to
    /// add.
    Partials,
}

impl ResultStore {
    /// The epilogue that is applied before.
    pub fn epilogue(self) -> Epilogue {
        match self {
            ResultStore::Tiles(epilogue) | ResultStore::Elements(epilogue) => epilogue,
            ResultStore::Partials => Epilogue::default(),
        }
    }
}

/// The method, with an epilogue of the caller's own.
#[derive(Clone, Copy, Debug)]
pub struct CustomStore<'f> {
    /// The method.
    pub store: ResultStore,
    /// The last step of the epilogue; `None` where sums are stored unchanged.
    pub custom: Option<CustomEpilogue<'f>>,
}

impl From<ResultStore> for CustomStore<'_> {
    fn from(store: ResultStore) -> Self {
        CustomStore { store, custom: None }
    }
}

/// The final processing of a kernel's sums, for any type of the result. As a trait object it is
/// compiled once for all tiles; the recorded code is the same.
pub(super) trait Sink<'k, S> {
    /// Columns of the result per tile: half of B's where the other half are gates.
    fn columns(&self) -> u32;

    /// The parts of its cluster's tile of B that this block fetches, where the tile's part of the
    /// result begins at `column`: shares of the tile, and the tensor row that corresponds to the
    /// tile's first row.
    fn shares(&self, cluster: u32, rank: Val<'k, u32>, column: Val<'k, u32>) -> Vec<(Share<'k>, Val<'k, i32>)>;

    /// Finishes sums whose first stands at `corner` of the result, and writes them.
    fn store(&self, sums: Accumulator<'k, S>, thread: Index<'k>, corner: [Val<'k, u32>; 2], split: Val<'k, u32>);

    /// Waits until everything that was sent off has been read.
    fn drain(&self);
}

/// Makes the [`Sink`] of a kernel from the extents of its result: declares the parameters that
/// follow the product's own.
pub(super) type MakeSink<'a, 'k, S> = &'a dyn Fn([Val<'k, u32>; 2]) -> Box<dyn Sink<'k, S> + 'k>;

/// The tiles of a result: those of [`Tiles`], as numbers.
#[derive(Clone, Copy)]
pub(super) struct ResultTiles {
    /// Columns of B's tile.
    columns: u32,
    /// Warpgroups that multiply, and the rows of each.
    pub(super) consumers: u32,
    rows: u32,
    /// Columns that are staged at a time, and the buffers of a warpgroup.
    pub(super) staged: u32,
    pub(super) buffers: u32,
    /// The layout of a buffer, and its boxes.
    pub(super) tile: Swizzled,
    boxes: TensorBoxes,
}

impl ResultTiles {
    /// The result tiles of `T`.
    pub(super) const fn of<T: Tiles>() -> ResultTiles {
        ResultTiles {
            columns: T::N,
            consumers: T::CONSUMERS,
            rows: T::ROWS,
            staged: T::STAGED,
            buffers: T::BUFFERS,
            tile: Swizzled::new(T::C::SWIZZLE, 0, T::C::LAYOUT),
            boxes: boxes::<u16, T::C>(),
        }
    }

    /// Elements that a warpgroup stages at a time.
    pub(super) fn stage(&self) -> u32 {
        self.rows * self.staged
    }
}

/// The result's side of a kernel.
pub(super) struct GemmResults<'k, S, D> {
    k: &'k Builder,
    finish: EpilogueOperands<'k, D>,
    extents: [Val<'k, u32>; 2],
    to: To<'k, S, D>,
    tiles: ResultTiles,
}

#[derive(Clone, Copy)]
enum To<'k, S, D> {
    Tiles { map: Ptr<'k, Param, TensorMap>, staged: Ptr<'k, Shared, u16>, pack: Pack<'k> },
    Elements { base: Ptr<'k, Global, D>, stride: Val<'k, u32> },
    Partials(Ptr<'k, Global, S>),
}

/// The part of a result that a tile covers from a corner on; it may run over the edge.
#[track_caller]
fn part<'k, T: Scalar>(
    whole: LayoutTensor<'k, T, Modes<'k, 2>, Global>,
    [row, column]: [Val<'k, u32>; 2],
    [rows, columns]: [u32; 2],
) -> LayoutTensor<'k, T, Modes<'k, 2>, Global> {
    whole.range(0, row.into(), rows).range(1, column.into(), columns)
}

impl<'k, S: OutputType, D: GemmOutput> Sink<'k, S> for GemmResults<'k, S, D> {
    fn columns(&self) -> u32 {
        if self.finish.gated() { self.tiles.columns / 2 } else { self.tiles.columns }
    }

    #[track_caller]
    fn shares(&self, cluster: u32, rank: Val<'k, u32>, column: Val<'k, u32>) -> Vec<(Share<'k>, Val<'k, i32>)> {
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

    #[track_caller]
    fn store(&self, sums: Accumulator<'k, S>, thread: Index<'k>, corner: [Val<'k, u32>; 2], split: Val<'k, u32>) {
        let rows = sums.extents()[0];
        let columns = self.columns();
        let pairs: Vec<_> = sums.pairs(thread).into_iter().filter(|pair| pair.column.constant() < columns).collect();
        match self.to {
            To::Tiles { map, staged, pack } => self.store_tiles(sums, corner, map, staged, pack),
            To::Elements { base, stride } => {
                let c = LayoutTensor::new(base, Modes::row_major(self.extents.map(Index::any), stride));
                store_pairs(&part(c, corner, [rows, columns]), &pairs, |pair, i| {
                    self.value(sums, pair, i, corner, Reach::Anywhere)
                });
            }
            To::Partials(partials) => {
                let plane = partials.at((split * self.extents[0]).mul_wide(self.extents[1]));
                let plane = LayoutTensor::new(plane, Modes::row_major(self.extents.map(Index::any), self.extents[1]));
                store_pairs(&part(plane, corner, [rows, columns]), &pairs, |pair, i| sums.get(pair.first + i));
            }
        }
    }

    #[track_caller]
    fn drain(&self) {
        if let To::Tiles { .. } = self.to {
            self.k.when((self.k.tid() % 128).eq(0), || self.k.bulk_wait_read(0));
        }
    }
}

impl<'k, S: OutputType, D: GemmOutput> GemmResults<'k, S, D> {
    /// Declares `c` (a tensor map; a pointer and `c_stride`; a pointer to partial sums) and the
    /// epilogue's parameters.
    #[track_caller]
    pub(super) fn parameters(
        k: &'k Builder,
        tiles: ResultTiles,
        store: CustomStore<'_>,
        extents: [Val<'k, u32>; 2],
    ) -> Box<dyn Sink<'k, S> + 'k> {
        let CustomStore { store, custom } = store;
        let to: To<'k, S, D> = match (store, D::pack()) {
            (ResultStore::Tiles(_), Some(pack)) => {
                let map = k.tensor_map("c");
                let staged = k.shared_aligned("c", tiles.consumers * tiles.buffers * tiles.stage(), 1024);
                To::Tiles { map, staged, pack }
            }
            (ResultStore::Tiles(_) | ResultStore::Elements(_), _) => {
                let base = k.global("c");
                To::Elements { base, stride: k.param("c_stride") }
            }
            (ResultStore::Partials, _) => To::Partials(k.global_of("partials", &SUMS).cast()),
        };
        let finish = EpilogueOperands::parameters(k, store.epilogue(), custom, extents);
        Box::new(GemmResults::<S, D> { k, finish, extents, to, tiles })
    }

    /// Stages the tile by columns, a warpgroup's buffers in turn, and sends them off.
    #[track_caller]
    fn store_tiles(
        &self,
        sums: Accumulator<'k, S>,
        corner: [Val<'k, u32>; 2],
        map: Ptr<'k, Param, TensorMap>,
        staged: Ptr<'k, Shared, u16>,
        pack: Pack<'k>,
    ) {
        let k = self.k;
        let ResultTiles { staged: width, buffers, .. } = self.tiles;
        let warpgroup = k.warp() / 4;
        let thread = Index::below(k.tid() % 128, 128);
        let sender = (k.tid() % 128).eq(0);
        let count = self.columns() / width;
        // What depends on places asks of each result whether it is inside, except in whole tiles.
        let reach = [sums.extents()[0], self.columns()];
        let whole = self.finish.needs_place().then(|| {
            let end = [0, 1].map(|mode: usize| corner[mode] + reach[mode]);
            end[0].le(self.extents[0]) & end[1].le(self.extents[1])
        });
        for number in 0..count {
            let buffer =
                staged.at(warpgroup * (buffers * self.tiles.stage())).at(number % buffers * self.tiles.stage());
            let tile = LayoutTensor::new(buffer, self.tiles.tile);
            let first = number * width;
            // The buffer's last user is as many sends ago as there are buffers; where those do not
            // divide the tile, at worst the last of the tile before.
            let pending = if number == 0 && !count.is_multiple_of(buffers) { 0 } else { buffers - 1 };
            k.when(sender, || k.bulk_wait_read(pending));
            self.warpgroup_barrier();
            let stage = |reach: Reach| {
                sums.stage(thread, first..first + width, tile, |pair| {
                    pack(self.value(sums, pair, 0, corner, reach), self.value(sums, pair, 1, corner, reach))
                });
            };
            match whole {
                None => stage(Reach::Anywhere),
                Some(whole) => k.if_else(whole, || stage(Reach::Inside), || stage(Reach::Anywhere)),
            }
            k.fence_proxy_async(ProxyFence::Shared);
            self.warpgroup_barrier();
            k.when(sender, || {
                tile.send_boxes(self.tiles.boxes, map, [corner[0].cast(), (corner[1] + first).cast()]);
                k.bulk_commit();
            });
        }
    }

    /// The value of one of a pair of results; the first sum is at `corner` of the whole result.
    #[track_caller]
    fn value(
        &self,
        sums: Accumulator<'k, S>,
        pair: RegisterPair<'k>,
        i: u32,
        corner: [Val<'k, u32>; 2],
        reach: Reach,
    ) -> Val<'k, f32> {
        // Summed up as the masks of the store are, so that both are the same numbers.
        let [row, column] = corner.map(Index::any);
        let at = || [row + pair.row, column + pair.column + i].map(|at| at.get(self.k));
        let sum = |register| sums.get(register).cast::<f32>();
        let other = self.finish.gated().then(|| sum(pair.first + i + self.tiles.columns / 4));
        self.finish.apply(at, sum(pair.first + i), other, reach)
    }

    /// A barrier of the warpgroup by itself.
    #[track_caller]
    fn warpgroup_barrier(&self) {
        let k = self.k;
        let roles = (0..self.tiles.consumers).map(|number| {
            let role: Box<dyn FnOnce()> = Box::new(move || k.bar_sync(1 + number, 128));
            (4 * (number + 1), role)
        });
        k.moving().roles(roles.collect());
    }
}
