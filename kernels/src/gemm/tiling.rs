//! The tiles of a matrix product as types.

use core::marker::PhantomData;
use tilewright_layout::typed::{KMajor, OperandTile, StaticLayout, StaticMajor};

use crate::mma::{AtomGrid, AtomLayout, Width};

/// The layouts of a kernel's tiles in shared memory, which it is specialised for.
pub trait Tiles: 'static {
    /// A tile of the A operand, (m, k).
    type A: StaticLayout;
    /// A tile of the B operand, (n, k).
    type B: StaticLayout;
    /// The part of the result that a warpgroup stages at a time, (m, n).
    type C: StaticLayout;
    /// The arrangement of the warpgroups that multiply on sm_90a.
    type Grid: AtomGrid;
    /// Rows of a tile of the result.
    const M: u32;
    /// Columns of a tile of the result.
    const N: u32;
    /// Contraction per stage.
    const K: u32;
    /// Columns staged at a time.
    const STAGED: u32;
    /// Buffers that a warpgroup stages in, in turn.
    const BUFFERS: u32 = if Self::STAGED == Self::N { 1 } else { 2 };
    /// Warpgroups that multiply; each has as many rows.
    const CONSUMERS: u32;
    /// Registers that the fetching warpgroup gives up to, and that the multiplying ones take, of
    /// the 64 Ki of a multiprocessor.
    const REGISTERS: Option<(u32, u32)> = match Self::CONSUMERS {
        2 => Some((24, 240)),
        3 => Some((32, 160)),
        _ => None,
    };
    /// Rows of a warpgroup.
    const ROWS: u32 = Self::M / Self::CONSUMERS;
}

/// Tiles of `M`×`N` and 128 bytes of K for `G` warpgroups, one below the other; operands of a
/// width, whose contiguous index is `X`'s and `Y`'s; the result, of 16 bits, is staged by `S`
/// columns. `R` is `M / G`.
#[derive(Debug)]
pub struct Tiling<W, X, Y, const M: usize, const N: usize, const G: u32, const R: usize, const S: usize>(
    PhantomData<(W, X, Y)>,
);

impl<
    W: Width,
    X: StaticMajor,
    Y: StaticMajor,
    const M: usize,
    const N: usize,
    const G: u32,
    const R: usize,
    const S: usize,
> Tiles for Tiling<W, X, Y, M, N, G, R, S>
{
    type A = W::Tile<X, M>;
    type B = W::Tile<Y, N>;
    type C = OperandTile<KMajor, 16, R, S>;
    type Grid = AtomLayout<G, 1>;
    const M: u32 = M as u32;
    const N: u32 = N as u32;
    const K: u32 = W::DEPTH;
    const STAGED: u32 = S as u32;
    const CONSUMERS: u32 = {
        assert!(R * G as usize == M && R.is_multiple_of(64), "gemm: the warpgroups' rows do not make up the tile");
        assert!(N.is_multiple_of(S), "gemm: the staged columns do not divide the tile");
        G
    };
}
