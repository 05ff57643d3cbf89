//! Planted bugs: each kernel is right, and wrong by one fault where the flag is set; the machine
//! must say which.

mod cluster;
mod copies;
mod descriptors;
mod host;
mod kinds;
mod memory;
mod order;
mod peers;
mod warps;
mod weakened;

#[path = "../sim_cases/mod.rs"]
#[expect(dead_code, reason = "results are another test's business")]
mod sim_cases;

use std::collections::BTreeSet;
use tilewright_codegen::build::Global;
use tilewright_codegen::build::{Builder, Ptr, block, record};
use tilewright_codegen::ir::{Arch, Kernel, LaunchBounds as Shape};
use tilewright_codegen::sample::Sample;
use tilewright_codegen::sim::{self, Arg, Fault, FaultKind, Launch, Memory, Outcome};
use tilewright_codegen::verify::{Verified, verify};

/// A kernel with a fault that can be switched on.
pub struct Plant {
    /// Its name.
    pub name: &'static str,
    /// The launch.
    pub shape: Shape,
    /// Blocks of the grid.
    pub blocks: u32,
    /// Devices that run it side by side.
    pub devices: u32,
    /// Records it, right or wrong.
    pub build: fn(&Io<'_>, bool),
    /// The name of the fault's kind.
    pub expect: &'static str,
}

/// The parameters that all of them have: 4096 floats to read, 4096 to write, 16 zeros.
pub struct Io<'k> {
    /// The recorder.
    pub k: &'k Builder,
    /// To read.
    pub x: Ptr<'k, Global, f32>,
    /// To write.
    pub out: Ptr<'k, Global, f32>,
    /// Zeros.
    pub flags: Ptr<'k, Global, u32>,
}

impl Plant {
    fn kernel(&self, wrong: bool) -> Kernel {
        record(self.name, Arch::Sm90a, self.shape.clone(), |k| {
            let io = Io { k, x: k.global("x"), out: k.global("out"), flags: k.global("flags") };
            (self.build)(&io, wrong);
        })
    }

    fn run(&self, kernel: &Verified, seed: u64) -> Option<Box<Fault>> {
        let mut memory = Memory::new();
        let values: Vec<f32> = (0..4096).map(|i| i as f32).collect();
        let x = memory.upload_read_only("x", &values);
        let out = memory.alloc("out", 4096 * 4);
        let flags = memory.zeros("flags", 64);
        let args = |x| vec![Arg::Ptr(x), Arg::Ptr(out), Arg::Ptr(flags)];
        // Of several devices x begins with the device's number.
        let peers = (1..self.devices).map(|device| args(memory.upload_read_only("x", &[device as f32]))).collect();
        let host = (self.devices == 1).then(host::host);
        let launch = Launch { host, peers, ..Launch::new([self.blocks, 1, 1], args(x)) };
        match sim::run(kernel, &launch, &mut memory, seed).expect("the launch is sound") {
            Outcome::Finished(_) => None,
            Outcome::Fault(fault) => Some(fault),
        }
    }
}

fn plant(name: &'static str, threads: u32, build: fn(&Io<'_>, bool), expect: &'static str) -> Plant {
    Plant { name, shape: block(threads), blocks: 1, devices: 1, build, expect }
}

fn all() -> Vec<Plant> {
    let mut all = memory::plants();
    all.extend(warps::plants());
    all.extend(order::plants());
    all.extend(copies::plants());
    all.extend(cluster::plants());
    all.extend(kinds::plants());
    all.extend(descriptors::plants());
    all.extend(host::plants());
    all.extend(peers::plants());
    all
}

/// Under one of four of 1000 seeds; with `TILEWRIGHT_LONG` in the environment under all.
#[test]
fn the_right_kernels_raise_nothing() {
    let seeds = Sample::one_of(4).of(&(0..1000).collect::<Vec<_>>());
    for plant in all() {
        let kernel = verify(plant.kernel(false)).unwrap_or_else(|errors| panic!("{}: {errors}", plant.name));
        for &seed in &seeds {
            if let Some(fault) = plant.run(&kernel, seed) {
                panic!("{}: {fault}", plant.name);
            }
        }
    }
}

#[test]
fn planted_bugs_are_told_by_their_names() {
    let mut wrong = Vec::new();
    let mut rows = 0;
    let mut told = 0;
    for plant in all() {
        let found: Vec<String> = match verify(plant.kernel(true)) {
            Ok(kernel) => {
                (0..20).filter_map(|seed| plant.run(&kernel, seed)).map(|f| f.kind.name().to_string()).collect()
            }
            Err(_) => vec!["rejected by the verifier".into(); 20],
        };
        let right = found.iter().filter(|name| *name == plant.expect).count();
        rows += 1;
        told += usize::from(right > 0);
        println!("{:36} {:40} {:2} of 20 seeds, {:2} so", plant.name, plant.expect, found.len(), right);
        if right == 0 {
            wrong.push(format!("{}: expected {}, found {found:?}", plant.name, plant.expect));
        }
    }
    for row in weakened::table() {
        rows += 1;
        told += usize::from(row.right > 0);
        println!("{:36} {:40} {:2} of 20 seeds, {:2} so", row.name, row.expect, row.caught, row.right);
        if row.right == 0 {
            wrong.push(format!("{}: expected {}, caught {} times", row.name, row.expect, row.caught));
        }
    }
    println!("{told} of {rows} planted bugs told by their names");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(rows >= 60, "the table has {rows} rows");
}

/// The report of each planted bug, under the first seed that has the right diagnosis.
#[test]
fn every_report_reads_as_it_did() {
    let mut texts = String::new();
    let mut kinds = BTreeSet::new();
    for plant in all() {
        let Ok(kernel) = verify(plant.kernel(true)) else { continue };
        let mut faults = (0..20).filter_map(|seed| plant.run(&kernel, seed));
        let Some(fault) = faults.find(|fault| fault.kind.name() == plant.expect) else { continue };
        kinds.insert(fault.kind.name());
        let lines: Vec<String> = fault.to_string().lines().map(without_line).collect();
        texts += &format!("{}\n\n", lines.join("\n"));
    }
    insta::assert_snapshot!("reports", texts);
    // The others are faults that `verify` leaves no kernel for: `sim/unverified.rs` has them.
    let unverified = ["no wgmma fence", "wgmma in flight"];
    let missing: Vec<&str> =
        FaultKind::NAMES.iter().copied().filter(|name| !kinds.contains(name) && !unverified.contains(name)).collect();
    assert!(missing.is_empty(), "kinds without a planted bug: {missing:?}");
}

/// Line numbers move with every edit of the file; its name stays.
fn without_line(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(".rs:") {
        let from = rest[..at].rfind('/').map_or(0, |slash| rest[..slash].rfind('(').unwrap_or(slash));
        let file = rest[..at].rsplit('/').next().unwrap_or_default();
        out += &format!("{}({file}.rs", &rest[..from]);
        rest = rest[at + 4..].trim_start_matches(|c: char| c.is_ascii_digit());
    }
    out + rest
}
