//! Every kernel that this build ships, by name: the lists of the libraries, one after the other.

use thiserror::Error;
use tilewright_codegen::gallery;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::trial::Shipped;

/// A library's list of its kernels.
type List = fn() -> Vec<Box<dyn Shipped>>;

/// The lists.
const LISTS: [List; 2] = [gallery::shipped, tilewright_kernels::shipped];

/// Every shipped kernel.
///
/// ```
/// let names: Vec<String> = tilewright::shipped::all().iter().map(|kernel| kernel.name().to_owned()).collect();
/// assert!(names.contains(&"saxpy".to_owned()));
/// ```
pub fn all() -> Vec<Box<dyn Shipped>> {
    LISTS.into_iter().flat_map(|list| list()).collect()
}

/// Why there is no such kernel.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ShippedError {
    /// No list has that name.
    #[error("there is no kernel `{found}`; there are {known}")]
    Unknown {
        /// The requested name.
        found: String,
        /// The names there are.
        known: String,
    },
    /// The target lacks what the kernel needs.
    #[error("kernel `{kernel}` is not for {arch}: it needs {needs}")]
    Needs {
        /// The kernel.
        kernel: String,
        /// The target.
        arch: Arch,
        /// The targets that have it.
        needs: &'static str,
    },
}

/// The kernel of that name.
///
/// # Errors
/// [`ShippedError::Unknown`] with the names there are.
pub fn named(name: &str) -> Result<Box<dyn Shipped>, ShippedError> {
    all().into_iter().find(|kernel| kernel.name() == name).ok_or_else(|| {
        let known: Vec<String> = all().iter().map(|kernel| kernel.name().to_owned()).collect();
        ShippedError::Unknown { found: name.into(), known: known.join(", ") }
    })
}

/// The kernel of that name, if the target has what it needs.
///
/// # Errors
/// [`ShippedError`].
///
/// ```
/// use tilewright_codegen::ir::Arch;
/// let error = tilewright::shipped::named_for("wgmma_tile", Arch::Sm80).err().unwrap();
/// assert_eq!(error.to_string(), "kernel `wgmma_tile` is not for sm_80: it needs sm_90a only");
/// ```
pub fn named_for(name: &str, arch: Arch) -> Result<Box<dyn Shipped>, ShippedError> {
    let kernel = named(name)?;
    if kernel.needs().met_by(arch) {
        Ok(kernel)
    } else {
        Err(ShippedError::Needs { kernel: name.into(), arch, needs: kernel.needs().noun() })
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_unique() {
        let mut names: Vec<String> = super::all().iter().map(|kernel| kernel.name().to_owned()).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
