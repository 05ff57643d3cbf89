//! Faults to inject into barriers of devices: what a machine must survive or a test must see, for
//! tests.

use super::GraphPlan;
use super::launch::Launch;

/// Something that is wrong with every step of devices with barriers, until
/// [`GraphPeers::mend`](super::GraphPeers::mend).
/// Barriers are counted from 0 in a step, and in a choice of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphFault {
    /// A barrier that no device comes to.
    NoBarrier {
        /// Its number.
        barrier: usize,
    },
    /// A device that leaves its launches from a barrier on to others: these wait for it there.
    /// Where sums are NCCL's, it launches nothing.
    Stays {
        /// The device.
        device: usize,
        /// The number of the barrier.
        barrier: usize,
    },
}

impl GraphFault {
    /// The device that launches nothing, where devices wait for each other in sums and not in
    /// barriers.
    pub(super) fn stays_away(self, plan: &GraphPlan) -> Option<usize> {
        match self {
            GraphFault::Stays { device, .. } if !plan.all_reduces.is_empty() => Some(device),
            GraphFault::Stays { .. } | GraphFault::NoBarrier { .. } => None,
        }
    }

    /// The launches that remain of these on a device with the fault.
    pub(super) fn left(self, plan: &GraphPlan, device: usize, launches: &[Launch]) -> Vec<Launch> {
        let mut barriers = 0..;
        let numbered = launches.iter().map(|launch| match plan.is_barrier(launch) {
            true => (barriers.next(), launch),
            false => (None, launch),
        });
        let stays = |number: Option<usize>| matches!(self, GraphFault::Stays { device: of, barrier } if of == device && number == Some(barrier));
        let left_out =
            |number: Option<usize>| matches!(self, GraphFault::NoBarrier { barrier } if number == Some(barrier));
        let runs = numbered.take_while(|&(number, _)| !stays(number)).filter(|&(number, _)| !left_out(number));
        runs.map(|(_, launch)| launch.clone()).collect()
    }
}
