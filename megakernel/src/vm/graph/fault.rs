//! Faults to inject into meetings of devices: what a machine must survive or a test must see, for
//! tests.

use super::GraphPlan;
use super::launch::Launch;

/// Something that is wrong with every step of devices that meet, until
/// [`GraphPeers::mend`](super::GraphPeers::mend).
/// Meetings are counted from 0 in a step, and in a choice of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphFault {
    /// A meeting that no device comes to.
    NoMeeting {
        /// Its number.
        meeting: usize,
    },
    /// A device that leaves its launches from a meeting on to others: these wait for it there.
    /// Where sums are NCCL's, it launches nothing.
    Stays {
        /// The device.
        device: usize,
        /// The number of the meeting.
        meeting: usize,
    },
}

impl GraphFault {
    /// The device that launches nothing, where devices wait for each other in sums and not in
    /// meetings.
    pub(super) fn stays_away(self, plan: &GraphPlan) -> Option<usize> {
        match self {
            GraphFault::Stays { device, .. } if !plan.all_reduces.is_empty() => Some(device),
            GraphFault::Stays { .. } | GraphFault::NoMeeting { .. } => None,
        }
    }

    /// The launches that remain of these on a device with the fault.
    pub(super) fn left(self, plan: &GraphPlan, device: usize, launches: &[Launch]) -> Vec<Launch> {
        let mut meetings = 0..;
        let numbered = launches.iter().map(|launch| match plan.is_meeting(launch) {
            true => (meetings.next(), launch),
            false => (None, launch),
        });
        let stays = |number: Option<usize>| matches!(self, GraphFault::Stays { device: of, meeting } if of == device && number == Some(meeting));
        let left_out =
            |number: Option<usize>| matches!(self, GraphFault::NoMeeting { meeting } if number == Some(meeting));
        let runs = numbered.take_while(|&(number, _)| !stays(number)).filter(|&(number, _)| !left_out(number));
        runs.map(|(_, launch)| launch.clone()).collect()
    }
}
