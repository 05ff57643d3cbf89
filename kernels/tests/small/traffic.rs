//! The small kernels' memory accesses and resources: whole sectors, no bank conflicts, and the
//! share of a multiprocessor.

use std::path::Path;

use tilewright_codegen::assemble::{Ptxas, Table};
use tilewright_codegen::device::sim::{Options, Simulator};
use tilewright_codegen::ir::{Arch, Kernel, ParamKind, Space, Ty};
use tilewright_codegen::sim::Counters;
use tilewright_codegen::trial::{Expected, Trial};
use tilewright_codegen::verify::verify;
use tilewright_kernels::activation::Activation;
use tilewright_kernels::elementwise::{Types, add_all, gated_all};
use tilewright_kernels::norm::{NormKind, NormShape, rms_norm_rows};
use tilewright_kernels::sample::argmax_rows;
use tilewright_kernels::tile::Float;

const N: u32 = 4096;

/// Counters of a launch on f32 buffers of these lengths, the last of which is written.
fn counters(kernel: Kernel, grid: u32, scalars: &[u32], lengths: &[u32]) -> Counters {
    let pointers = kernel.params.iter().filter(|param| param.kind == ParamKind::Value(Ty::Ptr(Space::Global)));
    let names: Vec<String> = pointers.map(|param| param.name.clone()).collect();
    let mut trial = Trial::new(verify(kernel).unwrap(), grid);
    let (written, read) = lengths.split_last().expect("an output");
    let inputs = names.iter().zip(read).map(|(name, &len)| trial.input(name, &vec![1f32; len as usize]));
    let mut buffers: Vec<_> = inputs.collect();
    buffers.push(trial.output(&names[read.len()], Expected::anything::<f32>(*written as usize)));
    let trial = scalars.iter().fold(trial, |trial, &n| trial.pass(n));
    let trial = buffers.into_iter().fold(trial, Trial::pass);
    let simulator = Simulator::new(Options::default());
    trial.run(&simulator.device()).unwrap_or_else(|error| panic!("{error}"));
    simulator.last_launch().expect("a launch that finished")
}

/// Sectors of a number of f32.
fn sectors(elements: u32) -> u64 {
    u64::from(elements) / 8
}

#[test]
fn elementwise_kernels_touch_every_sector_once() {
    let types = Types { a: Float::F32, b: Float::F32, out: Float::F32, vector: 4 };
    for kernel in [add_all(Arch::Sm80, types), gated_all(Arch::Sm80, Activation::Silu, types)] {
        assert_eq!(counters(kernel, N / 2048, &[N], &[N, N, N]).sectors(), sectors(3 * N));
    }
}

#[test]
fn a_norm_reads_its_row_twice_and_its_weight_once() {
    let x = Float::F32;
    let weight = Float::F32;
    let out = Float::F32;
    let shape = NormShape { width: N, stride: N, x, weight, out, eps: 1e-5, kind: NormKind::Rms, warps: 8 };
    let counters = counters(rms_norm_rows(Arch::Sm80, shape), 1, &[], &[N, N, N]);
    assert_eq!((counters.sectors(), counters.conflicts()), (sectors(4 * N), 0));
}

#[test]
fn argmax_reads_every_sector_once() {
    let counters = counters(argmax_rows(Arch::Sm80, 8), 1, &[N, N], &[N, 1]);
    assert_eq!((counters.sectors(), counters.conflicts()), (sectors(N) + 1, 0));
}

/// Registers and shared memory on every target are as the page has them; spills and warnings fail.
#[test]
fn kernels_assemble_to_what_the_page_says() {
    let Some(ptxas) = Ptxas::find().unwrap() else { return };
    let small = ["rms_norm", "rope", "silu_mul", "gelu_tanh_mul", "add", "embed", "argmax", "sample"];
    let mut table = Table::new("Small kernels", &ptxas);
    for kernel in tilewright_kernels::shipped().iter().filter(|kernel| small.contains(&kernel.name())) {
        for arch in Arch::ALL {
            let verified = verify(kernel.record(arch)).unwrap_or_else(|errors| panic!("{errors}"));
            table.add(&verified).unwrap_or_else(|error| panic!("{error}"));
        }
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ptxas/small.md");
    table.check(&page).unwrap_or_else(|error| panic!("{error}"));
}
