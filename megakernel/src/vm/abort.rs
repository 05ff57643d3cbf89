//! Ends a launch of many steps before its last step.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tilewright_codegen::sim::Interrupt;

/// A handle that ends launches from elsewhere: from another thread, from a handler of Ctrl-C.
///
/// An abort is for the launch that runs, or else for the next; the error that reports it takes it
/// back.
///
/// ```
/// use tilewright_megakernel::vm::AbortHandle;
/// let handle = AbortHandle::default();
/// handle.abort();
/// assert!(handle.is_set() && handle.clone().is_set());
/// ```
#[derive(Clone, Debug, Default)]
pub struct AbortHandle(Arc<AtomicBool>);

impl AbortHandle {
    /// Requests the end.
    pub fn abort(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether the end is asked for.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// The abort request in the form that a simulated device polls; the host cannot stop its
    /// launches otherwise.
    pub fn interrupt(&self) -> Interrupt {
        Arc::clone(&self.0).into()
    }

    /// Withdraws the request.
    pub fn clear(&self) {
        self.0.store(false, Ordering::Release);
    }
}
