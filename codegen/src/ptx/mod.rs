//! The PTX back end: one pass from a verified kernel to text.
//!
//! A value keeps its number: `v7` is `%r7` (32 bits), `%d7` (64), `%h7` (16 or 8) or `%p7` (a
//! predicate); the register array `r3` is `%x3_0`, `%x3_1`, ...; labels carry the number of their
//! statement. Structured control flow becomes labels and predicated branches. Nothing is optimised
//! here: the recorder folded what can be folded on every machine, and the assembler knows its own.
//!
//! Each family of instructions has its file; a new row does not compile until its arm is written.
//!
//! This module imports `ir` and what `verify` hands out. It never fails: what a target lacks,
//! `verify` has refused.

mod arith;
mod bits;
mod control;
mod convert;
mod copies;
mod copy;
mod flow;
mod instruction;
mod mem;
mod mma;
mod print;
mod read;
mod scope;
mod sync;
mod value;
mod warp;
mod writer;

use crate::ir::{Kernel, ParamKind};
use crate::verify::Verified;
use core::fmt::Write as _;
use writer::Writer;

/// The kernel's PTX for the target that it was recorded for. The entry point has the kernel's name.
///
/// ```
/// use tilewright_codegen::{build::{block, record}, ir::Arch, ptx, verify::verify};
/// let kernel = record("nothing", Arch::Sm90a, block(128), |k| k.barrier());
/// let text = ptx::emit(&verify(kernel)?);
/// assert!(text.contains(".target sm_90a") && text.contains("bar.sync 0, 128;"));
/// # Ok::<(), tilewright_codegen::verify::VerifyErrors>(())
/// ```
pub fn emit(kernel: &Verified) -> String {
    let kernel = kernel.kernel();
    let mut writer = Writer::new(kernel);
    flow::emit_block(&mut writer, &kernel.body, None);
    let mut out = header(kernel, &writer.scope.emit(&kernel.name));
    writer.finish(&mut out);
    out
}

/// Directives, what stands before the entry point, parameters and shared memory.
fn header(kernel: &Kernel, before_entry: &str) -> String {
    let mut out = String::new();
    let version = kernel.arch.ptx_version();
    let target = kernel.arch;
    let name = &kernel.name;
    let _ = writeln!(out, ".version {version}\n.target {target}\n.address_size 64\n");
    if kernel.shared_is_dynamic() {
        let _ = writeln!(out, ".extern .shared .align 1024 .b8 {name}_shared[];\n");
    }
    out.push_str(before_entry);
    let params: Vec<String> = (0..).zip(&kernel.params).map(|(i, p)| parameter(name, i, p.kind)).collect();
    let _ = writeln!(out, ".visible .entry {name}({})", params.join(","));
    let [x, y, z] = kernel.launch.threads;
    let _ = writeln!(out, ".maxntid {x}, {y}, {z}");
    if let Some(blocks) = kernel.launch.min_blocks {
        let _ = writeln!(out, ".minnctapersm {blocks}");
    }
    if kernel.launch.blocks_per_cluster() > 1 {
        let [x, y, z] = kernel.launch.cluster;
        let _ = writeln!(out, ".reqnctapercluster {x}, {y}, {z}");
    }
    out.push_str("{\n");
    if kernel.shared_bytes() > 0 && !kernel.shared_is_dynamic() {
        let _ = writeln!(out, "    .shared .align 1024 .b8 {name}_shared[{}];", kernel.shared_bytes());
    }
    out
}

fn parameter(kernel: &str, index: u32, kind: ParamKind) -> String {
    match kind {
        ParamKind::Value(ty) => format!("\n    .param .{} {kernel}_p{index}", writer::int_type(ty)),
        ParamKind::Bytes { .. } | ParamKind::TensorMap => {
            let (bytes, align) = kind.layout();
            format!("\n    .param .align {align} .b8 {kernel}_p{index}[{bytes}]")
        }
    }
}
