//! Copies of a tile that are issued, and tiles that have arrived.

use core::marker::PhantomData;

use half::bf16;
use tilewright_codegen::build::{Ptr, Shared};

use crate::ring::AnyStage;

/// A tile whose copy is issued: it is in flight.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a tile that was issued is copied to shared memory"]
pub struct Issued {
    /// The register set that it comes into, where it is known while recording.
    pub(super) stage: u32,
}

impl Issued {
    /// The tile that another thread issued, in the same order: where fetching and using are apart,
    /// mbarriers carry the token from one to the other.
    pub(crate) fn by_another() -> Issued {
        Issued { stage: 0 }
    }
}

/// A tile in shared memory.
#[must_use = "a tile in shared memory is released"]
pub struct Arrived<'k, C> {
    pub(super) stage: AnyStage<'k>,
    pub(super) of: PhantomData<fn() -> C>,
}

impl<'k, C> Arrived<'k, C> {
    pub(super) fn of(stage: AnyStage<'k>) -> Self {
        Arrived { stage, of: PhantomData }
    }

    /// The address of the tile.
    pub fn base(&self) -> Ptr<'k, Shared, bf16> {
        self.stage.base().cast()
    }
}
