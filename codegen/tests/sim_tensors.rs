//! Tensor maps and tensor cores beyond the gallery: edges of a tensor, swizzles there and back,
//! fragments in registers, operands that are contiguous along N, copies between blocks. On
//! simulators, or on the device that `TILEWRIGHT_DEVICE` names.

mod devices;

use devices::{devices, right};
use half::{bf16, f16};
use tilewright_codegen::build::{
    Builder, Bulk, Descriptor, Global, Ptr, Scalar, Shared, SwizzleMode, Val, WgmmaOperands, block, record,
};
use tilewright_codegen::device::sim;
use tilewright_codegen::ir::attr::{AtomOp, Major, ProxyFence};
use tilewright_codegen::ir::{Arch, LaunchBounds as Shape, Ty, WgmmaAtom, WgmmaKind};
use tilewright_codegen::trial::{
    Bound, Draw, Expected, Outside, Promotion, TensorShape, TileSwizzle, Trial, TrialElement,
};
use tilewright_codegen::verify::{Verified, verify};
use tilewright_layout::DType;

/// Small integers, different from each other nearby.
fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 37 + i / 7) % 13) as f32 - 6.0).collect()
}

fn kernel(shape: Shape, build: impl Fn(&Builder)) -> Verified {
    verify(record("case", Arch::Sm90a, shape, build)).unwrap_or_else(|errors| panic!("{errors}"))
}

/// A tensor, a box of it and where the box begins: partly or wholly outside, or inside.
#[derive(Clone, Debug)]
struct Edge {
    shape: TensorShape,
    at: Vec<i32>,
    /// Bytes of shared memory before the box: it begins at a multiple of 128, not of its swizzle's
    /// period.
    padding: usize,
}

impl Edge {
    /// A box of 16 bytes to a swizzle's span along the first axis, at most 4 KiB, on a tensor with
    /// gaps between rows.
    fn draw<T: TrialElement>(draw: &mut Draw) -> Edge {
        let bytes = T::DTYPE.bytes() as u32;
        let rank = draw.between(1..=5) as usize;
        let swizzles = [TileSwizzle::None, TileSwizzle::Bytes32, TileSwizzle::Bytes64, TileSwizzle::Bytes128];
        let swizzle = swizzles[draw.between(0..=3) as usize];
        let span = swizzle.span().unwrap_or(256) as u32;
        let inner = if draw.between(0..=1) == 0 { span } else { 16 * draw.between(1..=span / 16) };
        let mut tile = vec![inner / bytes];
        let mut left = 4096 / span;
        for _ in 1..rank {
            let side = draw.between(1..=left.min(9));
            tile.push(side);
            left /= side;
        }
        let dims: Vec<u64> = tile.iter().map(|&side| u64::from(draw.between(1..=2 * side + 3))).collect();
        let mut pitch = (dims[0] * u64::from(bytes)).next_multiple_of(16);
        let mut strides = Vec::new();
        for &dim in &dims[1..] {
            pitch += 16 * u64::from(draw.between(0..=2));
            strides.push(pitch);
            pitch *= dim;
        }
        // From wholly before the tensor to wholly past its end; 16 bytes are the step of the
        // first axis.
        let mut at: Vec<i32> = tile
            .iter()
            .zip(&dims)
            .map(|(&side, &dim)| draw.between(0..=side + dim as u32) as i32 - side as i32)
            .collect();
        at[0] = at[0].div_euclid(16 / bytes as i32) * (16 / bytes as i32);
        let nan = T::DTYPE.is_float() && bytes < 8 && draw.between(0..=1) == 1;
        let outside = if nan { Outside::Nan } else { Outside::Zero };
        let promotion = [Promotion::None, Promotion::Bytes128][draw.between(0..=1) as usize];
        let padding = 128 * draw.between(0..=9) as usize;
        Edge { shape: TensorShape { dtype: T::DTYPE, dims, strides, tile, swizzle, outside, promotion }, at, padding }
    }

    /// Bytes from row to row of the box in shared memory.
    fn pitch(&self) -> usize {
        self.shape.swizzle.span().map_or(self.shape.tile[0] as usize * self.shape.dtype.bytes(), |span| span as usize)
    }

    /// Bytes of shared memory that the box takes, with those before it.
    fn shared(&self) -> usize {
        self.padding + self.shape.tile[1..].iter().product::<u32>() as usize * self.pitch()
    }

