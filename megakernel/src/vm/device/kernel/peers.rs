//! The other devices that run the program: which of them this is, where their counters and their
//! state lie.

use tilewright_codegen::build::{Builder, Global, Ptr, Val};
use tilewright_kernels::tile::MAX_DEVICES;

use crate::vm::device::shape::KernelShape;

/// All devices of a program of several, this one among them.
#[derive(Clone, Copy)]
pub(super) struct Peers<'k> {
    /// The number of this one.
    pub rank: Val<'k, u32>,
    counters: [Option<Ptr<'k, Global, u32>>; MAX_DEVICES],
    states: [Option<Ptr<'k, Global, u8>>; MAX_DEVICES],
}

impl<'k> Peers<'k> {
    /// The parameters of a program of several devices; none of one.
    pub fn new(k: &'k Builder, shape: &KernelShape) -> Option<Peers<'k>> {
        let names = |what: &'static str| (0..shape.devices).map(move |device| format!("{what}_dev{device}"));
        (shape.devices > 1).then(|| {
            let rank = k.param::<u32>("rank");
            let mut counters = names("counters");
            let mut states = names("state");
            Peers {
                rank,
                counters: std::array::from_fn(|_| counters.next().map(|name| k.global::<u32>(&name))),
                states: std::array::from_fn(|_| states.next().map(|name| k.global::<u8>(&name))),
            }
        })
    }

    /// Every device's counters.
    pub fn counters(self) -> impl Iterator<Item = Ptr<'k, Global, u32>> {
        self.counters.into_iter().flatten()
    }

    /// Every device's state.
    pub fn states(self) -> impl Iterator<Item = Ptr<'k, Global, u8>> {
        self.states.into_iter().flatten()
    }

    /// The state of a device.
    pub fn state(self, device: u32) -> Option<Ptr<'k, Global, u8>> {
        self.states.get(device as usize).copied().flatten()
    }
}
