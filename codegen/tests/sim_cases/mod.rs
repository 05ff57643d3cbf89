//! Cases: a kernel of the gallery, its inputs, and what must come out by plain loops.

use half::bf16;
use tilewright_codegen::gallery;
use tilewright_codegen::ir::{Arch, Const, Kernel};
use tilewright_codegen::sim::{Arg, Launch, Memory, TensorElem, TensorMapDescriptor, TensorSwizzle};

/// The expected memory after a launch: the address of floats, the floats, and their error bound.
pub struct Expect {
    pub address: u64,
    pub values: Vec<f32>,
    pub tolerance: f32,
}

impl Expect {
    fn exact(address: u64, values: Vec<f32>) -> Expect {
        Expect { address, values, tolerance: 0.0 }
    }

    /// Compares the memory with the expectation.
    pub fn check(&self, memory: &Memory) -> Result<(), String> {
        let found = memory.download::<f32>(self.address, self.values.len()).map_err(|error| error.to_string())?;
        for (i, (found, expected)) in found.iter().zip(&self.values).enumerate() {
            let close = (found - expected).abs() <= self.tolerance;
            if !close {
                return Err(format!("element {i}: found {found}, expected {expected}"));
            }
        }
        Ok(())
    }
}

/// Inputs of a kernel, made anew for each run.
pub type Setup = fn() -> (Memory, Launch, Expect);

/// A kernel of the gallery with its inputs.
pub struct Case {
    pub name: &'static str,
    pub setup: Setup,
}

impl Case {
    /// The recorded kernel.
    pub fn kernel(&self) -> Kernel {
        gallery::named(self.name).expect("the gallery has it").record(Arch::Sm90a)
    }
}

/// Every kernel of the gallery.
pub fn all() -> Vec<Case> {
    let case = |name, setup: Setup| Case { name, setup };
    vec![
        case("saxpy", saxpy),
        case("block_sum", block_sum),
        case("transpose", transpose),
        case("pipeline", pipeline),
        case("bulk_ring", bulk_ring),
        case("tensor_tile", tensor_tile),
        case("mma_tile", mma_tile),
        case("wgmma_tile", wgmma_tile),
        case("multicast", multicast),
        case("grid_sum", grid_sum),
        case("specialised", specialised),
    ]
}

/// Small integers, different from each other nearby.
pub fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 37 + i / 7) % 13) as f32 - 6.0).collect()
}

fn brains(count: usize) -> Vec<bf16> {
    numbers(count).into_iter().map(bf16::from_f32).collect()
}

fn u32_arg(value: u32) -> Arg {
    Arg::Scalar(Const::u32(value))
}

fn saxpy() -> (Memory, Launch, Expect) {
    let mut memory = Memory::new();
    let n = 300;
    let x = numbers(n);
    let y = numbers(n + 5)[5..].to_vec();
    let xp = memory.upload("x", &x);
    let yp = memory.upload("y", &y);
    let args = vec![u32_arg(n as u32), Arg::Scalar(Const::f32(2.0)), Arg::Ptr(xp), Arg::Ptr(yp)];
    let values = x.iter().zip(&y).map(|(x, y)| 2.0 * x + y).collect();
    (memory, Launch::new([2, 1, 1], args), Expect::exact(yp, values))
}

fn block_sum() -> (Memory, Launch, Expect) {
    let mut memory = Memory::new();
    let n = 700;
    let blocks = 2;
    let x = numbers(n * blocks);
    let xp = memory.upload("x", &x);
    let out = memory.alloc("out", blocks * 4);
    let args = vec![u32_arg(n as u32), Arg::Ptr(xp), Arg::Ptr(out)];
    let values = x.chunks(n).map(|row| row.iter().sum()).collect();
    (memory, Launch::new([blocks as u32, 1, 1], args), Expect::exact(out, values))
}

fn transpose() -> (Memory, Launch, Expect) {
    let mut memory = Memory::new();
    let n = 64;
    let x = numbers(n * n);
    let xp = memory.upload("x", &x);
    let y = memory.alloc("y", n * n * 4);
    let args = vec![u32_arg(n as u32), Arg::Ptr(xp), Arg::Ptr(y)];
    let values = (0..n * n).map(|i| x[i % n * n + i / n]).collect();
    (memory, Launch::new([2, 2, 1], args), Expect::exact(y, values))
}

fn pipeline() -> (Memory, Launch, Expect) {
    let mut memory = Memory::new();
    let tiles = 7;
    let x = numbers(512 * tiles);
    let xp = memory.upload("x", &x);
    let out = memory.alloc("out", 512 * 4);
    let args = vec![u32_arg(tiles as u32), Arg::Ptr(xp), Arg::Ptr(out)];
    let values = (0..512).map(|c| x.chunks(512).map(|tile| tile[511 - c]).sum()).collect();
    (memory, Launch::new([1, 1, 1], args), Expect::exact(out, values))
}

