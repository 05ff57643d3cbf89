//! Stores on their way to memory that other devices read.

use super::Address;
use crate::ir::attr::Scope;
use crate::sim::order::ThreadView;
use std::collections::VecDeque;

/// The view that a lane's store carries, with its scope.
pub(crate) type Told = Option<(Scope, ThreadView)>;

/// A store on its way.
#[derive(Debug)]
pub(crate) struct Late {
    /// The block that stored.
    pub block: u32,
    pub to: Address,
    /// Bytes of an element, and the elements.
    pub bytes: usize,
    pub values: Vec<u64>,
    pub told: Told,
    pub(super) due: u64,
}

/// The stores on their way, oldest first.
#[derive(Debug)]
pub(crate) struct OnTheWay {
    pub(super) stores: VecDeque<Late>,
    /// A lower bound of the time at which the first of them arrives.
    pub(super) first_due: u64,
    /// The interval at which a store is late; 0: never.
    pub(super) one_in: usize,
    /// The longest time, in steps.
    pub(super) span: usize,
}

impl OnTheWay {
    /// For a launch on `devices` devices.
    pub(super) fn new(rng: &mut super::rng::Rng, devices: u32) -> OnTheWay {
        let (one_in, span) = match devices {
            1 => (0, 1),
            _ => ([0, 1, 1, 3][rng.below(4)], [60, 1000, 20_000][rng.below(3)]),
        };
        OnTheWay { stores: VecDeque::new(), first_due: u64::MAX, one_in, span }
    }
}
