//! A launch: parameters back to arguments, how many blocks are resident, the run, its outcome.

use super::memory::SimStore;
use super::options::DEVICE;
use crate::device::backend::Facts;
use crate::device::{DeviceError, Properties, Signature};
use crate::ir::{Const, ParamKind, Ty};
use crate::sim::{
    self, Arg, Checks, Counters, HostOrder, Interrupt, Launch, Loss, Outcome, PrintedLines, TensorMapDescriptor,
};
use crate::verify::Verified;

/// A kernel that is ready to run.
pub(super) struct SimKernel {
    pub verified: Verified,
    pub signature: Signature,
    pub facts: Facts,
}

/// Shared memory that the hardware takes of each block for itself, bytes (CUDA C++ Programming
/// Guide, "Compute Capability 9.0").
const RESERVED_SHARED: u32 = 1024;

/// Blocks of a multiprocessor at most (the same table).
const MAX_BLOCKS: u32 = 32;

/// Blocks of the kernel that one multiprocessor holds, by threads and shared memory. Registers are
/// the compiler's and not known here.
pub(super) fn blocks_per_sm(device: &Properties, verified: &Verified) -> u32 {
    let kernel = verified.kernel();
    // Threads are resident by whole warps.
    let threads = kernel.launch.threads_per_block().next_multiple_of(32).max(32);
    let shared = kernel.shared_bytes().saturating_add(RESERVED_SHARED);
    (device.threads_per_sm / threads).min(device.shared_bytes_per_sm / shared).min(MAX_BLOCKS)
}

/// The arguments that a parameter block holds.
fn arguments(signature: &Signature, params: &[u8]) -> Result<Vec<Arg>, DeviceError> {
    let (spans, _) = signature.param_spans();
    let read = |(param, (start, len)): (&crate::ir::Param, (usize, usize))| {
        let bytes = &params[start..start + len];
        let word = bytes.iter().rev().take(8).fold(0u64, |word, &byte| word << 8 | u64::from(byte));
        Ok(match param.kind {
            ParamKind::Value(Ty::Ptr(_)) => Arg::Ptr(word),
            ParamKind::Value(ty) => Arg::Scalar(Const::new(ty, word)),
            ParamKind::Bytes { .. } => Arg::Bytes(bytes.to_vec()),
            ParamKind::TensorMap => {
                let map = bytes.try_into().ok().and_then(TensorMapDescriptor::decode);
                Arg::TensorMap(map.ok_or(DeviceError::Foreign { what: "tensor map", device: DEVICE.into() })?)
            }
        })
    };
    signature.params.iter().zip(spans).map(read).collect()
}

/// Buffers are called in reports what the kernel calls them.
fn name_buffers(signature: &Signature, args: &[Arg], store: &mut SimStore) {
    for (param, arg) in signature.params.iter().zip(args) {
        match arg {
            Arg::Ptr(address) => store.memory.rename(*address, &param.name),
            Arg::TensorMap(map) => store.memory.rename(map.address, &param.name),
            Arg::Scalar(_) | Arg::Bytes(_) => {}
        }
    }
}

/// Blocks that run at the same time where a launch is not cooperative: as many as fit, but not more
/// than are needed for them to get in each other's way.
const TOGETHER: u64 = 128;

/// The settings of the machine for a launch.
pub(super) struct Setting {
    pub sms: u32,
    pub checks: Checks,
    pub host: Option<HostOrder>,
    pub seed: u64,
    pub loss: Option<Loss>,
    pub patience: u64,
    pub interrupt: Interrupt,
    pub printed: PrintedLines,
}

/// Runs a kernel, on a device for each of the parameter blocks.
pub(super) fn run(
    kernel: &SimKernel,
    grid: [u32; 3],
    params: &[&[u8]],
    store: &mut SimStore,
    setting: &Setting,
) -> Result<Counters, DeviceError> {
    let mut all = params.iter().map(|params| arguments(&kernel.signature, params)).collect::<Result<Vec<_>, _>>()?;
    all.iter().rev().for_each(|args| name_buffers(&kernel.signature, args, store));
    let args = if all.is_empty() { Vec::new() } else { all.remove(0) };
    let resident = kernel.facts.resident_blocks.clamp(1, TOGETHER) as u32;
    let launch = Launch {
        checks: setting.checks,
        resident,
        peers: all,
        multiprocessors: setting.sms,
        host: setting.host.clone(),
        loss: setting.loss,
        patience: setting.patience,
        interrupt: setting.interrupt.clone(),
        printed: setting.printed.clone(),
        ..Launch::new(grid, args)
    };
    match sim::run(&kernel.verified, &launch, &mut store.memory, setting.seed) {
        Ok(Outcome::Finished(counters)) => Ok(counters),
        Ok(Outcome::Fault(fault)) => {
            Err(DeviceError::Fault { kernel: fault.kernel.clone(), seed: fault.seed, report: fault.to_string() })
        }
        Err(source) => Err(DeviceError::Simulator { source }),
    }
}
