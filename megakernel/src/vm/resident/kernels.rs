//! Compiled kernels: each once for a device, however many machines run it.

use std::borrow::Borrow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tilewright_codegen::device::{Device, DeviceError, Kernel};
use tilewright_codegen::ir;
use tilewright_codegen::verify::{Verified, verify};

use crate::vm::LoadError;

/// The kernels of a device. Clones are the same.
///
/// The code of a program does not depend on the length of sequences, the pages of the pools or the
/// requests in them: machines of equal code share a kernel. A thread that needs a kernel which
/// another thread compiles waits for it, so that kernels can be compiled ahead.
#[derive(Clone)]
pub struct DeviceKernels {
    device: Device,
    known: Arc<Mutex<Vec<Arc<KernelSlot>>>>,
}

/// A kernel, compiled or under way.
struct KernelSlot {
    code: ir::Kernel,
    compiled: Mutex<Option<(Kernel, Compilation)>>,
}

/// The compilation time of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Compilation {
    /// The kernel's name.
    pub name: String,
    /// The start of the driver's compilation.
    pub began: Instant,
    /// Its duration.
    pub took: Duration,
}

impl DeviceKernels {
    /// Creates an empty set of kernels.
    pub fn new(device: &Device) -> DeviceKernels {
        DeviceKernels { device: device.clone(), known: Arc::default() }
    }

    /// The kernel of a code, compiled where there is none.
    ///
    /// # Errors
    /// If the kernel breaks a rule, or the device refuses it.
    pub fn compile(&self, code: &ir::Kernel) -> Result<Kernel, LoadError> {
        self.compiled(code, || Ok::<_, LoadError>(verify(code.clone())?))
    }

    /// Compiles a verified kernel.
    pub(in crate::vm) fn compile_verified(&self, code: &Verified) -> Result<Kernel, DeviceError> {
        self.compiled(code.kernel(), || Ok(code))
    }

    /// The kernel of a code that `verified` gives verified, where it is not compiled.
    fn compiled<V: Borrow<Verified>, E: From<DeviceError>>(
        &self,
        code: &ir::Kernel,
        verified: impl FnOnce() -> Result<V, E>,
    ) -> Result<Kernel, E> {
        let known = self.known(code);
        let mut compiled = unpoisoned(&known.compiled);
        if let Some((kernel, _)) = &*compiled {
            return Ok(kernel.clone());
        }
        let verified = verified()?;
        let name = code.name.clone();
        let began = Instant::now();
        let kernel = self.device.load(verified.borrow())?;
        *compiled = Some((kernel.clone(), Compilation { name, began, took: began.elapsed() }));
        Ok(kernel)
    }

    fn known(&self, code: &ir::Kernel) -> Arc<KernelSlot> {
        let mut all = unpoisoned(&self.known);
        match all.iter().find(|known| known.code == *code) {
            Some(known) => Arc::clone(known),
            None => {
                let known = Arc::new(KernelSlot { code: code.clone(), compiled: Mutex::new(None) });
                all.push(Arc::clone(&known));
                known
            }
        }
    }

    /// The kernels compiled so far, without waiting for those in progress.
    pub fn compilations(&self) -> Vec<Compilation> {
        let all = unpoisoned(&self.known);
        all.iter().filter_map(|known| Some(known.compiled.try_lock().ok()?.as_ref()?.1.clone())).collect()
    }
}

/// Locks a mutex and ignores poisoning: a thread that panicked leaves the data consistent.
fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
