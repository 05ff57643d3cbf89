//! A shipped kernel by its functions.

use tilewright_codegen::ir::{Arch, Kernel, Needs};
use tilewright_codegen::trial::{Shipped, Trial};
use tilewright_codegen::verify::VerifyErrors;

/// A kernel by its functions.
pub(crate) struct ShippedEntry {
    pub name: &'static str,
    pub needs: Needs,
    /// Records it at the sizes it is shown with.
    pub record: fn(Arch) -> Kernel,
    /// A trial of a seed's sizes.
    pub draw: fn(Arch, u64) -> Result<Trial, VerifyErrors>,
}

impl Shipped for ShippedEntry {
    fn name(&self) -> &str {
        self.name
    }

    fn needs(&self) -> Needs {
        self.needs
    }

    fn record(&self, arch: Arch) -> Kernel {
        (self.record)(arch)
    }

    fn draw(&self, arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
        (self.draw)(arch, seed)
    }
}
