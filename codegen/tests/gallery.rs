//! The gallery verifies, is as it was, and assembles for every target that has what it needs.

use std::path::Path;
use tilewright_codegen::assemble::{Ptxas, Table};
use tilewright_codegen::gallery;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::ptx;
use tilewright_codegen::verify::{ErrorKind, verify};

#[test]
fn a_kernel_verifies_exactly_where_its_needs_are_met() {
    for entry in gallery::all() {
        for arch in Arch::ALL {
            match verify(entry.record(arch)) {
                Ok(_) => assert!(entry.needs.met_by(arch), "{} verifies on {arch}", entry.name),
                Err(errors) => {
                    assert!(!entry.needs.met_by(arch), "{errors}");
                    assert!(errors.kinds().any(|kind| matches!(kind, ErrorKind::Unsupported { .. })), "{errors}");
                }
            }
        }
    }
}

#[test]
fn text_and_ptx_are_as_they_were() {
    for entry in gallery::all() {
        let arch = if entry.needs.met_by(Arch::Sm80) { Arch::Sm80 } else { Arch::Sm90a };
        let verified = verify(entry.record(arch)).unwrap_or_else(|errors| panic!("{errors}"));
        insta::assert_snapshot!(entry.name, format!("{}\n{}", verified.kernel(), ptx::emit(&verified)));
    }
}

/// Registers and shared memory of every kernel on every target are as the page has them; spills and
/// warnings fail.
#[test]
fn every_kernel_assembles_to_what_the_page_says() {
    let Some(ptxas) = Ptxas::find().unwrap() else { return };
    let mut table = Table::new("The gallery", &ptxas);
    for entry in gallery::all() {
        for arch in Arch::ALL.into_iter().filter(|&arch| entry.needs.met_by(arch)) {
            let verified = verify(entry.record(arch)).unwrap_or_else(|errors| panic!("{errors}"));
            table.add(&verified).unwrap_or_else(|error| panic!("{error}"));
        }
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ptxas/gallery.md");
    table.check(&page).unwrap_or_else(|error| panic!("{error}"));
}
