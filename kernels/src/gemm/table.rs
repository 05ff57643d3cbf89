//! The tiles that are shipped for sm_90a, a row each, and the kernels that they make.

use super::ampere;
use super::finish::GemmOutput;
use super::hopper::{HopperConfig, gemm, launch};
use super::store::CustomStore;
use super::tiling::{Tiles, Tiling};
use crate::mma::{InputType, MissingAtom, Width};
use crate::tile::boxes;
use tilewright_codegen::build::record;
use tilewright_codegen::ir::{Arch, Kernel};
use tilewright_layout::swizzle::TensorBoxes;
use tilewright_layout::swizzle::canonical::Major;
use tilewright_layout::typed::{KMajor, MnMajor};

/// The contiguous index of a tile of operands whose own is `X`'s.
type TileMajor<F, X> = <<F as InputType>::Width as Width>::Major<X>;

/// A function of the tiles for operands of any orders. Orders whose tiles are the same share one.
macro_rules! by_majors {
    ($majors:expr, $function:ident::<$F:ty, $D:ty>, $m:literal, $n:literal, $g:literal, $r:literal, $s:literal) => {
        match $majors {
            [Major::K, Major::K] => by_majors!(@ $function, $F, $D, KMajor, KMajor, $m, $n, $g, $r, $s),
            [Major::K, Major::Mn] => by_majors!(@ $function, $F, $D, KMajor, MnMajor, $m, $n, $g, $r, $s),
            [Major::Mn, Major::K] => by_majors!(@ $function, $F, $D, MnMajor, KMajor, $m, $n, $g, $r, $s),
            [Major::Mn, Major::Mn] => by_majors!(@ $function, $F, $D, MnMajor, MnMajor, $m, $n, $g, $r, $s),
        }
    };
    (@ $function:ident, $F:ty, $D:ty, $X:ty, $Y:ty, $m:literal, $n:literal, $g:literal, $r:literal, $s:literal) => {
        $function::<
            $F,
            $D,
            Tiling<<$F as InputType>::Width, TileMajor<$F, $X>, TileMajor<$F, $Y>, $m, $n, $g, $r, $s>,
        >
    };
}

/// Properties of a kernel's tiles that the host needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The boxes of A and B, and of a result of 16 bits.
    pub boxes: [TensorBoxes; 3],
}

/// The tiles of a kernel over `mma.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WarpShape {
    /// 128×128.
    M128N128,
    /// 64×64, for results that are too small to give every multiprocessor a larger tile.
    M64N64,
}

impl WarpShape {
    /// Every shape.
    pub const ALL: &'static [WarpShape] = &[WarpShape::M128N128, WarpShape::M64N64];

    /// Rows and columns of a tile.
    pub const fn tile(self) -> [u32; 2] {
        match self {
            WarpShape::M128N128 => [128, 128],
            WarpShape::M64N64 => [64, 64],
        }
    }

    /// Records the kernel.
    ///
    /// # Errors
    /// [`MissingAtom`] where the architecture cannot multiply such operands.
    pub(super) fn record<F: InputType, D: GemmOutput>(
        self,
        name: &str,
        arch: Arch,
        config: ampere::AmpereConfig,
        store: CustomStore<'_>,
    ) -> Result<Kernel, MissingAtom> {
        let kernel = match self {
            WarpShape::M128N128 => by_majors!(config.majors, warps::<F, D>, 128, 128, 2, 64, 128),
            WarpShape::M64N64 => by_majors!(config.majors, warps::<F, D>, 64, 64, 1, 64, 64),
        };
        kernel(name, arch, config, store)
    }
}

fn warps<F: InputType, D: GemmOutput, T: Tiles>(
    name: &str,
    arch: Arch,
    config: ampere::AmpereConfig,
    store: CustomStore<'_>,
) -> Result<Kernel, MissingAtom> {
    ampere::BlockMma::<F, T>::on(arch)?;
    Ok(record(name, arch, ampere::launch::<F, T>(), |k| ampere::gemm::<F, D, T>(k, config, store)))
}

/// Records a kernel of that name.
pub(super) type Record = fn(&str, HopperConfig, CustomStore<'_>) -> Kernel;

fn entry<F: InputType, D: GemmOutput, T: Tiles>() -> (Record, Facts) {
    let record = |name: &str, config: HopperConfig, store: CustomStore<'_>| {
        record(name, Arch::Sm90a, launch::<T>(config), |k| gemm::<F, D, T>(k, config, store))
    };
    let boxes = [boxes::<F::Stored, T::A>(), boxes::<F::Stored, T::B>(), boxes::<u16, T::C>()];
    (record, Facts { boxes })
}

macro_rules! shapes {
    ($($(#[$doc:meta])+ $Name:ident = $m:literal $n:literal by $w:literal rows $r:literal staged $s:literal;)+) => {
        /// The tiles of a kernel on sm_90a.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum HopperShape {
            $($(#[$doc])+ $Name,)+
        }

        impl HopperShape {
            /// Every shape.
            pub const ALL: &'static [HopperShape] = &[$(HopperShape::$Name),+];

            /// Rows and columns of a tile.
            pub const fn tile(self) -> [u32; 2] {
                match self { $(HopperShape::$Name => [$m, $n],)+ }
            }

            /// Columns of the result that are staged at a time.
            pub const fn staged(self) -> u32 {
                match self { $(HopperShape::$Name => $s,)+ }
            }

            /// Warpgroups that multiply.
            pub const fn consumers(self) -> u32 {
                match self { $(HopperShape::$Name => $w,)+ }
            }

            /// Bytes of shared memory of a stage, and of what is staged of the result.
            pub const fn bytes(self) -> (u32, u32) {
                match self { $(HopperShape::$Name => (($m + $n) * 128, if $s == $n { 1 } else { 2 } * $m * $s * 2),)+ }
            }

            /// Whether a thread's registers hold the sums twice, as two-level accumulation needs.
            pub const fn holds_two_levels(self) -> bool {
                match self { $(HopperShape::$Name => 2 * $n * $r / 128 <= MOST_SUMS,)+ }
            }

            /// The kernel for operands of those orders, and what the host must know of it.
            pub(super) fn build<F: InputType, D: GemmOutput>(self, majors: [Major; 2]) -> (Record, Facts) {
                let entry = match self { $(HopperShape::$Name => by_majors!(majors, entry::<F, D>, $m, $n, $w, $r, $s),)+ };
                entry()
            }
        }
    };
}

/// Registers of a thread for sums: the kernels need some forty of 240 for other values.
const MOST_SUMS: u32 = 200;

shapes! {
    /// The largest product per byte that two warpgroups' registers hold.
    M128N256 = 128 256 by 2 rows 64 staged 64;
    /// For N that 256 does not share out evenly among the multiprocessors.
    M128N224 = 128 224 by 2 rows 64 staged 32;
    /// The largest whose sums a thread holds twice.
    M128N192 = 128 192 by 2 rows 64 staged 32;
    /// The size of `M128N256` transposed, for tall results.
    M256N128 = 256 128 by 2 rows 128 staged 32;
    /// For results that are too small to give every multiprocessor a larger tile.
    M128N128 = 128 128 by 2 rows 64 staged 64;
    /// For few rows: narrow tiles, many stages.
    M128N112 = 128 112 by 2 rows 64 staged 112;
    /// For up to 64 rows.
    M64N128 = 64 128 by 1 rows 64 staged 64;
}