    /// The places of the box's elements in shared memory, and in the tensor if they are inside;
    /// both in elements. Stores write 16 bytes at once, and so past the end of a row.
    fn places(&self, store: bool) -> Vec<(usize, Option<usize>)> {
        let TensorShape { dtype, dims, strides, tile, swizzle, .. } = &self.shape;
        let bytes = dtype.bytes();
        let count = tile.iter().product::<u32>() as usize;
        let place = |number: usize| {
            let mut rest = number;
            let mut from = Some(0);
            for axis in 0..tile.len() {
                let c = (rest % tile[axis] as usize) as i64 + i64::from(self.at[axis]);
                rest /= tile[axis] as usize;
                let stride = if axis == 0 { bytes as u64 } else { strides[axis - 1] };
                let unit = if store && axis == 0 { 16 / bytes as u64 } else { 1 };
                let inside = (0..dims[axis].next_multiple_of(unit) as i64).contains(&c);
                from = from.filter(|_| inside).map(|from| from + c as usize * stride as usize);
            }
            let inner = tile[0] as usize;
            let plain = self.padding + number / inner * self.pitch() + number % inner * bytes;
            // The 16-byte chunk of a row is exchanged by the number of its 128 bytes, counted from
            // multiples of 1024 in shared memory, wherever the box begins.
            let mask = swizzle.span().map_or(0, |span| span as usize / 16 - 1);
            let lies = plain ^ (((plain / 128) & mask) * 16);
            (lies / bytes, from.map(|from| from / bytes))
        };
        (0..count).map(place).collect()
    }

    /// The box is loaded, written out as it lies, and stored to the same place of another tensor,
    /// or as near as stores may go; or combined with what is there.
    fn trial<T: TrialElement>(&self, number: fn(f64) -> T, op: Option<AtomOp>) -> Trial {
        let rank = self.at.len();
        let bytes = self.shape.tile_bytes() as u32;
        let shared = self.shared() as u32;
        let kernel = kernel(block(32), |k| {
            let x = k.tensor_map("x");
            let y = k.tensor_map("y");
            let raw = k.global::<u32>("raw");
            let at: Vec<Val<'_, i32>> = (0..rank).map(|axis| k.param::<i32>(&format!("at{axis}"))).collect();
            let memory = k.shared_aligned::<u8>("memory", shared, 1024);
            let words = memory.cast::<u32>();
            let tile = memory.at(self.padding);
            let arrived = k.mbarriers("arrived", 1);
            // What lies between narrow rows is told from what arrived.
            k.for_step(k.tid(), shared / 4, 32u32, |i| words.at(i).store(0));
            k.fence_proxy_async(ProxyFence::Shared);
            k.sync_warp();
            k.when(k.tid().eq(0), || {
                arrived.init(1);
                k.fence_mbarrier_init();
                arrived.arrive_expect_tx(bytes);
                tile.tensor_load(x, &at, arrived, Bulk::default());
            });
            k.sync_warp();
            arrived.wait(0);
            k.for_step(k.tid(), shared / 4, 32u32, |i| raw.at(i).store(words.at(i).load()));
            k.sync_warp();
            k.when(k.tid().eq(0), || {
                let at: Vec<Val<'_, i32>> = at.iter().map(|c| c.max(0)).collect();
                match op {
                    None => tile.tensor_store(y, &at),
                    Some(op) => tile.tensor_reduce(op, y, &at),
                }
                k.bulk_commit();
                k.bulk_wait(0);
            });
        });
        let size = self.shape.dtype.bytes();
        let len = self.shape.extent_bytes().next_multiple_of(16) as usize / size;
        let x: Vec<T> = numbers(len).into_iter().map(|v| number(f64::from(v) + 7.0)).collect();
        // What a reduction finds there, in the middle of what it brings.
        let before: Vec<f64> = (0..len).map(|i| if op.is_some() { (3 + i % 7) as f64 } else { 0.0 }).collect();
        let mut y = before.clone();
        let mut seen = vec![0.0; self.shared() / size];
        let nothing = if self.shape.outside == Outside::Nan { f64::NAN } else { 0.0 };
        let above = Edge { at: self.at.iter().map(|&c| c.max(0)).collect(), ..self.clone() };
        for ((lies, from), (_, to)) in self.places(false).into_iter().zip(above.places(op.is_none())) {
            seen[lies] = from.map_or(nothing, |from| x[from].value());
            if let Some(to) = to {
                y[to] = op.map_or(seen[lies], |op| combined(op, y[to], seen[lies]));
            }
        }
        let bound = Bound { absolute: 0.0, relative: 0.0 };
        let mut trial = Trial::new(kernel, 1).note(format!("{self:?}"));
        let before: Vec<T> = before.into_iter().map(number).collect();
        let from = trial.input("x", &x);
        let to = trial.changed("y", &before, Expected::near::<T>(&y, bound));
        let raw = trial.output("raw", Expected::near::<T>(&seen, bound));
        let trial = trial.map(from, self.shape.clone()).map(to, self.shape.clone()).pass(raw);
        self.at.iter().fold(trial, |trial, &at| trial.pass(at))
    }
}

