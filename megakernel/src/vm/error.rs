//! Errors between a program and a back end, with their remedies.

use std::time::Duration;

use thiserror::Error;
use tilewright_codegen::device::DeviceError;
use tilewright_codegen::sim::SimError;
use tilewright_codegen::verify::VerifyErrors;
use tilewright_layout::DType;

use super::binding::BindError;
use super::cells::CellError;
use super::unsupported::Unsupported;
use crate::program::{BufferKind, TaskId};

/// Why a program does not become a machine. The text says all of it; the source has it as a value.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the message names every field")]
pub enum LoadError {
    #[error("the device machine does not run this program: {0}")]
    Unsupported(#[from] Unsupported),
    #[error("the weights do not fit the program: {0}")]
    Bind(#[from] BindError),
    #[error("the generated kernel is refused: {}", first(.0))]
    Verify(#[from] VerifyErrors),
    #[error("the device failed: {0}")]
    Device(#[from] DeviceError),
    #[error("the program is for {wanted} SMs, the device has {found}; compile it for this device")]
    Sms { wanted: usize, found: usize },
    #[error("the program is for {wanted} devices, and {found} are given; name {wanted}, such as cuda:0-1")]
    Devices { wanted: usize, found: usize },
    #[error("the KV pools were made for another program: {0}")]
    Kv(#[from] KvError),
    #[error(
        "the device has {free} free bytes, and the program needs {weights} for weights, {pools} for KV pools and {rest} \
         for activations and tables; use a shorter context, fewer sequences, a smaller model or a device with more memory"
    )]
    Memory { free: u64, weights: u64, pools: u64, rest: u64 },
}

/// Why a launch did not end as it should. Outputs are undefined then, and so are the KV entries of
/// its steps; unless the device was lost or does not answer, the machine runs the next launch as if
/// nothing had happened.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the message names every field")]
pub enum LaunchError {
    #[error("the cells are refused: {0}")]
    Cells(#[from] CellError),
    #[error("the device failed: {0}")]
    Device(#[source] DeviceError),
    #[error("the program has other outputs than are asked for: {0}")]
    Access(#[from] AccessError),
    #[error("the KV pools are not as they are set: {0}")]
    Kv(#[from] KvError),
    #[error(
        "task {task} `{label}` on block {block} waited too long: counter {counter} `{name}` should reach {wanted}, it is {seen}"
    )]
    Stuck { task: TaskId, label: String, block: u32, counter: u32, name: String, wanted: u32, seen: u32 },
    #[error("block {block} waited too long for the other blocks: {wanted} should have come, {seen} did")]
    Blocks { block: u32, wanted: u32, seen: u32 },
    #[error("task {task} `{label}` on block {block} polled too long for data of other tasks or devices")]
    Parts { task: TaskId, label: String, block: u32 },
    #[error("task {task} `{label}` on block {block} has opcode {opcode}, the kernel has {classes}")]
    Opcode { task: TaskId, label: String, block: u32, opcode: u32, classes: usize },
    #[error(
        "the tables of block {block} are not those that were loaded (sum {found:#x}, not {expected:#x}): something wrote \
         over device memory; load the model again"
    )]
    Tables { block: u32, expected: u32, found: u32 },
    #[error(
        "activations of task {task} `{label}` overflow f16 or are NaN: quantised weights of 5 to 16 rows meet at most 65504, \
         those of e4m3 at 1 to 4 rows f32 below 2^22 and bf16 to 65504; decode integer codes by at most 4 rows in a step, or weights of bf16"
    )]
    F16Overflow { task: TaskId, label: String },
    #[error(
        "dev{device} of {devices} devices failed: {source}{}",
        if *ended { "" } else { "; another device still waits for it and did not react to the abort" }
    )]
    OneOf { device: usize, devices: usize, ended: bool, source: Box<DeviceError> },
    #[error(
        "dev{device} of {devices} did not reach a barrier at which dev{waiting} waited for {timeout:?}; if it is slow but not stuck, \
         raise the timeout"
    )]
    Absent { device: usize, devices: usize, waiting: usize, timeout: Duration },
    #[error("the launch was aborted after {steps} whole steps")]
    Aborted { steps: u32 },
    #[error("no step ended within {timeout:?} after the first {steps}; the launch was aborted")]
    Hung { steps: u32, timeout: Duration },
    #[error(
        "no step ended within {timeout:?} after the first {steps}, and the kernel did not react to the abort; \
         restart the program"
    )]
    Unresponsive { steps: u32, timeout: Duration },
    #[error("a launch takes 1 to {most} steps, {found} were asked for")]
    Steps { found: usize, most: usize },
    #[error("row {row} has {found} end tokens, a launch checks at most {most}; give fewer")]
    Ends { row: usize, found: usize, most: usize },
    #[error("ends are given for {found} rows, the program has {rows}; give one list for each row, or none")]
    EndRows { found: usize, rows: usize },
    #[error("the program feeds no token back: {0}")]
    NoFeedback(#[from] NoFeedback),
    #[error("the machine was made without proposals; make it with the option `propose`")]
    NoProposals,
    #[error("the machine takes no masks; make it with the option `masks`, of a program that samples")]
    NoMasks,
    #[error("a mask of {found} words for row {row}: the machine has {rows} rows, and masks of {words} words")]
    Mask { row: usize, rows: usize, found: usize, words: usize },
    #[error("task {task} `{label}` on block {block} waited too long for the host's mask")]
    LateMask { task: TaskId, label: String, block: u32 },
    #[error(
        "a text of {tokens} tokens in {pages} pages cannot continue by {left}: give at least one token and at most {width} pages, \
         and ask for at least one token"
    )]
    Text { tokens: usize, pages: usize, left: usize, width: usize },
    #[error("the machine takes no queued launches; make it with the option `queued`, of one device")]
    NotQueued,
    #[error("the machine was made without a timeline")]
    NoTimeline,
}

