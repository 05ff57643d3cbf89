//! The PTX of every shipped kernel for every target that has what it needs: a refactoring keeps it.

use std::path::Path;

use tilewright_codegen::frozen::Frozen;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::ptx;
use tilewright_codegen::verify::verify;
use tilewright_kernels::shipped;

#[test]
fn ptx_of_shipped_kernels_is_as_it_was() {
    let mut frozen = Frozen::default();
    for kernel in shipped() {
        for arch in Arch::ALL.into_iter().filter(|&arch| kernel.needs().met_by(arch)) {
            // Sizes that a target has no room for do not verify; `shipped_assembles` says which
            // may.
            if let Ok(verified) = verify(kernel.record(arch)) {
                frozen.add(&format!("{} {arch}", kernel.name()), &ptx::emit(&verified));
            }
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/frozen.txt");
    frozen.check(&file, true).unwrap_or_else(|error| panic!("{error}"));
}
