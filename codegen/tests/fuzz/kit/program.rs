//! The program being made: values that may be used, places in memory, what is observed.
//!
//! A program is a block of 64 threads. It reads its own input, works in memory of its own and
//! writes what it computed to its own slots. It is well defined by construction: no races, nothing
//! unset, in bounds, whole warps where they are asked for. Values that the IR leaves open never
//! reach a slot: see [`Gen::settle`].

use super::rng::Rng;
use std::collections::BTreeMap;
use tilewright_codegen::ir::attr::{BarId, BarThreads, Cmp, LdCache, LdOrder, Prefetch, SpecialReg, StCache, StOrder};
use tilewright_codegen::ir::{
    Addr, Arch, ArithOp, BitsOp, Block, Const, Inst, InstRow, Kernel, LaunchBounds, MemOp, Operand, Param, ParamId,
    ParamKind, SharedAllocation, SharedId, SharedKind, Space, Stmt, StmtId, StmtKind, SyncOp, Ty, ValueId, ValueOp,
};

/// Threads of a program's block.
pub const THREADS: u32 = 64;
/// Bytes of input of a program: rows of 16 bytes a thread.
pub const INPUT_BYTES: u32 = 16 * THREADS * INPUT_ROWS;
const INPUT_ROWS: u32 = 12;
/// Results of a program, each of 8 bytes a thread.
pub const SLOTS: u32 = 64;
/// Bytes of results of a program.
pub const OUTPUT_BYTES: u32 = SLOTS * THREADS * 8;
/// Bytes of a program's memory to work in: 64 a thread.
pub const SCRATCH_BYTES: u32 = 64 * THREADS;
/// Bytes of the parameter that is passed by value.
pub const PARAM_BYTES: usize = 64;

/// The permitted targets of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// 16 bytes of this thread's own in global or shared memory, or the parameter.
    Own,
    /// This thread's row of the input, which is never written.
    Input,
    /// A place in shared memory at a byte address that was computed.
    At(Operand),
    /// A copy's destination in shared memory, of this thread's own.
    Landing(u32),
}

/// The threads of the block that execute a statement together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Together {
    /// All.
    Block,
    /// Unknown.
    Unknown,
}

/// The contents of a slot.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// The instruction, with its types and attributes.
    pub label: String,
    pub ty: Ty,
    /// Of a result within a bound of error: its row, and how many slots before it hold the
    /// operands.
    pub approx: Option<(&'static str, u32)>,
}

/// Values made at the start of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Base {
    pub tid: Operand,
    pub block: Operand,
    pub input: Operand,
    pub output: Operand,
    pub scratch: Operand,
    pub bytes: Operand,
    pub own: Operand,
    pub own_cluster: Operand,
    pub exchange: Operand,
    pub total: Operand,
    pub landing: Operand,
    pub bulk: Operand,
    pub bars: Operand,
    pub policy: Operand,
}

/// The generator: a kernel, and the state of the program that is being added.
pub struct Gen<'r> {
    pub kernel: Kernel,
    pub rng: Rng,
    pub base: Base,
    pub rows: &'r [&'static InstRow],
    pub together: Together,
    pub slots: Vec<Slot>,
    pub input: Vec<u8>,
    /// The number of uses of each row.
    pub counts: BTreeMap<&'static str, u64>,
    /// Cells, barriers and copies that the program has used.
    pub totals: u32,
    pub phases: u32,
    pub landings: u32,
    pub bulks: u32,
    pub depth: u32,
    pub in_loop: bool,
    /// The number of results in a hundred that are observed.
    pub watch: usize,
    /// Whether the operands of every instruction are observed as well.
    pub operands_too: bool,
    exact: Vec<(ValueId, Ty)>,
    loose: Vec<(ValueId, Ty)>,
    open: Vec<Block>,
    next: u32,
    input_rows: u32,
}

/// A constant of 32 bits.
pub fn word(value: u32) -> Operand {
    Const::u32(value).into()
}

