//! The writer: lines, names of registers, operands, and registers for what PTX does not take as an
//! immediate.

use super::copies::{CopySources, MinusZeros};
use super::read::{Anchored, LastingReads};
use super::scope::ModuleScope;
use crate::ir::{Addr, Const, Inst, Kernel, Operand, ParamId, Regs, Space, Src, StmtKind, Ty, ValueId, ValueOp};
use core::cell::OnceCell;
use core::fmt::Write as _;
use std::collections::HashMap;

/// Writes the body of a kernel.
pub(super) struct Writer<'a> {
    pub kernel: &'a Kernel,
    /// The line of Rust that recorded the statement that is written.
    pub src: Option<Src>,
    /// What stands before the entry point.
    pub scope: ModuleScope,
    body: String,
    /// Temporary registers handed out, by class.
    temps: [u32; 4],
    /// Pointers that are the start of a parameter.
    params: HashMap<ValueId, ParamId>,
    /// The sources that the bits of values are copies of.
    copies: CopySources,
    /// Values with a half that may be the constant −0, computed lazily: only products of pairs need
    /// them.
    minus_zeros: OnceCell<MinusZeros>,
    /// The values that something reads.
    read: LastingReads,
    /// The anchored values, computed lazily: only votes need them, and few kernels have votes.
    anchored: OnceCell<Anchored>,
}

/// Register classes: prefix and declared type.
const CLASSES: [(char, &str); 4] = [('p', "pred"), ('h', "b16"), ('r', "b32"), ('d', "b64")];

fn class(ty: Ty) -> usize {
    match ty.bits() {
        1 => 0,
        8 | 16 => 1,
        32 => 2,
        _ => 3,
    }
}

/// The type as a PTX suffix, floats and pairs by their own name, pointers as unsigned integers.
pub(super) fn type_name(ty: Ty) -> &'static str {
    if let Ty::Ptr(space) = ty { space.address().name() } else { ty.name() }
}

/// The untyped suffix of the width; 8 bits for 8-bit types.
pub(super) fn bits_type(ty: Ty) -> &'static str {
    match ty.bits() {
        1 => "pred",
        8 => "b8",
        16 => "b16",
        32 => "b32",
        _ => "b64",
    }
}

/// The bits type of a register: like [`bits_type`], but 8-bit values take 16 bits.
pub(super) fn reg_type(ty: Ty) -> &'static str {
    if ty.bits() == 8 { "b16" } else { bits_type(ty) }
}

/// The type of memory accesses and parameters: 16-bit floats and pairs as bits.
pub(super) fn int_type(ty: Ty) -> &'static str {
    if matches!(ty, Ty::F16 | Ty::BF16 | Ty::F16x2 | Ty::BF16x2) { bits_type(ty) } else { type_name(ty) }
}

/// The space as a PTX suffix.
pub(super) fn space_name(space: Space) -> &'static str {
    match space {
        Space::Global => "global",
        Space::Shared => "shared",
        Space::Cluster => "shared::cluster",
        Space::Param => "param",
    }
}

