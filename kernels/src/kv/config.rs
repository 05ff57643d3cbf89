//! The configuration of a buffer: six numbers in which K and V differ, and everything that follows from them.

use tilewright_layout::{IntTuple, Layout};

/// The tile that a buffer moves, and the part of it that one warp multiplies.
///
/// Of the product that the buffer feeds, K is the right factor of `Q·Kᵀ` (its rows are columns of the product) and V
/// that of `P·V` (its rows are contracted). Nothing else tells them apart.
pub trait KvBufferConfig: Copy + 'static {
    /// Rows of the block's tile.
    const BTILE0: u32;
    /// Columns of the block's tile.
    const BTILE1: u32;
    /// Rows of a warp's tile.
    const WTILE0: u32;
    /// Columns of a warp's tile.
    const WTILE1: u32;
    /// Columns of the product that one warp computes.
    const WSIZE: u32;
    /// The axis along which the next tile lies.
    const ITERATOR_AXIS: u32;
    /// Whether a row of the tile is a column of the product.
    const TRANSPOSED: bool;

    /// The numbers as a value.
    const NUMBERS: Numbers = Numbers {
        btile: [Self::BTILE0, Self::BTILE1],
        wtile: [Self::WTILE0, Self::WTILE1],
        wsize: Self::WSIZE,
        iterator_axis: Self::ITERATOR_AXIS,
        transposed: Self::TRANSPOSED,
    };

    /// Where the tile of a warp column begins: rows, columns.
    fn warp_corner(warp_column: u32) -> [u32; 2] {
        if Self::TRANSPOSED { [warp_column * Self::WTILE0, 0] } else { [0, warp_column * Self::WTILE1] }
    }
}

/// Keys: `BN` of them to a block of the product, `BK` columns of the head at a time, `WN` keys to a warp.
#[derive(Clone, Copy, Debug)]
pub struct KConfig<const BN: u32, const BK: u32, const WN: u32>;

impl<const BN: u32, const BK: u32, const WN: u32> KvBufferConfig for KConfig<BN, BK, WN> {
    const BTILE0: u32 = BN;
    const BTILE1: u32 = BK;
    const WTILE0: u32 = WN;
    const WTILE1: u32 = BK;
    const WSIZE: u32 = WN;
    const ITERATOR_AXIS: u32 = 1;
    const TRANSPOSED: bool = true;
}

/// Values: `BK` of them at a time, all `DEPTH` columns of the head, which `BN / WN` warps divide.
#[derive(Clone, Copy, Debug)]
pub struct VConfig<const BN: u32, const BK: u32, const WN: u32, const DEPTH: u32>;

impl<const BN: u32, const BK: u32, const WN: u32, const DEPTH: u32> KvBufferConfig for VConfig<BN, BK, WN, DEPTH> {
    const BTILE0: u32 = BK;
    const BTILE1: u32 = DEPTH;
    const WTILE0: u32 = BK;
    const WTILE1: u32 = DEPTH / (BN / WN);
    const WSIZE: u32 = DEPTH / (BN / WN);
    const ITERATOR_AXIS: u32 = 0;
    const TRANSPOSED: bool = false;
}

/// The numbers of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// The block's tile: rows, columns.
    pub btile: [u32; 2],
    /// A warp's tile: rows, columns.
    pub wtile: [u32; 2],
    /// Columns of the product that one warp computes.
    pub wsize: u32,
    /// The axis along which the next tile lies.
    pub iterator_axis: u32,
    /// Whether a row of the tile is a column of the product.
    pub transposed: bool,
}

/// Who moves the tile and what multiplies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Threads that move the tile together.
    pub threads: u32,
    /// Lanes of a warp.
    pub warp: u32,
    /// Bytes of an element.
    pub element_bytes: u32,
    /// Columns and contraction of the matrix instruction.
    pub mma: [u32; 2],
    /// Instructions that are fed together along the contraction.
    pub group: u32,
    /// Whether one token is generated at a time: shared memory is row-major then.
    pub token_gen: bool,
}

impl Geometry {
    /// So many threads, bf16, `m16n8k16`.
    pub const fn bf16(threads: u32, token_gen: bool) -> Geometry {
        Geometry { threads, warp: 32, element_bytes: 2, mma: [8, 16], group: 1, token_gen }
    }
}

/// A configuration that no buffer can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KvConfigError {
    /// A number that must be above zero.
    #[error("{what} is 0; give it at least 1")]
    Zero {
        /// Which.
        what: &'static str,
    },
    /// A number that must be a multiple of another.
    #[error("{what} is {found}, which is not a multiple of {of}, {by}; change one of them")]
    NotMultiple {
        /// What must be a multiple.
        what: &'static str,
        /// Its value.
        found: u32,
        /// Of what.
        of: &'static str,
        /// Its value.
        by: u32,
    },
    /// Threads of the prefill layout that the tile has no work for.
    #[error(
        "the tile of {rows}x{columns} has {vectors} vectors in a row and {rows} rows; {threads} threads as 4 to a row want {wanted_vectors} vectors and {wanted_rows} rows: use token_gen, or a tile that divides"
    )]
    Threads {
        /// Rows of the tile.
        rows: u32,
        /// Columns of the tile.
        columns: u32,
        /// Vectors in a row.
        vectors: u32,
        /// Threads of the team.
        threads: u32,
        /// Vectors of a row must be a multiple of this.
        wanted_vectors: u32,
        /// Rows must be a multiple of this.
        wanted_rows: u32,
    },
}

