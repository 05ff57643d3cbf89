//! The verifier: checks recorded kernels before they are translated or run.
//!
//! [`verify`] takes a recorded kernel and gives a [`Verified`] one, which alone back ends accept,
//! or all errors at once. Rules stand in the file of the family that they are about, one function
//! each:
//!
//! | file | rules |
//! |---|---|
//! | `types` | types, spaces and classes of operands as the rows say; visibility; register runs; existence; numbers |
//! | `launch` | the name; limits of the target: threads, shared memory and its placement, parameters, cluster |
//! | `arith` | attributes that go with types: comparisons, conversions, packing; what a type needs of the target |
//! | `mem` | vector shapes, atomics by type, hints by space, known alignment and bounds in shared memory |
//! | `sync` | barrier ids and counts, mbarriers initialised, mbarriers and data apart |
//! | `copy` | sizes and coordinates of asynchronous copies |
//! | `mma` | registers of atoms, signs and major-ness by type; operands begin where their swizzle does |
//! | `uniform` | instructions for a warp, warpgroup or block stand where all its threads come |
//! | `flight` | registers of `wgmma` fenced before and untouched until waited for |
//!
//! This module imports `ir` alone.

mod arith;
mod copy;
mod error;
mod faults;
mod flight;
mod launch;
mod mem;
mod mma;
mod sync;
mod types;
mod uniform;

pub use error::{ErrorKind, VerifyError, VerifyErrors};

use crate::ir::{Flag, Inst, Kernel, Knowledge, StmtKind};
use faults::Faults;

/// A kernel that passed every rule. Only [`verify`] makes one, and it cannot be changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Verified {
    kernel: Kernel,
}

impl Verified {
    /// The kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The kernel, to be changed and verified again.
    pub fn into_kernel(self) -> Kernel {
        self.kernel
    }
}

/// Checks a recorded kernel, and makes of it what devices load.
///
/// The rules cover types and visibility, limits of the target, alignment and bounds where they are
/// known, uniformity of barriers and warp instructions, initialisation of mbarriers, and fences of
/// `wgmma`. The [simulator](crate::sim) finds errors that depend on run time: races, missing waits,
/// addresses.
///
/// # Errors
/// All violations at once: those of the kernel as a whole first, then in the order of the text.
/// Printed, they stand under their instructions with the author's lines:
///
/// ```text
/// kernel `hasty`: 1 error
/// ...
///   if v1 {
///     bar.sync 0 64
///   ^ error: bar.sync stands where threads of one warp may part: condition v1 of #2 may differ within it; ... (src/main.rs:7)
/// ```
///
/// ```
/// use tilewright_codegen::{build::{block, record}, ir::Arch, verify::verify};
/// let kernel = record("hasty", Arch::Sm80, block(64), |k| k.when(k.tid().lt(3), || k.barrier()));
/// let errors = verify(kernel).unwrap_err();
/// assert!(errors.to_string().contains("bar.sync stands where threads of one warp may part"));
/// ```
pub fn verify(kernel: Kernel) -> Result<Verified, VerifyErrors> {
    let mut faults = Faults { kernel: &kernel, errors: Vec::new() };
    launch::verify_launch(&mut faults);
    types::verify_types(&mut faults);
    verify_refused(&mut faults);
    if faults.errors.is_empty() {
        // The following checks rely on types and visibility.
        verify_instructions(&mut faults);
        sync::verify_mbarriers(&mut faults);
        uniform::verify_uniform(&mut faults);
        flight::verify_flight(&mut faults);
    }
    let mut errors = faults.errors;
    errors.sort_by_key(|error| error.at);
    if errors.is_empty() { Ok(Verified { kernel }) } else { Err(VerifyErrors { kernel: Box::new(kernel), errors }) }
}

/// No library refused what its caller asked for.
fn verify_refused(faults: &mut Faults<'_>) {
    // A Rust loop that unrolls refuses once for each round: the same text at the same line is one
    // error.
    let mut seen = std::collections::HashSet::new();
    for (id, what) in &faults.kernel.refused {
        if let Some(stmt) = faults.kernel.stmt(*id)
            && seen.insert((what, stmt.src.file(), stmt.src.line(), stmt.src.column()))
        {
            faults.at(stmt, ErrorKind::Refused { what: what.clone() });
        }
    }
}

/// The rules of single instructions that the rows cannot say.
fn verify_instructions(faults: &mut Faults<'_>) {
    let known = Knowledge::of(faults.kernel);
    for stmt in faults.statements() {
        let StmtKind::Inst(inst) = &stmt.op else { continue };
        match inst {
            Inst::Arith(op) => arith::verify_arith(faults, stmt, op),
            Inst::Convert(op) => arith::verify_convert(faults, stmt, op),
            Inst::Value(op) => arith::verify_value(faults, stmt, op),
            Inst::Mem(op) => mem::verify_mem(faults, stmt, op),
            Inst::Warp(op) => arith::verify_warp(faults, stmt, op),
            Inst::Sync(op) => sync::verify_sync(faults, stmt, op),
            Inst::Copy(op) => copy::verify_copy(faults, stmt, op),
            Inst::Mma(op) => mma::verify_mma(faults, stmt, op, &known),
            Inst::Control(op) => mma::verify_control(faults, stmt, op),
            Inst::Bits(_) => {}
        }
        mem::verify_place(faults, stmt, inst, &known);
        let threads = faults.kernel.launch.threads_per_block();
        let whole = matches!(inst, Inst::Mma(_)) || inst.is(Flag::Warpgroup);
        faults.require(!whole || threads.is_multiple_of(32), stmt, || ErrorKind::PartialWarp {
            inst: inst.row().mnemonic,
            threads,
        });
    }
}
