//! Errors between a program and a device, with their remedies.

use crate::ir::{Arch, Ty, one_of};
use thiserror::Error;

/// Why a device refused or failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The program was built without CUDA devices.
    #[error("this build has no CUDA devices: build with the feature `cuda`, or choose a device that needs none")]
    NoCuda,
    /// The machine has no CUDA driver.
    #[error(
        "no CUDA driver was found: {library} cannot be loaded; install the NVIDIA driver (it carries {library}), or choose a device that needs none"
    )]
    NoDriver {
        /// The library that was looked for.
        library: &'static str,
    },
    /// The driver is older than the functions that are called.
    #[error(
        "the CUDA driver is too old: it supports CUDA {}.{}, and {}.{} is needed; update the NVIDIA driver",
        found / 1000, found % 1000 / 10, needed / 1000, needed % 1000 / 10
    )]
    OldDriver {
        /// The driver's CUDA version: 1000 × major + 10 × minor.
        found: u32,
        /// The lowest version that will do, in the same form.
        needed: u32,
    },
    /// The driver has no device of that number.
    #[error("there is no device cuda:{ordinal}: the driver sees {}", devices(*count))]
    NoDevice {
        /// The number that was asked for.
        ordinal: u32,
        /// The number of devices that the driver reports.
        count: u32,
    },
    /// A device does not reach another's memory.
    #[error("cuda:{from} does not reach the memory of cuda:{to}; choose devices that NVLink or one PCIe root joins")]
    NoPeer {
        /// The device that would read and write.
        from: u32,
        /// The device whose memory it would be.
        to: u32,
    },
    /// Devices of a kind that adds nothing up together.
    #[error("{device} has no NCCL, which is for NVIDIA GPUs; exchange by the library's own kernels")]
    NoCollective {
        /// Name of the device.
        device: String,
    },
    /// NCCL is not there, or too old.
    #[error(
        "NCCL is not there: {library} cannot be used ({why}); put its folder into LD_LIBRARY_PATH, or exchange by the library's own kernels, which need nothing"
    )]
    NoNccl {
        /// The library that was looked for.
        library: &'static str,
        /// The error of the loader.
        why: String,
    },
    /// NCCL might use NVLink's multicast.
    #[error(
        "NCCL is used without NVLink's multicast alone, which can take the GPUs of a host out of service: {variable} is `{found}` in the environment; set it to 0"
    )]
    Multicast {
        /// The variable that says so.
        variable: &'static str,
        /// The value.
        found: String,
    },
    /// A call of NCCL failed.
    #[error("{call} failed: {text} ({code})")]
    Nccl {
        /// The call.
        call: &'static str,
        /// NCCL's number for the error.
        code: i32,
        /// NCCL's text for it.
        text: String,
    },
    /// A way to another process's device that was given up.
    #[error("the way to the other device was given up")]
    GivenUp,
    /// A sum of several devices outside of a collective's graphs.
    #[error("a sum over devices is queued on one of them; make graphs of all by their collective")]
    SumAlone,
    /// Devices that would not add up together.
    #[error("{devices} devices add up together, and have {found:?} sums; give each as many, of as many elements")]
    Apart {
        /// The number of devices.
        devices: usize,
        /// Sums of the work of each.
        found: Vec<usize>,
    },
    /// Launches that cannot run side by side.
    #[error("kernel `{kernel}` cannot run side by side: {rule}")]
    SideBySide {
        /// Name of the kernel.
        kernel: String,
        /// The defect.
        rule: &'static str,
    },
    /// The device is not the one that something was made for.
    #[error("{device} is not the target {target}: {what}: {found}, where {needed} is needed")]
    Target {
        /// Name of the device.
        device: String,
        /// Name of the target.
        target: String,
        /// The property that differs, with its unit.
        what: &'static str,
        /// The value of the device.
        found: String,
        /// The value of the target.
        needed: String,
    },
    /// The kernel was recorded for an architecture that the device does not run.
    #[error(
        "kernel `{kernel}` is for {arch}, which {device} (compute capability {major}.{minor}) does not run{}",
        suggest(*runs)
    )]
    Arch {
        /// Name of the kernel.
        kernel: String,
        /// The architecture that it was recorded for.
        arch: Arch,
        /// Name of the device.
        device: String,
        /// Compute capability of the device, major number.
        major: u32,
        /// Compute capability of the device, minor number.
        minor: u32,
        /// The architecture to record it for instead.
        runs: Option<Arch>,
    },
    /// The driver did not compile the kernel.
    #[error("the driver does not compile kernel `{kernel}` ({name}):\n{}", log.trim_end())]
    Jit {
        /// Name of the kernel.
        kernel: String,
        /// The driver's name for the error.
        name: String,
        /// The log of the compiler.
        log: String,
    },
    /// The compiled kernel's parameters are not those of its signature.
    #[error("parameter {index} of kernel `{kernel}` is {found} in its PTX, and {expected} in its signature")]
    Layout {
        /// Name of the kernel.
        kernel: String,
        /// Number of the parameter, from zero.
        index: usize,
        /// Size by the signature.
        expected: String,
        /// Size in the compiled code.
        found: String,
    },
    /// A launch has too many or too few arguments.
    #[error("kernel `{kernel}` has {expected} parameters, and the launch gives {found}")]
    ArgCount {
        /// Name of the kernel.
        kernel: String,
        /// Number of parameters.
        expected: usize,
        /// Number of arguments.
        found: usize,
    },
    /// A buffer of other elements than the kernel's parameter.
    #[error(
        "kernel `{kernel}`: argument {index} (`{name}`) is a buffer of {found}, and the parameter points to {0}; pass a buffer of {0}, or the bytes (`Buffer::cast::<u8>`)",
        one_of(expected)
    )]
    ArgElement {
        /// Name of the kernel.
        kernel: String,
        /// Number of the argument, from 0.
        index: usize,
        /// Name of the parameter.
        name: String,
        /// The kernel's elements: one of these.
        expected: Vec<Ty>,
        /// The buffer's elements.
        found: Ty,
    },
    /// A kernel whose parameters are not those of a declared struct.
    #[error(
        "kernel `{kernel}`: parameter {index} is {found}, and the struct declares {declared}; record the kernel with this struct (`k.params`), or name its own"
    )]
    Declared {
        /// Name of the kernel.
        kernel: String,
        /// Number of the parameter, from 0.
        index: usize,
        /// The declaration in the struct.
        declared: String,
        /// The parameter of the kernel.
        found: String,
    },
    /// An argument is not what the parameter is.
    #[error("argument {index} of kernel `{kernel}`: `{name}` is {expected}, and the launch gives {found}")]
    ArgKind {
        /// Name of the kernel.
        kernel: String,
        /// Number of the parameter, from zero.
        index: usize,
        /// Name of the parameter.
        name: String,
        /// The type of the parameter.
        expected: String,
        /// The type of the argument.
        found: String,
    },
    /// A buffer of a trial that is passed for a parameter of another name before, if ever, it is
    /// passed for its own.
    #[error(
        "buffer `{buffer}` of a trial of `{kernel}` is passed for {}: pass it for the parameter of its name, or name it after the parameter",
        passed.as_ref().map_or("no parameter".into(), |(index, name)| format!("argument {index}, `{name}`, first"))
    )]
    BufferName {
        /// Name of the kernel.
        kernel: String,
        /// Name of the buffer.
        buffer: String,
        /// The first parameter that it is passed for: its number, from zero, and its name.
        passed: Option<(usize, String)>,
    },
    /// A grid that cannot be launched.
    #[error("kernel `{kernel}` cannot be launched on a grid of {grid:?} blocks: {rule}")]
    Grid {
        /// Name of the kernel.
        kernel: String,
        /// Blocks by axis.
        grid: [u32; 3],
        /// The rule that it breaks.
        rule: String,
    },
    /// A kernel needs more of something than a block may have.
    #[error("kernel `{kernel}` needs {needed} {what}, and {device} grants {limit}")]
    LaunchTooLarge {
        /// Name of the kernel.
        kernel: String,
        /// The resource, with its unit.
        what: &'static str,
        /// The amount that it needs.
        needed: u64,
        /// The amount that the device has.
        limit: u64,
        /// Name of the device.
        device: String,
    },
    /// The blocks of a cooperative launch are not all resident at once.
    #[error(
        "kernel `{kernel}` is launched cooperatively on {needed} blocks, and only {resident} are resident at once ({per_sm} on each of {sms} multiprocessors); launch fewer blocks, or use fewer registers, less shared memory or fewer threads"
    )]
    Occupancy {
        /// Name of the kernel.
        kernel: String,
        /// Blocks of the grid.
        needed: u64,
        /// Blocks that are resident at once.
        resident: u64,
        /// Resident blocks on one multiprocessor.
        per_sm: u32,
        /// Multiprocessors.
        sms: u32,
    },
    /// The device cannot launch cooperatively.
    #[error("kernel `{kernel}` is launched cooperatively, which {device} does not support")]
    NotCooperative {
        /// Name of the kernel.
        kernel: String,
        /// Name of the device.
        device: String,
    },
    /// A text that names no device.
    #[error("`{found}` is not a device; devices are sim, sim:SEED and cuda:N, such as sim:7 or cuda:0")]
    Name {
        /// The name that was given.
        found: String,
    },
    /// The simulator was given a kernel that has no recorded form.
    #[error("kernel `{kernel}` is PTX written by hand, which {device} does not run; record it with the builder")]
    NotRecorded {
        /// Name of the kernel.
        kernel: String,
        /// Name of the device.
        device: String,
    },
    /// The simulator found a fault of the kernel.
    #[error("{report}")]
    Fault {
        /// Name of the kernel.
        kernel: String,
        /// The seed of the launch.
        seed: u64,
        /// The whole report: the fault, its place, and the other parties.
        report: String,
    },
    /// The simulator cannot make a launch.
    #[error("the simulator does not launch it: {source}")]
    Simulator {
        /// Why.
        #[source]
        source: crate::sim::SimError,
    },
    /// Bytes that are read and were never written. Only the simulator notices.
    #[error("byte {offset} of {buffer} was never written; write it first, or let a kernel do it")]
    Unwritten {
        /// The buffer's name: the kernel's for it, if it was an argument.
        buffer: String,
        /// The first such byte.
        offset: u64,
    },
    /// Device memory ran out.
    #[error("out of device memory: {} were asked for, and {} are free", bytes(*asked), bytes(*free))]
    OutOfMemory {
        /// Bytes that were asked for.
        asked: u64,
        /// Bytes that were free then.
        free: u64,
    },
    /// The operating system does not lock this many pages of host memory.
    #[error("{} of host memory cannot be locked in place for the device; ask for less, or raise the limit of locked memory", bytes(*asked))]
    HostMemory {
        /// Bytes that were asked for.
        asked: u64,
    },
    /// Elements outside a buffer.
    #[error("elements {start}..{end} of a buffer of {len} elements")]
    Range {
        /// First element.
        start: usize,
        /// The exclusive end.
        end: usize,
        /// Elements of the buffer.
        len: usize,
    },
    /// Two sides of a copy have different lengths.
    #[error("a copy of {from} elements to {to} elements")]
    Length {
        /// Elements that are read.
        from: usize,
        /// Elements that are written.
        to: usize,
    },
    /// An object of another device.
    #[error("a {what} of another device was given to {device}")]
    Foreign {
        /// The kind of object.
        what: &'static str,
        /// The device that it was given to.
        device: String,
    },
    /// A tensor map that the hardware does not have.
    #[error("a tensor map {rule}")]
    TensorMap {
        /// The rule that it breaks.
        rule: String,
    },
    /// The device is in a state that this process cannot leave. Mapped words keep what kernels
    /// wrote.
    #[error(
        "the device was lost in {call}: {name} ({code}): {}; the driver does not give the device back to this process: restart the program",
        meaning(*code)
    )]
    Lost {
        /// The call that reported it; the cause is an earlier launch or copy.
        call: &'static str,
        /// The driver's number for it.
        code: u32,
        /// The driver's name for it.
        name: String,
    },
    /// Any other failure of a call.
    #[error("{call} failed: {name} ({code})")]
    Driver {
        /// The call.
        call: &'static str,
        /// The driver's number for the error.
        code: u32,
        /// The driver's name for the error.
        name: String,
    },
}