fn shared(name: &str, offset: u32, bytes: u32, kind: SharedKind) -> SharedAllocation {
    SharedAllocation { name: name.into(), offset, bytes, align: 16, kind }
}

impl<'r> Gen<'r> {
    /// An empty kernel with its beginning.
    pub fn new(rows: &'r [&'static InstRow]) -> Gen<'r> {
        let pointer = |name: &str| Param {
            name: name.into(),
            kind: ParamKind::Value(Ty::Ptr(Space::Global)),
            elements: Vec::new(),
        };
        let bytes = ParamKind::Bytes { bytes: PARAM_BYTES as u32, align: 16 };
        let kernel = Kernel {
            name: "fuzz".into(),
            arch: Arch::Sm90a,
            launch: LaunchBounds { threads: [THREADS, 1, 1], cluster: [1, 1, 1], min_blocks: None, cooperative: false },
            params: vec![
                pointer("input"),
                pointer("output"),
                pointer("scratch"),
                Param { name: "bytes".into(), kind: bytes, elements: Vec::new() },
            ],
            shared: vec![
                shared("own", 0, 32 * THREADS, SharedKind::Data),
                shared("exchange", 2048, 16 * THREADS, SharedKind::Data),
                shared("total", 3072, 8 * THREADS, SharedKind::Data),
                shared("landing", 3584, 64 * THREADS, SharedKind::Data),
                shared("bulk", 7680, 16 * THREADS, SharedKind::Data),
                shared("bars", 8704, 32, SharedKind::Mbarriers(4)),
            ],
            vars: Vec::new(),
            values: Vec::new(),
            body: Block::new(),
            refused: Vec::new(),
            bounds: Default::default(),
        };
        let nothing = word(0);
        let base = Base {
            tid: nothing,
            block: nothing,
            input: nothing,
            output: nothing,
            scratch: nothing,
            bytes: nothing,
            own: nothing,
            own_cluster: nothing,
            exchange: nothing,
            total: nothing,
            landing: nothing,
            bulk: nothing,
            bars: nothing,
            policy: nothing,
        };
        let mut new = Gen {
            kernel,
            rng: Rng::new(0),
            base,
            rows,
            together: Together::Block,
            slots: Vec::new(),
            input: Vec::new(),
            counts: BTreeMap::new(),
            totals: 0,
            phases: 0,
            landings: 0,
            bulks: 0,
            depth: 0,
            in_loop: false,
            watch: 100,
            operands_too: false,
            exact: Vec::new(),
            loose: Vec::new(),
            open: vec![Block::new()],
            next: 0,
            input_rows: 0,
        };
        new.begin();
        new
    }

    /// Addresses, and first values of shared memory.
    fn begin(&mut self) {
        let global = Ty::Ptr(Space::Global);
        let [input, output, scratch] =
            [0, 1, 2].map(|i| self.made(global, |d| ValueOp::Param { ty: global, d, param: ParamId(i) }));
        let tid = self.made(Ty::U32, |d| ValueOp::Special { d, reg: SpecialReg::TidX });
        let block = self.made(Ty::U32, |d| ValueOp::Special { d, reg: SpecialReg::CtaidX });
        let rows: [(Operand, u32, u32); 3] =
            [(input, INPUT_BYTES, 16), (output, OUTPUT_BYTES, 8), (scratch, SCRATCH_BYTES, 64)];
        let [input, output, scratch] = rows.map(|(start, of_block, of_thread)| {
            let far = self.made(Ty::U64, |d| ArithOp::MulWide { ty: Ty::U32, d, a: block, b: word(of_block) });
            let near = self.made(Ty::U64, |d| ArithOp::MulWide { ty: Ty::U32, d, a: tid, b: word(of_thread) });
            let bytes = self.made(Ty::U64, |d| ArithOp::Add { ty: Ty::U64, d, a: far, b: near });
            self.made(global, |d| ValueOp::PtrAdd { ty: global, from: Ty::U64, d, p: start, bytes })
        });
        let [own, exchange, total, landing, bulk, bars] = [0, 1, 2, 3, 4, 5]
            .map(|i| self.made(Ty::Ptr(Space::Shared), |d| ValueOp::Shared { d, alloc: SharedId(i) }));
        let own = self.plus(own, tid, 32);
        let landing = self.plus(landing, tid, 64);
        let own_cluster = self.made(Ty::Ptr(Space::Cluster), |d| ValueOp::MapA { d, p: own, rank: word(0) });
        let bytes = self.made(Ty::Ptr(Space::Param), |d| ValueOp::ParamPtr { d, param: ParamId(3) });
        let eviction = tilewright_codegen::ir::attr::Eviction::First;
        let policy = self.made(Ty::U64, |d| MemOp::CreatePolicy { d, eviction });
        self.base = Base {
            tid,
            block,
            input,
            output,
            scratch,
            bytes,
            own,
            own_cluster,
            exchange,
            total,
            landing,
            bulk,
            bars,
            policy,
        };
        for at in [own, self.plus(exchange, tid, 16), self.plus(own, word(16), 1)] {
            self.store(Ty::U32, Addr { base: at, offset: 0 }, vec![word(0); 4]);
        }
        let mix = Const::new(Ty::U64, 0x9e37_79b9_7f4a_7c15).into();
        let wide = self.made(Ty::U64, |d| ArithOp::MulWide { ty: Ty::U32, d, a: tid, b: word(0x9e37_79b9) });
        let first = self.made(Ty::U64, |d| BitsOp::Xor { ty: Ty::U64, d, a: wide, b: mix });
        let at = self.plus(total, tid, 8);
        self.store(Ty::U64, at.into(), vec![first]);
        let leader = self.made(Ty::Pred, |d| ArithOp::Setp { ty: Ty::U32, d, a: tid, b: word(0), cmp: Cmp::Eq });
        self.inside(|g| {
            for (i, count) in (0..).zip([THREADS, THREADS, 1, 1]) {
                g.emit(SyncOp::MbarInit { bar: Addr { base: bars, offset: 8 * i }, count: word(count) });
            }
            g.emit(SyncOp::FenceMbarInit {});
        })
        .when(self, leader);
        self.barrier();
    }

    /// `p + index · bytes` in shared memory.
    pub fn plus(&mut self, p: Operand, index: Operand, bytes: u32) -> Operand {
        let ty = Ty::Ptr(Space::Shared);
        let bytes = match (index.as_const(), bytes) {
            (Some(index), _) => word(index.bits as u32 * bytes),
            (None, 1) => index,
            _ => self.made(Ty::U32, |d| ArithOp::Mul { ty: Ty::U32, d, a: index, b: word(bytes) }),
        };
        self.made(ty, |d| ValueOp::PtrAdd { ty, from: Ty::U32, d, p, bytes })
    }

    /// A fresh value.
    pub fn def(&mut self, ty: Ty) -> ValueId {
        self.kernel.values.push(ty);
        ValueId(self.kernel.values.len() as u32 - 1)
    }

    /// Appends an instruction that writes one value; the value.
    pub fn made<I: Into<Inst>>(&mut self, ty: Ty, make: impl FnOnce(ValueId) -> I) -> Operand {
        let d = self.def(ty);
        self.emit(make(d));
        d.into()
    }

    /// Appends an instruction.
    #[track_caller]
    pub fn emit(&mut self, inst: impl Into<Inst>) {
        let inst = inst.into();
        *self.counts.entry(inst.row().mnemonic).or_default() += 1;
        self.push(StmtKind::Inst(inst));
    }

    /// Appends a statement.
    #[track_caller]
    pub fn push(&mut self, op: StmtKind) {
        let stmt = Stmt { id: StmtId(self.next), src: std::panic::Location::caller(), op };
        self.next += 1;
        if let Some(block) = self.open.last_mut() {
            block.push(stmt);
        }
    }

    /// Statements that stand inside another; values made there are not seen outside.
    pub fn inside(&mut self, body: impl FnOnce(&mut Self)) -> Inside {
        let exact = self.exact.len();
        let loose = self.loose.len();
        self.open.push(Block::new());
        body(self);
        self.exact.truncate(exact);
        self.loose.truncate(loose);
        Inside(self.open.pop().unwrap_or_default())
    }

    /// `bar.sync 0` of the block.
    pub fn barrier(&mut self) {
        self.emit(SyncOp::BarSync { id: BarId(0), threads: BarThreads(THREADS) });
    }

    /// A plain store.
    pub fn store(&mut self, ty: Ty, at: Addr, v: Vec<Operand>) {
        self.emit(MemOp::St { ty, at, v, policy: None, order: StOrder::Weak, cache: StCache::Default });
    }

    /// Begins the program of a seed: nothing of an earlier one is seen.
    pub fn start(&mut self, seed: u64) {
        self.rng = Rng::new(seed);
        self.slots.clear();
        self.input = vec![0; INPUT_BYTES as usize];
        (self.totals, self.phases, self.landings, self.bulks, self.input_rows) = (0, 0, 0, 0, 0);
        self.operands_too = false;
        self.watch = if self.rng.percent(50) { 100 } else { 35 };
        self.exact.clear();
        self.loose.clear();
    }

    /// A row of the input for elements of this type: its byte offset from the thread's first.
    pub fn input_row(&mut self, ty: Ty) -> i32 {
        let row = self.input_rows % INPUT_ROWS;
        if self.input_rows < INPUT_ROWS {
            let start = (row * 16 * THREADS) as usize;
            let size = ty.bytes() as usize;
            for at in (start..start + 16 * THREADS as usize).step_by(size) {
                let bits = self.rng.bits(ty).to_le_bytes();
                self.input[at..at + size].copy_from_slice(&bits[..size]);
            }
        }
        self.input_rows += 1;
        (row * 16 * THREADS) as i32
    }

    /// A plain load of this thread's row of the input.
    pub fn load_input(&mut self, ty: Ty, offset: i32, count: usize) {
        let d: Vec<ValueId> = (0..count).map(|_| self.def(ty)).collect();
        let at = Addr { base: self.base.input, offset };
        let order = LdOrder::Weak;
        let cache = LdCache::Default;
        let prefetch = Prefetch::None;
        self.emit(MemOp::Ld { ty, d: d.clone(), at, policy: None, order, cache, prefetch });
        self.exact.extend(d.into_iter().map(|d| (d, ty)));
    }

    /// An address at a site, in a space; nothing where the site has none.
    pub fn address(&mut self, site: Site, space: Space) -> Option<Addr> {
        let cell = 16 * self.rng.below(2) as i32;
        let (base, offset) = match (site, space) {
            (Site::Own, Space::Global) => (self.base.scratch, cell),
            (Site::Own, Space::Shared) => (self.base.own, cell),
            (Site::Own, Space::Cluster) => (self.base.own_cluster, cell),
            (Site::Own, Space::Param) => (self.base.bytes, cell + 16),
            (Site::Input, Space::Global) => (self.base.input, 16 * THREADS as i32 * self.rng.below(12) as i32),
            (Site::At(base), Space::Shared) => (base, 0),
            (Site::Landing(cell), Space::Shared) => (self.base.landing, 16 * cell as i32),
            (Site::Landing(_), Space::Global) => (self.base.input, 16 * THREADS as i32 * self.rng.below(12) as i32),
            _ => return None,
        };
        Some(Addr { base, offset })
    }

    /// Values of that type that may be used anywhere.
    fn known(&self, ty: Ty) -> Vec<ValueId> {
        self.exact.iter().filter(|(_, other)| *other == ty).map(|(value, _)| *value).collect()
    }

    /// An operand of the type: mostly a late value, else one of the same width made to fit, or a
    /// constant.
    pub fn operand(&mut self, ty: Ty) -> Operand {
        let known = self.known(ty);
        if !known.is_empty() && self.rng.percent(85) {
            let a = self.rng.below(known.len());
            let b = self.rng.below(known.len());
            return known[a.max(b)].into();
        }
        let storable = !matches!(ty, Ty::Pred | Ty::Ptr(Space::Param));
        let near: Vec<(ValueId, Ty)> = self
            .exact
            .iter()
            .copied()
            .filter(|(_, other)| {
                *other != ty && *other != Ty::Pred && *other != Ty::Ptr(Space::Param) && other.bits() == ty.bits()
            })
            .collect();
        if storable && !near.is_empty() && self.rng.percent(70) {
            let (a, from) = self.rng.pick(&near);
            let a = a.into();
            return self.made(ty, |d| tilewright_codegen::ir::ConvertOp::Bitcast { ty, from, d, a });
        }
        if ty == Ty::Pred {
            let a = self.operand(Ty::U32);
            let b = self.operand(Ty::U32);
            return self.made(ty, |d| ArithOp::Setp { ty: Ty::U32, d, a, b, cmp: Cmp::Lt });
        }
        Const::new(ty, self.rng.bits(ty)).into()
    }

    /// Draws an operand as [`Gen::operand`] does, sometimes a value whose NaNs have any payload.
    pub fn loose_operand(&mut self, ty: Ty) -> Operand {
        let known: Vec<ValueId> = self.loose.iter().filter(|(_, other)| *other == ty).map(|(v, _)| *v).collect();
        if !known.is_empty() && !self.operands_too && self.rng.percent(30) {
            return self.rng.pick(&known).into();
        }
        self.operand(ty)
    }

    /// A value that may be used anywhere.
    pub fn keep(&mut self, value: ValueId, ty: Ty) {
        self.exact.push((value, ty));
    }

    /// A value that may be used where a NaN's payload does not matter.
    pub fn keep_loose(&mut self, value: ValueId, ty: Ty) {
        self.loose.push((value, ty));
    }

    pub fn mask(&self) -> Option<Operand> {
        match self.together {
            Together::Block => Some(word(u32::MAX)),
            Together::Unknown => None,
        }
    }

    /// Whether there is room for `count` more slots.
    pub fn has_slots(&self, count: usize) -> bool {
        self.slots.len() + count <= SLOTS as usize
    }

    /// Writes a value to the next slot.
    pub fn observe(&mut self, value: Operand, ty: Ty, label: &str, approx: Option<(&'static str, u32)>) {
        if !self.has_slots(1) {
            return;
        }
        let (stored, value) = match ty {
            Ty::Pred => {
                let a = word(1);
                let b = word(0);
                (Ty::U32, self.made(Ty::U32, |d| ArithOp::Select { ty: Ty::U32, d, a, b, p: value }))
            }
            Ty::Ptr(space) => {
                let bits = space.address();
                (bits, self.made(bits, |d| ValueOp::PtrBits { ty: bits, from: ty, d, p: value }))
            }
            _ => (ty, value),
        };
        let at = Addr { base: self.base.output, offset: (self.slots.len() as u32 * THREADS * 8) as i32 };
        self.store(stored, at, vec![value]);
        self.slots.push(Slot { label: label.into(), ty, approx });
    }

    /// The kernel, finished.
    pub fn finish(mut self) -> Kernel {
        self.kernel.body = self.open.pop().unwrap_or_default();
        self.kernel
    }
}

/// A block that is about to stand inside a statement.
pub struct Inside(pub Block);

impl Inside {
    /// Appends `if cond { .. }`.
    pub fn when(self, program: &mut Gen<'_>, cond: Operand) {
        program.push(StmtKind::If { cond, then: self.0, otherwise: Block::new() });
    }
}
