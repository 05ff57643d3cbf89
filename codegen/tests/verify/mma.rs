//! Invalid twins of the rules in `verify/mma`.

use crate::{edited, fresh_name, twins};
use half::bf16;
use insta::assert_snapshot;
use tilewright_codegen::build::{Builder, Descriptor, Scalar, SwizzleMode, Val, WgmmaOperands, block};
use tilewright_codegen::ir::attr::{Major, RegCount, Sign, Trans};
use tilewright_codegen::ir::{Arch, ControlOp, Inst, MmaAtom, StmtKind, WgmmaAtom, WgmmaKind};

fn words<const N: usize>(k: &Builder) -> [Val<'_, u32>; N] {
    std::array::from_fn(|i| k.global::<u32>(&fresh_name()).at(i).load())
}

#[test]
fn a_fragment_has_the_registers_of_its_atom() {
    let said = twins(Arch::Sm80, block(32), |k, fault| {
        let acc = k.regs(4, 0.0f32);
        let a = words::<4>(k);
        let b = words::<2>(k);
        if fault {
            acc.run(0, 2).mma(MmaAtom::M16N8K16_F32_BF16_BF16, &a[..2], &b);
            k.regs(4, 0i32).mma(MmaAtom::M16N8K16_F32_BF16_BF16, &a, &[k.global::<bf16>("h").load(); 2]);
        } else {
            acc.mma(MmaAtom::M16N8K16_F32_BF16_BF16, &a, &b);
        }
    });
    assert_snapshot!(said, @"
    `mma.sync.M16N8K16_F32_BF16_BF16 r0[0..2], {v1, v3}, {v9, v11}`: operand `acc` has 2 registers: M16N8K16_F32_BF16_BF16 takes 4
    `mma.sync.M16N8K16_F32_BF16_BF16 r0[0..2], {v1, v3}, {v9, v11}`: operand `a` has 2 registers: M16N8K16_F32_BF16_BF16 takes 4
    `mma.sync.M16N8K16_F32_BF16_BF16 r1[0..4], {v1, v3, v5, v7}, {v13, v13}`: operand `acc` is of type s32: the instruction takes f32
    `mma.sync.M16N8K16_F32_BF16_BF16 r1[0..4], {v1, v3, v5, v7}, {v13, v13}`: operand `b` is of type bf16: the instruction takes u32
    `mma.sync.M16N8K16_F32_BF16_BF16 r1[0..4], {v1, v3, v5, v7}, {v13, v13}`: operand `b` is of type bf16: the instruction takes u32
    ");
}

#[test]
fn an_atom_may_need_a_later_target() {
    let said = twins(Arch::Sm80, block(32), |k, fault| {
        let atom = if fault { MmaAtom::M16N8K32_F32_E4M3_E4M3 } else { MmaAtom::M16N8K16_F32_F16_F16 };
        k.regs(4, 0.0f32).mma(atom, &words::<4>(k), &words::<2>(k));
    });
    assert_snapshot!(said, @"`mma.sync.M16N8K32_F32_E4M3_E4M3 r0[0..4], {v1, v3, v5, v7}, {v9, v11}`: M16N8K32_F32_E4M3_E4M3 is not on sm_80: it needs sm_89 and later; record another instruction for this target");
}

#[test]
fn a_row_of_matrices_has_1_2_or_4() {
    let said = twins(Arch::Sm80, block(32), |k, fault| {
        let s = k.shared::<bf16>("s", 256).at(k.lane() * 8);
        if fault { _ = s.ldmatrix::<3>(Trans::No) } else { _ = s.ldmatrix::<4>(Trans::No) }
    });
    assert_snapshot!(said, @"`v5, v6, v7 = ldmatrix.x4 shared[v4]`: operand `d` has 3 registers: this many matrices takes 4");
}

#[test]
fn signs_and_majors_go_with_the_type() {
    let said = twins(Arch::Sm90a, block(128), |k, fault| {
        let how = WgmmaOperands { sign_a: Sign::Minus, major_b: Major::Mn, ..WgmmaOperands::K_MAJOR };
        let how = if fault { how } else { WgmmaOperands::K_MAJOR };
        let atom = WgmmaAtom::new(8, WgmmaKind::S32_S8_S8).unwrap();
        k.wgmma_fence();
        k.regs_unset::<i32>(4).wgmma(atom, k.lit(0u64), k.lit(0u64), false, how);
        k.wgmma_commit();
        k.wgmma_wait(0);
    });
    assert_snapshot!(said, @"
    `wgmma.ss.M64N8K32_S32_S8_S8.neg.k.mn r0[0..4], 0, 0, false`: integer wgmma has no signs: negate the operand before
    `wgmma.ss.M64N8K32_S32_S8_S8.neg.k.mn r0[0..4], 0, 0, false`: MN-major operands of wgmma are bf16 or f16: store others K-major
    ");
}

#[test]
fn an_operand_of_wgmma_begins_where_its_swizzle_does() {
    let said = twins(Arch::Sm90a, block(128), |k, fault| {
        let atom = WgmmaAtom::new(8, WgmmaKind::F32_BF16_BF16).unwrap();
        let stages = k.shared_aligned::<u8>("stages", 65536, 1024);
        let padding = |bytes: u32| if fault { bytes } else { 0 };
        let acc = k.regs::<f32>(4, 0.0f32);
        k.wgmma_fence();
        for (swizzle, bytes) in [(SwizzleMode::B128, 128), (SwizzleMode::B64, 64), (SwizzleMode::B32, 32)] {
            let how = Descriptor { swizzle, leading: 16, stride: 8 * bytes };
            // The stage is known at run time, its place in the pattern is known now; so is a step
            // within the row.
            let stage = stages.at((k.block_id() & 3) * 16384);
            let a = stage.at_byte(padding(bytes)).descriptor(how) + 1u64;
            let b = stages.at_byte(padding(3 * bytes) + 1024).descriptor(how);
            acc.wgmma(atom, a, b, true, WgmmaOperands::K_MAJOR);
        }
        // With the base offset stated, the pattern begins there; without a swizzle there is none;
        // what a kernel loads is not known knows.
        let rows = Descriptor { swizzle: SwizzleMode::B128, leading: 16, stride: 1024 };
        let stated = stages.at(384).descriptor(rows) | 3 << 49;
        let plain = stages.at(16).descriptor(Descriptor { swizzle: SwizzleMode::None, ..rows });
        acc.wgmma(atom, stated, plain, true, WgmmaOperands::K_MAJOR);
        let loaded = k.global::<u64>("x").load();
        acc.wgmma(atom, loaded, plain, true, WgmmaOperands::K_MAJOR);
        k.wgmma_commit();
        k.wgmma_wait(0);
    });
    assert_snapshot!(said, @"
    `wgmma.ss.M64N8K16_F32_BF16_BF16.k.k r0[0..4], v11, v17, true`: operand `a` begins 144 bytes into the pattern of its 128-byte swizzle, which starts at multiples of 1024: align the tile to 1024 bytes, or state the base offset
    `wgmma.ss.M64N8K16_F32_BF16_BF16.k.k r0[0..4], v11, v17, true`: operand `b` begins 384 bytes into the pattern of its 128-byte swizzle, which starts at multiples of 1024: align the tile to 1024 bytes, or state the base offset
    `wgmma.ss.M64N8K16_F32_BF16_BF16.k.k r0[0..4], v24, v30, true`: operand `a` begins 80 bytes into the pattern of its 64-byte swizzle, which starts at multiples of 512: align the tile to 512 bytes, or state the base offset
    `wgmma.ss.M64N8K16_F32_BF16_BF16.k.k r0[0..4], v24, v30, true`: operand `b` begins 192 bytes into the pattern of its 64-byte swizzle, which starts at multiples of 512: align the tile to 512 bytes, or state the base offset
    `wgmma.ss.M64N8K16_F32_BF16_BF16.k.k r0[0..4], v37, v43, true`: operand `a` begins 48 bytes into the pattern of its 32-byte swizzle, which starts at multiples of 256: align the tile to 256 bytes, or state the base offset
    `wgmma.ss.M64N8K16_F32_BF16_BF16.k.k r0[0..4], v37, v43, true`: operand `b` begins 96 bytes into the pattern of its 32-byte swizzle, which starts at multiples of 256: align the tile to 256 bytes, or state the base offset
    ");
}

#[test]
fn wgmma_is_of_one_target() {
    let said = edited(Arch::Sm90a, block(128), |k| k.wgmma_fence(), |kernel| kernel.arch = Arch::Sm100a);
    assert_snapshot!(said, @"`wgmma.fence`: wgmma.fence is not on sm_100a: it needs sm_90a only; record another instruction for this target");
}

#[test]
fn registers_are_asked_for_in_eights_and_stated_at_entry() {
    let said = edited(
        Arch::Sm90a,
        block(128).min_blocks(1),
        |k| k.registers_up(240),
        |kernel| {
            kernel.launch.min_blocks = None;
            for stmt in &mut kernel.body {
                if let StmtKind::Inst(Inst::Control(ControlOp::SetMaxNReg { count, .. })) = &mut stmt.op {
                    *count = RegCount(250);
                }
            }
        },
    );
    assert_snapshot!(said, @"
    `setmaxnreg.inc 250`: registers asked of setmaxnreg is 250: sm_90a allows 24 to 256 registers, a multiple of 8
    `setmaxnreg.inc 250`: setmaxnreg needs the registers at entry: state min_blocks in the launch
    ");
}

#[test]
fn a_remark_is_one_line() {
    let said = twins(Arch::Sm80, block(32), |k, fault| k.comment(if fault { "two\nlines" } else { "one line" }));
    assert_snapshot!(said, @"
    `// two
    lines`: a remark is one line
    ");
}

#[test]
fn a_matrix_instruction_needs_whole_warps() {
    let build = |k: &Builder| {
        let a = words::<4>(k);
        let b = words::<2>(k);
        k.regs(4, 0.0f32).mma(MmaAtom::M16N8K16_F32_BF16_BF16, &a, &b);
    };
    let said = edited(Arch::Sm80, block(32), build, |kernel| kernel.launch.threads = [40, 1, 1]);
    assert!(
        said.contains("mma.sync needs whole warps, and the block has 40 threads: launch a multiple of 32"),
        "{said}"
    );
}

#[test]
fn a_line_that_is_printed_has_as_many_braces_as_values() {
    let said = twins(Arch::Sm80, block(32), |k, fault| {
        k.print(if fault { "{}" } else { "{} {}" }, (k.tid(), k.lane()));
    });
    assert_snapshot!(said, @"`print {} {v0, v1}`: a line that is printed has as many `{}` as values");
}

#[test]
fn what_is_printed_has_32_or_64_bits() {
    let said = edited(
        Arch::Sm80,
        block(32),
        |k| k.print("{}", k.tid()),
        |kernel| {
            for stmt in &mut kernel.body {
                if let StmtKind::Inst(Inst::Control(ControlOp::Print { values, .. })) = &mut stmt.op {
                    *values = vec![true.constant().into()];
                }
            }
        },
    );
    assert_snapshot!(said, @"`print {} {true}`: a value that is printed is a number of 32 or 64 bits");
}
