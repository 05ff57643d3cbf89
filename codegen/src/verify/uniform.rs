//! Checks convergence: instructions for a warp, a warpgroup or a block must be at places that all
//! its threads reach.
//!
//! A conservative analysis. Each value has a [`UniformLevel`]: the largest group of threads in
//! which it is known to be the same; each place in the text has one too, from the conditions around
//! it. A second level is that of the largest group in which threads of the same lane agree: what
//! lanes vote on is then the same in all warps of that group ([`Agreement`]). Levels only sink, so
//! the walk is repeated until nothing changes. Known levels of single values:
//!
//! | value | level |
//! |---|---|
//! | constants, parameters, block and cluster indexes | block |
//! | a quotient of the thread index by 32, by 128 | warp, warpgroup |
//! | thread index, or such a quotient, compared (`<`, `≥`) with a bound that is a multiple of 32, of 128 threads | warp, warpgroup |
//! | the lane | lane; by lane: block |
//! | votes and reductions of a full warp | the operand's by lane |
//! | a shuffle from one lane | warp |
//! | weak loads | as the address: races are the simulator's to find |
//! | ordered loads, atomics, clocks, elections, looks at mbarriers | lane |
//! | registers | the least of what was set, and of where |
//! | everything else | the least of the operands |
//!
//! Barrier 0 with all threads is the barrier of the block and asks for the block. Other barriers
//! ask for whole warps: their counts let roles meet from different branches.

use super::{ErrorKind, Faults};
use crate::ir::attr::{BarId, Cmp, LdOrder, ShflMode, SpecialReg};
use crate::ir::{
    ArithOp, BitsOp, Block, Const, Flag, Inst, Kernel, MemOp, MmaOp, Operand, OperandSlot, Stmt, StmtId, StmtKind,
    SyncOp, Ty, ValueId, ValueOp, WarpOp,
};
use std::collections::HashMap;

/// The largest group of threads in which something is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum UniformLevel {
    Lane,
    Warp,
    Warpgroup,
    Block,
}

impl UniformLevel {
    fn noun(self) -> &'static str {
        match self {
            UniformLevel::Lane => "lane",
            UniformLevel::Warp => "warp",
            UniformLevel::Warpgroup => "warpgroup",
            UniformLevel::Block => "block",
        }
    }

    /// The level of a split at multiples of `threads` threads.
    fn of_multiple(threads: u64) -> UniformLevel {
        match threads {
            t if t.is_multiple_of(128) => UniformLevel::Warpgroup,
            t if t.is_multiple_of(32) => UniformLevel::Warp,
            _ => UniformLevel::Lane,
        }
    }
}

/// The groups of threads in which something is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Agreement {
    /// In all threads.
    all: UniformLevel,
    /// In threads of the same lane: a warp at least, and no smaller group than `all`.
    by_lane: UniformLevel,
}

impl Agreement {
    const BLOCK: Agreement = Agreement::of(UniformLevel::Block);
    const NONE: Agreement = Agreement::of(UniformLevel::Lane);
    /// Of a value that the lane alone determines.
    const LANE: Agreement = Agreement { all: UniformLevel::Lane, by_lane: UniformLevel::Block };

    const fn of(all: UniformLevel) -> Agreement {
        Agreement { all, by_lane: if matches!(all, UniformLevel::Lane) { UniformLevel::Warp } else { all } }
    }

    /// What holds of both.
    fn min(self, other: Agreement) -> Agreement {
        Agreement { all: self.all.min(other.all), by_lane: self.by_lane.min(other.by_lane) }
    }

    /// What either shows.
    fn max(self, other: Agreement) -> Agreement {
        Agreement { all: self.all.max(other.all), by_lane: self.by_lane.max(other.by_lane) }
    }
}

/// Why threads may part.
#[derive(Clone, Debug)]
struct Divergence {
    level: Agreement,
    reason: String,
}

impl Divergence {
    fn under(&self, level: Agreement, reason: impl FnOnce() -> String) -> Divergence {
        let level = self.level.min(level);
        let reason = if level.all < self.level.all { reason() } else { self.reason.clone() };
        Divergence { level, reason }
    }
}

