//! The kernels, written as PTX by hand: the device is on trial here, and nothing that writes PTX.

use tilewright_codegen::device::{PtxSource, Signature};
use tilewright_codegen::ir::{Arch, Launch, Param, ParamKind, Space, Ty};

const POINTER: ParamKind = ParamKind::Value(Ty::Ptr(Space::Global));
const COUNT: ParamKind = ParamKind::Value(Ty::U32);

fn signature(name: &str, arch: Arch, threads: u32, params: &[ParamKind]) -> Signature {
    Signature {
        name: name.into(),
        arch,
        launch: Launch { threads: [threads, 1, 1], cluster: [1, 1, 1], min_blocks: None, cooperative: false },
        params: params.iter().enumerate().map(|(i, &kind)| Param { name: format!("p{i}"), kind }).collect(),
        dynamic_shared: 0,
        early: false,
    }
}

/// A whole module: one entry for an architecture.
fn module(arch: &str, head: &str, body: &str) -> String {
    format!(".version 8.0\n.target {arch}\n.address_size 64\n{head}\n{{\n{body}\nret;\n}}\n")
}

const SAXPY_HEAD: &str = ".visible .entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y)";
const SAXPY: &str = "
.reg .pred %p; .reg .b32 %r<5>; .reg .f32 %f<4>; .reg .b64 %d<4>;
mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x;
mad.lo.u32 %r3, %r0, %r1, %r2;
ld.param.u32 %r4, [n];
setp.ge.u32 %p, %r3, %r4;
@%p bra done;
ld.param.f32 %f0, [a];
ld.param.u64 %d0, [x]; ld.param.u64 %d1, [y];
mul.wide.u32 %d2, %r3, 4;
add.u64 %d0, %d0, %d2; add.u64 %d1, %d1, %d2;
ld.global.f32 %f1, [%d0]; ld.global.f32 %f2, [%d1];
fma.rn.f32 %f3, %f0, %f1, %f2;
st.global.f32 [%d1], %f3;
done:";

/// y = a · x + y, one element a thread.
pub fn saxpy() -> PtxSource {
    let params = [COUNT, ParamKind::Value(Ty::F32), POINTER, POINTER];
    PtxSource::new(signature("saxpy", Arch::Sm80, 256, &params), module("sm_80", SAXPY_HEAD, SAXPY))
}

/// The same with a signature that has one parameter too few.
pub fn saxpy_mistold() -> PtxSource {
    let params = [COUNT, ParamKind::Value(Ty::F32), POINTER];
    PtxSource::new(signature("saxpy", Arch::Sm80, 256, &params), module("sm_80", SAXPY_HEAD, SAXPY))
}

/// The same with a spelling mistake.
pub fn saxpy_misspelt() -> PtxSource {
    let text = module("sm_90a", SAXPY_HEAD, &SAXPY.replace("mul.wide.u32", "mul.wild.u32"));
    PtxSource::new(signature("saxpy", Arch::Sm90a, 256, &[]), text)
}

/// A chain of so many fused multiply-adds. The text is new for each `nonce`.
pub fn chain(length: u32, nonce: u128) -> PtxSource {
    let mut body = String::from(".reg .f32 %f<2>; .reg .b64 %d; ld.param.u64 %d, [y];\nld.global.f32 %f0, [%d];\n");
    body.push_str(&format!("mov.b32 %f1, 0x{:08x};\n", 0x3f80_0000 | (nonce as u32 & 0x7f_ffff)));
    for _ in 0..length {
        body.push_str("fma.rn.f32 %f0, %f0, %f1, %f0; sin.approx.f32 %f0, %f0;\n");
    }
    body.push_str(&format!("st.global.f32 [%d], %f0;\n// {nonce}"));
    let text = module("sm_80", ".visible .entry chain(.param .u64 y)", &body);
    PtxSource::new(signature("chain", Arch::Sm80, 32, &[POINTER]), text)
}

