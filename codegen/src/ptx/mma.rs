//! Tensor cores.

use super::writer::Writer;
use crate::ir::attr::{Major, Matrices, Sign, Trans};
use crate::ir::{MmaAtom, MmaOp, Operand, Regs, WgmmaAtom};

/// Writes an instruction of the family.
pub(super) fn emit_mma(w: &mut Writer<'_>, op: &MmaOp) {
    match op {
        MmaOp::LdMatrix { d, at, count, trans } => {
            let d = w.defs(d);
            let at = w.addr(*at);
            let d = if *count == Matrices::X1 { format!("{{{d}}}") } else { d };
            w.line(format!("ldmatrix.sync.aligned.m8n8.{}{}.shared.b16 {d}, {at}", count.name(), turned(*trans)));
        }
        MmaOp::StMatrix { at, v, count, trans } => {
            let at = w.addr(*at);
            let v = w.list(v);
            w.line(format!("stmatrix.sync.aligned.m8n8.{}{}.shared.b16 {at}, {v}", count.name(), turned(*trans)));
        }
        MmaOp::MmaSync { acc, a, b, atom } => mma_sync(w, *acc, a, b, *atom),
        MmaOp::WgmmaFence {} => w.line("wgmma.fence.sync.aligned"),
        MmaOp::WgmmaCommit {} => w.line("wgmma.commit_group.sync.aligned"),
        MmaOp::WgmmaWait { pending } => w.line(format!("wgmma.wait_group.sync.aligned {}", pending.0)),
        MmaOp::WgmmaSs { acc, a, b, scale, atom, sign_a, sign_b, major_a, major_b } => {
            let a = w.reg(*a);
            let b = w.reg(*b);
            let signs = [*sign_a, *sign_b];
            let majors = [*major_a, *major_b];
            wgmma(w, *acc, [&a, &b], *scale, *atom, &immediates(*atom, signs, &majors));
        }
        MmaOp::WgmmaRs { acc, a, b, scale, atom, sign_a, sign_b, major_b } => {
            let a = w.list(a);
            let b = w.reg(*b);
            let signs = [*sign_a, *sign_b];
            wgmma(w, *acc, [&a, &b], *scale, *atom, &immediates(*atom, signs, &[*major_b]));
        }
    }
}

fn turned(trans: Trans) -> &'static str {
    match trans {
        Trans::No => "",
        Trans::Yes => ".trans",
    }
}

fn mma_sync(w: &mut Writer<'_>, acc: Regs, a: &[Operand], b: &[Operand], atom: MmaAtom) {
    let ((m, n, k), (elem, a_elem, b_elem)) = (atom.shape(), atom.elems());
    let acc = w.run(acc);
    let a = w.list(a);
    let b = w.list(b);
    let elem = elem.name();
    let a_elem = a_elem.name();
    let b_elem = b_elem.name();
    let head = format!("mma.sync.aligned.m{m}n{n}k{k}.row.col.{elem}.{a_elem}.{b_elem}.{elem}");
    w.line(format!("{head} {acc}, {a}, {b}, {acc}"));
}

fn wgmma(w: &mut Writer<'_>, acc: Regs, [a, b]: [&str; 2], scale: Operand, atom: WgmmaAtom, immediates: &str) {
    let (kind, (elem, a_elem, b_elem)) = (atom.kind(), atom.kind().elems());
    let acc = w.run(acc);
    let scale = w.reg(scale);
    let types = format!("{}.{}.{}", elem.name(), a_elem.name(), b_elem.name());
    let head = format!("wgmma.mma_async.sync.aligned.m64n{}k{}.{types}", atom.n(), kind.k());
    w.line(format!("{head} {acc}, {a}, {b}, {scale}{immediates}"));
}

/// Signs for floats, transpositions for 16-bit types.
fn immediates(atom: WgmmaAtom, signs: [Sign; 2], majors: &[Major]) -> String {
    let (_, a, _) = atom.kind().elems();
    let mut out = String::new();
    if !a.is_int() {
        out.extend(signs.map(|sign| if sign == Sign::Plus { ", 1" } else { ", -1" }));
    }
    if a.bits() == 16 {
        out.extend(majors.iter().map(|&major| if major == Major::K { ", 0" } else { ", 1" }));
    }
    out
}
