//! Cases of the family `mma`: every instruction once at least.

use crate::case::{Case, mine};
use half::bf16;
use tilewright_codegen::build::{Builder, Descriptor, F16x2, Scalar, SwizzleMode, Val, WgmmaOperands, block};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::ir::attr::{Major, Sign, Trans};
use tilewright_codegen::ir::{Elem, MmaAtom, WgmmaAtom, WgmmaKind};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("ldmatrix", |k| {
            let s = k.shared::<bf16>("s", 8 * 32);
            let x = k.global::<u32>("x");
            let row = s.at(k.lane() * 8);
            let [a] = row.ldmatrix(Trans::No);
            let [b, c] = row.ldmatrix(Trans::Yes);
            let [d, e, f, g] = row.ldmatrix(Trans::No);
            x.at(k.lane()).store(a + b + c + d + e + f + g);
        }),
        Case::new("stmatrix", |k| {
            let s = k.shared::<bf16>("s", 8 * 32);
            let x = mine::<u32>(k, "x");
            let row = s.at(k.lane() * 8);
            row.stmatrix([x], Trans::Yes);
            row.stmatrix([x, x], Trans::No);
            row.stmatrix([x, x, x, x], Trans::No);
        })
        .since(Arch::Sm90a),
        Case::new("mma_sync", |k| {
            for &atom in MmaAtom::ALL.iter().filter(|atom| atom.needs().met_by(Arch::Sm80)) {
                mma(k, atom);
            }
        }),
        Case::new("mma_sync_fp8", |k| {
            for &atom in MmaAtom::ALL.iter().filter(|atom| !atom.needs().met_by(Arch::Sm80)) {
                mma(k, atom);
            }
        })
        .since(Arch::Sm89),
        wgmma_case("wgmma_float", |k| {
            for kind in [WgmmaKind::F32_BF16_BF16, WgmmaKind::F32_F16_F16, WgmmaKind::F16_F16_F16] {
                wgmma(k, 64, kind);
            }
        }),
        wgmma_case("wgmma_narrow", |k| {
            for &kind in WgmmaKind::ALL.iter().filter(|kind| kind.elems().1.bits() != 16) {
                wgmma(k, 32, kind);
            }
        }),
        wgmma_case("wgmma_wide", |k| wgmma(k, 256, WgmmaKind::F32_BF16_BF16)),
        wgmma_case("wgmma_choices", |k| {
            let tile = tile(k);
            let acc = k.regs(16, 0.0f32);
            let how = WgmmaOperands { sign_a: Sign::Minus, sign_b: Sign::Plus, major_a: Major::Mn, major_b: Major::Mn };
            let atom = WgmmaAtom::new(32, WgmmaKind::F32_BF16_BF16).unwrap();
            k.wgmma_fence();
            acc.wgmma(atom, tile, tile, k.param::<u32>("scale").ne(0), how);
            k.wgmma_commit();
            k.wgmma_wait(1);
            k.wgmma_wait(0);
            store(k, "out", acc.get(15));
        }),
    ]
}

fn wgmma_case(name: &'static str, build: fn(&Builder)) -> Case {
    Case::new(name, build).launch(block(128)).since(Arch::Sm90a).until(Arch::Sm90a)
}

fn store<T: Scalar>(k: &Builder, name: &str, value: Val<'_, T>) {
    k.global::<T>(name).at(k.tid()).store(value);
}

/// The accumulator in its type, from one fragment to another.
fn mma(k: &Builder, atom: MmaAtom) {
    match atom.elems().0 {
        Elem::F16 => mma_in::<F16x2>(k, atom),
        Elem::S32 => mma_in::<i32>(k, atom),
        _ => mma_in::<f32>(k, atom),
    }
}

fn mma_in<T: Scalar>(k: &Builder, atom: MmaAtom) {
    let (accs, a_count, b_count) = atom.registers();
    let x = k.global::<u32>(&format!("x_{}", atom.name())).at(k.lane());
    let start = mine::<T>(k, &format!("c_{}", atom.name()));
    let acc = k.regs(accs, start);
    let a: Vec<Val<'_, u32>> = (0..a_count).map(|i| x.at(32 * i).load()).collect();
    let b: Vec<Val<'_, u32>> = (0..b_count).map(|i| x.at(32 * i).load()).collect();
    acc.mma(atom, &a, &b);
    for i in 0..accs {
        store(k, &format!("out{i}_{}", atom.name()), acc.get(i));
    }
}

/// A descriptor of a swizzled K-major tile.
fn tile(k: &Builder) -> Val<'_, u64> {
    let s = k.shared_aligned::<bf16>("s", 256 * 64, 1024);
    s.descriptor(Descriptor { swizzle: SwizzleMode::B128, leading: 16, stride: 1024 })
}

fn wgmma(k: &Builder, n: u32, kind: WgmmaKind) {
    match kind.elems().0 {
        Elem::F16 => wgmma_in::<F16x2>(k, n, kind),
        Elem::S32 => wgmma_in::<i32>(k, n, kind),
        _ => wgmma_in::<f32>(k, n, kind),
    }
}

/// A from shared memory and from registers, into one accumulator.
fn wgmma_in<T: Scalar>(k: &Builder, n: u32, kind: WgmmaKind) {
    let atom = WgmmaAtom::new(n, kind).unwrap();
    let tile = tile(k);
    let x = k.global::<u32>(kind.name()).at(k.tid());
    let a: [Val<'_, u32>; 4] = std::array::from_fn(|i| x.at(128 * i).load());
    let acc = k.regs_unset::<T>(atom.acc_registers());
    k.wgmma_fence();
    acc.wgmma(atom, tile, tile, false, WgmmaOperands::K_MAJOR);
    acc.wgmma_rs(atom, &a, tile, true, WgmmaOperands::K_MAJOR);
    k.wgmma_commit();
    k.wgmma_wait(0);
    for i in 0..acc.len() {
        store(k, &format!("out{i}_{}", kind.name()), acc.get(i));
    }
}
