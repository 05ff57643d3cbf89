//! The device of a bench and the journal of its rows.

use tilewright_codegen::device::{Device as OpenDevice, Name};

use crate::Device;
use crate::cli::bench::error::BenchError;
use crate::cli::bench::{Journal, peaks};

/// The device that kernels are timed on.
pub(super) fn name_of(device: Device) -> Result<Name, BenchError> {
    match device {
        Device::Cuda { ordinal } => Ok(Name::Cuda { ordinal }),
        Device::Sim { seed } => Ok(Name::Sim { seed }),
        // Kernels are timed on the first device; models run on all.
        Device::Peers { first, .. } => Ok(Name::Cuda { ordinal: first }),
        Device::SimPeers { seed, .. } => Ok(Name::Sim { seed }),
        Device::Cpu { .. } => Err(BenchError::Device { found: device.to_string() }),
    }
}

/// The journal of a call on a device of this name.
pub(super) fn journal_of(name: Name, device: &OpenDevice, commit: Option<String>) -> Journal {
    let ordinal = if let Name::Cuda { ordinal } = name { Some(ordinal) } else { None };
    let mut journal = Journal::new(device.properties().name.clone(), ordinal, commit);
    // Rows without the peaks of their own call are still valid.
    if ordinal.is_some() {
        match peaks::measure(device, peaks::PeakSizes::FULL) {
            Ok(peaks) => (journal.call.read_peak, journal.call.matrix_peak) = (Some(peaks.read), peaks.matrix),
            Err(failure) => _ = failure.report(),
        }
    }
    journal
}
