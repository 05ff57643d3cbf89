//! Positions whose row of the table of turns begins beyond 2³² elements.

use tilewright_codegen::ir::{Arch, Const};
use tilewright_codegen::sim::{self, Arg, FaultKind, Launch, Memory, Outcome};
use tilewright_codegen::verify::verify;
use tilewright_kernels::kv::PoolType;
use tilewright_kernels::rope::{HeadRun, HeadRuns, rope_runs};
use tilewright_kernels::tile::Float;

/// Rotates one head of 64 dimensions at a position by a table of 16 positions.
fn rotated(position: i32) -> Outcome {
    let out = PoolType::Float(Float::F32);
    let run = HeadRun { first: 0, heads: 1, norm: None, together: false, rotated: true, paged: false, out };
    let shape = HeadRuns { heads: 1, dim: 64, page_tokens: 16, x: Float::F32, runs: vec![run], warps: 1 };
    let kernel = verify(rope_runs(Arch::Sm80, &shape)).unwrap_or_else(|errors| panic!("{errors}"));
    let mut memory = Memory::new();
    let mut args = vec![
        Arg::Ptr(memory.upload_read_only("x", &[1.0f32; 64])),
        Arg::Ptr(memory.upload_read_only("turns", &[0.5f32; 16 * 64])),
        Arg::Ptr(memory.upload_read_only("position", &[position])),
        Arg::Ptr(memory.upload_read_only("page_table", &[0i32])),
    ];
    args.extend([1, 1].map(|number| Arg::Scalar(Const::u32(number))));
    args.push(Arg::Ptr(memory.upload("out0", &[0.0f32; 64])));
    sim::run(&kernel, &Launch::new([1, 1, 1], args), &mut memory, 1).expect("it launches")
}

/// Position 2³² / 64 read the row of position 0 when the place was computed in 32 bits; now it
/// reads beyond this table.
#[test]
fn a_position_beyond_32_bits_does_not_wrap_to_position_zero() {
    assert!(matches!(rotated(15), Outcome::Finished(_)));
    for position in [16, 1 << 26, (1 << 26) + 3, i32::MAX] {
        let Outcome::Fault(fault) = rotated(position) else { panic!("position {position} wrapped") };
        assert!(matches!(fault.kind, FaultKind::OutOfBounds(_)), "{fault}");
    }
}
