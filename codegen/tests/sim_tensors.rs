//! Tensor maps and tensor cores beyond the gallery: edges of a tensor, swizzles there and back, fragments in registers,
//! operands that are contiguous along N, copies between blocks.

use half::bf16;
use tilewright_codegen::build::{Builder, Bulk, Descriptor, Operands, SwizzleMode, block, record};
use tilewright_codegen::ir::attr::{Major, ProxyFence};
use tilewright_codegen::ir::{Arch, Launch as Shape, WgmmaAtom, WgmmaKind};
use tilewright_codegen::sim::{self, Arg, Fill, Launch, Memory, Outcome, Swizzle, TensorElem, TensorMap};
use tilewright_codegen::verify::verify;

/// Small integers, different from each other nearby.
fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 37 + i / 7) % 13) as f32 - 6.0).collect()
}

/// Runs a kernel under a few seeds, memory made anew for each, and gives the last one back.
fn run(shape: Shape, grid: u32, build: impl Fn(&Builder), setup: impl Fn(&mut Memory) -> Vec<Arg>) -> Memory {
    let kernel = verify(record("case", Arch::Sm90a, shape, build)).unwrap_or_else(|errors| panic!("{errors}"));
    let mut last = Memory::new();
    for seed in 0..8 {
        let mut memory = Memory::new();
        let args = setup(&mut memory);
        match sim::run(&kernel, &Launch::new([grid, 1, 1], args), &mut memory, seed).expect("it launches") {
            Outcome::Finished(_) => last = memory,
            Outcome::Fault(fault) => panic!("{fault}"),
        }
    }
    last
}

/// The addresses that memory hands out, in order, for buffers of these sizes.
fn addresses(sizes: &[usize]) -> Vec<u64> {
    let mut memory = Memory::new();
    sizes.iter().map(|&bytes| memory.alloc("", bytes)).collect()
}

#[test]
fn a_box_over_the_edge_is_filled_and_stored_in_part() {
    // A tensor of 5 rows of 12 floats; a box of 4 by 8 that begins at row 3 and column 8.
    for (swizzle, fill) in [(Swizzle::None, Fill::Zero), (Swizzle::B32, Fill::Zero), (Swizzle::B32, Fill::Nan)] {
        let map = move |at| {
            let plain = TensorMap::plain(at, TensorElem::F32, &[12, 5], &[8, 4], swizzle);
            Arg::TensorMap(TensorMap { fill, ..plain })
        };
        let memory = run(
            block(32),
            1,
            |k| {
                let (x, y, raw) = (k.tensor_map("x"), k.tensor_map("y"), k.global::<f32>("raw"));
                let tile = k.shared_aligned::<f32>("tile", 32, 256);
                let landed = k.mbarriers("landed", 1);
                let at = [k.lit(8i32), k.lit(3i32)];
                k.when(k.tid().eq(0), || {
                    landed.init(1);
                    k.fence_mbarrier_init();
                    landed.arrive_expect_tx(128);
                    tile.tensor_load(x, &at, landed, Bulk::default());
                });
                k.sync_warp();
                landed.wait(0);
                raw.at(k.tid()).store(tile.at(k.tid()).load());
                k.sync_warp();
                k.when(k.tid().eq(0), || {
                    tile.tensor_store(y, &at);
                    k.bulk_commit();
                    k.bulk_wait(0);
                });
            },
            |memory| {
                let x = memory.upload("x", &numbers(60));
                let y = memory.zeros("y", 240);
                let raw = memory.alloc("raw", 128);
                vec![map(x), map(y), Arg::Ptr(raw)]
            },
        );
        let at = addresses(&[240, 240, 128]);
        let (x, y) = (numbers(60), memory.download::<f32>(at[1], 60).unwrap());
        let raw = memory.download::<f32>(at[2], 32).unwrap();
        let inside = |row: usize, column: usize| row < 5 && column < 12;
        for row in 0..4 {
            for column in 0..8 {
                let lies = swizzle.apply((row * 32 + column * 4) as u32) as usize / 4;
                let expected = if inside(row + 3, column + 8) {
                    x[(row + 3) * 12 + column + 8]
                } else if fill == Fill::Nan {
                    f32::NAN
                } else {
                    0.0
                };
                assert!(raw[lies] == expected || expected.is_nan() && raw[lies].is_nan(), "row {row}, column {column}");
            }
        }
        for (i, &value) in y.iter().enumerate() {
            let (row, column) = (i / 12, i % 12);
            assert_eq!(value, if row >= 3 && column >= 8 { x[i] } else { 0.0 });
        }
    }
}

