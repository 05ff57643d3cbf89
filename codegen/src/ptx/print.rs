//! Calls of the driver's functions: `vprintf` and `__assertfail`.

use super::writer::Writer;
use crate::ir::attr::SpecialReg;
use crate::ir::{Operand, Src, Ty};

/// The functions as PTX declares them.
pub(super) const VPRINTF: &str = ".extern .func (.param .b32 status) vprintf (.param .b64 format, .param .b64 values);";
pub(super) const ASSERTFAIL: &str = ".extern .func __assertfail (.param .b64 text, .param .b64 file, .param .b32 line, .param .b64 kernel, .param .b64 size);";

/// What a line begins with: block and thread.
const PLACES: [SpecialReg; 6] =
    [SpecialReg::CtaidX, SpecialReg::CtaidY, SpecialReg::CtaidZ, SpecialReg::TidX, SpecialReg::TidY, SpecialReg::TidZ];

/// Conversions of `vprintf`, and the bytes of an argument: floats are passed as f64.
const CONVERSIONS: [(Ty, &str, u32); 5] =
    [(Ty::S32, "%d", 4), (Ty::U64, "%llu", 8), (Ty::S64, "%lld", 8), (Ty::F32, "%.9g", 8), (Ty::F64, "%.17g", 8)];

/// The conversion for a type, and the bytes of its argument.
fn conversion(ty: Ty) -> (&'static str, u32) {
    let known = CONVERSIONS.into_iter().find(|(of, ..)| *of == ty);
    known.map_or(("%u", 4), |(_, conversion, bytes)| (conversion, bytes))
}

pub(super) fn emit_print(w: &mut Writer<'_>, text: &str, values: &[Operand]) {
    let types: Vec<Ty> = values.iter().map(|&value| w.kernel.type_of(value).unwrap_or(Ty::U32)).collect();
    let mut format = "block (%u, %u, %u), thread (%u, %u, %u): ".to_owned();
    let mut pieces = text.split("{}").map(|piece| piece.replace('%', "%%"));
    format.push_str(&pieces.next().unwrap_or_default());
    for (piece, &ty) in pieces.zip(&types) {
        format.push_str(conversion(ty).0);
        format.push_str(&piece);
    }
    format.push('\n');
    let format = w.text(&format);
    w.declare(VPRINTF);
    let mut at: u32 = 4 * PLACES.len() as u32;
    let mut stores = Vec::new();
    for (&value, &ty) in values.iter().zip(&types) {
        let (_, bytes) = conversion(ty);
        at = at.next_multiple_of(bytes);
        stores.push((value, ty, at));
        at += bytes;
    }
    w.open();
    w.line(format!(".local .align 8 .b8 values[{at}]"));
    w.line(".param .b64 format_in");
    w.line(".param .b64 values_in");
    w.line(".param .b32 status_out");
    for (index, place) in (0u32..).zip(PLACES) {
        let temp = w.temp(Ty::U32);
        w.line(format!("mov.u32 {temp}, %{}", place.name()));
        w.line(format!("st.local.u32 [values+{}], {temp}", 4 * index));
    }
    for (value, ty, at) in stores {
        let value = w.reg(value);
        if ty == Ty::F32 {
            let wide = w.temp(Ty::F64);
            w.line(format!("cvt.f64.f32 {wide}, {value}"));
            w.line(format!("st.local.b64 [values+{at}], {wide}"));
        } else {
            w.line(format!("st.local.b{} [values+{at}], {value}", ty.bits()));
        }
    }
    let format = w.generic("global", &format);
    let values = w.generic("local", "values");
    w.line(format!("st.param.b64 [format_in], {format}"));
    w.line(format!("st.param.b64 [values_in], {values}"));
    w.line("call (status_out), vprintf, (format_in, values_in)");
    w.close();
}

pub(super) fn emit_assert(w: &mut Writer<'_>, cond: Operand, text: &str, src: Option<Src>) {
    let cond = w.reg(cond);
    let [text, file, kernel] = [text, src.map_or("", |src| src.file()), &w.kernel.name].map(|part| w.text(part));
    w.declare(ASSERTFAIL);
    let done = format!("{text}_holds");
    w.line(format!("@{cond} bra {done}"));
    w.open();
    for (name, bits) in [("text_in", 64), ("file_in", 64), ("line_in", 32), ("kernel_in", 64), ("size_in", 64)] {
        w.line(format!(".param .b{bits} {name}"));
    }
    for (name, of) in [("text_in", &text), ("file_in", &file), ("kernel_in", &kernel)] {
        let address = w.generic("global", of);
        w.line(format!("st.param.b64 [{name}], {address}"));
    }
    w.line(format!("st.param.b32 [line_in], {}", src.map_or(0, |src| src.line())));
    w.line("st.param.b64 [size_in], 1");
    w.line("call __assertfail, (text_in, file_in, line_in, kernel_in, size_in)");
    w.close();
    w.label(&done);
}
