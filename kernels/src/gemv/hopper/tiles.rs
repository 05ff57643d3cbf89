//! Every tile of the kernel by level of memory, and the sizes that follow from a shape.
//!
//! A block computes a *tile*: [`HopperPlan::rows`] rows of weights times all vectors, or a part of
//! them, over its share of k. It goes through k in *chunks*, a stage of weights and one of
//! activations; where activations are many, a stage of weights meets several.

use super::codes::{CodeStage, ROW};
use half::bf16;
use tilewright_codegen::build::{Builder, Ptr, Shared};
use tilewright_codegen::device::{Outside, Promotion, TensorShape, TileSwizzle};
use tilewright_layout::swizzle::canonical::Major;
use tilewright_layout::typed::operand_tile;
use tilewright_layout::{DType, Swizzle, Swizzled};

use super::{HopperTuning, PlanError, WeightRows};
use crate::ring::{Consumers, Shape, StageTile};
use crate::weights::Strip;
use crate::weights::weight_tile::{BYTES, DEPTH};

/// Names the ring of weights.
#[derive(Debug)]
pub(super) enum WeightRing {}

/// Names the ring of activations.
#[derive(Debug)]
pub(super) enum ActivationRing {}

/// Shared memory of a multiprocessor on sm_90, in bytes, and the part that each block takes in
/// addition to its own.
const SHARED: u32 = 228 << 10;
const RESERVED: u32 = 1 << 10;
/// The additional bytes for alignment, mbarriers and numbers of vectors.
const SLACK: u32 = 4 << 10;
/// Registers of a multiprocessor.
const REGISTERS: u32 = 1 << 16;
/// The registers of a thread besides its sums and its weights of a stage; each eight columns need
/// one more.
const ADDRESSES: u32 = 40;
/// Registers for addresses where weights are codes.
const ADDRESSES_OF_CODES: u32 = 24;
/// Elements of a line of shared memory: 128 bytes, a row of the swizzle.
const LINE: u32 = 64;
/// Bytes of a line.
const LINE_BYTES: u32 = 128;
/// Blocks of a cluster that every device with clusters has.
const MOST_BLOCKS: u32 = 8;
/// Rows that a warpgroup's instruction multiplies.
const GROUP_ROWS: u32 = 64;
/// Stages of activations where there are more of weights: they come from L2, a microsecond after
/// they are issued, and a warpgroup that loads ahead holds two.
const X_STAGES: u32 = 5;
/// Columns of sums that a tile stages at a time, where it is not exchanged with other blocks.
const STAGED: u32 = 32;
/// The padding of rows of staged sums: two columns are eight banks apart.
pub(super) const PAD: u32 = 4;

/// The sizes of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HopperPlan {
    /// Vectors.
    pub batch: u32,
    /// Rows of the weights.
    pub n: u32,
    /// The results that they make.
    pub results: WeightRows,
    /// The packing of the weights.
    pub strip: Strip,
    /// The chosen tuning, with as many stages as fit.
    pub tuning: HopperTuning,
}