/// Each block writes its slot, waits for all blocks at a counter, and sums all slots: right only if all are resident.
pub fn gather() -> PtxSource {
    let mut signature = signature("gather", Arch::Sm80, 32, &[POINTER, POINTER, POINTER]);
    signature.launch.cooperative = true;
    let body = "
.reg .pred %p; .reg .b32 %r<8>; .reg .b64 %d<6>;
mov.u32 %r0, %tid.x; setp.ne.u32 %p, %r0, 0;
@%p bra done;
mov.u32 %r1, %ctaid.x; mov.u32 %r2, %nctaid.x;
ld.param.u64 %d0, [counter]; ld.param.u64 %d1, [slots]; ld.param.u64 %d2, [sums];
mul.wide.u32 %d3, %r1, 4;
add.u64 %d4, %d1, %d3; add.u32 %r3, %r1, 1; st.global.u32 [%d4], %r3;
red.release.gpu.global.add.u32 [%d0], 1;
spin: ld.acquire.gpu.global.u32 %r4, [%d0]; setp.lt.u32 %p, %r4, %r2;
@%p bra spin;
mov.u32 %r5, 0; mov.u32 %r6, 0;
sum: ld.global.u32 %r7, [%d1]; add.u32 %r5, %r5, %r7; add.u64 %d1, %d1, 4; add.u32 %r6, %r6, 1;
setp.lt.u32 %p, %r6, %r2;
@%p bra sum;
add.u64 %d5, %d2, %d3; st.global.u32 [%d5], %r5;
done:";
    let head = ".visible .entry gather(.param .u64 counter, .param .u64 slots, .param .u64 sums)";
    PtxSource::new(signature, module("sm_80", head, body))
}

/// Words of shared memory that `reverse` uses: 200 KiB.
pub const REVERSED: u32 = 51_200;

/// Numbers 0.. written backwards into dynamic shared memory and read forwards.
pub fn reverse() -> PtxSource {
    let mut signature = signature("reverse", Arch::Sm90a, 1024, &[POINTER]);
    signature.dynamic_shared = REVERSED * 4;
    let head = ".extern .shared .align 1024 .b8 pool[];\n.visible .entry reverse(.param .u64 out)";
    let body = "
.reg .pred %p; .reg .b32 %r<5>; .reg .b64 %d<3>;
mov.u32 %r0, %tid.x; mov.u32 %r1, pool; ld.param.u64 %d0, [out];
mov.u32 %r2, %r0;
write: sub.u32 %r3, 51199, %r2; shl.b32 %r3, %r3, 2; add.u32 %r3, %r3, %r1; st.shared.u32 [%r3], %r2;
add.u32 %r2, %r2, 1024; setp.lt.u32 %p, %r2, 51200;
@%p bra write;
bar.sync 0;
mov.u32 %r2, %r0;
read: shl.b32 %r3, %r2, 2; add.u32 %r3, %r3, %r1; ld.shared.u32 %r4, [%r3];
mul.wide.u32 %d1, %r2, 4; add.u64 %d2, %d0, %d1; st.global.u32 [%d2], %r4;
add.u32 %r2, %r2, 1024; setp.lt.u32 %p, %r2, 51200;
@%p bra read;";
    PtxSource::new(signature, module("sm_90a", head, body))
}

/// Blocks of a cluster of `ring`.
pub const RING: u32 = 4;

