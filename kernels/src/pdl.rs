//! Programmatic dependent launch (PDL): a kernel starts its prologue while the previous kernel in
//! the stream still runs.
//!
//! Requires sm_90; on older targets these functions emit nothing, and stream order alone separates
//! the kernels.

use tilewright_codegen::build::Builder;
use tilewright_codegen::ir::Needs;

/// Triggers the next launch, then waits for all previous launches to complete and flush their
/// writes.
///
/// Before this call a kernel may read only its parameters, constants, and memory that no launch
/// still in flight writes; it must not write global memory. Several dependent launches can be in
/// their prologues at once. A graph of launches begins when all work before it has ended.
pub(crate) fn trigger_and_wait(k: &Builder) {
    trigger_dependents(k);
    wait_for_previous(k);
}

/// Emits `griddepcontrol.launch_dependents`: the next kernel in the stream may start.
pub(crate) fn trigger_dependents(k: &Builder) {
    if Needs::Sm90.met_by(k.arch()) {
        k.grid_launch();
    }
}

/// Emits `griddepcontrol.wait`: blocks until all previous launches have completed and their writes
/// are visible.
pub(crate) fn wait_for_previous(k: &Builder) {
    if Needs::Sm90.met_by(k.arch()) {
        k.grid_wait();
    }
}
