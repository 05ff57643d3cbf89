//! GPUs as data: the figures of a device that scheduling and launching need.
//!
//! The presets hold data-sheet figures (NVIDIA's architecture white papers and product briefs);
//! `read_bandwidth` is a measured figure where there is one. A program carries its own copy, so a
//! device that is not listed here is a matter of data too.

use serde::{Deserialize, Serialize};

/// A device that programs are made for.
///
/// ```
/// use tilewright_codegen::target::Target;
/// let h100 = Target::named("h100").unwrap();
/// assert_eq!((h100.sms, h100.arch.as_str()), (132, "sm_90a"));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Name on the command line, lower case.
    pub name: String,
    /// Architecture that kernels are generated for, as PTX spells it; `host` for CPU workers.
    pub arch: String,
    /// Streaming multiprocessors: queues of a placed program. On `host`, worker threads.
    pub sms: usize,
    /// Shared memory that one block may opt in to, bytes.
    pub shared_bytes_per_block: usize,
    /// 32-bit registers per multiprocessor.
    pub registers_per_sm: usize,
    /// Threads resident per multiprocessor at most.
    pub threads_per_sm: usize,
    /// L2 cache, bytes.
    pub l2_bytes: u64,
    /// Device memory, bytes.
    pub memory_bytes: u64,
    /// Peak memory bandwidth of the data sheet, bytes per second.
    pub peak_bandwidth: f64,
    /// Read bandwidth that was measured, bytes per second, where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_bandwidth: Option<f64>,
}

/// A row of the preset table: name, arch, SMs, shared KiB, threads per SM, L2 MiB, memory GiB,
/// TB/s, measured TB/s.
type PresetRow = (&'static str, &'static str, usize, usize, usize, u64, u64, f64, Option<f64>);

const PRESETS: [PresetRow; 9] = [
    ("h100", "sm_90a", 132, 227, 2048, 50, 80, 3.352, Some(3.155)),
    ("h200", "sm_90a", 132, 227, 2048, 50, 141, 4.8, None),
    ("a100", "sm_80", 108, 163, 2048, 40, 80, 2.039, None),
    ("l4", "sm_89", 58, 99, 1536, 48, 24, 0.3, None),
    ("l40s", "sm_89", 142, 99, 1536, 96, 48, 0.864, None),
    ("rtx4090", "sm_89", 128, 99, 1536, 72, 24, 1.008, None),
    ("rtx5090", "sm_120", 170, 99, 1536, 96, 32, 1.792, None),
    ("b200", "sm_100a", 148, 227, 2048, 126, 180, 8.0, None),
    ("host", "host", 1, 0, 1, 0, 0, 0.0, None),
];

impl Target {
    /// The preset of that name, in any case.
    pub fn named(name: &str) -> Option<Target> {
        let name = name.to_ascii_lowercase();
        PRESETS.iter().find(|row| row.0 == name).map(Target::from_row)
    }

    /// The names of all presets.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|row| row.0)
    }

    /// CPU workers as a target: one queue each.
    ///
    /// ```
    /// assert_eq!(tilewright_codegen::target::Target::host(2).sms, 2);
    /// ```
    pub fn host(workers: usize) -> Target {
        let mut target = Target::from_row(&PRESETS[PRESETS.len() - 1]);
        target.sms = workers.max(1);
        target
    }

    fn from_row(row: &PresetRow) -> Target {
        let &(name, arch, sms, shared_kib, threads_per_sm, l2_mib, memory_gib, peak, measured) = row;
        Target {
            name: name.into(),
            arch: arch.into(),
            sms,
            shared_bytes_per_block: shared_kib << 10,
            registers_per_sm: if arch == "host" { 0 } else { 65_536 },
            threads_per_sm,
            l2_bytes: l2_mib << 20,
            memory_bytes: memory_gib << 30,
            peak_bandwidth: peak * 1e12,
            read_bandwidth: measured.map(|m| m * 1e12),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_found_by_its_name_and_is_plausible() {
        for name in Target::names().filter(|n| *n != "host") {
            let target = Target::named(&name.to_uppercase()).expect("a listed preset");
            assert_eq!(target.name, name);
            assert!(target.sms >= 58 && target.peak_bandwidth >= 0.3e12, "{target:?}");
            assert!(target.read_bandwidth.is_none_or(|read| read < target.peak_bandwidth), "{target:?}");
        }
        assert_eq!(Target::named("tpu"), None);
    }
}
