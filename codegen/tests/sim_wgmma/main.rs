//! `wgmma` from end to end: operands brought to shared memory by tensor maps or plain stores,
//! descriptors, products, against plain loops; every kind, A from shared memory and from registers,
//! every legal major-ness, every swizzle. On simulators, or on the device that `TILEWRIGHT_DEVICE`
//! names.

#[path = "../devices/mod.rs"]
mod devices;
mod tile;

use devices::{devices, right};
use half::{bf16, f16};
use tile::{ROWS, Tile};
use tilewright_codegen::build::{
    Builder, Bulk, F16x2, Ptr, Scalar, Shared, SwizzleMode, Val, WgmmaOperands, block, record,
};
use tilewright_codegen::device::sim;
use tilewright_codegen::ir::attr::{Major, ProxyFence};
use tilewright_codegen::ir::{Arch, Elem, WgmmaAtom, WgmmaKind};
use tilewright_codegen::trial::{Bound, Expected, TensorShape, Trial};
use tilewright_codegen::verify::{ErrorKind, Verified, VerifyErrors, verify};
use tilewright_layout::DType;

/// A form of multiplication: c\[64, 64\] = a·bᵀ.
#[derive(Clone, Copy, Debug)]
struct Case {
    kind: WgmmaKind,
    /// A comes from registers.
    registers: bool,
    majors: [Major; 2],
    swizzle: SwizzleMode,
    /// Operands come by tensor maps; else by plain stores.
    maps: bool,
    /// Bytes of shared memory between the allocation of B and its tile.
    padding: Padding,
}

/// Bytes before a tile.
#[derive(Clone, Copy, Debug)]
enum Padding {
    /// Known while recording.
    Known(u32),
    /// Passed to the kernel.
    Passed(u32),
}

impl Padding {
    const NONE: Padding = Padding::Known(0);

    fn bytes(self) -> u32 {
        let (Padding::Known(bytes) | Padding::Passed(bytes)) = self;
        bytes
    }
}

impl Case {
    fn tiles(self) -> [Tile; 2] {
        let (_, a, b) = self.kind.elems();
        [(a, self.majors[0]), (b, self.majors[1])].map(|(elem, major)| Tile { elem, major, swizzle: self.swizzle })
    }

    fn depth(self) -> usize {
        Tile::depth(self.swizzle, self.majors, self.tiles()[0].size())
    }

    fn atom(self) -> WgmmaAtom {
        WgmmaAtom::new(ROWS as u32, self.kind).expect("64 columns are legal for every kind")
    }
}

/// The bits of a small integer.
fn encode(elem: Elem, value: i32) -> Vec<u8> {
    let minifloat = |numbers: [u8; 4]| vec![numbers[value.unsigned_abs() as usize] | if value < 0 { 0x80 } else { 0 }];
    match elem {
        Elem::F16 => f16::from_f32(value as f32).to_le_bytes().to_vec(),
        Elem::BF16 => bf16::from_f32(value as f32).to_le_bytes().to_vec(),
        Elem::TF32 | Elem::F32 => (value as f32).to_le_bytes().to_vec(),
        Elem::S8 | Elem::U8 => vec![value as u8],
        Elem::S32 => value.to_le_bytes().to_vec(),
        // 1, 2 and 3 by exponent and mantissa.
        Elem::E4M3 => minifloat([0, 0x38, 0x40, 0x44]),
        Elem::E5M2 => minifloat([0, 0x3c, 0x40, 0x42]),
    }
}

/// Integers of -3 to 3, or 0 to 6 where there is no sign, different from each other nearby.
fn numbers(elem: Elem, count: usize, shift: usize) -> Vec<i32> {
    let low = if elem == Elem::U8 { 0 } else { 3 };
    (shift..shift + count).map(|i| ((i * 5 + i / 7) % 7) as i32 - low).collect()
}

/// The word of an accumulator's register, as it is stored.
fn store_words<T: Scalar>(k: &Builder, case: Case, a: Operand<'_>, b: Operand<'_>, out: &str) {
    let atom = case.atom();
    let depth = case.depth();
    let acc = k.regs_unset::<T>(atom.acc_registers());
    let steps = (depth * a.tile.size() / 32) as u32;
    let at = |operand: Operand<'_>, step: u32| operand.tile.part(depth, step as usize) as u32;
    let fragments: Vec<Vec<Val<'_, u32>>> = (0..steps).map(|step| fragment(k, a, depth, step)).collect();
    k.wgmma_fence();
    for step in 0..steps {
        let how = WgmmaOperands { major_a: case.majors[0], major_b: case.majors[1], ..WgmmaOperands::K_MAJOR };
        let b = b.shared.at(at(b, step)).descriptor(b.tile.descriptor(depth));
        if case.registers {
            acc.wgmma_rs(atom, &fragments[step as usize], b, step > 0, how);
        } else {
            let a = a.shared.at(at(a, step)).descriptor(a.tile.descriptor(depth));
            acc.wgmma(atom, a, b, step > 0, how);
        }
    }
    k.wgmma_commit();
    k.wgmma_wait(0);
    let out = k.global::<T>(out);
    let per = 32 / case.kind.elems().0.bits();
    let row = k.warp() * 16 + k.lane() / 4;
    let pair = k.lane() % 4;
    for i in 0..atom.acc_registers() {
        let value = i * per;
        let at = (row + 8 * (value / 2 % 2)) * ROWS as u32 + pair * 2 + value % 2 + 8 * (value / 4);
        out.at(if per == 2 { at / 2 } else { at }).store(acc.get(i));
    }
}