fn bulk_ring() -> (Memory, Launch, Expect) {
    let mut memory = Memory::new();
    let tiles = 9;
    let blocks = 2;
    let x = numbers(1024 * tiles * blocks);
    let xp = memory.upload("x", &x);
    let out = memory.alloc("out", 1024 * 4 * blocks);
    let args = vec![u32_arg(tiles as u32), Arg::Ptr(xp), Arg::Ptr(out)];
    let values = x
        .chunks(1024 * tiles)
        .flat_map(|block| (0..1024).map(|c| block.chunks(1024).map(|tile| tile[c]).sum()).collect::<Vec<f32>>())
        .collect();
    (memory, Launch::new([blocks as u32, 1, 1], args), Expect::exact(out, values))
}

fn tensor_tile() -> (Memory, Launch, Expect) {
    let mut memory = Memory::new();
    let rows = 32u64;
    let columns = 64u64;
    let x = numbers((rows * columns) as usize);
    let xp = memory.upload("x", &x);
    let y = memory.alloc("y", x.len() * 4);
    let map = |at| {
        Arg::TensorMap(TensorMapDescriptor::plain(
            at,
            TensorElem::F32,
            &[columns, rows],
            &[32, 32],
            TensorSwizzle::None,
        ))
    };
    let launch = Launch::new([2, 1, 1], vec![map(xp), map(y)]);
    (memory, launch, Expect::exact(y, x.iter().map(|v| 2.0 * v).collect()))
}

/// a·bᵀ, rows of k.
fn product(a: &[bf16], b: &[bf16], k: usize) -> Vec<f32> {
    let dot = |a: &[bf16], b: &[bf16]| a.iter().zip(b).map(|(a, b)| a.to_f32() * b.to_f32()).sum();
    a.chunks(k).flat_map(|a| b.chunks(k).map(|b| dot(a, b)).collect::<Vec<f32>>()).collect()
}

fn mma_tile() -> (Memory, Launch, Expect) {
    let mut memory = Memory::new();
    let a = brains(16 * 64);
    let b = brains(8 * 64 + 3)[3..].to_vec();
    let ap = memory.upload("a", &a);
    let bp = memory.upload("b", &b);
    let c = memory.alloc("c", 16 * 8 * 4);
    let launch = Launch::new([1, 1, 1], vec![Arg::Ptr(ap), Arg::Ptr(bp), Arg::Ptr(c)]);
    (memory, launch, Expect::exact(c, product(&a, &b, 64)))
}

fn tile_map(address: u64, rows: u64, k: u64) -> Arg {
    let map =
        TensorMapDescriptor::plain(address, TensorElem::BF16, &[k, rows], &[64, rows as u32], TensorSwizzle::B128);
    Arg::TensorMap(map)
}

fn wgmma_tile() -> (Memory, Launch, Expect) {
    let mut memory = Memory::new();
    let a = brains(64 * 64);
    let b = brains(128 * 64 + 3)[3..].to_vec();
    let ap = memory.upload("a", &a);
    let bp = memory.upload("b", &b);
    let c = memory.alloc("c", 64 * 128 * 4);
    let launch = Launch::new([1, 1, 1], vec![tile_map(ap, 64, 64), tile_map(bp, 128, 64), Arg::Ptr(c)]);
    (memory, launch, Expect::exact(c, product(&a, &b, 64)))
}

fn multicast() -> (Memory, Launch, Expect) {
    let mut memory = Memory::new();
    let clusters = 2;
    let x = numbers(1024 * clusters);
    let xp = memory.upload("x", &x);
    let out = memory.alloc("out", 2 * x.len() * 4);
    let launch = Launch::new([2 * clusters as u32, 1, 1], vec![Arg::Ptr(xp), Arg::Ptr(out)]);
    let values = (0..2 * x.len()).map(|i| x[i / 2048 * 1024 + i % 1024] + (i / 1024 % 2) as f32).collect();
    (memory, launch, Expect::exact(out, values))
}

fn grid_sum() -> (Memory, Launch, Expect) {
    let mut memory = Memory::new();
    let blocks = 3;
    let x: Vec<f32> = (0..128 * blocks).map(|i| ((i % 5) + 1) as f32).collect();
    let xp = memory.upload("x", &x);
    let parts = memory.alloc("parts", 16 * blocks);
    let done = memory.zeros("done", 4);
    let share = memory.alloc("share", x.len() * 4);
    let args = vec![u32_arg(0), Arg::Ptr(xp), Arg::Ptr(parts), Arg::Ptr(done), Arg::Ptr(share)];
    let total: f32 = x.iter().sum();
    (memory, Launch::new([blocks as u32, 1, 1], args), Expect::exact(share, x.iter().map(|v| v / total).collect()))
}

fn specialised() -> (Memory, Launch, Expect) {
    let mut memory = Memory::new();
    let steps = 16;
    let k = 64 * steps;
    let a = brains(64 * k);
    let b = brains(128 * k + 3)[3..].to_vec();
    let ap = memory.upload("a", &a);
    let bp = memory.upload("b", &b);
    let c = memory.alloc("c", 64 * 128 * 4);
    let args = vec![u32_arg(steps as u32), tile_map(ap, 64, k as u64), tile_map(bp, 128, k as u64), Arg::Ptr(c)];
    (memory, Launch::new([1, 1, 1], args), Expect::exact(c, product(&a, &b, k)))
}
