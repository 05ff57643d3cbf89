//! Small kernels that show one thing each: how the builder reads, and what the other modules are
//! tested with.
//!
//! | kernel | shows |
//! |---|---|
//! | [`saxpy`] | parameters, pointers, a bound |
//! | [`block_sum`] | shuffles, shared memory, a barrier |
//! | [`transpose`] | a swizzled tile without bank conflicts |
//! | [`pipeline`] | `cp.async` groups, three stages |
//! | [`bulk_ring`] | bulk copies into a ring, full and empty mbarriers |
//! | [`tensor_tile`] | a tensor map, loaded and stored |
//! | [`mma_tile`] | `ldmatrix` and `mma.sync` from swizzled shared memory |
//! | [`wgmma_tile`] | `wgmma` from shared memory in the 128-byte swizzle |
//! | [`multicast`] | one load for two blocks of a cluster |
//! | [`grid_sum`] | blocks waiting for each other by release and acquire |
//! | [`specialised`] | a producer and a consumer warpgroup, registers moved between them, a ring of tiles |
//!
//! Each page states its shapes and what comes out; the grid is in the words. They are generic over
//! nothing: a kernel library is another crate's business. `trials` puts each on trial: random sizes
//! and numbers, and an oracle.

mod block_sum;
mod bulk_ring;
mod cursor;
mod grid_sum;
mod mma_tile;
mod multicast;
mod pipeline;
mod saxpy;
mod specialised;
mod tensor_tile;
mod transpose;
mod trials;
mod wgmma_tile;

pub use block_sum::block_sum;
pub use bulk_ring::bulk_ring;
pub use grid_sum::grid_sum;
pub use mma_tile::mma_tile;
pub use multicast::multicast;
pub use pipeline::pipeline;
pub use saxpy::saxpy;
pub use specialised::specialised;
pub use tensor_tile::tensor_tile;
pub use transpose::transpose;
pub use wgmma_tile::wgmma_tile;

use crate::build::{Builder, block, record};
use crate::ir::{Arch, Kernel, LaunchBounds, Needs};
use crate::trial::{Draw, Shipped, Trial};
use crate::verify::{VerifyErrors, verify};

/// A kernel of the gallery.
pub struct GalleryEntry {
    /// Its name, which is also its entry point's.
    pub name: &'static str,
    /// The launch bounds.
    pub launch: LaunchBounds,
    /// The requirement on the target.
    pub needs: Needs,
    build: fn(&Builder),
    setup: trials::Setup,
}

impl GalleryEntry {
    /// Records it for a target.
    pub fn record(&self, arch: Arch) -> Kernel {
        record(self.name, arch, self.launch.clone(), self.build)
    }
}

impl Shipped for GalleryEntry {
    fn name(&self) -> &str {
        self.name
    }

    fn needs(&self) -> Needs {
        self.needs
    }

    fn record(&self, arch: Arch) -> Kernel {
        GalleryEntry::record(self, arch)
    }

    fn draw(&self, arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
        Ok((self.setup)(verify(GalleryEntry::record(self, arch))?, &mut Draw::new(seed)))
    }
}

/// Every kernel of the gallery as a library ships it.
pub fn shipped() -> Vec<Box<dyn Shipped>> {
    all().into_iter().map(|entry| Box::new(entry) as Box<dyn Shipped>).collect()
}

/// Every kernel of the gallery.
///
/// ```
/// use tilewright_codegen::{gallery, ir::Arch, verify::verify};
/// for entry in gallery::all().into_iter().filter(|entry| entry.needs.met_by(Arch::Sm90a)) {
///     verify(entry.record(Arch::Sm90a))?;
/// }
/// # Ok::<(), tilewright_codegen::verify::VerifyErrors>(())
/// ```
pub fn all() -> Vec<GalleryEntry> {
    let entry = |name, needs, launch, build, setup| GalleryEntry { name, launch, needs, build, setup };
    vec![
        entry("saxpy", Needs::Sm80, block(256), saxpy as fn(&Builder), trials::saxpy as trials::Setup),
        entry("block_sum", Needs::Sm80, block(256), block_sum, trials::block_sum),
        entry(
            "transpose",
            Needs::Sm80,
            LaunchBounds { threads: [32, 8, 1], ..block(256) },
            transpose,
            trials::transpose,
        ),
        entry("pipeline", Needs::Sm80, block(128), pipeline, trials::pipeline),
        entry("bulk_ring", Needs::Sm90, block(160), bulk_ring, trials::bulk_ring),
        entry("tensor_tile", Needs::Sm90, block(128), tensor_tile, trials::tensor_tile),
        entry("mma_tile", Needs::Sm80, block(32), mma_tile, trials::mma_tile),
        entry("wgmma_tile", Needs::Sm90a, block(128), wgmma_tile, trials::wgmma_tile),
        entry("multicast", Needs::Sm90, block(128).cluster(2), multicast, trials::multicast),
        entry("grid_sum", Needs::Sm80, block(128).cooperative(), grid_sum, trials::grid_sum),
        entry("specialised", Needs::Sm90a, block(256).min_blocks(1), specialised, trials::specialised),
    ]
}

/// The kernel of that name.
pub fn named(name: &str) -> Option<GalleryEntry> {
    all().into_iter().find(|entry| entry.name == name)
}