/// An operand: its place in shared memory in bytes, and in global memory as words.
#[derive(Clone, Copy)]
struct Operand<'k> {
    tile: Tile,
    shared: Ptr<'k, Shared, u8>,
    words: Ptr<'k, tilewright_codegen::build::Global, u32>,
}

/// The four registers of A of an instruction, from rows of K in global memory.
fn fragment<'k>(k: &'k Builder, a: Operand<'k>, depth: usize, step: u32) -> Vec<Val<'k, u32>> {
    let row = k.warp() * 16 + k.lane() / 4;
    let pitch = (depth * a.tile.size() / 4) as u32;
    (0..4u32).map(|r| a.words.at((row + 8 * (r % 2)) * pitch + k.lane() % 4 + 4 * (r / 2) + 8 * step).load()).collect()
}

fn kernel(k: &Builder, case: Case) {
    let depth = case.depth();
    let [a, b] = [("a", 0), ("b", 1)].map(|(name, i)| {
        let tile = case.tiles()[i];
        let bytes = (ROWS * depth * tile.size()) as u32;
        let words = k.global::<u32>(name);
        let padding = if i == 1 { case.padding } else { Padding::NONE };
        let memory = k.shared_aligned::<u8>(name, bytes + padding.bytes(), 1024);
        let shared = match padding {
            Padding::Known(bytes) => memory.at(bytes),
            Padding::Passed(_) => memory.at(k.param::<u32>("padding")),
        };
        Operand { tile, shared, words }
    });
    let operands = if case.registers { vec![("b", b)] } else { vec![("a", a), ("b", b)] };
    if case.maps {
        let arrived = k.mbarriers("arrived", 1);
        let maps: Vec<_> = operands.iter().map(|(name, _)| k.tensor_map(&format!("{name}_map"))).collect();
        k.when(k.tid().eq(0), || {
            arrived.init(1);
            k.fence_mbarrier_init();
            let bytes: usize = operands.iter().map(|(_, o)| ROWS * depth * o.tile.size()).sum();
            arrived.arrive_expect_tx(bytes as u32);
            for (&(_, operand), &map) in operands.iter().zip(&maps) {
                for each in operand.tile.boxes(depth) {
                    let to = operand.shared.at(each.to as u32);
                    to.tensor_load(map, &each.at.map(|c| k.lit(c)), arrived, Bulk::default());
                }
            }
        });
        k.barrier();
        arrived.wait(0);
    } else {
        for (_, operand) in &operands {
            let words = (ROWS * depth * operand.tile.size() / 4) as u32;
            k.for_step(k.tid(), words, 128u32, |i| {
                operand.shared.cast::<u32>().at(i).store(operand.words.at(i).load());
            });
        }
        k.fence_proxy_async(ProxyFence::Shared);
        k.barrier();
    }
    match case.kind.elems().0 {
        Elem::F16 => store_words::<F16x2>(k, case, a, b, "c"),
        Elem::S32 => store_words::<i32>(k, case, a, b, "c"),
        _ => store_words::<f32>(k, case, a, b, "c"),
    }
}

/// The matrix as bytes: where the tile has each element, or in rows of K.
fn image(tile: Tile, values: &[i32], depth: usize, place: impl Fn(usize, usize) -> usize) -> Vec<u8> {
    let size = tile.size();
    let mut bytes = vec![0xa5; ROWS * depth * size];
    for (at, &value) in values.iter().enumerate() {
        let to = place(at / depth, at % depth);
        bytes[to..to + size].copy_from_slice(&encode(tile.elem, value));
    }
    bytes
}

fn verified(case: Case) -> Result<Verified, VerifyErrors> {
    verify(record("wgmma", Arch::Sm90a, block(128), |k| kernel(k, case)))
}