/// The kernel of the next test: c = a·b with a from registers and b contiguous along N.
fn registers_and_n_major(k: &Builder) {
    const N: u32 = 64;
    let Some(atom) = WgmmaAtom::new(N, WgmmaKind::F32_BF16_BF16) else { return };
    let (a, b_map, c) = (k.global::<u32>("a"), k.tensor_map("b"), k.global::<f32>("c"));
    let b = k.shared_aligned::<bf16>("b", 32 * N, 1024);
    let landed = k.mbarriers("landed", 1);
    k.when(k.tid().eq(0), || {
        landed.init(1);
        k.fence_mbarrier_init();
        landed.arrive_expect_tx(32 * N * 2);
        b.tensor_load(b_map, &[k.lit(0i32), k.lit(0i32)], landed, Bulk::default());
    });
    k.barrier();
    landed.wait(0);

    let acc = k.regs_unset::<f32>(atom.acc_registers());
    let (row, pair) = (k.warp() * 16 + k.lane() / 4, k.lane() % 4);
    let fragment = |step: u32| {
        [0, 1, 2, 3u32].map(|r| {
            a.at((row + 8 * (r % 2)) * 16 + pair + 4 * (r / 2) + 8 * step)
                .load()
                .bits::<tilewright_codegen::build::Bf16x2>()
        })
    };
    let fragments = [fragment(0), fragment(1)];
    k.wgmma_fence();
    for step in 0..2u32 {
        let rows = Descriptor { swizzle: SwizzleMode::B128, leading: 16, stride: 1024 };
        let b = b.at(step * 16 * N).descriptor(rows);
        let operands = Operands { major_b: Major::Mn, ..Operands::K_MAJOR };
        acc.wgmma_rs(atom, &fragments[step as usize], b, step > 0, operands);
    }
    k.wgmma_commit();
    k.wgmma_wait(0);
    for i in 0..atom.acc_registers() {
        let at = (row + 8 * (i / 2 % 2)) * N + pair * 2 + i % 2 + 8 * (i / 4);
        c.at(at).store(acc.get(i));
    }
}

#[test]
fn wgmma_takes_a_from_registers_and_b_along_n() {
    let a: Vec<bf16> = numbers(64 * 32).into_iter().map(bf16::from_f32).collect();
    let b: Vec<bf16> = numbers(32 * 64 + 5)[5..].iter().copied().map(bf16::from_f32).collect();
    let memory = run(block(128), 1, registers_and_n_major, |memory| {
        let (x, y) = (memory.upload("a", &a), memory.upload("b", &b));
        let map = TensorMap::plain(y, TensorElem::BF16, &[64, 32], &[64, 32], Swizzle::B128);
        vec![Arg::Ptr(x), Arg::TensorMap(map), Arg::Ptr(memory.alloc("c", 64 * 64 * 4))]
    });
    let c = memory.download::<f32>(addresses(&[4096, 4096, 16384])[2], 64 * 64).unwrap();
    for (i, &found) in c.iter().enumerate() {
        let (row, column) = (i / 64, i % 64);
        let sum: f32 = (0..32).map(|k| a[row * 32 + k].to_f32() * b[k * 64 + column].to_f32()).sum();
        assert_eq!(found, sum, "row {row}, column {column}");
    }
}

#[test]
fn a_block_sends_its_neighbour_a_row() {
    let memory = run(
        block(32).cluster(2),
        2,
        |k| {
            let out = k.global::<f32>("out");
            let (mine, got) = (k.shared_aligned::<f32>("mine", 32, 128), k.shared_aligned::<f32>("got", 32, 128));
            let landed = k.mbarriers("landed", 1);
            mine.at(k.tid()).store((k.tid() + k.cluster_rank() * 100).cast::<f32>());
            k.fence_proxy_async(ProxyFence::Shared);
            k.when(k.tid().eq(0), || {
                landed.init(1);
                k.fence_mbarrier_init();
                landed.arrive_expect_tx(128);
            });
            k.cluster_sync();
            let other = k.cluster_rank() ^ 1;
            k.when(k.tid().eq(0), || mine.bulk_send(got.on(other), 128, landed.on(other)));
            landed.wait(0);
            out.at(k.tid() + k.cluster_rank() * 32).store(got.at(k.tid()).load());
            k.cluster_sync();
        },
        |memory| vec![Arg::Ptr(memory.alloc("out", 256))],
    );
    let out = memory.download::<f32>(addresses(&[256])[0], 64).unwrap();
    assert_eq!(out, (0..64).map(|i| (i % 32) as f32 + if i < 32 { 100.0 } else { 0.0 }).collect::<Vec<_>>());
}