/// Checks the levels that instructions ask for.
pub(super) fn verify_uniform(faults: &mut Faults<'_>) {
    let kernel = faults.kernel;
    let mut levels = Levels::new(kernel);
    let start = Divergence { level: Agreement::BLOCK, reason: String::new() };
    loop {
        levels.changed = false;
        levels.exited = start.clone();
        levels.block(&kernel.body, &start, &mut |_, _, _| {});
        if !levels.changed {
            break;
        }
    }
    levels.exited = start.clone();
    let mut found = Vec::new();
    levels.block(&kernel.body, &start, &mut |levels, stmt, place| {
        if let StmtKind::Inst(inst) = &stmt.op
            && let Some((needed, reason)) = levels.lacking(inst, place)
        {
            found.push((stmt, inst.row().mnemonic, needed, reason));
        }
    });
    for (stmt, inst, needed, reason) in found {
        faults.at(stmt, ErrorKind::Divergent { inst, group: needed.noun(), reason });
    }
}

/// Lowers a level to what also holds.
fn sink(old: &mut Agreement, level: Agreement, changed: &mut bool) {
    let lower = old.min(level);
    *changed |= lower != *old;
    *old = lower;
}

struct Levels<'a> {
    kernel: &'a Kernel,
    values: Vec<Agreement>,
    vars: Vec<Agreement>,
    /// Values that are the thread index shifted right by a number of bits.
    shifted: HashMap<ValueId, u32>,
    /// The level at which a loop is left.
    loops: HashMap<StmtId, Agreement>,
    inside: Vec<StmtId>,
    /// The level of the rest of the block after exits.
    exited: Divergence,
    changed: bool,
}

type See<'s, 'a> = dyn FnMut(&Levels<'a>, &'a Stmt, &Divergence) + 's;

