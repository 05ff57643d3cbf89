//! Launches that are set up while the one before runs.

use tilewright_codegen::build::Builder;
use tilewright_codegen::ir::Needs;

/// Begins a kernel that may be set up while the launch before it runs, and lets the next one be set up: all that earlier launches wrote
/// comes in behind this. Before it nothing may be read but parameters, constants and what was there before any launch that may still run, and
/// nothing written: several launches, one behind the other, may be set up at a time. A graph of launches begins when all before it has ended.
pub(crate) fn early(k: &Builder) {
    begin_early(k);
    wait_for_launches(k);
}

/// The first half of [`early`]: the next launch may be set up.
pub(crate) fn begin_early(k: &Builder) {
    if Needs::Sm90.met_by(k.arch()) {
        k.grid_launch();
    }
}

/// The second half: what earlier launches wrote is there.
pub(crate) fn wait_for_launches(k: &Builder) {
    if Needs::Sm90.met_by(k.arch()) {
        k.grid_wait();
    }
}
