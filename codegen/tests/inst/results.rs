//! The results of the cases: the same on every device and under every interleaving.
//!
//! Arguments are by convention: numbers that every type takes for ordinary ones, in buffers that
//! are long enough. Cases that need others are told by the simulator, which finds a fault with
//! them; they are not run elsewhere.

use crate::cases;
use crate::devices::{devices, named};
use tilewright_codegen::device::{Arg, Device, DeviceError, sim};
use tilewright_codegen::ir::{Arch, Const, Flag, Inst, Kernel, MmaOp, ParamKind, Space, StmtKind, Ty};
use tilewright_codegen::trial::Draw;
use tilewright_codegen::verify::{Verified, verify};

/// Bytes of every buffer.
const BYTES: usize = 64 << 10;

/// Cases with results of the machine's own: time, places, addresses.
const MACHINES_OWN: [&str; 4] = ["clock", "special", "activemask", "pointers"];

/// The buffers of a case after a launch of two blocks (of a cluster), in the order of its
/// parameters.
fn results(device: &Device, kernel: &Verified) -> Result<Vec<Vec<u8>>, DeviceError> {
    let stream = device.stream()?;
    let mut buffers = Vec::new();
    let mut args = Vec::new();
    let mut draw = Draw::new(11);
    for param in &kernel.kernel().params {
        args.push(match param.kind {
            ParamKind::Value(Ty::Ptr(Space::Global)) => {
                // As halves from 1 to 2, as floats above zero and finite, as integers not zero: no
                // NaN whose payload is open.
                let halves: Vec<u16> = (0..BYTES / 2).map(|_| 0x3c00 | (draw.bits() as u16 & 0x3ff)).collect();
                let buffer = stream.buffer(&halves)?.cast::<u8>()?;
                let arg = Arg::from(&buffer);
                buffers.push(buffer);
                arg
            }
            ParamKind::Value(ty) if ty.is_float() => Arg::Scalar(Const::new(ty, one_and_a_half(ty))),
            ParamKind::Value(ty) => Arg::Scalar(Const::new(ty, 5)),
            ParamKind::Bytes { .. } | ParamKind::TensorMap => return Err(unconventional(&param.name)),
        });
    }
    let loaded = device.load(kernel)?;
    let blocks = kernel.kernel().launch.cluster.iter().product::<u32>();
    loaded.launch(&stream, blocks, &args)?;
    buffers.iter().map(|buffer| stream.read(buffer)).collect()
}

fn unconventional(name: &str) -> DeviceError {
    DeviceError::Name { found: name.into() }
}

fn one_and_a_half(ty: Ty) -> u64 {
    match ty {
        Ty::F16 => 0x3e00,
        Ty::BF16 => 0x3fc0,
        Ty::F16x2 => 0x3e00_3e00,
        Ty::BF16x2 => 0x3fc0_3fc0,
        Ty::F64 => 1.5f64.to_bits(),
        _ => u64::from(1.5f32.to_bits()),
    }
}

/// Whether results lie within a bound only: approximations, and sums of floats in an order of the
/// machine's own.
fn bounded(kernel: &Kernel) -> bool {
    let mut any = false;
    kernel.walk(&mut |stmt| {
        any |= matches!(&stmt.op, StmtKind::Inst(inst) if inst.is(Flag::Approx) || matches!(inst, Inst::Mma(MmaOp::MmaSync { .. })));
    });
    any
}

#[test]
fn cases_compute_the_same_everywhere() {
    let others = devices(3);
    let mut same = 0;
    let mut left = Vec::new();
    for case in cases().filter(|case| case.on(Arch::Sm90a)) {
        let name = case.name;
        let kernel = verify(case.record(Arch::Sm90a)).unwrap_or_else(|errors| panic!("{errors}"));
        let unfit = MACHINES_OWN.contains(&name) || named().is_some() && bounded(kernel.kernel());
        let expected = match results(&sim::open(100), &kernel) {
            Ok(expected) if !unfit && !expected.is_empty() => expected,
            _ => {
                left.push(name);
                continue;
            }
        };
        for device in &others {
            let found = results(device, &kernel).unwrap_or_else(|error| panic!("{name}: {error}"));
            for (buffer, (expected, found)) in expected.iter().zip(&found).enumerate() {
                let first = expected.iter().zip(found).position(|(a, b)| a != b);
                assert_eq!(first, None, "{name}: buffer {buffer} differs at that byte\n{}", kernel.kernel());
            }
        }
        same += 1;
    }
    println!("{same} cases are the same, {} are left: {left:?}", left.len());
    assert!(same >= 60, "only {same} cases ran; left are {left:?}");
}