impl<'a> Levels<'a> {
    fn new(kernel: &'a Kernel) -> Levels<'a> {
        Levels {
            kernel,
            values: vec![Agreement::BLOCK; kernel.values.len()],
            vars: vec![Agreement::BLOCK; kernel.vars.len()],
            shifted: HashMap::new(),
            loops: HashMap::new(),
            inside: Vec::new(),
            exited: Divergence { level: Agreement::BLOCK, reason: String::new() },
            changed: false,
        }
    }

    fn of(&self, operand: Operand) -> Agreement {
        operand.as_value().and_then(|v| self.values.get(v.index()).copied()).unwrap_or(Agreement::BLOCK)
    }

    fn sink_value(&mut self, value: ValueId, level: Agreement) {
        if let Some(old) = self.values.get_mut(value.index()) {
            sink(old, level, &mut self.changed);
        }
    }

    fn sink_loop(&mut self, id: StmtId, level: Agreement) {
        sink(self.loops.entry(id).or_insert(Agreement::BLOCK), level, &mut self.changed);
    }

    fn block(&mut self, stmts: &'a Block, place: &Divergence, see: &mut See<'_, 'a>) {
        for stmt in stmts {
            let exited = self.exited.clone();
            let here = place.under(exited.level, || exited.reason);
            see(self, stmt, &here);
            self.statement(stmt, &here, see);
        }
    }

    fn statement(&mut self, stmt: &'a Stmt, here: &Divergence, see: &mut See<'_, 'a>) {
        match &stmt.op {
            StmtKind::Inst(inst) => self.instruction(stmt, inst, here),
            StmtKind::If { cond, then, otherwise } => {
                let level = self.of(*cond);
                let inner = here.under(level, || format!("condition {cond} of {} may differ within it", stmt.id));
                self.block(then, &inner, see);
                self.block(otherwise, &inner, see);
            }
            StmtKind::For { var, start, end, step, body } => {
                let bounds = [*start, *end, *step].map(|bound| self.of(bound));
                let level = bounds.into_iter().fold(Agreement::BLOCK, Agreement::min);
                self.sink_loop(stmt.id, level);
                let inner = self.inside_loop(stmt, here);
                self.sink_value(*var, inner.level);
                self.repeat(stmt, body, &inner, see);
            }
            StmtKind::Loop { body } => {
                let inner = self.inside_loop(stmt, here);
                self.repeat(stmt, body, &inner, see);
            }
            StmtKind::Break => {
                if let Some(&id) = self.inside.last() {
                    self.sink_loop(id, here.level);
                }
            }
        }
    }

    /// Inside a loop, threads that left it are missing.
    fn inside_loop(&self, stmt: &Stmt, here: &Divergence) -> Divergence {
        let level = self.loops.get(&stmt.id).copied().unwrap_or(Agreement::BLOCK);
        here.under(level, || format!("loop {} may be left by some threads of it before others", stmt.id))
    }

    fn repeat(&mut self, stmt: &Stmt, body: &'a Block, inner: &Divergence, see: &mut See<'_, 'a>) {
        self.inside.push(stmt.id);
        self.block(body, inner, see);
        self.inside.pop();
    }

    fn instruction(&mut self, stmt: &Stmt, inst: &Inst, here: &Divergence) {
        if let Inst::Control(crate::ir::ControlOp::Exit {}) = inst {
            let id = stmt.id;
            self.exited = self.exited.under(here.level, || format!("some threads of it may have ended at {id}"));
            if let Some(&id) = self.inside.last() {
                self.sink_loop(id, here.level);
            }
        } else if let Inst::Value(ValueOp::Set { r, a, .. }) = inst {
            let level = self.of(*a).min(here.level);
            if let Some(old) = self.vars.get_mut(r.var.index()) {
                sink(old, level, &mut self.changed);
            }
        } else {
            let level = self.result(inst);
            inst.defs().into_iter().for_each(|value| self.sink_value(value, level));
            self.note_shifted(inst);
        }
    }

    /// The level of what an instruction writes.
    fn result(&self, inst: &Inst) -> Agreement {
        let least = inst.uses().into_iter().map(|operand| self.of(operand)).fold(Agreement::BLOCK, Agreement::min);
        match inst {
            Inst::Value(op) => match op {
                ValueOp::Special { reg, .. } => match reg {
                    SpecialReg::TidX | SpecialReg::TidY | SpecialReg::TidZ => Agreement::NONE,
                    SpecialReg::Laneid => Agreement::LANE,
                    SpecialReg::CtaidX
                    | SpecialReg::CtaidY
                    | SpecialReg::CtaidZ
                    | SpecialReg::NctaidX
                    | SpecialReg::NctaidY
                    | SpecialReg::NctaidZ
                    | SpecialReg::ClusterCtarank
                    | SpecialReg::ClusterNctarank
                    | SpecialReg::ClusteridX
                    | SpecialReg::NclusteridX
                    | SpecialReg::Smid => Agreement::BLOCK,
                },
                ValueOp::Get { r, .. } => self.vars.get(r.var.index()).copied().unwrap_or(Agreement::NONE),
                ValueOp::Clock { .. } => Agreement::NONE,
                ValueOp::Param { .. }
                | ValueOp::ParamPtr { .. }
                | ValueOp::Shared { .. }
                | ValueOp::PtrAdd { .. }
                | ValueOp::PtrBits { .. }
                | ValueOp::PtrFrom { .. }
                | ValueOp::MapA { .. }
                | ValueOp::Set { .. } => least,
            },
            Inst::Mem(MemOp::Ld { order: LdOrder::Weak, .. }) => least,
            Inst::Mem(MemOp::Ld { .. } | MemOp::Atom { .. } | MemOp::Cas { .. }) => Agreement::NONE,
            Inst::Warp(op) => self.warp(op, least),
            Inst::Sync(_) => Agreement::NONE,
            Inst::Mma(MmaOp::LdMatrix { .. }) => Agreement::NONE,
            Inst::Bits(BitsOp::Shr { a, n, .. }) => least.max(Agreement::of(self.quotient(*a, n.as_const()))),
            Inst::Arith(ArithOp::Div { a, b, .. }) => least.max(Agreement::of(self.quotient(*a, log2(*b)))),
            Inst::Arith(ArithOp::Setp { a, b, cmp: Cmp::Lt | Cmp::Ge, .. }) => match (self.shift(*a), b.as_const()) {
                (Some(shift), Some(bound)) if bound.bits < 1 << 20 => {
                    least.max(Agreement::of(UniformLevel::of_multiple(bound.bits << shift)))
                }
                _ => least,
            },
            Inst::Arith(_)
            | Inst::Bits(_)
            | Inst::Convert(_)
            | Inst::Mem(MemOp::St { .. } | MemOp::Red { .. } | MemOp::PrefetchL2 { .. } | MemOp::CreatePolicy { .. })
            | Inst::Copy(_)
            | Inst::Mma(_)
            | Inst::Control(_) => least,
        }
    }

    fn warp(&self, op: &WarpOp, least: Agreement) -> Agreement {
        let threads = self.kernel.launch.threads_per_block();
        let all = if threads < 32 { (1 << threads) - 1 } else { u32::MAX };
        let full = |mask: &Operand| mask.as_const().is_some_and(|m| m.bits & u64::from(all) == u64::from(all));
        // Lanes of a warp vote alike where those of another one do.
        let agreed = |mask: &Operand| if full(mask) { Agreement::of(least.by_lane) } else { Agreement::NONE };
        match op {
            WarpOp::Shfl { a, b, width, mask, mode, .. } => {
                let one = *mode == ShflMode::Idx
                    && self.of(*b).all >= UniformLevel::Warp
                    && width.as_const().is_some_and(|w| w.bits == 32)
                    && full(mask);
                let one = Agreement::of(if one { UniformLevel::Warp } else { UniformLevel::Lane });
                Agreement { all: self.of(*a).all, by_lane: UniformLevel::Warp.max(self.of(*a).all) }.max(one)
            }
            WarpOp::Vote { mask, .. }
            | WarpOp::Ballot { mask, .. }
            | WarpOp::MatchAll { mask, .. }
            | WarpOp::Redux { mask, .. } => least.max(agreed(mask)),
            WarpOp::MatchAny { .. } | WarpOp::ActiveMask { .. } | WarpOp::Elect { .. } | WarpOp::SyncWarp { .. } => {
                Agreement::NONE
            }
        }
    }

    fn shift(&self, operand: Operand) -> Option<u32> {
        self.shifted.get(&operand.as_value()?).copied()
    }

    /// The level of the thread index, shifted by `bits` more.
    fn quotient(&self, operand: Operand, bits: Option<Const>) -> UniformLevel {
        match (self.shift(operand), bits) {
            (Some(shift), Some(bits)) if bits.bits < 16 => {
                UniformLevel::of_multiple(1 << (u64::from(shift) + bits.bits))
            }
            _ => UniformLevel::Lane,
        }
    }

    fn note_shifted(&mut self, inst: &Inst) {
        let [_, y, z] = self.kernel.launch.threads;
        let (d, shift) = if let Inst::Value(ValueOp::Special { d, reg: SpecialReg::TidX }) = inst {
            (*d, (y == 1 && z == 1).then_some(0))
        } else if let Inst::Bits(BitsOp::Shr { d, a, n, .. }) = inst {
            (*d, self.further(*a, n.as_const()))
        } else if let Inst::Arith(ArithOp::Div { d, a, b, .. }) = inst {
            (*d, self.further(*a, log2(*b)))
        } else {
            return;
        };
        if let Some(shift) = shift {
            self.changed |= self.shifted.insert(d, shift).is_none();
        }
    }

    fn further(&self, operand: Operand, bits: Option<Const>) -> Option<u32> {
        let total = self.shift(operand)? + bits?.bits.min(32) as u32;
        (total < 16).then_some(total)
    }

    /// The level that an instruction asks for and does not have, and why.
    fn lacking(&self, inst: &Inst, place: &Divergence) -> Option<(UniformLevel, String)> {
        let all = self.kernel.launch.threads_in_warps();
        let needed = if matches!(inst, Inst::Sync(SyncOp::BarSync { id: BarId(0), threads }) if threads.0 == all) {
            UniformLevel::Block
        } else if inst.is(Flag::Warpgroup) {
            UniformLevel::Warpgroup
        } else if inst.is(Flag::Warp) {
            UniformLevel::Warp
        } else {
            return None;
        };
        // A barrier of the whole block asks for its warps to be whole first: the smaller group is
        // the clearer report.
        if place.level.all < needed {
            let group = if place.level.all < UniformLevel::Warp { needed.min(UniformLevel::Warp) } else { needed };
            return Some((group, place.reason.clone()));
        }
        self.differing(inst).map(|name| (needed, format!("operand `{name}` may differ within it")))
    }

    /// An operand of a `wgmma` that is not the same in the warpgroup and must be.
    fn differing(&self, inst: &Inst) -> Option<&'static str> {
        let mut differs = None;
        if inst.is(Flag::Warpgroup) {
            inst.visit(&mut |spec, slot| {
                if let OperandSlot::Use(operand) = slot
                    && self.of(operand).all < UniformLevel::Warpgroup
                {
                    differs = differs.or(Some(spec.name));
                }
            });
        }
        differs
    }
}

/// The constant's logarithm to base 2, if it is a power of two.
fn log2(operand: Operand) -> Option<Const> {
    let bits = operand.as_const()?.bits;
    bits.is_power_of_two().then(|| Const::new(Ty::U32, u64::from(bits.trailing_zeros())))
}
