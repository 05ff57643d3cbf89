//! Tensors in registers and the fragments of matrix instructions, in the simulator, against plain
//! loops.

mod chain;
mod fragments;
mod refusals;
mod store;
mod tensors;
mod tf32;

use tilewright_codegen::build::{Builder, Scalar, Shared, block, record};
use tilewright_codegen::ir::{Arch, Const, Kernel};
use tilewright_codegen::sim::{self, Arg, Launch, Memory, MemoryElement, Outcome};
use tilewright_codegen::verify::verify;
use tilewright_kernels::tile::LayoutTensor;
use tilewright_layout::Swizzled;
use tilewright_layout::typed::{Lowered, StaticLayout};

/// Runs a kernel of one block: the buffers are its arguments, followed by `numbers`; gives the last
/// buffer back.
fn run<T: MemoryElement, U: MemoryElement>(kernel: Kernel, inputs: &[Vec<T>], out: &[U], numbers: &[u32]) -> Vec<U> {
    let verified = verify(kernel).unwrap_or_else(|errors| panic!("{errors}"));
    let mut memory = Memory::new();
    let inputs: Vec<u64> = inputs.iter().map(|input| memory.upload_read_only("in", input)).collect();
    let out_at = memory.upload("out", out);
    let pointers = inputs.into_iter().chain([out_at]).map(Arg::Ptr);
    let scalars = numbers.iter().map(|&n| Arg::Scalar(Const::u32(n)));
    let launch = Launch::new([1, 1, 1], pointers.chain(scalars).collect());
    match sim::run(&verified, &launch, &mut memory, 5).expect("it launches") {
        Outcome::Fault(fault) => panic!("{fault}"),
        Outcome::Finished(_) => memory.download(out_at, out.len()).expect("it was uploaded"),
    }
}

fn recorded(arch: Arch, threads: u32, body: impl FnOnce(&Builder)) -> Kernel {
    record("registers", arch, block(threads), body)
}

/// A matrix as memory holds it by the layout.
fn image<T: Copy, L: StaticLayout>(zero: T, element: impl Fn(usize, usize) -> T) -> Vec<T> {
    let map = Swizzled::new(L::SWIZZLE, 0, L::LAYOUT);
    let mut data = vec![zero; Lowered::<L>::REACH];
    let [rows, columns] = [Lowered::<L>::EXTENTS[0], Lowered::<L>::EXTENTS[1]];
    for index in 0..rows * columns {
        data[map.at(index as i64) as usize] = element(index % rows, index / rows);
    }
    data
}

/// A tile in shared memory that the block fills from the buffer `name`, an image of it.
fn filled<'k, T: Scalar, L: StaticLayout>(k: &'k Builder, name: &str) -> LayoutTensor<'k, T, L, Shared> {
    let len = Lowered::<L>::REACH as u32;
    let from = k.global::<T>(name);
    let to = k.shared_aligned::<T>(name, len, 1024);
    k.for_step(k.tid(), len, k.threads(), |i| to.at(i).store(from.at(i).load()));
    LayoutTensor::new(to, L::default())
}

/// Small whole numbers, whose sums are exact.
fn value(i: usize, j: usize) -> i8 {
    ((i * 7 + j * 13 + i * j) % 9) as i8 - 4
}