impl<'a> Writer<'a> {
    pub fn new(kernel: &'a Kernel) -> Writer<'a> {
        let mut params = HashMap::new();
        kernel.walk(&mut |stmt| {
            if let StmtKind::Inst(Inst::Value(ValueOp::ParamPtr { d, param })) = &stmt.op {
                params.insert(*d, *param);
            }
        });
        Writer {
            kernel,
            src: None,
            scope: ModuleScope::default(),
            body: String::new(),
            temps: [0; 4],
            params,
            copies: CopySources::of(kernel),
            minus_zeros: OnceCell::new(),
            read: LastingReads::of(kernel),
            anchored: OnceCell::new(),
        }
    }

    /// The first value with these bits, of which the operand is a copy, or the constant.
    pub fn source(&self, operand: Operand) -> Operand {
        self.copies.source(operand)
    }

    /// Whether a half of the operand may be the constant −0.
    pub fn may_be_minus_zero(&self, operand: Operand) -> bool {
        self.minus_zeros.get_or_init(|| MinusZeros::of(self.kernel)).may_be(operand)
    }

    /// Whether something reads one of these values.
    pub fn is_read(&self, values: &[ValueId]) -> bool {
        self.read.any(values)
    }

    /// Whether an instruction of the same block needs a value.
    pub fn is_anchored(&self, value: ValueId) -> bool {
        self.anchored.get_or_init(|| Anchored::of(self.kernel)).has(value)
    }

    /// Appends an instruction, without its semicolon.
    pub fn line(&mut self, text: impl AsRef<str>) {
        let _ = writeln!(self.body, "    {};", text.as_ref());
    }

    /// Declares a function before the entry point.
    pub fn declare(&mut self, function: &'static str) {
        self.scope.declare(function);
    }

    /// The name of a text in global memory, which ends with a zero.
    pub fn text(&mut self, text: &str) -> String {
        format!("{}_text{}", self.kernel.name, self.scope.text(text))
    }

    /// The generic address of a variable of a space, in a register.
    pub fn generic(&mut self, space: &str, name: &str) -> String {
        let [address, generic] = [0; 2].map(|_| self.temp(Ty::U64));
        self.line(format!("mov.u64 {address}, {name}"));
        self.line(format!("cvta.{space}.u64 {generic}, {address}"));
        generic
    }

    /// Opens a scope of declarations.
    pub fn open(&mut self) {
        self.body.push_str("    {\n");
    }

    /// Closes it.
    pub fn close(&mut self) {
        self.body.push_str("    }\n");
    }

    /// Appends a label.
    pub fn label(&mut self, name: &str) {
        let _ = writeln!(self.body, "{name}:");
    }

    /// Appends a remark.
    pub fn remark(&mut self, text: &str) {
        let _ = writeln!(self.body, "    // {text}");
    }

    /// Declarations and body, to the closing brace.
    pub fn finish(self, out: &mut String) {
        for (index, (prefix, ty)) in CLASSES.into_iter().enumerate() {
            let last = (0u32..).zip(&self.kernel.values).filter(|(_, ty)| class(**ty) == index).map(|(i, _)| i).last();
            if let Some(last) = last {
                let _ = writeln!(out, "    .reg .{ty} %{prefix}<{}>;", last + 1);
            }
            if self.temps[index] > 0 {
                let _ = writeln!(out, "    .reg .{ty} %t{prefix}<{}>;", self.temps[index]);
            }
        }
        for (index, var) in self.kernel.vars.iter().enumerate() {
            let _ = writeln!(out, "    .reg .{} %x{index}_<{}>;", reg_type(var.ty), var.len);
        }
        out.push('\n');
        out.push_str(&self.body);
        out.push_str("    ret;\n}\n");
    }

    /// The register of a value.
    pub fn def(&self, value: ValueId) -> String {
        let ty = self.kernel.values.get(value.index()).copied().unwrap_or(Ty::U32);
        format!("%{}{}", CLASSES[class(ty)].0, value.0)
    }

    /// A fresh temporary register.
    pub fn temp(&mut self, ty: Ty) -> String {
        let index = class(ty);
        self.temps[index] += 1;
        format!("%t{}{}", CLASSES[index].0, self.temps[index] - 1)
    }

    /// The name of one register of an array.
    pub fn var(&self, regs: Regs) -> String {
        format!("%x{}_{}", regs.var.0, regs.start)
    }

    /// A run of registers in braces.
    pub fn run(&self, regs: Regs) -> String {
        let all: Vec<String> = regs.range().map(|i| format!("%x{}_{i}", regs.var.0)).collect();
        format!("{{{}}}", all.join(", "))
    }

    /// An operand: a register or an immediate, whichever PTX takes for its type.
    pub fn op(&mut self, operand: Operand) -> String {
        match operand {
            Operand::Value(value) => self.def(value),
            Operand::Const(value) if value.ty == Ty::F32 => format!("0f{:08X}", value.bits),
            Operand::Const(value) if value.ty == Ty::F64 => format!("0d{:016X}", value.bits),
            Operand::Const(value) if value.ty == Ty::Pred || value.ty.is_float() => self.materialise(value),
            Operand::Const(value) => immediate(value),
        }
    }

    /// An operand in a register.
    pub fn reg(&mut self, operand: Operand) -> String {
        match operand {
            Operand::Value(value) => self.def(value),
            Operand::Const(value) => self.materialise(value),
        }
    }

    /// Operands in registers, in braces.
    pub fn list(&mut self, operands: &[Operand]) -> String {
        let all: Vec<String> = operands.iter().map(|&o| self.reg(o)).collect();
        format!("{{{}}}", all.join(", "))
    }

    /// The written values in braces; one alone without.
    pub fn defs(&self, values: &[ValueId]) -> String {
        let all: Vec<String> = values.iter().map(|&v| self.def(v)).collect();
        if all.len() == 1 { all[0].clone() } else { format!("{{{}}}", all.join(", ")) }
    }

    fn materialise(&mut self, value: Const) -> String {
        let temp = self.temp(value.ty);
        if value.ty == Ty::Pred {
            self.line(format!("setp.ne.u32 {temp}, {}, 0", value.bits));
        } else {
            self.line(format!(
                "mov.{} {temp}, {}",
                reg_type(value.ty),
                immediate(Const::new(unsigned(value.ty), value.bits))
            ));
        }
        temp
    }

    /// An operand of 16 bits, extended to 32 by its sign; a constant as an immediate.
    pub fn widened(&mut self, ty: Ty, operand: Operand) -> String {
        let Operand::Value(value) = operand else { return self.op(operand) };
        let wide = wide(ty);
        let narrow = self.def(value);
        let extended = self.temp(wide);
        self.line(format!("cvt.{}.{} {extended}, {narrow}", type_name(wide), type_name(ty)));
        extended
    }

    /// Writes an instruction on integers of 16 bits as one of 32, whose low half is the result.
    /// `parts` gives its name for the 32-bit type and its operands.
    pub fn in_32_bits(&mut self, ty: Ty, d: ValueId, parts: impl FnOnce(&mut Self, &str) -> (String, Vec<String>)) {
        let wide = wide(ty);
        let (name, operands) = parts(self, type_name(wide));
        let d = self.def(d);
        let result = self.temp(wide);
        self.line(format!("{name} {result}, {}", operands.join(", ")));
        self.line(format!("cvt.{}.{} {d}, {result}", type_name(ty), type_name(wide)));
    }

    /// Writes a byte of a register of 32 bits, extended to 32 by its sign, into `d`, by shifts.
    ///
    /// `ptxas` merges a `cvt` or `bfe` that extends a byte by its sign with a conversion of the
    /// result to a float as if the result were signed, also where it is converted as an unsigned
    /// number. It does not merge shifts.
    pub fn sign_extend_byte(&mut self, d: ValueId, a: &str, byte: u8) {
        let mut high = a.to_owned();
        if byte < 3 {
            high = self.temp(Ty::U32);
            self.line(format!("shl.b32 {high}, {a}, {}", 24 - 8 * byte));
        }
        let d = self.def(d);
        self.line(format!("shr.s32 {d}, {high}, 24"));
    }

    /// An address in brackets.
    pub fn addr(&mut self, addr: Addr) -> String {
        let base = self.reg(addr.base);
        bracket(&base, addr.offset)
    }

    /// The name and address of a parameter, if the address is known to be in one.
    pub fn param_addr(&self, addr: Addr) -> Option<String> {
        let param = self.params.get(&addr.base.as_value()?)?;
        Some(bracket(&self.param(*param), addr.offset))
    }

    /// The name of a parameter.
    pub fn param(&self, param: ParamId) -> String {
        format!("{}_p{}", self.kernel.name, param.0)
    }

    /// The space of an address.
    pub fn space(&self, addr: Addr) -> Space {
        match self.kernel.type_of(addr.base) {
            Some(Ty::Ptr(space)) => space,
            _ => Space::Global,
        }
    }
}

fn bracket(base: &str, offset: i32) -> String {
    match offset {
        0 => format!("[{base}]"),
        _ => format!("[{base}{offset:+}]"),
    }
}

/// The type of 32 bits with the signedness of one of 16.
fn wide(ty: Ty) -> Ty {
    if ty.is_signed() { Ty::S32 } else { Ty::U32 }
}

fn unsigned(ty: Ty) -> Ty {
    match ty.bits() {
        1 | 32 => Ty::U32,
        8 | 16 => Ty::U16,
        _ => Ty::U64,
    }
}

fn immediate(value: Const) -> String {
    if matches!(value.ty, Ty::U64 | Ty::Ptr(_)) && value.bits > i64::MAX as u64 {
        return format!("{:#X}", value.bits).replace("0X", "0x");
    }
    value.as_i64().to_string()
}
