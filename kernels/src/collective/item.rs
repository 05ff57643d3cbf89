//! What collectives combine: numbers and tuples of them, moved between lanes and through shared
//! memory.

use half::{bf16, f16};
use tilewright_codegen::build::{Bf16x2, Builder, Carried, F16x2, Ptr, Scalar, Shared, Val};

/// The lane that a shuffle reads.
#[derive(Clone, Copy)]
pub enum LaneSource<'k> {
    /// This lane of the warp.
    Index(Val<'k, u32>),
    /// The lane that many below; a lane without one keeps its value.
    Up(u32),
    /// The lane that many above; a lane without one keeps its value.
    Down(u32),
    /// The lane whose number differs in these bits.
    Xor(u32),
}

/// A number that shuffles move: 32 bits at once, 64 bits as two words, 16 bits as one word.
pub trait Shuffled: Scalar {
    /// The value in another lane.
    #[track_caller]
    fn shuffle<'k>(value: Val<'k, Self>, from: LaneSource<'k>) -> Val<'k, Self>;
}

macro_rules! words {
    ($($T:ty),+) => { $(
        impl Shuffled for $T {
            #[track_caller]
            fn shuffle<'k>(value: Val<'k, $T>, from: LaneSource<'k>) -> Val<'k, $T> {
                match from {
                    LaneSource::Index(lane) => value.shfl_idx(lane),
                    LaneSource::Up(distance) => value.shfl_up(distance),
                    LaneSource::Down(distance) => value.shfl_down(distance),
                    LaneSource::Xor(bits) => value.shfl_bfly(bits),
                }
            }
        }
    )+ };
}

words!(u32, i32, f32, F16x2, Bf16x2);

impl Shuffled for u64 {
    #[track_caller]
    fn shuffle<'k>(value: Val<'k, u64>, from: LaneSource<'k>) -> Val<'k, u64> {
        let (low, high) = value.split();
        value.builder().join(u32::shuffle(low, from), u32::shuffle(high, from))
    }
}

macro_rules! as_other_bits {
    ($($T:ty: $Bits:ty => $As:ty;)+) => { $(
        impl Shuffled for $T {
            #[track_caller]
            fn shuffle<'k>(value: Val<'k, $T>, from: LaneSource<'k>) -> Val<'k, $T> {
                <$As>::shuffle(value.bits::<$Bits>().cast(), from).cast::<$Bits>().bits()
            }
        }
    )+ };
}

as_other_bits! {
    i64: u64 => u64;
    f64: u64 => u64;
    f16: u16 => u32;
    bf16: u16 => u32;
}

/// A thread's item in a collective: a number ([`Shuffled`]), or a pair, a triple or an array of
/// items, such as a value with its index.
///
/// ```
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// use tilewright_kernels::collective::Warp;
/// # let kernel = record("sample", Arch::Sm80, block(32), |k| {
/// // Sum and largest at once.
/// let x = k.global::<f32>("x").at(k.lane()).load();
/// let (sum, largest) = Warp::new(k).reduce((x, x), |a, b| (a.0 + b.0, a.1.max(b.1)));
/// k.when(k.lane().eq(0), || k.global::<f32>("out").store_vec([sum, largest]));
/// # });
/// # tilewright_codegen::verify::verify(kernel).unwrap();
/// ```
pub trait Item<'k>: Carried<'k> {
    /// Arrays of such items in shared memory, one for each number.
    type Shared: Copy;

