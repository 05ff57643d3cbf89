//! Rings that are refused where they are constructed, at the author's line.

use super::{Consumers, Shape};
use thiserror::Error;

/// Why a ring is refused. `verify` reports it at the line that constructs the ring.
///
/// ```
/// use tilewright_codegen::{build::{block, record}, ir::Arch, verify::verify};
/// use tilewright_kernels::ring::{Ring, Shape, StageTile, start};
/// use tilewright_layout::typed::Contiguous;
/// enum Rows {}
/// let kernel = record("hasty", Arch::Sm90a, block(64), |k| {
///     start(k, Ring::bulk::<Rows>(k, (StageTile::<f32, Contiguous<128>>::typed(),), Shape::stages(0)));
/// });
/// let errors = verify(kernel).unwrap_err().to_string();
/// assert!(errors.contains("ring of 0 stages: it needs at least 1; give more to Shape::stages"), "{errors}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are the numbers that the message prints")]
pub enum RingError {
    /// Too few stages for how the ring is used.
    #[error("ring of {found} stages: it needs at least {least}; give more to {to}")]
    Stages { found: u32, least: u32, to: &'static str },
    /// No stage may be on its way.
    #[error("ring with {found} stages in flight: it has {stages}; take 1 to {stages}")]
    InFlight { found: u32, stages: u32 },
    /// A stage that is read by no thread.
    #[error("ring without consumers: no thread would free a stage; give the warps, warpgroups or threads that read")]
    Consumers,
    /// A cluster of no blocks, or of more than multicast reaches.
    #[error("ring of {groups} groups of {cluster} blocks: a cluster has 1 to 32 blocks; take numbers whose product is")]
    Cluster { cluster: u32, groups: u32 },
}

impl Shape {
    /// Checks the numbers of a ring that needs `least` stages, given to it by `to`. A shape in the
    /// place of a refused one has numbers that recording can go on with.
    pub(super) fn checked(self, least: u32, to: &'static str) -> (Shape, Option<RingError>) {
        let Shape { stages, in_flight, consumers, cluster, groups, .. } = self;
        let blocks = cluster.saturating_mul(groups);
        let error = if stages < least {
            RingError::Stages { found: stages, least, to }
        } else if in_flight == 0 {
            RingError::InFlight { found: in_flight, stages }
        } else if matches!(consumers, Consumers::Warps(0) | Consumers::Warpgroups(0)) {
            RingError::Consumers
        } else if !(1..=32).contains(&blocks) {
            RingError::Cluster { cluster, groups }
        } else {
            return (self, None);
        };
        let sound = Shape { stages: stages.max(least), cluster: 1, groups: 1, ..self };
        (sound.in_flight(sound.stages), Some(error))
    }
}
