//! Kernels written as PTX by hand, for what only a driver does: compile, refuse, run beside the
//! host, trap.

use tilewright_codegen::device::{PtxSource, Signature};
use tilewright_codegen::ir::{Arch, LaunchBounds, Param, ParamKind, Space, Ty};

const POINTER: ParamKind = ParamKind::Value(Ty::Ptr(Space::Global));
const COUNT: ParamKind = ParamKind::Value(Ty::U32);

fn signature(name: &str, arch: Arch, threads: u32, params: &[ParamKind]) -> Signature {
    Signature {
        name: name.into(),
        arch,
        launch: LaunchBounds { threads: [threads, 1, 1], cluster: [1, 1, 1], min_blocks: None, cooperative: false },
        params: params
            .iter()
            .enumerate()
            .map(|(i, &kind)| Param { name: format!("p{i}"), kind, elements: Vec::new() })
            .collect(),
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

/// y = a · x + y, with a signature that has one parameter too few.
pub fn saxpy_mistold() -> PtxSource {
    let params = [COUNT, ParamKind::Value(Ty::F32), POINTER];
    PtxSource::new(signature("saxpy", Arch::Sm80, 256, &params), module("sm_80", SAXPY_HEAD, SAXPY))
}

/// The kernel with a spelling mistake.
pub fn saxpy_misspelt() -> PtxSource {
    let text = module("sm_90a", SAXPY_HEAD, &SAXPY.replace("mul.wide.u32", "mul.wild.u32"));
    PtxSource::new(signature("saxpy", Arch::Sm90a, 256, &[]), text)
}

/// A chain of `length` fused multiply-adds. The text is new for each `nonce`.
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

/// Counts in word 1 until the host sets word 0, and answers in word 2 with what it saw. Gives up
/// after 2^26 rounds.
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

/// Writes 42 to a word and stops the device.
pub fn trap() -> PtxSource {
    let body = ".reg .b64 %d; ld.param.u64 %d, [words]; st.release.sys.global.u64 [%d], 42; fence.acq_rel.sys; trap;";
    let text = module("sm_80", ".visible .entry stop(.param .u64 words)", body);
    PtxSource::new(signature("stop", Arch::Sm80, 1, &[POINTER]), text)
}
