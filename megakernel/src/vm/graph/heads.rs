//! Heads that a projection left: normalised, rotated, stored or appended.

use tilewright_codegen::ir::Arch;
use tilewright_kernels::gemv::HeadPages;
use tilewright_kernels::gemv::hopper::WeightRows;
use tilewright_kernels::kv::PoolType;
use tilewright_kernels::rope::{HeadRun, HeadRuns, rope_runs};
use tilewright_kernels::tile::Float;
use tilewright_layout::DType;

use super::activations::ProductInput;
use super::launch::{LaunchArg, LaunchGrid, LaunchMemory, Scratch};
use super::plan::MOST_ALONE;
use super::planner::{GraphPlanner, RowHeads, WARPS};
use crate::ops::{Rotation, RowCells};
use crate::program::{BufferId, BufferKind};
use crate::vm::Unsupported;
use crate::vm::resident::pool_fits;

/// The destination of heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadsOut {
    /// To the queries, which this buffer of the program stands for.
    Queries(BufferId),
    /// To the pages of a pool.
    Pool(BufferId),
}

/// Heads that follow each other in a row, and what becomes of them.
pub(crate) struct HeadsPart<'a> {
    pub from: RowHeads,
    pub heads: u32,
    /// The norm's weight and eps.
    pub norm: Option<(BufferId, f32)>,
    pub rotation: Option<&'a Rotation>,
    pub to: HeadsOut,
}

/// Queries, keys and values of rows: how they are rotated, and where they go.
pub(crate) struct Appended<'a> {
    pub at: &'a RowCells,
    pub rotation: &'a Rotation,
    pub queries: BufferId,
    /// Pools of keys and values.
    pub pools: [BufferId; 2],
}

