//! The reason why a step cannot be made, the group that made it, and the step that follows.

use crate::sim::FaultKind;
use crate::sim::machine::GroupState;
use crate::sim::machine::Mask;
use crate::sim::memory::Stamp;

/// Why a step cannot be made: the kernel's fault, before it is told with names.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub kind: FaultKind,
    pub lane: Option<u32>,
    /// The other access, and whether it wrote.
    pub other: Option<(Stamp, bool)>,
    /// The place of the fault, if it is not the current step.
    pub place: Option<(u32, u32)>,
}

impl Trouble {
    pub(crate) fn new(kind: FaultKind) -> Box<Trouble> {
        Box::new(Trouble { kind, lane: None, other: None, place: None })
    }

    pub(crate) fn lane(kind: FaultKind, lane: usize) -> Box<Trouble> {
        Box::new(Trouble { kind, lane: Some(lane as u32), other: None, place: None })
    }
}

/// The result of something that the kernel may have done wrong.
pub(crate) type Try<T> = Result<T, Box<Trouble>>;

/// The running group: lanes of a warp at a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cur {
    /// Warp of the grid.
    pub warp: usize,
    pub group: usize,
    pub mask: Mask,
    pub pc: u32,
}

/// The successor of a step.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    /// The next step.
    Go,
    /// Another step.
    To(u32),
    /// The group waits; the step is made again when it wakes.
    Wait(GroupState),
    /// The group waits and continues after the step when it wakes.
    Pass(GroupState),
    /// The group is no more, or was changed by the step.
    Switch,
}
