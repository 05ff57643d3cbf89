//! The tiles that are shipped for sm_90a, a row each, and the kernels that they make.

use super::ampere;
use super::finish::Output;
use super::hopper::{Config, gemm, launch};
use super::store::Store;
use super::tiling::{Tiles, Tiling};
use crate::mma::Factor;
use crate::tile::boxes;
use tilewright_codegen::build::record;
use tilewright_codegen::ir::{Arch, Kernel};
use tilewright_layout::swizzle::TensorBoxes;
use tilewright_layout::swizzle::canonical::Major;
use tilewright_layout::typed::{KMajor, MnMajor};

/// A kernel over `mma.sync` for factors of any orders.
macro_rules! by_majors {
    ($majors:expr, $F:ty, $D:ty, $m:literal, $n:literal, $k:literal, $w:literal, $r:literal, $s:literal, $($args:expr),+) => {
        match $majors {
            [Major::K, Major::K] => warps::<$F, $D, Tiling<KMajor, KMajor, 16, $m, $n, $k, $w, $r, $s>>($($args),+),
            [Major::K, Major::Mn] => warps::<$F, $D, Tiling<KMajor, MnMajor, 16, $m, $n, $k, $w, $r, $s>>($($args),+),
            [Major::Mn, Major::K] => warps::<$F, $D, Tiling<MnMajor, KMajor, 16, $m, $n, $k, $w, $r, $s>>($($args),+),
            [Major::Mn, Major::Mn] => warps::<$F, $D, Tiling<MnMajor, MnMajor, 16, $m, $n, $k, $w, $r, $s>>($($args),+),
        }
    };
}

/// What the host must know of a kernel's tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Rows, columns and contraction of a tile.
    pub tile: [u32; 3],
    /// The boxes of A, B and C.
    pub boxes: [TensorBoxes; 3],
}

/// The tiles of a kernel over `mma.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WarpShape {
    /// 128×128×64.
    M128N128,
    /// 64×64×64, for results that are too small to give every multiprocessor a larger tile.
    M64N64,
}

impl WarpShape {
    /// Every shape.
    pub const ALL: &'static [WarpShape] = &[WarpShape::M128N128, WarpShape::M64N64];

    /// Rows, columns and contraction of a tile.
    pub const fn tile(self) -> [u32; 3] {
        match self {
            WarpShape::M128N128 => [128, 128, 64],
            WarpShape::M64N64 => [64, 64, 64],
        }
    }

    /// Records the kernel.
    pub(super) fn record<F: Factor<Sum = f32>, D: Output>(
        self,
        name: &str,
        arch: Arch,
        config: ampere::Config,
        store: Store,
    ) -> Kernel {
        match self {
            WarpShape::M128N128 => by_majors!(config.majors, F, D, 128, 128, 64, 2, 64, 128, name, arch, config, store),
            WarpShape::M64N64 => by_majors!(config.majors, F, D, 64, 64, 64, 1, 64, 64, name, arch, config, store),
        }
    }
}

fn warps<F: Factor<Sum = f32>, D: Output, T: Tiles>(
    name: &str,
    arch: Arch,
    config: ampere::Config,
    store: Store,
) -> Kernel {
    record(name, arch, ampere::launch(), |k| ampere::gemm::<F, D, T>(k, config, store))
}

/// Records a kernel of that name.
pub(super) type Record = fn(&str, Config, Store) -> Kernel;

fn entry<F: Factor<Sum = f32>, D: Output, T: Tiles>() -> (Record, Facts) {
    let record = |name: &str, config: Config, store: Store| {
        record(name, Arch::Sm90a, launch::<T>(config), |k| gemm::<F, D, T>(k, config, store))
    };
    let boxes = [boxes::<F::Stored, T::A>(), boxes::<F::Stored, T::B>(), boxes::<D, T::C>()];
    (record, Facts { tile: [T::M, T::N, T::K], boxes })
}

macro_rules! shapes {
    ($($(#[$doc:meta])+ $Name:ident = $m:literal $n:literal $k:literal by $w:literal rows $r:literal staged $s:literal;)+) => {
        /// The tiles of a kernel on sm_90a.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Shape {
            $($(#[$doc])+ $Name,)+
        }

        impl Shape {
            /// Every shape.
            pub const ALL: &'static [Shape] = &[$(Shape::$Name),+];

            /// Rows, columns and contraction of a tile.
            pub const fn tile(self) -> [u32; 3] {
                match self { $(Shape::$Name => [$m, $n, $k],)+ }
            }

            /// Columns of the result that are staged at a time.
            pub const fn staged(self) -> u32 {
                match self { $(Shape::$Name => $s,)+ }
            }

            /// Warpgroups that multiply.
            pub const fn consumers(self) -> u32 {
                match self { $(Shape::$Name => $w,)+ }
            }

            /// Bytes of shared memory of a stage, and of what is staged of the result.
            pub const fn bytes(self) -> (u32, u32) {
                match self { $(Shape::$Name => (($m + $n) * $k * 2, if $s == $n { 1 } else { 2 } * $m * $s * 2),)+ }
            }

            /// The kernel for factors of those orders, and what the host must know of it.
            pub(super) fn build<F: Factor<Sum = f32>, D: Output>(
                self,
                [a, b]: [Major; 2],
            ) -> (Record, Facts) {
                match self { $(Shape::$Name => {
                    match (a, b) {
                        (Major::K, Major::K) => entry::<F, D, Tiling<KMajor, KMajor, 16, $m, $n, $k, $w, $r, $s>>(),
                        (Major::K, Major::Mn) => entry::<F, D, Tiling<KMajor, MnMajor, 16, $m, $n, $k, $w, $r, $s>>(),
                        (Major::Mn, Major::K) => entry::<F, D, Tiling<MnMajor, KMajor, 16, $m, $n, $k, $w, $r, $s>>(),
                        (Major::Mn, Major::Mn) => entry::<F, D, Tiling<MnMajor, MnMajor, 16, $m, $n, $k, $w, $r, $s>>(),
                    }
                })+ }
            }
        }
    };
}

shapes! {
    /// The largest product per byte that two warpgroups' registers hold.
    M128N256 = 128 256 64 by 2 rows 64 staged 64;
    /// For N that 256 does not share out evenly among the multiprocessors.
    M128N224 = 128 224 64 by 2 rows 64 staged 32;
    /// As large, for tall results.
    M256N128 = 256 128 64 by 2 rows 128 staged 32;
    /// For results that are too small to give every multiprocessor a larger tile.
    M128N128 = 128 128 64 by 2 rows 64 staged 64;
    /// For few rows: narrow tiles, many stages.
    M128N112 = 128 112 64 by 2 rows 64 staged 112;
    /// For up to 64 rows.
    M64N128 = 64 128 64 by 1 rows 64 staged 64;
}