/// Everything that follows from a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Derived {
    /// Instructions side by side: `⌈wsize / MMA_N⌉`.
    pub num_mmas: u32,
    /// Instructions after each other along the contraction of the tile: `⌈BK / (MMA_K·group)⌉`.
    pub num_k_tiles: u32,
    /// Elements of 16 bytes.
    pub simd_width: u32,
    /// Vectors of a row: `btile1 / simd_width`.
    pub num_repeats: u32,
    /// Where an element lies in shared memory. Prefill: panels of one vector's width, so that the vectors of
    /// consecutive rows are neighbours. Token generation: rows.
    pub smem_layout: Layout,
    /// Which thread moves which vector of the part of the tile that the team covers at once.
    pub thread_layout: Layout,
    /// Vectors that a thread carries for a tile: `⌈btile0·btile1 / (threads·simd_width)⌉`.
    pub loads: u32,
    /// Rows of the register tile of one instruction's right factor, of `simd_width` elements each.
    pub mma_tile: [u32; 2],
}

/// What follows from a configuration for a team.
///
/// ```
/// use tilewright_kernels::kv::{KConfig, KvBufferConfig, Geometry, derive};
/// let keys = derive(KConfig::<128, 32, 128>::NUMBERS, Geometry::bf16(128, false))?;
/// assert_eq!((keys.num_mmas, keys.num_k_tiles, keys.num_repeats, keys.loads), (16, 2, 4, 4));
/// assert_eq!(keys.smem_layout.to_string(), "(128,(8,4)):(8,(1,1024))");
/// # Ok::<(), tilewright_kernels::kv::KvConfigError>(())
/// ```
///
/// # Errors
/// [`KvConfigError`]: what does not divide.
pub fn derive(numbers: Numbers, geometry: Geometry) -> Result<Derived, KvConfigError> {
    let Numbers { btile: [rows, columns], wsize, .. } = numbers;
    check(numbers, geometry)?;
    let simd = 16 / geometry.element_bytes;
    let (repeats, [mma_n, mma_k]) = (columns / simd, geometry.mma);
    let contracted = if numbers.transposed { columns } else { rows };
    let (smem_layout, thread_layout) = if geometry.token_gen {
        let threads = geometry.threads.min(rows * repeats);
        let (down, across) = if threads < repeats { (1, threads) } else { (threads / repeats, repeats) };
        (row_major(&[rows, columns]), row_major(&[down, across]))
    } else {
        (panels(rows, simd, repeats), row_major(&[geometry.threads / ACROSS, ACROSS]))
    };
    let num_mmas = wsize.div_ceil(mma_n);
    Ok(Derived {
        num_mmas,
        num_k_tiles: contracted.div_ceil(mma_k * geometry.group),
        simd_width: simd,
        num_repeats: repeats,
        smem_layout,
        thread_layout,
        loads: (rows * columns).div_ceil(geometry.threads * simd),
        mma_tile: [num_mmas, simd],
    })
}

/// Threads of a row in the prefill layout.
const ACROSS: u32 = 4;

fn check(numbers: Numbers, geometry: Geometry) -> Result<(), KvConfigError> {
    let Numbers { btile: [rows, columns], wtile, wsize, .. } = numbers;
    let positive = [
        ("the rows of the tile", rows),
        ("the columns of the tile", columns),
        ("the rows of a warp's tile", wtile[0]),
        ("the columns of a warp's tile", wtile[1]),
        ("the columns of a warp", wsize),
        ("the number of threads", geometry.threads),
        ("the size of an element", geometry.element_bytes),
    ];
    if let Some((what, _)) = positive.into_iter().find(|(_, value)| *value == 0) {
        return Err(KvConfigError::Zero { what });
    }
    let simd = 16 / geometry.element_bytes;
    let multiple = |what, found: u32, of, by| {
        if found.is_multiple_of(by) { Ok(()) } else { Err(KvConfigError::NotMultiple { what, found, of, by }) }
    };
    multiple("the columns of the tile", columns, "16 bytes", simd)?;
    multiple("the rows of the tile", rows, "the rows of a warp's tile", wtile[0])?;
    multiple("the columns of the tile", columns, "the columns of a warp's tile", wtile[1])?;
    multiple("the columns of a warp", wsize, "the columns of an instruction", geometry.mma[0])?;
    multiple("the vectors of a tile", rows * columns / simd, "the threads of a team", geometry.threads)?;
    let repeats = columns / simd;
    if geometry.token_gen {
        return multiple(
            "the threads of a team",
            geometry.threads,
            "the vectors of a row",
            repeats.min(geometry.threads),
        );
    }
    let down = geometry.threads / ACROSS;
    if !repeats.is_multiple_of(ACROSS) || down == 0 || !rows.is_multiple_of(down) {
        return Err(KvConfigError::Threads {
            rows,
            columns,
            vectors: repeats,
            threads: geometry.threads,
            wanted_vectors: ACROSS,
            wanted_rows: down,
        });
    }
    Ok(())
}

fn row_major(shape: &[u32]) -> Layout {
    let modes: Vec<IntTuple> = shape.iter().map(|&n| IntTuple::int(i64::from(n))).collect();
    Layout::constant(Layout::row_major(&IntTuple::constant(IntTuple::tuple(&modes))))
}

/// `blocked_product(row_major(rows, simd), row_major(1, repeats))`, coalesced mode by mode.
fn panels(rows: u32, simd: u32, repeats: u32) -> Layout {
    let block = row_major(&[rows, simd]);
    let copies = row_major(&[1, repeats]);
    let product = Layout::constant(block.blocked_product(&copies));
    let each = IntTuple::constant(IntTuple::flat(&[1, 1])).profile();
    Layout::constant(product.coalesce_modes(&each))
}
