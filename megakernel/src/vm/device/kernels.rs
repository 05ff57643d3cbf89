//! Compiled kernels: each once for a device, however many machines run it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tilewright_codegen::device::{Device, Kernel};
use tilewright_codegen::ir;
use tilewright_codegen::verify::verify;

use super::kernel::record;
use super::{LoadError, Plan};

/// The kernels of a device. Clones are the same.
///
/// The code of a program does not depend on the length of sequences, the pages of the pools or the requests in them: machines
/// of equal code share a kernel. Who wants one that another thread compiles waits for it, so that kernels can be compiled
/// ahead.
#[derive(Clone)]
pub struct DeviceKernels {
    device: Device,
    known: Arc<Mutex<Vec<Arc<Known>>>>,
}

/// A kernel, compiled or under way.
struct Known {
    code: ir::Kernel,
    compiled: Mutex<Option<(Kernel, Duration)>>,
}

/// What was compiled so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Compiled {
    /// Kernels.
    pub kernels: usize,
    /// Seconds that the driver took for all of them, one after the other.
    pub seconds: f64,
}

impl DeviceKernels {
    /// None yet.
    pub fn new(device: &Device) -> DeviceKernels {
        DeviceKernels { device: device.clone(), known: Arc::default() }
    }

    /// The kernel of a plan, compiled where there is none.
    ///
    /// # Errors
    /// If the kernel breaks a rule, or the device refuses it.
    pub fn of(&self, plan: &Plan) -> Result<Kernel, LoadError> {
        let code = record(plan);
        let known = {
            let mut all = unpoisoned(&self.known);
            match all.iter().find(|known| known.code == code) {
                Some(known) => Arc::clone(known),
                None => {
                    let known = Arc::new(Known { code: code.clone(), compiled: Mutex::new(None) });
                    all.push(Arc::clone(&known));
                    known
                }
            }
        };
        let mut compiled = unpoisoned(&known.compiled);
        if let Some((kernel, _)) = &*compiled {
            return Ok(kernel.clone());
        }
        let began = Instant::now();
        let kernel = self.device.load(&verify(code)?)?;
        *compiled = Some((kernel.clone(), began.elapsed()));
        Ok(kernel)
    }

    /// What was compiled so far; kernels that are under way are not waited for.
    pub fn compiled(&self) -> Compiled {
        let all = unpoisoned(&self.known);
        let times = all.iter().filter_map(|known| known.compiled.try_lock().ok()?.as_ref().map(|(_, time)| *time));
        times.fold(Compiled::default(), |sum, time| Compiled {
            kernels: sum.kernels + 1,
            seconds: sum.seconds + time.as_secs_f64(),
        })
    }
}

/// What a thread that panicked left is whole.
fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
