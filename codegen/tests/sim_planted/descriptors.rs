//! Descriptors of `wgmma` operands, each off by the least step: 16 bytes.

use super::{Io, Plant, plant};
use tilewright_codegen::build::{Descriptor, SwizzleMode, WgmmaOperands};
use tilewright_codegen::ir::attr::ProxyFence;
use tilewright_codegen::ir::{WgmmaAtom, WgmmaKind};

const RIGHT: Descriptor = Descriptor { swizzle: SwizzleMode::None, leading: 128, stride: 256 };

pub fn plants() -> Vec<Plant> {
    vec![
        plant("descriptor_stride_off_by_one", 128, |io, wrong| multiply(io, [0, step(wrong), 0]), "out of bounds"),
        plant("descriptor_leading_off_by_one", 128, |io, wrong| multiply(io, [step(wrong), 0, 0]), "out of bounds"),
        plant("descriptor_address_off_by_one", 128, |io, wrong| multiply(io, [0, 0, step(wrong)]), "out of bounds"),
        plant("swizzled_tile_at_128_bytes", 128, swizzled, "misaligned swizzle"),
    ]
}

fn step(wrong: bool) -> u32 {
    if wrong { 16 } else { 0 }
}

/// Runs a `wgmma` of zeros whose B begins at a number of bytes that the kernel reads, a multiple of
/// its swizzle's period or not.
fn swizzled(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let Some(atom) = WgmmaAtom::new(8, WgmmaKind::F32_BF16_BF16) else { return };
    let tile = k.shared_aligned::<u32>("tile", 4096, 1024);
    k.for_step(k.tid(), 4096, 128u32, |i| tile.at(i).store(0));
    k.fence_proxy_async(ProxyFence::Shared);
    k.barrier();
    let rows = Descriptor { swizzle: SwizzleMode::B128, leading: 16, stride: 1024 };
    // 1.0 of `x` decides nothing that is known while recording.
    let padding = io.x.at(1).load().cast::<u32>() * if wrong { 128 } else { 1024 };
    let a = tile.at(1024).at(8).descriptor(rows);
    let b = tile.at_byte(padding).descriptor(rows);
    let acc = k.regs::<f32>(atom.acc_registers(), 0.0f32);
    k.wgmma_fence();
    acc.wgmma(atom, a, b, true, WgmmaOperands::K_MAJOR);
    k.wgmma_commit();
    k.wgmma_wait(0);
    for i in 0..atom.acc_registers() {
        io.out.at(k.tid() + 128 * i).store(acc.get(i));
    }
}

/// Runs a `wgmma` of zeros with too many bytes in the leading and the stride of A and in the
/// address of B. A is last in shared memory; past B no thread writes.
fn multiply(io: &Io<'_>, [leading, stride, address]: [u32; 3]) {
    let k = io.k;
    let Some(atom) = WgmmaAtom::new(8, WgmmaKind::F32_BF16_BF16) else { return };
    let b = k.shared_aligned::<u32>("b", 64, 1024);
    let a = k.shared_aligned::<u32>("a", 512, 1024);
    k.for_step(k.tid(), 512, 128u32, |i| a.at(i).store(0));
    k.when(k.tid().lt(64), || b.at(k.tid()).store(0));
    k.fence_proxy_async(ProxyFence::Shared);
    k.barrier();
    let acc = k.regs::<f32>(atom.acc_registers(), 0.0f32);
    let a = a.descriptor(Descriptor { leading: RIGHT.leading + leading, stride: RIGHT.stride + stride, ..RIGHT });
    let b = b.at(address / 4).descriptor(RIGHT);
    k.wgmma_fence();
    acc.wgmma(atom, a, b, true, WgmmaOperands::K_MAJOR);
    k.wgmma_commit();
    k.wgmma_wait(0);
    for i in 0..atom.acc_registers() {
        io.out.at(k.tid() + 128 * i).store(acc.get(i));
    }
}
