//! Numbers as unsigned words of the same order, and keys that order values with their indexes.

use half::{bf16, f16};
use tilewright_codegen::build::{Scalar, Val};

/// A number whose order an unsigned word can express: NaN counts as −∞, and −0 as 0.
pub trait Ranked: Scalar {
    /// A word that is larger where the value is larger, and equal where the values are.
    #[track_caller]
    fn rank<'k>(value: Val<'k, Self>) -> Val<'k, u32>;

    /// The value of a rank: −∞ for a NaN's, 0 for that of −0.
    #[track_caller]
    fn unrank<'k>(rank: Val<'k, u32>) -> Val<'k, Self>;
}

impl Ranked for f32 {
    #[track_caller]
    fn rank<'k>(value: Val<'k, f32>) -> Val<'k, u32> {
        let value = value.ne(value).select(f32::NEG_INFINITY, value) + 0.0;
        let bits = value.bits::<u32>();
        bits.ge(1u32 << 31).select(!bits, bits | 1 << 31)
    }

    #[track_caller]
    fn unrank<'k>(rank: Val<'k, u32>) -> Val<'k, f32> {
        rank.ge(1u32 << 31).select(rank & 0x7fff_ffff, !rank).bits()
    }
}

impl Ranked for u32 {
    #[track_caller]
    fn rank<'k>(value: Val<'k, u32>) -> Val<'k, u32> {
        value
    }

    #[track_caller]
    fn unrank<'k>(rank: Val<'k, u32>) -> Val<'k, u32> {
        rank
    }
}

impl Ranked for i32 {
    #[track_caller]
    fn rank<'k>(value: Val<'k, i32>) -> Val<'k, u32> {
        value.bits::<u32>() ^ (1u32 << 31)
    }

    #[track_caller]
    fn unrank<'k>(rank: Val<'k, u32>) -> Val<'k, i32> {
        (rank ^ (1u32 << 31)).bits()
    }
}

macro_rules! by_f32 {
    ($($T:ty),+) => { $(
        impl Ranked for $T {
            #[track_caller]
            fn rank<'k>(value: Val<'k, $T>) -> Val<'k, u32> {
                f32::rank(value.cast())
            }

            #[track_caller]
            fn unrank<'k>(rank: Val<'k, u32>) -> Val<'k, $T> {
                f32::unrank(rank).cast()
            }
        }
    )+ };
}

by_f32!(f16, bf16);

/// A key of 64 bits that is larger where the value is larger and, among equal values, where the
/// index is lower. 0 is the key of no value, unless `index` is `u32::MAX`.
///
/// ```
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// use tilewright_kernels::collective::{Warp, ranked_key, unranked};
/// # let kernel = record("sample", Arch::Sm80, block(32), |k| {
/// // The argmax of n values, at most 32; absent lanes have the key 0.
/// let n = k.param::<u32>("n");
/// let key = k.var(0u64);
/// k.when(k.lane().lt(n), || key.set(ranked_key(k.global::<f32>("x").at(k.lane()).load(), k.lane())));
/// let (_, index) = unranked::<f32>(Warp::new(k).reduce(key.get(), |a, b| a.max(b)));
/// k.when(k.lane().eq(0), || k.global::<u32>("out").store(index));
/// # });
/// # tilewright_codegen::verify::verify(kernel).unwrap();
/// ```
#[track_caller]
pub fn ranked_key<'k, T: Ranked>(value: Val<'k, T>, index: Val<'k, u32>) -> Val<'k, u64> {
    let rank = T::rank(value);
    value.builder().join::<u64>(!index, rank)
}

/// The value and the index of a key: −∞ for a NaN, 0 for −0.
#[track_caller]
pub fn unranked<'k, T: Ranked>(key: Val<'k, u64>) -> (Val<'k, T>, Val<'k, u32>) {
    let (index, rank) = key.split();
    (T::unrank(rank), !index)
}