fn edges<T: TrialElement>(seed: u64, number: fn(f64) -> T) {
    let mut draw = Draw::new(seed);
    let devices = devices(2);
    let mut clipped = 0;
    let mut narrow = 0;
    let mut ranks = [0; 6];
    for _ in 0..60 {
        let edge = Edge::draw::<T>(&mut draw);
        clipped += usize::from(edge.places(false).iter().any(|(_, from)| from.is_none()));
        narrow += usize::from(edge.shape.tile_bytes() < (edge.shared() - edge.padding) as u64);
        ranks[edge.at.len()] += 1;
        right(&edge.trial(number, None), &devices);
    }
    assert!(clipped > 30 && narrow > 5 && ranks[1..].iter().all(|&n| n > 4), "{clipped}, {narrow} narrow, {ranks:?}");
}

#[test]
fn boxes_over_the_edges_are_filled_and_stored_in_part() {
    edges::<u8>(1, |v| v as u8);
    edges::<bf16>(2, bf16::from_f64);
    edges::<f16>(3, f16::from_f64);
    edges::<f32>(4, |v| v as f32);
    edges::<i32>(5, |v| v as i32);
    edges::<f64>(6, |v| v);
}

/// The law of a reduction, on numbers that every type holds.
fn combined(op: AtomOp, m: f64, v: f64) -> f64 {
    let bits = |f: fn(u64, u64) -> u64| f(m as u64, v as u64) as f64;
    match op {
        AtomOp::Add => m + v,
        AtomOp::Min => m.min(v),
        AtomOp::Max => m.max(v),
        AtomOp::Inc => bits(|m, v| if m >= v { 0 } else { m + 1 }),
        AtomOp::Dec => bits(|m, v| if m == 0 || m > v { v } else { m - 1 }),
        AtomOp::And => bits(|m, v| m & v),
        AtomOp::Or => bits(|m, v| m | v),
        AtomOp::Xor => bits(|m, v| m ^ v),
        AtomOp::Exch => v,
    }
}

const LOGIC: [AtomOp; 6] = [AtomOp::Add, AtomOp::Min, AtomOp::Max, AtomOp::And, AtomOp::Or, AtomOp::Xor];

/// Boxes combined with what a tensor holds, over its edges.
fn boxes_reduced<T: TrialElement>(seed: u64, number: fn(f64) -> T, ops: &[AtomOp]) {
    let mut draw = Draw::new(seed);
    let devices = devices(1);
    for &op in ops {
        for _ in 0..6 {
            let mut edge = Edge::draw::<T>(&mut draw);
            edge.shape.outside = Outside::Zero;
            right(&edge.trial(number, Some(op)), &devices);
        }
    }
}

#[test]
fn boxes_are_combined_with_what_a_tensor_holds() {
    boxes_reduced::<u32>(11, |v| v as u32, &LOGIC);
    boxes_reduced::<u32>(12, |v| v as u32, &[AtomOp::Inc, AtomOp::Dec]);
    boxes_reduced::<i32>(13, |v| v as i32, &LOGIC[..3]);
    boxes_reduced::<u64>(14, |v| v as u64, &LOGIC);
    boxes_reduced::<i64>(15, |v| v as i64, &LOGIC[1..3]);
    boxes_reduced::<f16>(16, f16::from_f64, &LOGIC[..3]);
    boxes_reduced::<bf16>(17, bf16::from_f64, &LOGIC[..3]);
    boxes_reduced::<f32>(18, |v| v as f32, &LOGIC[..1]);
    boxes_reduced::<f64>(19, |v| v, &LOGIC[..1]);
}

