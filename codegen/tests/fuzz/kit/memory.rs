//! Memory: a thread's own cells, exchanges between threads, sums that all threads make, copies.

use super::draw::draw;
use super::program::{Gen, Site, THREADS, Together, word};
use tilewright_codegen::ir::attr::{
    AtomOp, BarId, BarScope, BarThreads, Cmp, LdCache, LdOrder, Pending, Prefetch, RedOrder, Scope,
};
use tilewright_codegen::ir::{
    Addr, ArithOp, BitsOp, CopyOp, Inst, InstRow, MemOp, Operand, StmtKind, SyncOp, Ty, ValueId, WarpOp, rows,
};

/// The row of that mnemonic.
fn row(mnemonic: &str) -> Option<&'static InstRow> {
    rows().find(|row| row.mnemonic == mnemonic)
}

/// Scopes of arrivals that order what threads did.
const SCOPES: [BarScope; 2] = [BarScope::Cta, BarScope::Cluster];

impl Gen<'_> {
    /// Draws an instruction of the row at a site, appends it and keeps its results.
    fn access(&mut self, mnemonic: &str, site: Site) -> bool {
        let inst = row(mnemonic).and_then(|row| draw(self, row, site));
        let drawn = inst.is_some();
        if let Some(inst) = inst {
            self.add(inst);
        }
        drawn
    }

    /// A load, store or atomic operation on memory of this thread's own; atomics are looked at
    /// afterwards.
    pub fn own_memory(&mut self) {
        let mnemonic = self.rng.pick(&["ld", "st", "st", "atom", "atom.cas", "red", "atom", "input"]);
        if mnemonic == "input" {
            self.access("ld", Site::Input);
            return;
        }
        self.access(mnemonic, Site::Own);
        if mnemonic != "ld" {
            for space in [self.base.scratch, self.base.own] {
                let offset = 16 * self.rng.below(2) as i32;
                self.load_plain(Ty::U64, Addr { base: space, offset }, 2, mnemonic);
            }
        }
    }

    /// A plain load, kept and observed.
    fn load_plain(&mut self, ty: Ty, at: Addr, count: usize, label: &str) {
        let d: Vec<ValueId> = (0..count).map(|_| self.def(ty)).collect();
        let order = LdOrder::Weak;
        let cache = LdCache::Default;
        let prefetch = Prefetch::None;
        self.emit(MemOp::Ld { ty, d: d.clone(), at, policy: None, order, cache, prefetch });
        for d in d {
            self.settle(d, ty, false, &format!("ld.{ty} after {label}"));
        }
    }

    fn and(&mut self, a: Operand, b: u32) -> Operand {
        self.made(Ty::U32, |d| BitsOp::And { ty: Ty::U32, d, a, b: word(b) })
    }

    /// A place of 16 bytes for each thread of the block (or of its warp), each its own.
    fn permuted(&mut self, within_warp: bool) -> Operand {
        let tid = self.base.tid;
        let c = self.rng.below(THREADS as usize) as u32;
        if within_warp || self.rng.percent(50) {
            let c = if within_warp { c & 31 } else { c };
            return self.made(Ty::U32, |d| BitsOp::Xor { ty: Ty::U32, d, a: tid, b: word(c) });
        }
        let odd = self.rng.below(32) as u32 * 2 + 1;
        let sum = self.made(Ty::U32, |d| ArithOp::Mad { ty: Ty::U32, d, a: tid, b: word(odd), c: word(c) });
        self.and(sum, THREADS - 1)
    }

    /// Any place, chosen by a value, of the block or of the warp.
    fn gathered(&mut self, within_warp: bool) -> Operand {
        let value = self.operand(Ty::U32);
        if !within_warp {
            return self.and(value, THREADS - 1);
        }
        let lane = self.and(value, 31);
        let tid = self.base.tid;
        let first = self.and(tid, 32);
        self.made(Ty::U32, |d| BitsOp::Or { ty: Ty::U32, d, a: first, b: lane })
    }

    /// Waits for an mbarrier's first phase.
    fn wait_phase(&mut self, bar: Addr) {
        let row = if self.rng.percent(50) { "mbarrier.try_wait" } else { "mbarrier.test_wait" };
        let body = self.inside(|g| {
            let done = g.def(Ty::Pred);
            let parity = word(0);
            let scope = g.rng.pick(&SCOPES);
            g.emit(if row == "mbarrier.try_wait" {
                SyncOp::MbarTryWait { done, bar, parity, scope }
            } else {
                SyncOp::MbarTestWait { done, bar, parity, scope }
            });
            g.inside(|g| g.push(StmtKind::Break)).when(g, done.into());
        });
        self.push(StmtKind::Loop { body: body.0 });
    }

    /// All meet: the way that makes what was stored before visible.
    fn meet(&mut self, within_warp: bool) {
        if within_warp {
            return self.emit(WarpOp::SyncWarp { mask: word(u32::MAX) });
        }
        match self.rng.below(4) {
            0 => {
                let id = BarId(1 + self.rng.below(15) as u32);
                self.emit(SyncOp::BarSync { id, threads: BarThreads(THREADS) });
            }
            1 if self.phases < 2 && !self.in_loop => {
                let bar = Addr { base: self.base.bars, offset: 8 * self.phases as i32 };
                self.phases += 1;
                let scope = self.rng.pick(&SCOPES);
                self.emit(SyncOp::MbarArrive { bar, count: word(1), scope });
                self.wait_phase(bar);
            }
            _ => self.barrier(),
        }
    }

    /// Everybody stores to a place of its own and loads from another's.
    pub fn exchange(&mut self) {
        let within_warp = self.rng.percent(30);
        let exchange = self.base.exchange;
        if !within_warp {
            // Another warp may still be in an exchange of its own.
            self.barrier();
        }
        let index = self.permuted(within_warp);
        let at = self.plus(exchange, index, 16);
        let store = if self.rng.percent(25) { "stmatrix" } else { "st" };
        self.access(store, Site::At(at));
        self.meet(within_warp);
        for _ in 0..1 + self.rng.below(2) {
            let index = self.gathered(within_warp);
            let at = self.plus(exchange, index, 16);
            let load = if self.rng.percent(25) { "ldmatrix" } else { "ld" };
            self.access(load, Site::At(at));
        }
        self.meet(within_warp);
    }

    /// A warp hands a value over to the other without waiting for it.
    pub fn hand_over(&mut self) {
        self.barrier();
        let tid = self.base.tid;
        let id = BarId(1 + self.rng.below(15) as u32);
        let threads = BarThreads(THREADS);
        let first = self.made(Ty::Pred, |d| ArithOp::Setp { ty: Ty::U32, d, a: tid, b: word(32), cmp: Cmp::Lt });
        let exchange = self.base.exchange;
        let index = self.permuted(true);
        let mine = self.plus(exchange, index, 16);
        let value = self.operand(Ty::F32);
        let then = self.inside(|g| {
            g.store(Ty::F32, mine.into(), vec![value]);
            g.emit(SyncOp::BarArrive { id, threads });
        });
        let otherwise = self.inside(|g| {
            g.emit(SyncOp::BarSync { id, threads });
            let far = g.made(Ty::U32, |d| BitsOp::Xor { ty: Ty::U32, d, a: tid, b: word(32) });
            let at = g.plus(exchange, far, 16);
            g.load_plain(Ty::F32, at.into(), 1, "bar.arrive");
        });
        self.push(StmtKind::If { cond: first, then: then.0, otherwise: otherwise.0 });
        self.barrier();
    }

    /// Every thread adds to one cell, in any order, by an operation whose order does not matter.
    pub fn total(&mut self) {
        let cell = self.totals % THREADS;
        self.totals += 1;
        let ty = self.rng.pick(&[Ty::U32, Ty::S32, Ty::U64]);
        let mut ops = vec![AtomOp::Add, AtomOp::Min, AtomOp::Max];
        if ty != Ty::S32 {
            ops.extend([AtomOp::And, AtomOp::Or, AtomOp::Xor]);
        }
        let op = self.rng.pick(&ops);
        let v = self.operand(ty);
        let total = self.base.total;
        let at = self.plus(total, word(cell), 8).into();
        let order = RedOrder::Relaxed(self.rng.pick(&[Scope::Cta, Scope::Gpu]));
        self.barrier();
        self.emit(MemOp::Red { ty, at, v, op, order });
        self.barrier();
        self.load_plain(Ty::U64, at, 1, "red of all");
        self.barrier();
    }

    /// Copies of this thread's input to shared memory of its own.
    pub fn copy(&mut self) {
        if self.in_loop || self.landings >= 4 {
            return;
        }
        let cell = self.landings;
        self.landings += 1;
        if !self.access("cp.async", Site::Landing(cell)) {
            return;
        }
        self.emit(CopyOp::CpAsyncCommit {});
        self.emit(CopyOp::CpAsyncWait { pending: Pending(0) });
        let at = Addr { base: self.base.landing, offset: 16 * cell as i32 };
        // Four bytes are there whatever the copy's size.
        self.load_plain(Ty::U32, at, 1, "cp.async");
    }

    /// A bulk copy of the input of all, which completes on an mbarrier.
    pub fn bulk_copy(&mut self) {
        if self.in_loop || self.bulks >= 1 || self.together != Together::Block {
            return;
        }
        self.bulks += 1;
        let bar = Addr { base: self.base.bars, offset: 16 };
        let tid = self.base.tid;
        let bytes = 16u32 << self.rng.below(7);
        let leader = self.made(Ty::Pred, |d| ArithOp::Setp { ty: Ty::U32, d, a: tid, b: word(0), cmp: Cmp::Eq });
        let dst = self.base.bulk.into();
        let src = Addr { base: self.base.input, offset: 1024 * self.rng.below(12) as i32 };
        self.inside(|g| {
            if g.rng.percent(50) {
                g.emit(SyncOp::MbarArriveTx { bar, bytes: word(bytes), scope: BarScope::Cta });
            } else {
                g.emit(SyncOp::MbarExpectTx { bar, bytes: word(bytes), scope: BarScope::Cta });
                g.emit(SyncOp::MbarArrive { bar, count: word(1), scope: BarScope::Cta });
            }
            g.emit(CopyOp::BulkG2S { dst, src, bytes: word(bytes), bar, multicast: None, policy: None });
        })
        .when(self, leader);
        self.wait_phase(bar);
        let value = self.operand(Ty::U32);
        let index = self.and(value, bytes / 16 - 1);
        let bulk = self.base.bulk;
        let at = self.plus(bulk, index, 16);
        self.access("ld", Site::At(at));
    }

    /// Adds an instruction that only hints or orders.
    pub fn hint(&mut self) {
        let mnemonic = self.rng.pick(&[
            "fence",
            "fence.proxy.async",
            "fence.mbarrier_init",
            "prefetch.l2",
            "griddepcontrol.wait",
            "griddepcontrol.launch_dependents",
            "//",
        ]);
        if let Some(inst) = row(mnemonic).and_then(|row| draw(self, row, Site::Input)) {
            self.emit(inst);
        }
        if self.rng.percent(20) {
            let ns = word(self.rng.below(200) as u32);
            self.emit(Inst::Control(tilewright_codegen::ir::ControlOp::NanoSleep { ns }));
        }
    }
}
