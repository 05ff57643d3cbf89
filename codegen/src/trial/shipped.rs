//! Kernels that come with their own trials.

use super::Trial;
use crate::ir::{Arch, Kernel, Needs};
use crate::verify::VerifyErrors;

/// A kernel that a library ships: it can be listed, recorded for a target, and put on trial against
/// its oracle on fresh random inputs.
///
/// A library lists its kernels in a function of type `fn() -> Vec<Box<dyn Shipped>>`; code that
/// lists, prints or tests kernels chains those lists.
pub trait Shipped: Send + Sync {
    /// Its name.
    fn name(&self) -> &str;

    /// The requirement on the target.
    fn needs(&self) -> Needs;

    /// Records it for a target, at the sizes it is shown with where it is made for sizes.
    fn record(&self, arch: Arch) -> Kernel;

    /// A trial with sizes and inputs of a seed. The same seed gives the same trial.
    ///
    /// # Errors
    /// Where what it records does not verify: its needs are not met, or it is wrong.
    fn draw(&self, arch: Arch, seed: u64) -> Result<Trial, VerifyErrors>;
}
