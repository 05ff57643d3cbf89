//! NCCL, by which devices add up the parts of all. Simulated devices have none.

use std::sync::atomic::{AtomicBool, Ordering};

use tilewright_codegen::device::{Collective, Device, DeviceError};

use super::machine::GraphMachine;

/// The all-reduce of several devices by NCCL.
pub(super) struct NcclSums {
    /// NCCL; nothing on simulated devices.
    nccl: Option<Collective>,
    /// Whether the communicator was aborted; the next step opens a new one.
    given_up: AtomicBool,
}

impl NcclSums {
    /// The all-reduce of these machines; `None` if their plans have none.
    pub(super) fn of(machines: &[GraphMachine]) -> Result<Option<NcclSums>, DeviceError> {
        match machines.iter().any(|machine| !machine.plan().all_reduces.is_empty()) {
            true => Ok(Some(NcclSums { nccl: open(machines)?, given_up: AtomicBool::new(false) })),
            false => Ok(None),
        }
    }

    /// Whether it was given up.
    pub(super) fn are_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    /// Opens NCCL anew where it was given up and no graph is left of it.
    pub(super) fn begin_anew(&mut self, machines: &[GraphMachine]) -> Result<(), DeviceError> {
        self.nccl = open(machines)?;
        self.given_up.store(false, Ordering::Release);
        Ok(())
    }

    /// NCCL; nothing on simulated devices.
    pub(super) fn nccl(&self) -> Option<&Collective> {
        self.nccl.as_ref()
    }

    /// Makes devices end that wait for others.
    pub(super) fn give_up(&self) {
        // What fails here is of a device that is lost, which is what the caller says.
        let _ = self.nccl.as_ref().map(Collective::abort);
        self.given_up.store(true, Ordering::Release);
    }
}

fn open(machines: &[GraphMachine]) -> Result<Option<Collective>, DeviceError> {
    let devices: Vec<Device> = machines.iter().map(|machine| machine.stream.device().clone()).collect();
    match machines.iter().any(GraphMachine::is_simulated) {
        true => Ok(None),
        false => Collective::open(&devices).map(Some),
    }
}