    /// The item in another lane.
    #[track_caller]
    fn shuffle(self, from: LaneSource<'k>) -> Self;

    /// `yes` where the condition holds, else `no`.
    #[track_caller]
    fn select(condition: Val<'k, bool>, yes: Self, no: Self) -> Self;

    /// Allocates `len` items in shared memory.
    #[track_caller]
    fn shared(k: &'k Builder, name: &str, len: u32) -> Self::Shared;

    /// Writes the item at an index.
    #[track_caller]
    fn store(self, to: Self::Shared, index: Val<'k, u32>);

    /// The item at an index.
    #[track_caller]
    fn load(from: Self::Shared, index: Val<'k, u32>) -> Self;

    /// The item at an index in the shared memory of the cluster's block of that rank.
    #[track_caller]
    fn load_on(from: Self::Shared, rank: Val<'k, u32>, index: Val<'k, u32>) -> Self;
}

impl<'k, T: Shuffled> Item<'k> for Val<'k, T> {
    type Shared = Ptr<'k, Shared, T>;

    #[track_caller]
    fn shuffle(self, from: LaneSource<'k>) -> Self {
        T::shuffle(self, from)
    }

    #[track_caller]
    fn select(condition: Val<'k, bool>, yes: Self, no: Self) -> Self {
        condition.select(yes, no)
    }

    #[track_caller]
    fn shared(k: &'k Builder, name: &str, len: u32) -> Self::Shared {
        k.shared(name, len)
    }

    #[track_caller]
    fn store(self, to: Self::Shared, index: Val<'k, u32>) {
        to.at(index).store(self);
    }

    #[track_caller]
    fn load(from: Self::Shared, index: Val<'k, u32>) -> Self {
        from.at(index).load()
    }

    #[track_caller]
    fn load_on(from: Self::Shared, rank: Val<'k, u32>, index: Val<'k, u32>) -> Self {
        from.at(index).on(rank).load()
    }
}

macro_rules! tuples {
    ($($I:ident $at:tt),+) => {
        impl<'k, $($I: Item<'k>),+> Item<'k> for ($($I,)+) {
            type Shared = ($($I::Shared,)+);

            #[track_caller]
            fn shuffle(self, from: LaneSource<'k>) -> Self {
                ($(self.$at.shuffle(from),)+)
            }

            #[track_caller]
            fn select(condition: Val<'k, bool>, yes: Self, no: Self) -> Self {
                ($($I::select(condition, yes.$at, no.$at),)+)
            }

            #[track_caller]
            fn shared(k: &'k Builder, name: &str, len: u32) -> Self::Shared {
                ($($I::shared(k, name, len),)+)
            }

            #[track_caller]
            fn store(self, to: Self::Shared, index: Val<'k, u32>) {
                $(self.$at.store(to.$at, index);)+
            }

            #[track_caller]
            fn load(from: Self::Shared, index: Val<'k, u32>) -> Self {
                ($($I::load(from.$at, index),)+)
            }

            #[track_caller]
            fn load_on(from: Self::Shared, rank: Val<'k, u32>, index: Val<'k, u32>) -> Self {
                ($($I::load_on(from.$at, rank, index),)+)
            }
        }
    };
}

tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);

impl<'k, I: Item<'k>, const N: usize> Item<'k> for [I; N] {
    type Shared = [I::Shared; N];

    #[track_caller]
    fn shuffle(self, from: LaneSource<'k>) -> Self {
        self.map(|item| item.shuffle(from))
    }

    #[track_caller]
    fn select(condition: Val<'k, bool>, yes: Self, no: Self) -> Self {
        core::array::from_fn(|at| I::select(condition, yes[at], no[at]))
    }

    #[track_caller]
    fn shared(k: &'k Builder, name: &str, len: u32) -> Self::Shared {
        core::array::from_fn(|_| I::shared(k, name, len))
    }

    #[track_caller]
    fn store(self, to: Self::Shared, index: Val<'k, u32>) {
        self.into_iter().zip(to).for_each(|(item, to)| item.store(to, index));
    }

    #[track_caller]
    fn load(from: Self::Shared, index: Val<'k, u32>) -> Self {
        from.map(|from| I::load(from, index))
    }

    #[track_caller]
    fn load_on(from: Self::Shared, rank: Val<'k, u32>, index: Val<'k, u32>) -> Self {
        from.map(|from| I::load_on(from, rank, index))
    }
}
