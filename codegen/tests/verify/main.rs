//! Every rule of the verifier has an invalid twin: one builder function, valid without its fault,
//! and with it refused by exactly the error that the rule gives, at the instruction.

mod arith;
mod copy;
mod flight;
mod launch;
mod mem;
mod mma;
mod quality;
mod sync;
mod types;
mod uniform;

use std::sync::atomic::{AtomicU32, Ordering};
use tilewright_codegen::build::{Builder, record};
use tilewright_codegen::ir::{Arch, Kernel, LaunchBounds};
use tilewright_codegen::verify::{VerifyErrors, verify};

/// The errors of the faulty twin, one a line: statement, then text. The valid twin must verify.
pub fn twins(arch: Arch, launch: LaunchBounds, build: impl Fn(&Builder, bool)) -> String {
    let kernel = |fault: bool| record("twin", arch, launch.clone(), |k| build(k, fault));
    if let Err(errors) = verify(kernel(false)) {
        panic!("the valid twin is refused: {errors}");
    }
    lines(&verify(kernel(true)).expect_err("the faulty twin is accepted"))
}

/// Compares as [`twins`] does, with the fault made by hand in the recorded kernel.
pub fn edited(arch: Arch, launch: LaunchBounds, build: impl Fn(&Builder), fault: impl FnOnce(&mut Kernel)) -> String {
    let mut kernel = record("twin", arch, launch, build);
    if let Err(errors) = verify(kernel.clone()) {
        panic!("the valid twin is refused: {errors}");
    }
    fault(&mut kernel);
    lines(&verify(kernel).expect_err("the faulty twin is accepted"))
}

fn lines(errors: &VerifyErrors) -> String {
    let line = |error: &tilewright_codegen::verify::VerifyError| match error.at {
        Some(_) => format!("`{}`: {}", error.inst, error.kind),
        None => error.kind.to_string(),
    };
    errors.errors.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A name that no parameter of this process has.
pub fn fresh_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("x{}", COUNT.fetch_add(1, Ordering::Relaxed))
}