/// Several blocks combine rows of numbers with one row of global memory at once, or a neighbour's
/// shared memory with one.
fn rows_reduced<T: TrialElement + Scalar>(number: fn(f64) -> T, op: AtomOp, seed: u64) {
    const N: u32 = 64;
    let mut draw = Draw::new(seed);
    // Counting wraps where the limit says, which differs from row to row: one row then.
    let blocks = if matches!(op, AtomOp::Inc | AtomOp::Dec) { 1 } else { 3 };
    let mut numbers = |count: u32| -> Vec<f64> { (0..count).map(|_| f64::from(draw.between(0..=30))).collect() };
    let x = numbers(blocks * N);
    let before = numbers(N);
    let typed = |numbers: &[f64]| numbers.iter().map(|&v| number(v)).collect::<Vec<T>>();
    let in_order = |rows: &[f64]| {
        let at = |i: usize| rows.iter().skip(i).step_by(N as usize).fold(before[i], |m, &v| combined(op, m, v));
        typed(&(0..N as usize).map(at).collect::<Vec<f64>>())
    };
    let load = |k: &Builder, to: Ptr<'_, Shared, T>, from: Ptr<'_, Global, T>| {
        for half in [0, 32u32] {
            to.at(k.tid() + half).store(from.at(k.tid() + half).load());
        }
    };
    let global = kernel(block(32), |k| {
        let x = k.global::<T>("x");
        let y = k.global::<T>("y");
        let own = k.shared_aligned::<T>("own", N, 128);
        load(k, own, x.at(k.block_id() * N));
        k.fence_proxy_async(ProxyFence::Shared);
        k.sync_warp();
        k.when(k.tid().eq(0), || {
            own.bulk_reduce(op, y, N * T::TY.bytes());
            k.bulk_commit();
            k.bulk_wait(0);
        });
    });
    let mut trial = Trial::new(global, blocks).note(format!("{op:?} of {}", T::DTYPE));
    let from = trial.input("x", &typed(&x));
    let to = trial.changed("y", &typed(&before), Expected::exact(&in_order(&x)));
    right(&trial.pass(from).pass(to), &devices(4));
    if !op.reduces(T::TY, true) {
        return;
    }
    let remote = kernel(block(32).cluster(2), |k| {
        let x = k.global::<T>("x");
        let y = k.global::<T>("y");
        let own = k.shared_aligned::<T>("own", N, 128);
        let sums = k.shared_aligned::<T>("sums", N, 128);
        let arrived = k.mbarriers("arrived", 1);
        let bytes = N * T::TY.bytes();
        load(k, own, x);
        load(k, sums, y);
        k.fence_proxy_async(ProxyFence::Shared);
        k.when(k.tid().eq(0), || {
            arrived.init(1);
            k.fence_mbarrier_init();
            arrived.arrive_expect_tx(bytes);
        });
        k.cluster_sync();
        let other = k.cluster_rank() ^ 1;
        k.when(k.tid().eq(0), || own.bulk_reduce_send(op, sums.on(other), bytes, arrived.on(other)));
        arrived.wait(0);
        let out = k.global::<T>("out").at(k.cluster_rank() * N);
        for half in [0, 32u32] {
            out.at(k.tid() + half).store(sums.at(k.tid() + half).load());
        }
        k.cluster_sync();
    });
    let mut trial = Trial::new(remote, 2).note(format!("{op:?} of {} in a cluster", T::DTYPE));
    let from = trial.input("x", &typed(&x[..N as usize]));
    let to = trial.input("y", &typed(&before));
    let out = trial.output("out", Expected::exact(&in_order(&x[..N as usize]).repeat(2)));
    right(&trial.pass(from).pass(to).pass(out), &devices(4));
}

#[test]
fn rows_are_combined_by_several_blocks_at_once() {
    let all = [LOGIC.as_slice(), &[AtomOp::Inc, AtomOp::Dec]].concat();
    for (seed, op) in (0..).zip(all) {
        let of = |ty: Ty| op.reduces(ty, false);
        if of(Ty::U32) {
            rows_reduced::<u32>(|v| v as u32, op, seed);
        }
        if of(Ty::S32) {
            rows_reduced::<i32>(|v| v as i32, op, seed);
        }
        if of(Ty::U64) {
            rows_reduced::<u64>(|v| v as u64, op, seed);
        }
        if of(Ty::S64) {
            rows_reduced::<i64>(|v| v as i64, op, seed);
        }
        if of(Ty::F16) {
            rows_reduced::<f16>(f16::from_f64, op, seed);
            rows_reduced::<bf16>(bf16::from_f64, op, seed);
        }
        if of(Ty::F32) {
            rows_reduced::<f32>(|v| v as f32, op, seed);
            rows_reduced::<f64>(|v| v, op, seed);
        }
    }
}