impl HopperPlan {
    /// Plans a product of a batch with rows of weights that are packed as `strip`. The number of
    /// warps that share a strip's tiles does not matter.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn new(
        batch: u32,
        rows: impl Into<WeightRows>,
        strip: Strip,
        tuning: HopperTuning,
    ) -> Result<HopperPlan, PlanError> {
        let results = rows.into();
        let n = results.packed();
        if !(1..=1 << 24).contains(&n) {
            return Err(PlanError::Rows { n });
        }
        if strip.codes().is_some_and(|codes| !codes.is_of_whole_steps()) {
            return Err(PlanError::Halves);
        }
        if let WeightRows::Groups { dim, .. } = results
            && !dim.is_multiple_of(Strip::ROWS)
        {
            let what = "the number of dimensions of a head";
            let wanted = "a multiple of 8";
            return Err(PlanError::Setting { what, found: dim, wanted });
        }
        let plan = HopperPlan { batch, n, results, strip, tuning };
        if !(1..=256).contains(&plan.of_tile()) {
            return Err(PlanError::Batch { batch: plan.of_tile() });
        }
        plan.check()?;
        plan.check_registers()?;
        let limit = SHARED / tuning.per_sm - RESERVED;
        let bytes =
            |stages: u32| stages * plan.stage_bytes() + plan.with_stages(stages).x_stages() * plan.x_stage_bytes();
        let fit = |fixed: u32| {
            let room = limit.saturating_sub(fixed);
            plan.with_stages((1..=tuning.stages).rev().find(|&stages| bytes(stages) <= room).unwrap_or(0))
        };
        // Where the ring has not got room for the sums, they have their own.
        let fixed = SLACK + plan.inbox_bytes();
        let plan =
            Some(fit(fixed)).filter(|plan| plan.sums_in_ring()).unwrap_or_else(|| fit(fixed + plan.sums_bytes()));
        if plan.tuning.stages < 2 {
            let needed = fixed + bytes(2) + if plan.sums_in_ring() { 0 } else { plan.sums_bytes() };
            return Err(PlanError::Shared { needed, batch, stage_tiles: tuning.stage_tiles, limit });
        }
        Ok(plan)
    }

    fn with_stages(&self, stages: u32) -> HopperPlan {
        HopperPlan {
            tuning: HopperTuning { stages, in_flight: self.tuning.in_flight.min(stages), ..self.tuning },
            ..*self
        }
    }

    fn check(&self) -> Result<(), PlanError> {
        let HopperTuning { warpgroups, strips, stage_tiles, stages, in_flight, multicast, splits, vectors, per_sm } =
            self.tuning;
        let setting = |what, found, wanted| Err(PlanError::Setting { what, found, wanted });
        if !(1..=4).contains(&warpgroups) {
            return setting("the number of warpgroups", warpgroups, "1 to 4");
        }
        if strips < 2 || strips.div_ceil(GROUP_ROWS / Strip::ROWS) != warpgroups {
            return setting(
                "the number of strips of a tile",
                strips,
                "2 at least, and as many as its warpgroups multiply",
            );
        }
        if !self.rows().is_multiple_of(self.results.together()) {
            return setting("the number of strips of a tile of gates", strips, "even");
        }
        if let Some(codes) = CodeStage::of(self) {
            if !codes.is_part_of(self.strip) {
                let wanted = "1, or 2 to 8 that divide a packed stage's and share their factors or have whole groups";
                return setting("the number of tiles of a stage of codes", stage_tiles, wanted);
            }
        } else if !(2..=64).contains(&stage_tiles) || !stage_tiles.is_multiple_of(2) {
            return setting("the number of tiles of a stage", stage_tiles, "even, 2 to 64");
        }
        if self.vector_tiles() > 1 && !vectors.is_multiple_of(8 * multicast) {
            return setting(
                "the number of vectors of a tile",
                vectors,
                "a multiple of eight for each block that shares them",
            );
        }
        if !matches!(multicast, 1 | 2 | 4 | 8) || self.columns() > 256 {
            return setting(
                "the number of blocks that share activations",
                multicast,
                "1, 2, 4 or 8, each with eights of 256 vectors",
            );
        }
        if splits == 0 || !(self.rows() / self.results.together()).is_multiple_of(splits) {
            let wanted = "a divisor of a quarter of a tile's rows, of an eighth where they are heads, of a sixteenth where they are gates";
            return setting("the number of shares of k", splits, wanted);
        }
        if splits > self.chunks() {
            return setting("the number of shares of k", splits, "no more than there are stages of k");
        }
        if self.tuning.cluster() > MOST_BLOCKS {
            return setting("the number of blocks of a cluster", self.tuning.cluster(), "8 at most");
        }
        if stages < 2 {
            return setting("the number of stages", stages, "2 at least");
        }
        if !(1..=2).contains(&per_sm) {
            return setting("the number of blocks of a multiprocessor", per_sm, "1 or 2");
        }
        if in_flight == 0 {
            return setting("the number of stages in flight", in_flight, "1 at least");
        }
        Ok(())
    }

    /// Registers that a thread may have.
    fn registers(&self) -> u32 {
        match self.dealt() {
            Some([_, many]) => many,
            None => self.equal_registers(),
        }
    }

    /// Registers of a thread where all threads have equally many.
    fn equal_registers(&self) -> u32 {
        (REGISTERS / self.plain_threads() / self.tuning.per_sm / 8 * 8).min(255)
    }

    /// Registers that the warpgroup which fetches goes down to, and that those which multiply go up
    /// to, where else these have too few.
    pub(super) fn dealt(&self) -> Option<[u32; 2]> {
        let few = self.strip.codes().is_some() && self.needs(2) > self.equal_registers();
        self.dealing().filter(|_| few)
    }

    /// The register counts of producer and consumers, if registers are reallocated.
    fn dealing(&self) -> Option<[u32; 2]> {
        match (self.tuning.warpgroups, self.tuning.per_sm) {
            (2, 1) => Some([24, 240]),
            (3, 1) => Some([32, 160]),
            _ => None,
        }
    }

    /// Registers of a thread whose warpgroup holds the weights of a number of stages: of codes the
    /// operands that meet as many stages of activations, and the words that one is made of.
    fn needs(&self, stages: u32) -> u32 {
        let held = match self.strip.codes() {
            None => stages * 8 * self.tuning.stage_tiles + ADDRESSES,
            Some(_) => return self.needs_of_codes(stages, self.x_stage_k()),
        };
        self.columns() / 2 + held + self.columns() / 8
    }

    fn needs_of_codes(&self, stages: u32, x_k: u32) -> u32 {
        self.columns() / 2 + (stages + 1) * (x_k / 4) + ADDRESSES_OF_CODES + self.columns() / 8
    }

    /// Whether a warpgroup loads a stage's weights while it multiplies the stage before: one or two
    /// that take turns would else leave the tensor cores idle for longer than they are busy. Stages
    /// then come in pairs.
    pub(super) fn overlaps(&self) -> bool {
        match self.strip.codes() {
            Some(_) => self.x_parts().is_multiple_of(2) && self.needs(2) <= self.registers(),
            None => {
                let even = self.chunks().is_multiple_of(2 * self.tuning.splits);
                self.tuning.warpgroups <= 2 && even && self.needs(2) <= self.registers()
            }
        }
    }

    fn check_registers(&self) -> Result<(), PlanError> {
        let batch = self.batch;
        let stage_tiles = self.tuning.stage_tiles;
        let threads = self.threads();
        let limit = self.registers();
        let needed = self.needs(1);
        if needed > limit { Err(PlanError::Registers { needed, batch, stage_tiles, threads, limit }) } else { Ok(()) }
    }

    /// Elements from one vector to the next in memory: whole steps of 32.
    pub fn x_pitch(&self) -> u32 {
        self.strip.k().next_multiple_of(DEPTH)
    }

    /// Vectors of a tile; the last tile may have fewer.
    pub(super) fn of_tile(&self) -> u32 {
        if self.tuning.vectors == 0 { self.batch } else { self.tuning.vectors.min(self.batch) }
    }

    /// Tiles of the vectors.
    pub fn vector_tiles(&self) -> u32 {
        self.batch.div_ceil(self.of_tile())
    }

    /// Columns of the instruction: the vectors of a tile in eights, as many for each of the blocks
    /// that share activations.
    pub fn columns(&self) -> u32 {
        self.of_tile().next_multiple_of(8 * self.tuning.multicast)
    }

    /// Vectors that a block fetches for all that share them.
    pub(super) fn fetched(&self) -> u32 {
        self.columns() / self.tuning.multicast
    }

    /// Rows of weights of a tile.
    pub fn rows(&self) -> u32 {
        Strip::ROWS * self.tuning.strips
    }

    /// Whether every warp has rows of the tile.
    pub(super) fn has_rows_for_all(&self) -> bool {
        self.rows() == GROUP_ROWS * self.tuning.warpgroups
    }

    /// Strips of a tile.
    pub(super) fn strips(&self) -> u32 {
        self.tuning.strips
    }

    /// Tiles, a cluster's worth of rows whole: some may have no rows.
    pub(super) fn groups(&self) -> u32 {
        self.n.div_ceil(self.rows()).div_ceil(self.tuning.multicast)
    }

    /// The groups of all tiles of vectors.
    pub(super) fn all_groups(&self) -> u32 {
        self.groups() * self.vector_tiles()
    }

    /// Tiles of all rows, those without rows included.
    pub fn tiles(&self) -> u32 {
        self.groups() * self.tuning.multicast
    }

    /// Whether every tile has all its rows.
    pub(super) fn is_whole(&self) -> bool {
        self.n.is_multiple_of(self.rows() * self.tuning.multicast)
    }

    /// k of a stage of weights.
    pub(super) fn stage_k(&self) -> u32 {
        self.tuning.stage_tiles * self.strip.depth()
    }

    /// k of a stage of activations. Codes are few bytes, so their stages meet several, as large as
    /// a warpgroup has registers for the operands of two.
    pub(super) fn x_stage_k(&self) -> u32 {
        match self.strip.codes() {
            None => self.stage_k(),
            Some(_) if self.stage_k().is_multiple_of(4 * LINE) && self.fits(2 * LINE) => 2 * LINE,
            Some(_) => LINE,
        }
    }

    /// Whether a thread has registers for the operands of two stages of activations of so much k.
    fn fits(&self, x_k: u32) -> bool {
        let most = self.dealing().map_or(self.equal_registers(), |[_, many]| many.max(self.equal_registers()));
        self.needs_of_codes(2, x_k) <= most
    }

    /// Stages of activations that a stage of weights meets.
    pub(super) fn x_parts(&self) -> u32 {
        self.stage_k() / self.x_stage_k()
    }

    /// Stages that all of k takes.
    pub fn chunks(&self) -> u32 {
        self.strip.tiles().div_ceil(self.tuning.stage_tiles)
    }

    /// Lines of a strip in a stage.
    pub(super) fn stage_lines(&self) -> u32 {
        self.tuning.stage_tiles * BYTES / LINE_BYTES
    }

    /// Lines of a vector in a stage; a panel is one of every vector.
    pub(super) fn panels(&self) -> u32 {
        self.x_stage_k() / LINE
    }

    /// Bytes of a number of vectors of a panel.
    pub(super) fn panel_bytes(&self, vectors: u32) -> u32 {
        vectors * LINE_BYTES
    }

    /// A stage of weights, (row, k) to element: as they are packed, lines swizzled so that
    /// `ldmatrix` meets no bank twice. One of codes is so much memory ([`CodeStage`]).
    pub(super) fn stage(&self) -> StageTile<bf16, Swizzled> {
        const LINES: Swizzle = match Swizzle::new(3, 3, 3) {
            Ok(swizzle) => swizzle,
            Err(_) => panic!("the swizzle of 128 bytes"),
        };
        match CodeStage::of(self) {
            Some(codes) => StageTile::new(codes.memory(LINES)),
            None => StageTile::new(Swizzled::new(LINES, 0, self.strip.packed(self.strips(), self.tuning.stage_tiles))),
        }
    }

    /// A stage of activations, (vector, k) to element: the B operand.
    pub(super) fn x_stage(&self) -> StageTile<bf16, Swizzled> {
        match operand_tile(Major::K, 16, self.columns().into(), self.x_stage_k().into()) {
            Ok(tile) => StageTile::new(tile),
            Err(error) => unreachable!("eights of vectors by whole lines: {error}"),
        }
    }

    /// Bytes of a stage of weights.
    pub(super) fn stage_bytes(&self) -> u32 {
        CodeStage::of(self).map_or(self.rows() * self.stage_k() * 2, CodeStage::bytes)
    }

    /// Bytes of a stage of activations.
    pub(super) fn x_stage_bytes(&self) -> u32 {
        self.panels() * self.panel_bytes(self.columns())
    }

    /// Stages of activations.
    pub(super) fn x_stages(&self) -> u32 {
        (self.tuning.stages * self.x_parts()).min(X_STAGES)
    }

    /// The ring of weights: every warp reads its rows by itself.
    pub(super) fn ring(&self) -> Shape {
        let HopperTuning { stages, in_flight, warpgroups, .. } = self.tuning;
        Shape::stages(stages).in_flight(in_flight).consumers(Consumers::Warps(4 * warpgroups))
    }

    /// Stages of weights that are issued before the block meets.
    pub(super) fn begun(&self) -> u32 {
        self.tuning.in_flight.min(self.chunks() / self.tuning.splits)
    }

    /// The ring of activations: `wgmma` reads them.
    pub(super) fn x_ring(&self) -> Shape {
        let HopperTuning { warpgroups, multicast, splits, .. } = self.tuning;
        Shape::stages(self.x_stages()).consumers(Consumers::Warpgroups(warpgroups)).cluster(multicast).groups(splits)
    }

    /// Columns of sums that are staged at a time: all where blocks exchange them, or where the
    /// rings leave room.
    pub(super) fn staged(&self) -> u32 {
        let all = self.columns();
        let other = SLACK + self.x_stages() * self.x_stage_bytes() + self.bytes_of_sums(all);
        let used = self.tuning.stages.saturating_mul(self.stage_bytes()).saturating_add(other);
        let is_room = used <= SHARED / self.tuning.per_sm - RESERVED;
        if self.tuning.splits > 1 || is_room { all } else { all.min(STAGED) }
    }

    /// The distance from one column of staged sums to the next.
    pub(super) fn sums_pitch(&self) -> u32 {
        self.rows() / self.tuning.splits + PAD
    }

    /// The distance from the staged sums of rows that one block finishes to those of the next.
    pub(super) fn part(&self) -> u32 {
        self.staged() * self.sums_pitch()
    }

    /// Bytes of them that one block sends another: of vectors that there are.
    pub(super) fn part_bytes(&self) -> u32 {
        self.of_tile() * self.sums_pitch() * 4
    }

    /// Bytes that come from the other blocks that share k.
    pub(super) fn inbox_bytes(&self) -> u32 {
        (self.tuning.splits - 1) * self.part() * 4
    }

    /// Whether sums are staged where weights were: after a block's one tile the ring is empty.
    pub(super) fn sums_in_ring(&self) -> bool {
        self.tuning.splits > 1 && self.sums_bytes() <= self.tuning.stages * self.stage_bytes()
    }

    /// Memory for the sums of a tile, in the ring of weights or separate.
    pub(super) fn room<'k>(&self, k: &'k Builder, ring: Ptr<'k, Shared, bf16>) -> Ptr<'k, Shared, f32> {
        if self.sums_in_ring() { ring.cast() } else { k.shared_aligned("sums", self.sums_bytes() / 4, 128) }
    }

    fn sums_bytes(&self) -> u32 {
        self.bytes_of_sums(self.staged())
    }

    fn bytes_of_sums(&self, columns: u32) -> u32 {
        columns * self.sums_pitch() * self.tuning.splits * 4
    }

    /// Threads of a block: those that multiply, a warp that fetches weights and one that fetches
    /// activations; where registers are dealt, a warpgroup of which two warps fetch.
    pub fn threads(&self) -> u32 {
        if self.dealt().is_some() { self.tuning.warpgroups * 128 + 128 } else { self.plain_threads() }
    }

    fn plain_threads(&self) -> u32 {
        self.tuning.warpgroups * 128 + 64
    }

    /// Blocks of a launch on a number of multiprocessors: one a multiprocessor, which stays for
    /// many tiles; where k is shared, one for each share of each tile.
    pub fn blocks(&self, multiprocessors: u32) -> u32 {
        let cluster = self.tuning.cluster();
        let clusters = match self.tuning.splits {
            1 => self.all_groups().min(multiprocessors / cluster).max(1),
            _ => self.all_groups(),
        };
        clusters * cluster
    }

    /// Lines of a strip that its map has: of bf16 those of its tiles, of codes those of factors
    /// too.
    fn map_lines(&self) -> u32 {
        match self.strip.codes() {
            Some(_) => self.strip.bytes() / LINE_BYTES,
            None => self.strip.tiles() * DEPTH * Strip::ROWS / LINE,
        }
    }

    /// The packed weights as a box of the copy engine has them: line, line of its strip, strip.
    pub(super) fn weights_map(&self) -> TensorShape {
        let strip = self.strip;
        TensorShape {
            dtype: DType::BF16,
            dims: [LINE, self.map_lines(), self.n.div_ceil(Strip::ROWS)].map(u64::from).to_vec(),
            strides: [LINE_BYTES, strip.bytes()].map(u64::from).to_vec(),
            tile: vec![LINE, self.stage_lines(), self.strips()],
            swizzle: TileSwizzle::Bytes128,
            outside: Outside::Zero,
            promotion: Promotion::Bytes256,
        }
    }

    /// The activations: what is beyond k and beyond the last vector reads as zeros.
    pub(super) fn vectors_map(&self) -> TensorShape {
        TensorShape {
            dtype: DType::BF16,
            dims: [self.strip.k(), self.batch].map(u64::from).to_vec(),
            strides: vec![u64::from(self.x_pitch() * 2)],
            tile: vec![LINE, self.fetched()],
            swizzle: TileSwizzle::Bytes128,
            outside: Outside::Zero,
            promotion: Promotion::Bytes256,
        }
    }
}

impl CodeStage {
    /// The stage of a plan; `None` for bf16 weights.
    pub fn of(plan: &HopperPlan) -> Option<CodeStage> {
        let strip = plan.strip;
        let tuning = plan.tuning;
        let strips = tuning.strips;
        let tiles = tuning.stage_tiles;
        strip.codes().map(|codes| CodeStage { codes, strips, tiles, depth: strip.depth(), span: strip.span() })
    }

    /// Factors as boxes of the copy engine: 16 bytes, row of the strip, strip.
    pub fn factors_map(self, plan: &HopperPlan) -> TensorShape {
        let strip = plan.strip;
        let eight = ROW / 2;
        TensorShape {
            dtype: DType::BF16,
            dims: [eight, strip.bytes() / ROW, plan.n.div_ceil(Strip::ROWS)].map(u64::from).to_vec(),
            strides: [ROW, strip.bytes()].map(u64::from).to_vec(),
            tile: vec![eight, 1, self.strips],
            swizzle: TileSwizzle::None,
            outside: Outside::Zero,
            promotion: Promotion::None,
        }
    }
}
