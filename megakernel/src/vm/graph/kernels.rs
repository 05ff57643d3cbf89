//! A graph's kernels, each compiled when it is first launched.

use std::sync::OnceLock;

use tilewright_codegen::device::{DeviceError, Kernel};
use tilewright_codegen::ir;
use tilewright_codegen::verify::{Verified, VerifyErrors, verify};

use crate::vm::resident::DeviceKernels;

/// Kernels of a plan, in its order.
pub(super) struct LazyKernels {
    shared: DeviceKernels,
    kernels: Vec<(Verified, OnceLock<Kernel>)>,
}

impl LazyKernels {
    pub fn new(shared: &DeviceKernels, codes: &[ir::Kernel]) -> Result<LazyKernels, VerifyErrors> {
        let kernels = codes.iter().map(|code| Ok((verify(code.clone())?, OnceLock::new())));
        Ok(LazyKernels { shared: shared.clone(), kernels: kernels.collect::<Result<_, VerifyErrors>>()? })
    }

    /// Compiles those of these numbers that are not, side by side.
    pub fn compile(&self, numbers: impl IntoIterator<Item = usize>) -> Result<(), DeviceError> {
        let mut missing: Vec<usize> =
            numbers.into_iter().filter(|&number| self.kernels[number].1.get().is_none()).collect();
        missing.sort_unstable();
        missing.dedup();
        std::thread::scope(|scope| {
            let compile = |number: usize| scope.spawn(move || self.get(number));
            let threads: Vec<_> = missing.into_iter().map(compile).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).try_for_each(|compiled| compiled.map(drop))
        })
    }

    /// The kernel of a number.
    pub fn get(&self, number: usize) -> Result<Kernel, DeviceError> {
        let (code, kernel) = &self.kernels[number];
        if let Some(kernel) = kernel.get() {
            return Ok(kernel.clone());
        }
        let compiled = self.shared.compile_verified(code)?;
        Ok(kernel.get_or_init(|| compiled).clone())
    }
}