impl GraphPlanner<'_> {
    /// A product that rotates its heads itself, and appends them; false, and nothing is done, where
    /// none does.
    pub(crate) fn appended_product(&mut self, product: &ProductInput, to: &Appended) -> Result<bool, Unsupported> {
        let WeightRows::Groups { group, kv_heads, dim } = product.results else { return Ok(false) };
        let [rows, width] = self.extents(to.at.page_table)?;
        let form = |pool| Ok::<_, Unsupported>((self.pool(pool)?, self.pool_type(pool)?));
        let [keys, values] = [form(to.pools[0])?, form(to.pools[1])?];
        let ([_, pages, page_tokens, _], pool) = keys;
        let queries = LaunchMemory::Scratch(Scratch::Queries);
        let Some(mut packed) = self.packed_of(&product.multiply(rows, queries)) else { return Ok(false) };
        packed.finish.heads = Some(HeadPages { page_tokens, pool });
        if keys != values || packed.finish.check(&packed.plan).is_err() {
            return Ok(false);
        }
        let rows = self.rows(rows)?;
        self.queries(to.queries, [rows, group * kv_heads, dim]);
        let mut launch = self.multiply_activations(packed, product.a)?;
        let turns = self.rotation(to.rotation, width.saturating_mul(page_tokens))?;
        let cells = [turns, LaunchMemory::Cell(to.at.position), LaunchMemory::Cell(to.at.page_table)];
        launch.args.extend(cells.map(LaunchArg::Pointer));
        launch.args.extend([width, pages].map(LaunchArg::Number));
        launch.args.extend(to.pools.iter().flat_map(|&of| self.pool_arguments(of, pool)));
        self.plan.launches.push(launch);
        Ok(true)
    }

    /// Queries `[rows, heads, dimensions]`, for which a buffer stands.
    fn queries(&mut self, buffer: BufferId, [rows, heads, dim]: [u32; 3]) -> LaunchMemory {
        self.stands_for(buffer, RowHeads { scratch: Scratch::Queries, first: 0, of_row: heads });
        self.scratch(Scratch::Queries, u64::from(rows) * u64::from(heads * dim) * 2)
    }

    /// A pool of that type, followed by the factor of its codes.
    fn pool_arguments(&self, pool: BufferId, of: PoolType) -> impl Iterator<Item = LaunchArg> + use<> {
        let factor = (of == PoolType::E4m3).then(|| LaunchArg::Factor(self.buffer(pool).factor()));
        [LaunchArg::Pointer(LaunchMemory::Pool(pool))].into_iter().chain(factor)
    }

    /// A buffer stands for heads that lie there.
    pub(crate) fn stands_for(&mut self, buffer: BufferId, heads: RowHeads) {
        self.heads.insert(buffer, heads);
    }

    /// The heads that a buffer names.
    pub(crate) fn heads_of(&self, buffer: BufferId) -> Result<RowHeads, Unsupported> {
        let missing = Unsupported::Launch { what: "heads that no level before left as this one reads them" };
        self.heads.get(&buffer).copied().ok_or(missing)
    }

    /// The extents of a pool: kv heads, pages, tokens of a page, dimensions. Fewer than 2³²
    /// elements.
    pub(crate) fn pool(&self, pool: BufferId) -> Result<[u32; 4], Unsupported> {
        self.pool_type(pool)?;
        let extents = self.extents(pool)?;
        pool_fits(extents)?;
        Ok(extents)
    }

    /// The element type of a pool.
    pub(crate) fn pool_type(&self, pool: BufferId) -> Result<PoolType, Unsupported> {
        match (self.buffer(pool).dtype, self.arch) {
            (DType::BF16, _) => Ok(PoolType::Float(Float::Bf16)),
            (DType::F8E4M3, Arch::Sm89 | Arch::Sm90a | Arch::Sm100a | Arch::Sm120) => Ok(PoolType::E4m3),
            (found, _) => {
                let expected = "bf16, or f8e4m3 from sm_89 on";
                Err(Unsupported::DType { what: "a KV pool", buffer: pool, found, expected })
            }
        }
    }

    /// Any pool: all have pages of one size.
    fn any_pool(&self) -> Result<BufferId, Unsupported> {
        let pool = self.program.buffers.iter().find(|buffer| buffer.kind == BufferKind::KvPool);
        pool.map(|pool| pool.id).ok_or(Unsupported::Cells)
    }

    /// Finishes heads of one row of `dim` dimensions each, all of them of the same activations.
    pub(crate) fn finish_heads(&mut self, at: &RowCells, dim: u32, parts: &[HeadsPart]) -> Result<(), Unsupported> {
        let Some(&HeadsPart { from: RowHeads { scratch, of_row, .. }, .. }) = parts.first() else { return Ok(()) };
        let [rows, width] = self.extents(at.page_table)?;
        let rows = self.rows(rows)?;
        let appended = parts.iter().find_map(|part| match part.to {
            HeadsOut::Pool(pool) => Some(pool),
            HeadsOut::Queries(_) => None,
        });
        let [_, pages, page_tokens, _] = self.pool(appended.map_or_else(|| self.any_pool(), Ok)?)?;
        let x = LaunchMemory::Scratch(scratch);
        let turns = match parts.iter().find_map(|part| part.rotation) {
            Some(rotation) => self.rotation(rotation, width.saturating_mul(page_tokens))?,
            None => x,
        };
        let cells = [x, turns, LaunchMemory::Cell(at.position), LaunchMemory::Cell(at.page_table)];
        let mut args: Vec<LaunchArg> = cells.map(LaunchArg::Pointer).into();
        args.extend([width, pages].map(LaunchArg::Number));
        let mut runs = Vec::new();
        for part in parts {
            let mut norm = None;
            let mut together = false;
            if let Some((weight, eps)) = part.norm {
                let (memory, float) = self.plain(weight)?;
                args.push(LaunchArg::Pointer(memory));
                norm = Some((eps, float));
                together = self.extents(weight)? != [dim];
            }
            let out = match part.to {
                HeadsOut::Pool(pool) => {
                    let out = self.pool_type(pool)?;
                    args.extend(self.pool_arguments(pool, out));
                    out
                }
                HeadsOut::Queries(buffer) => {
                    args.push(LaunchArg::Pointer(self.queries(buffer, [rows, part.heads, dim])));
                    PoolType::Float(Float::Bf16)
                }
            };
            let rotated = part.rotation.is_some();
            let paged = matches!(part.to, HeadsOut::Pool(_));
            runs.push(HeadRun { first: part.from.first, heads: part.heads, norm, together, rotated, paged, out });
        }
        // Few rows are few blocks: each has more warps.
        let warps = if rows <= MOST_ALONE { 2 * WARPS } else { WARPS };
        let shape = HeadRuns { heads: of_row, dim, page_tokens, x: Float::Bf16, runs, warps };
        let arch = self.arch;
        let kernel = self.kernel(format!("{shape:?}"), || rope_runs(arch, &shape));
        self.launch(kernel, LaunchGrid::Blocks(rows), args);
        Ok(())
    }
}