fn devices(count: u32) -> String {
    match count {
        0 => "none".into(),
        1 => "one, cuda:0".into(),
        n => format!("{n}, cuda:0 to cuda:{}", n - 1),
    }
}

fn suggest(runs: Option<Arch>) -> String {
    runs.map(|arch| format!("; record it for {arch}")).unwrap_or_default()
}

/// Bytes as a person reads them: exact below 10 KiB, three digits above.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if count < 10 << 10 {
        return format!("{count} bytes");
    }
    let power = ((63 - count.leading_zeros()) / 10).min(4);
    let value = count as f64 / (1u64 << (10 * power)) as f64;
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {}", UNITS[power as usize - 1])
}

/// The meaning of the driver's code for a lost device (CUDA driver API, `CUresult`).
const fn meaning(code: u32) -> &'static str {
    match code {
        214 => "uncorrectable ECC error",
        220 => "uncorrectable NVLink error",
        700 => "a kernel accessed an address that is not its own",
        702 => "a kernel ran longer than the operating system permits",
        714 => "a kernel's stack is corrupt",
        715 => "a kernel executed an illegal instruction",
        716 => "a kernel accessed a misaligned address",
        717 => "a kernel used an address of the wrong space",
        718 => "a kernel's program counter left its code",
        719 => "a kernel stopped: a trap, or a fault of the device",
        _ => "a fault that the driver does not recover from",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_exact_where_small_and_rounded_where_large() {
        let seen = [0, 4096, 10_240, 1 << 20, 85_899_345_920, u64::MAX].map(bytes).join(", ");
        insta::assert_snapshot!(seen, @"0 bytes, 4096 bytes, 10.0 KiB, 1.00 MiB, 80.0 GiB, 16777216 TiB");
    }

    #[test]
    fn every_error_says_what_was_wrong_and_what_to_do() {
        let errors = [
            DeviceError::NoDriver { library: "libcuda.so.1" },
            DeviceError::OldDriver { found: 12_020, needed: 12_080 },
            DeviceError::NoDevice { ordinal: 3, count: 2 },
            DeviceError::NoDevice { ordinal: 0, count: 0 },
            DeviceError::Arch {
                kernel: "gemm".into(),
                arch: Arch::Sm90a,
                device: "NVIDIA B200".into(),
                major: 10,
                minor: 0,
                runs: Some(Arch::Sm100a),
            },
            DeviceError::Jit {
                kernel: "saxpy".into(),
                name: "CUDA_ERROR_INVALID_PTX".into(),
                log: "ptxas application ptx input, line 7; fatal\n\n".into(),
            },
            DeviceError::Occupancy { kernel: "vm".into(), needed: 133, resident: 132, per_sm: 1, sms: 132 },
            DeviceError::NoCollective { device: "sim".into() },
            DeviceError::NoNccl { library: "libnccl.so.2", why: "no such file".into() },
            DeviceError::Multicast { variable: "NCCL_NVLS_ENABLE", found: String::new() },
            DeviceError::Nccl { call: "ncclAllReduce", code: 4, text: "invalid argument".into() },
            DeviceError::SumAlone,
            DeviceError::Apart { devices: 2, found: vec![2, 1] },
            DeviceError::OutOfMemory { asked: 96 << 30, free: 80 << 30 },
            DeviceError::HostMemory { asked: 1 << 30 },
            DeviceError::Lost { call: "cuStreamSynchronize", code: 719, name: "CUDA_ERROR_LAUNCH_FAILED".into() },
        ];
        let text = errors.map(|e| e.to_string()).join("\n");
        insta::assert_snapshot!(text, @"
        no CUDA driver was found: libcuda.so.1 cannot be loaded; install the NVIDIA driver (it carries libcuda.so.1), or choose a device that needs none
        the CUDA driver is too old: it supports CUDA 12.2, and 12.8 is needed; update the NVIDIA driver
        there is no device cuda:3: the driver sees 2, cuda:0 to cuda:1
        there is no device cuda:0: the driver sees none
        kernel `gemm` is for sm_90a, which NVIDIA B200 (compute capability 10.0) does not run; record it for sm_100a
        the driver does not compile kernel `saxpy` (CUDA_ERROR_INVALID_PTX):
        ptxas application ptx input, line 7; fatal
        kernel `vm` is launched cooperatively on 133 blocks, and only 132 are resident at once (1 on each of 132 multiprocessors); launch fewer blocks, or use fewer registers, less shared memory or fewer threads
        sim has no NCCL, which is for NVIDIA GPUs; exchange by the library's own kernels
        NCCL is not there: libnccl.so.2 cannot be used (no such file); put its folder into LD_LIBRARY_PATH, or exchange by the library's own kernels, which need nothing
        NCCL is used without NVLink's multicast alone, which can take the GPUs of a host out of service: NCCL_NVLS_ENABLE is `` in the environment; set it to 0
        ncclAllReduce failed: invalid argument (4)
        a sum over devices is queued on one of them; make graphs of all by their collective
        2 devices add up together, and have [2, 1] sums; give each as many, of as many elements
        out of device memory: 96.0 GiB were asked for, and 80.0 GiB are free
        1.00 GiB of host memory cannot be locked in place for the device; ask for less, or raise the limit of locked memory
        the device was lost in cuStreamSynchronize: CUDA_ERROR_LAUNCH_FAILED (719): a kernel stopped: a trap, or a fault of the device; the driver does not give the device back to this process: restart the program
        ");
    }
}