/// The simulator's report on a box that begins there; the hardware ends the kernel with an illegal
/// instruction.
fn refused(store: bool, at: [i32; 2]) -> String {
    let kernel = kernel(block(32), |k| {
        let (x, tile, arrived) =
            (k.tensor_map("x"), k.shared_aligned::<f32>("tile", 32, 128), k.mbarriers("arrived", 1));
        let at = at.map(|c| k.lit(c));
        tile.at(k.tid()).store(1.0);
        k.fence_proxy_async(ProxyFence::Shared);
        k.sync_warp();
        k.when(k.tid().eq(0), || {
            if store {
                tile.tensor_store(x, &at);
                k.bulk_commit();
                k.bulk_wait(0);
            } else {
                arrived.init(1);
                k.fence_mbarrier_init();
                arrived.arrive_expect_tx(128);
                tile.tensor_load(x, &at, arrived, Bulk::default());
                arrived.wait(0);
            }
        });
    });
    let mut trial = Trial::new(kernel, 1);
    let x = trial.input("x", &numbers(400));
    let outcome = trial.map(x, TensorShape::row_major(DType::F32, [10, 40], [4, 8])).run(&sim::open(0));
    outcome.map_or_else(|error| error.to_string(), |_| "right".into())
}

#[test]
fn boxes_that_the_copy_engine_refuses_are_told() {
    assert_eq!(refused(false, [-8, -1]), "right");
    for (store, at, rule) in [
        (false, [2, 0], "a multiple of 16"),
        (false, [-1, 0], "a multiple of 16"),
        (true, [37, 0], "a multiple of 16"),
        (true, [-4, 0], "not below zero"),
        (true, [0, -1], "not below zero"),
    ] {
        let said = refused(store, at);
        assert!(said.contains("bad operand") && said.contains(rule), "{at:?}: {said}");
    }
}

/// The kernel of the next test: c = a·b with a from registers and b contiguous along N.
fn registers_and_n_major(k: &Builder) {
    const N: u32 = 64;
    let Some(atom) = WgmmaAtom::new(N, WgmmaKind::F32_BF16_BF16) else { return };
    let a = k.global::<u32>("a");
    let b_map = k.tensor_map("b");
    let c = k.global::<f32>("c");
    let b = k.shared_aligned::<bf16>("b", 32 * N, 1024);
    let arrived = k.mbarriers("arrived", 1);
    k.when(k.tid().eq(0), || {
        arrived.init(1);
        k.fence_mbarrier_init();
        arrived.arrive_expect_tx(32 * N * 2);
        b.tensor_load(b_map, &[k.lit(0i32), k.lit(0i32)], arrived, Bulk::default());
    });
    k.barrier();
    arrived.wait(0);

    let acc = k.regs_unset::<f32>(atom.acc_registers());
    let row = k.warp() * 16 + k.lane() / 4;
    let pair = k.lane() % 4;
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
        let operands = WgmmaOperands { major_b: Major::Mn, ..WgmmaOperands::K_MAJOR };
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
    let product = |i: usize| {
        let row = i / 64;
        let column = i % 64;
        (0..32).map(|k| a[row * 32 + k].to_f32() * b[k * 64 + column].to_f32()).sum()
    };
    let c: Vec<f32> = (0..64 * 64).map(product).collect();
    let mut trial = Trial::new(kernel(block(128), registers_and_n_major), 1).note("64 x 64 x 32");
    let x = trial.input("a", &a);
    let y = trial.input("b", &b);
    let c = trial.output("c", Expected::exact(&c));
    let map = TensorShape::row_major(bf16::DTYPE, [32, 64], [32, 64]).swizzle(TileSwizzle::Bytes128);
    right(&trial.pass(x).map(y, map).pass(c), &devices(8));
}

#[test]
fn a_block_sends_its_neighbour_a_row() {
    let kernel = kernel(block(32).cluster(2), |k| {
        let out = k.global::<f32>("out");
        let mine = k.shared_aligned::<f32>("mine", 32, 128);
        let got = k.shared_aligned::<f32>("got", 32, 128);
        let arrived = k.mbarriers("arrived", 1);
        mine.at(k.tid()).store((k.tid() + k.cluster_rank() * 100).cast::<f32>());
        k.fence_proxy_async(ProxyFence::Shared);
        k.when(k.tid().eq(0), || {
            arrived.init(1);
            k.fence_mbarrier_init();
            arrived.arrive_expect_tx(128);
        });
        k.cluster_sync();
        let other = k.cluster_rank() ^ 1;
        k.when(k.tid().eq(0), || mine.bulk_send(got.on(other), 128, arrived.on(other)));
        arrived.wait(0);
        out.at(k.tid() + k.cluster_rank() * 32).store(got.at(k.tid()).load());
        k.cluster_sync();
    });
    let out: Vec<f32> = (0..64).map(|i| (i % 32) as f32 + if i < 32 { 100.0 } else { 0.0 }).collect();
    let mut trial = Trial::new(kernel, 2).note("two blocks");
    let out = trial.output("out", Expected::exact(&out));
    right(&trial.pass(out), &devices(8));
}
