//! Tensors on the device against the host's views, naive loops and hand-written instructions, in
//! the simulator.

mod arithmetic;
mod bounds;
mod copies;
mod gallery;
mod iterators;
mod refused;
mod stored;
mod text;
mod vectors;
mod views;

use tilewright_codegen::ir::{Const, Kernel};
use tilewright_codegen::sim::{self, Arg, Launch, Memory, Outcome};
use tilewright_codegen::verify::verify;

/// The value of unwritten memory.
pub const POISON: u32 = 0xdead_beef;

/// Runs a kernel of one block whose one parameter points to `len` words.
pub fn words(kernel: Kernel, len: usize) -> Vec<u32> {
    run(kernel, &[], &[], len)
}

/// Runs a kernel of one block: parameters are numbers, a pointer to each input, and one to `len`
/// words of poison, which come back as the kernel left them.
pub fn run(kernel: Kernel, numbers: &[u32], inputs: &[&[u32]], len: usize) -> Vec<u32> {
    let verified = verify(kernel).unwrap_or_else(|errors| panic!("{errors}"));
    let mut memory = Memory::new();
    let mut args: Vec<Arg> = numbers.iter().map(|&number| Arg::Scalar(Const::u32(number))).collect();
    args.extend(inputs.iter().map(|input| Arg::Ptr(memory.upload_read_only("in", input))));
    let out = memory.upload("out", &vec![POISON; len]);
    args.push(Arg::Ptr(out));
    match sim::run(&verified, &Launch::new([1, 1, 1], args), &mut memory, 3).expect("it launches") {
        Outcome::Fault(fault) => panic!("{fault}\n{}", verified.kernel()),
        Outcome::Finished(_) => memory.download(out, len).expect("it was uploaded"),
    }
}

/// The differences of two memories: place, found, expected.
pub fn differences<T: PartialEq + Copy>(found: &[T], expected: &[T]) -> Vec<(usize, T, T)> {
    assert_eq!(found.len(), expected.len());
    let pairs = found.iter().zip(expected).enumerate();
    pairs.filter(|(_, (found, expected))| found != expected).map(|(at, (&a, &b))| (at, a, b)).collect()
}
