//! Every kernel of this library on every target that has what it needs and room for it: assembled
//! without spills or warnings, to what the page says.

use std::path::Path;
use tilewright_codegen::assemble::{Ptxas, Table};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::sample::Sample;
use tilewright_codegen::verify::{ErrorKind, verify};
use tilewright_kernels::shipped;

#[test]
fn shipped_kernels_assemble_wherever_they_run() {
    let Some(ptxas) = Ptxas::find().expect("it runs where it is") else { return };
    let mut table = Table::new("The kernels, on every target", &ptxas).sampled(Sample::one_of(4));
    for kernel in shipped() {
        for arch in Arch::ALL.into_iter().filter(|&arch| kernel.needs().met_by(arch)) {
            if !table.takes_next() {
                continue;
            }
            match verify(kernel.record(arch)) {
                Ok(verified) => {
                    table.add_as(kernel.name(), &verified).unwrap_or_else(|error| panic!("{error}"));
                }
                // The size that it is shown with asks for more shared memory than there is.
                Err(errors) => {
                    assert!(errors.kinds().all(|kind| matches!(kind, ErrorKind::BeyondLimit { .. })), "{errors}");
                    assert!(arch != Arch::Sm90a, "{errors}");
                }
            }
        }
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ptxas/shipped.md");
    table.check(&page).unwrap_or_else(|error| panic!("{error}"));
}