/// Each block of a cluster writes its number into the shared memory of the next.
pub fn ring() -> PtxSource {
    let mut signature = signature("ring", Arch::Sm90a, 32, &[POINTER]);
    signature.launch.cluster = [RING, 1, 1];
    let body = "
.reg .pred %p; .reg .b32 %r<8>; .reg .b64 %d<3>; .shared .align 4 .b32 slot;
mov.u32 %r0, %cluster_ctarank; mov.u32 %r1, %cluster_nctarank; mov.u32 %r2, %ctaid.x; mov.u32 %r3, slot;
barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
add.u32 %r4, %r0, 1; rem.u32 %r4, %r4, %r1; mapa.shared::cluster.u32 %r5, %r3, %r4;
mov.u32 %r6, %tid.x; setp.eq.u32 %p, %r6, 0;
@%p st.shared::cluster.u32 [%r5], %r2;
barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
ld.shared.u32 %r7, [%r3];
ld.param.u64 %d0, [out]; mul.wide.u32 %d1, %r2, 4; add.u64 %d2, %d0, %d1;
@%p st.global.u32 [%d2], %r7;";
    PtxSource::new(signature, module("sm_90a", ".visible .entry ring(.param .u64 out)", body))
}

/// Counts in word 1 until the host sets word 0, and answers in word 2 with what it saw. Gives up after 2^26 rounds.
pub fn beat() -> PtxSource {
    let body = "
.reg .pred %p, %q; .reg .b64 %d<4>;
ld.param.u64 %d0, [words]; mov.u64 %d1, 0;
again: add.u64 %d1, %d1, 1; st.release.sys.global.u64 [%d0+8], %d1;
ld.acquire.sys.global.u64 %d2, [%d0]; setp.ne.u64 %p, %d2, 0; setp.gt.u64 %q, %d1, 67108864; or.pred %p, %p, %q;
@!%p bra again;
st.release.sys.global.u64 [%d0+16], %d2;";
    let text = module("sm_80", ".visible .entry beat(.param .u64 words)", body);
    PtxSource::new(signature("beat", Arch::Sm80, 1, &[POINTER]), text)
}

/// Copies a box of 64 × 64 elements of 2 bytes by a tensor map, and writes shared memory out as it is.
pub fn tile() -> PtxSource {
    let params = [ParamKind::TensorMap, POINTER, ParamKind::Value(Ty::S32), ParamKind::Value(Ty::S32)];
    let head = ".visible .entry tile(.param .align 64 .b8 map[128], .param .u64 out, .param .s32 x, .param .s32 y)";
    let body = "
.reg .pred %p; .reg .b32 %r<12>; .reg .b64 %d<4>; .shared .align 1024 .b8 box[8192]; .shared .align 8 .b64 full;
mov.u32 %r0, %tid.x; mov.u32 %r1, box; mov.u32 %r2, full; setp.ne.u32 %p, %r0, 0;
mov.b64 %d0, map; cvta.param.u64 %d0, %d0;
ld.param.s32 %r3, [x]; ld.param.s32 %r4, [y];
@%p bra wait;
mbarrier.init.shared::cta.b64 [%r2], 1; fence.proxy.async;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 8192;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%d0, {%r3, %r4}], [%r2];
wait: bar.sync 0;
poll: mbarrier.try_wait.parity.shared::cta.b64 %p, [%r2], 0;
@!%p bra poll;
ld.param.u64 %d1, [out]; shl.b32 %r5, %r0, 4;
store: add.u32 %r6, %r1, %r5; ld.shared.v4.u32 {%r7, %r8, %r9, %r10}, [%r6];
cvt.u64.u32 %d2, %r5; add.u64 %d3, %d1, %d2; st.global.v4.u32 [%d3], {%r7, %r8, %r9, %r10};
add.u32 %r5, %r5, 2048; setp.lt.u32 %p, %r5, 8192;
@%p bra store;";
    PtxSource::new(signature("tile", Arch::Sm90a, 128, &params), module("sm_90a", head, body))
}

/// Writes 42 to a word and stops the device.
pub fn trap() -> PtxSource {
    let body = ".reg .b64 %d; ld.param.u64 %d, [words]; st.release.sys.global.u64 [%d], 42; fence.acq_rel.sys; trap;";
    let text = module("sm_80", ".visible .entry stop(.param .u64 words)", body);
    PtxSource::new(signature("stop", Arch::Sm80, 1, &[POINTER]), text)
}