/// The number of errors of a kernel, and the first; the kernel's own error has the whole text.
fn first(errors: &VerifyErrors) -> String {
    let count = errors.errors.len();
    let first = errors.errors.first().map(|error| error.kind.to_string());
    format!("{count} error{}: {}", if count == 1 { "" } else { "s, the first" }, first.unwrap_or_default())
}

/// A simulated launch that an abort ended is an abort, as on a GPU.
impl From<DeviceError> for LaunchError {
    fn from(error: DeviceError) -> LaunchError {
        if matches!(&error, DeviceError::Simulator { source: SimError::Interrupted { .. } }) {
            LaunchError::Aborted { steps: 0 }
        } else {
            LaunchError::Device(error)
        }
    }
}

/// Why the steps of a launch cannot feed each other; single steps run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the message names every field")]
pub enum NoFeedback {
    #[error("{found} cells hold {role}, a launch of many steps goes on with one; run single steps")]
    Cells { role: &'static str, found: usize },
    #[error("its ops leave next tokens in {found} places, a launch of many steps feeds one back; run single steps")]
    Choices { found: usize },
    #[error(
        "it chooses among {tokens} tokens and embeds the first {rows}, a token that is fed back must be one of these; \
         use an embedding of {tokens} rows"
    )]
    Vocab { tokens: usize, rows: usize },
    #[error("nothing says what tokens it chooses among; write them by an op that says so, or run single steps")]
    Unbounded,
}

/// Why a buffer cannot be read or set by the host.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the message names every field")]
pub enum AccessError {
    #[error("the program has no buffer `{name}`")]
    Missing { name: String },
    #[error("buffer `{name}` is a {found} buffer; the host {action}")]
    Kind { name: String, found: BufferKind, action: &'static str },
    #[error("buffer `{name}` is {found}, asked for as {asked}")]
    DType { name: String, found: DType, asked: &'static str },
    #[error("buffer `{name}` has {expected} elements, {found} were given")]
    Length { name: String, expected: usize, found: usize },
    #[error("buffer `{name}` has {rows} rows, row {row} was asked for")]
    Row { name: String, rows: usize, row: usize },
}

/// Why pools cannot be made, or do not fit a program.
#[derive(Clone, Debug, PartialEq, Error)]
#[allow(missing_docs, reason = "the message names every field")]
pub enum KvError {
    #[error("pool `{name}` needs {bytes} bytes, more than this machine gives; use a shorter context or fewer pages")]
    Memory { name: String, bytes: usize },
    #[error("the KV state has no pool `{name}`; it was made for another model")]
    Missing { name: String },
    #[error("pool `{name}` has {len} elements, and element {end} should be written")]
    Range { name: String, end: usize, len: usize },
    #[error("pool `{name}` is {found}, the program wants {expected}")]
    DType { name: String, expected: DType, found: DType },
    #[error("pool `{name}` has the scale {found}, the program wants {expected}")]
    Scale { name: String, expected: f32, found: f32 },
    #[error("pool `{name}` has shape {found:?}, the program wants {expected:?}")]
    Shape { name: String, expected: Vec<usize>, found: Vec<usize> },
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_codegen::build::{block, record};
    use tilewright_codegen::ir::Arch;
    use tilewright_codegen::verify::verify;

    #[test]
    fn what_does_not_load_says_why_in_its_own_text() {
        let refused =
            record("hasty", Arch::Sm90a, block(32), |k| k.refuse(&"the width is 3: vectors have 4; take a multiple"));
        let buffer: String = "logits".into();
        let errors: [(LoadError, &str); 5] = [
            (
                Unsupported::Op { op: "soft_cap" }.into(),
                "op `soft_cap` has no device function; lower the model with fused ops",
            ),
            (BindError::NoWorkers.into(), "a machine needs at least one worker"),
            (
                verify(refused).expect_err("it is refused").into(),
                "is refused: 1 error: the width is 3: vectors have 4; take a multiple",
            ),
            (DeviceError::OutOfMemory { asked: 96 << 30, free: 80 << 30 }.into(), "96.0 GiB were asked for"),
            (KvError::Missing { name: buffer }.into(), "no pool `logits`; it was made for another model"),
        ];
        for (error, wanted) in errors {
            assert!(error.to_string().contains(wanted), "{error}");
        }
    }
}
