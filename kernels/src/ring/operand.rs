//! The layout of a stage.

use core::fmt;
use core::marker::PhantomData;

use tilewright_codegen::build::{Builder, Ptr, Scalar, Shared, Val};
use tilewright_layout::typed::StaticLayout;
use tilewright_layout::view::OffsetMap;

use crate::tile::{LayoutTensor, hardware_period};

/// An operand of a stage: elements `T` under the layout `L`.
pub struct StageTile<T, L> {
    layout: L,
    align: u32,
    of: PhantomData<fn() -> T>,
}

impl<T, L: Clone> Clone for StageTile<T, L> {
    fn clone(&self) -> Self {
        StageTile { layout: self.layout.clone(), ..*self }
    }
}

impl<T, L: Copy> Copy for StageTile<T, L> {}

impl<T, L> fmt::Debug for StageTile<T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StageTile<{}, {}>", core::any::type_name::<T>(), core::any::type_name::<L>())
    }
}

impl<T: Scalar, L: StaticLayout> StageTile<T, L> {
    /// A tile whose layout is a type.
    pub fn typed() -> StageTile<T, L> {
        StageTile::new(L::default())
    }
}

impl<T: Scalar, L: OffsetMap> StageTile<T, L> {
    /// A tile of a layout without negative strides. It begins at a multiple of 128 bytes, as tensor
    /// maps need it, and of its swizzle's period: 1024 bytes in the 128-byte swizzle.
    pub fn new(layout: L) -> StageTile<T, L> {
        let align = hardware_period(&layout.swizzled(), T::TY.bytes()).max(128);
        StageTile { layout, align, of: PhantomData }
    }

    /// Bytes that fill it.
    pub fn bytes(&self) -> u32 {
        // A negative stride has no span; `start` is where tiles with one would fail, as they have
        // no bytes.
        let elements = self.layout.span().map_or(0, |(_, elements)| elements as u32);
        elements * T::TY.bytes()
    }

    /// The distance from one stage's tile to the next one's, in elements.
    fn stride(&self) -> u32 {
        self.bytes().next_multiple_of(self.align) / T::TY.bytes()
    }
}

/// A tile of a stage, as a kernel sees it.
pub type StageView<'k, T, L> = LayoutTensor<'k, T, L, Shared>;

/// The operands of a stage: a tuple of [`StageTile`]s.
pub trait Operands: Copy {
    /// Pointers to the first stage.
    type Bases<'k>: Copy;
    /// The tiles of a stage.
    type Views<'k>;

    /// Allocates memory for a number of stages.
    fn allocate<'k>(self, k: &'k Builder, name: &str, stages: u32) -> Self::Bases<'k>;

    /// Pointers to the first stage of a team's ring, where each team has `stages` stages.
    fn of_team<'k>(self, bases: Self::Bases<'k>, team: Val<'k, u32>, stages: u32) -> Self::Bases<'k>;

    /// The tiles of stage `stage`.
    fn views<'k>(self, bases: Self::Bases<'k>, stage: Val<'k, u32>) -> Self::Views<'k>;
}

macro_rules! operands {
    ($(($($T:ident $L:ident $i:tt),+))+) => {$(
        impl<$($T: Scalar, $L: OffsetMap),+> Operands for ($(StageTile<$T, $L>,)+) {
            type Bases<'k> = ($(Ptr<'k, Shared, $T>,)+);
            type Views<'k> = ($(StageView<'k, $T, $L>,)+);

            fn allocate<'k>(self, k: &'k Builder, name: &str, stages: u32) -> Self::Bases<'k> {
                ($(k.shared_aligned::<$T>(&format!("{name}.{}", $i), stages * self.$i.stride(), self.$i.align),)+)
            }

            #[track_caller]
            fn of_team<'k>(self, bases: Self::Bases<'k>, team: Val<'k, u32>, stages: u32) -> Self::Bases<'k> {
                ($(bases.$i.at(team * (stages * self.$i.stride())),)+)
            }

            #[track_caller]
            fn views<'k>(self, bases: Self::Bases<'k>, stage: Val<'k, u32>) -> Self::Views<'k> {
                ($(LayoutTensor::new(bases.$i.at(stage * self.$i.stride()), self.$i.layout),)+)
            }
        }
    )+};
}

operands! {
    (T0 L0 0)
    (T0 L0 0, T1 L1 1)
}