/// The multiply with its operands, and the product by plain loops.
fn trial(case: Case) -> Trial {
    let (depth, [a, b]) = (case.depth(), case.tiles());
    let kernel = verified(case).unwrap_or_else(|errors| panic!("{case:?}: {errors}"));
    let values = [numbers(a.elem, ROWS * depth, 0), numbers(b.elem, ROWS * depth, 3)];
    let mut trial = Trial::new(kernel, 1).note(format!("{case:?}"));
    let mut pointers = Vec::new();
    let mut maps = Vec::new();
    for (i, (tile, values)) in [a, b].into_iter().zip(&values).enumerate() {
        let rows = |i: usize, k: usize| (i * depth + k) * tile.size();
        let columns = |i: usize, k: usize| (k * ROWS + i) * tile.size();
        let from_registers = case.registers && i == 0;
        let bytes = if from_registers || case.maps && tile.major == Major::K {
            image(tile, values, depth, rows)
        } else if case.maps {
            image(tile, values, depth, columns)
        } else {
            image(tile, values, depth, |i, k| tile.lies(depth, i, k))
        };
        let operand = trial.input(["a", "b"][i], &bytes);
        pointers.push(operand);
        if case.maps && !from_registers {
            let dtype = [DType::U8, DType::BF16, DType::F32][tile.size().ilog2() as usize];
            let ([inner, outer], sides) = (tile.dims(depth), tile.boxes(depth)[0].sides);
            let shape = TensorShape::row_major(dtype, [outer, inner], [sides[1], sides[0]]).swizzle(tile.map_swizzle());
            maps.push((operand, shape));
        }
    }
    let c = trial.output("c", product(case, &values));
    let trial = pointers.into_iter().fold(trial, Trial::pass);
    let trial = match case.padding {
        Padding::Known(_) => trial,
        Padding::Passed(bytes) => trial.pass(bytes),
    };
    maps.into_iter().fold(trial, |trial, (operand, shape)| trial.map(operand, shape)).pass(c)
}

fn product(case: Case, [a, b]: &[Vec<i32>; 2]) -> Expected {
    let depth = case.depth();
    let sum = |at: usize| -> i32 {
        let i = at / ROWS;
        let j = at % ROWS;
        (0..depth).map(|k| a[i * depth + k] * b[j * depth + k]).sum()
    };
    let sums: Vec<f64> = (0..ROWS * ROWS).map(|at| sum(at).into()).collect();
    let bound = Bound { absolute: 0.0, relative: 0.0 };
    match case.kind.elems().0 {
        Elem::S32 => Expected::near::<i32>(&sums, bound),
        Elem::F16 => Expected::near::<f16>(&sums, bound),
        _ => Expected::near::<f32>(&sums, bound),
    }
}

const SWIZZLES: [SwizzleMode; 4] = [SwizzleMode::None, SwizzleMode::B32, SwizzleMode::B64, SwizzleMode::B128];

/// Every case of a kind with these majors; MN-major A is not for registers.
fn each(kind: WgmmaKind, majors: [Major; 2]) {
    let devices = devices(2);
    for swizzle in SWIZZLES {
        for maps in [false, true] {
            for registers in [false, true] {
                if !(registers && majors[0] == Major::Mn) {
                    right(&trial(Case { kind, registers, majors, swizzle, maps, padding: Padding::NONE }), &devices);
                }
            }
        }
    }
}

#[test]
fn every_kind_with_k_contiguous() {
    for &kind in WgmmaKind::ALL {
        each(kind, [Major::K, Major::K]);
    }
}

#[test]
fn halves_with_m_or_n_contiguous() {
    for kind in [WgmmaKind::F32_BF16_BF16, WgmmaKind::F32_F16_F16, WgmmaKind::F16_F16_F16] {
        for majors in [[Major::K, Major::Mn], [Major::Mn, Major::K], [Major::Mn, Major::Mn]] {
            each(kind, majors);
        }
    }
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(48))]

    /// After any padding a product is right, or the tile is reported as misaligned to its swizzle:
    /// by the verifier where the padding is known, else by the simulator.
    #[test]
    fn a_tile_behind_padding_is_right_or_told(
        units in 0u32..24,
        far in proptest::bool::ANY,
        swizzle in proptest::sample::select(&SWIZZLES),
        registers in proptest::bool::ANY,
        maps in proptest::bool::ANY,
        mn in proptest::bool::ANY,
    ) {
        // Tensor copies go to multiples of 128 bytes, swizzled rows begin at a multiple of their
        // span.
        let unit = if maps { 128 } else { swizzle_span(swizzle) };
        let bytes = if far { 1024 * (units % 4) } else { unit * units };
        let majors = [Major::K, if mn { Major::Mn } else { Major::K }];
        let case = Case { kind: WgmmaKind::F32_BF16_BF16, registers, majors, swizzle, maps, padding: Padding::Known(bytes) };
        let aligned = swizzle == SwizzleMode::None || bytes % (8 * swizzle_span(swizzle)) == 0;
        match verified(case) {
            Ok(_) => {
                assert!(aligned, "{case:?} verifies");
                right(&trial(case), &[sim::open(bytes.into())]);
                right(&trial(Case { padding: Padding::Passed(bytes), ..case }), &[sim::open(bytes.into())]);
            }
            Err(errors) => {
                assert!(!aligned && errors.kinds().all(|kind| matches!(kind, ErrorKind::SwizzleBase { .. })), "{errors}");
                let said = trial(Case { padding: Padding::Passed(bytes), ..case }).run(&sim::open(bytes.into()));
                let said = said.expect_err("a misaligned tile is a fault").to_string();
                assert!(said.contains("misaligned swizzle"), "{case:?}: {said}");
            }
        }
    }
}

fn swizzle_span(swizzle: SwizzleMode) -> u32 {
    match swizzle {
        SwizzleMode::None => 16,
        SwizzleMode::B32 => 32,
        SwizzleMode::B64 => 64,
        SwizzleMode::B128 => 128,
    }
}
