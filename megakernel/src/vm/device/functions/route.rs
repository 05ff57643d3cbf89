//! The choice of experts on a device, and its table as tasks and the ring's producer read it.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};
use tilewright_codegen::build::Val;
use tilewright_kernels::experts::{self, RouteShape, RouteTable};
use tilewright_kernels::route::RouterKind;

use crate::ops::Route;
use crate::program::{BufferId, Span};
use crate::vm::device::{
    Call, DeviceFunction, DeviceOp, Generation, Planned, Planner, RingFeed, SharedBytes, Storage, WeightStages,
};
use crate::vm::{Unsupported, rows_of};

impl DeviceOp for Route {
    fn rows(&self) -> Span {
        self.rows
    }

    fn plan(&self, plan: &mut Planner) -> Result<Planned, Unsupported> {
        let chosen = self.chosen as u32;
        let shape = RouteShape { rows: rows_of(self.rows)?, experts: plan.extent(self.logits, 0)?, chosen };
        let logits = plan.storage("logits", self.logits)?;
        let routes = plan.storage("routes", self.routes)?;
        let function = Routes { shape, routing: self.router(), logits, routes };
        let correction = plan.operand_of(self.correction)?;
        let fields = RouteFields { logits: plan.operand(self.logits)?, routes: plan.operand(self.routes)?, correction };
        let bytes = if self.correction.is_some() { size_of_val(&fields) } else { offset_of!(RouteFields, correction) };
        Ok(Planned::new(function, fields).keeping(bytes))
    }
}

/// What the code reads of a task: operands in units of 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct RouteFields {
    logits: u32,
    routes: u32,
    /// What corrects the choice, if something does.
    correction: u32,
}

/// The device function.
#[derive(Clone, Debug, PartialEq)]
struct Routes {
    shape: RouteShape,
    routing: RouterKind,
    logits: Storage,
    routes: Storage,
}

impl DeviceFunction for Routes {
    fn signals_early(&self) -> bool {
        self.routes.period > 0
    }

    fn shared(&self, _: u32) -> SharedBytes {
        SharedBytes { sums: 0, operand: self.shape.shared_bytes() }
    }

    fn run<'k>(&self, call: Call<'k, '_>, _: &dyn WeightStages<'k>) {
        let logits = call.stored(offset_of!(RouteFields, logits), self.logits, Generation::Input);
        let at = call.stored(offset_of!(RouteFields, routes), self.routes, Generation::Output);
        let table = RouteTable { at, shape: self.shape };
        let corrected = matches!(self.routing, RouterKind::Grouped(router) if router.corrected);
        let correction = corrected.then(|| call.plain_at(offset_of!(RouteFields, correction)).cast());
        let task = experts::RouteTask { logits, table, routing: self.routing, correction };
        experts::route(call.consumers(), call.scratch().operand.cast(), task, &|| call.signal(self.routes));
    }
}

/// The table of routes, as a task finds it: what of it is constant in the code.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RouteCode {
    shape: RouteShape,
    routes: Storage,
    /// The task's wait after which the table is there, or its words are on their way.
    wait: u32,
}

impl RouteCode {
    /// The table of a task of these rows.
    pub fn plan(
        plan: &Planner,
        routes: BufferId,
        rows: Span,
        [experts, chosen]: [usize; 2],
    ) -> Result<RouteCode, Unsupported> {
        let shape = RouteShape { rows: rows_of(rows)?, experts: experts as u32, chosen: chosen as u32 };
        let storage = plan.storage("routes", routes)?;
        Ok(RouteCode { shape, routes: storage, wait: plan.wait_for("the table of routes", routes)? })
    }

    /// Rows of the batch.
    pub fn rows(self) -> u32 {
        self.shape.rows
    }

    /// Most slots.
    pub fn slots(self) -> u32 {
        self.shape.slots()
    }

    /// The wait after which the ring's producer may read it.
    pub fn wait(self) -> u32 {
        self.wait
    }

    /// The table for a device function.
    pub fn of<'k>(self, call: Call<'k, '_>, field: usize) -> RouteTable<'k> {
        RouteTable { at: call.stored(field, self.routes, Generation::Input), shape: self.shape }
    }

    /// The slots in use, the same in all consumer threads.
    pub fn used<'k>(self, call: Call<'k, '_>, field: usize) -> Val<'k, u32> {
        let k = call.builder();
        let word = call.scratch().best.cast::<u32>();
        k.when(k.tid().eq(0), || word.store(self.of(call, field).used(k.lit(0))));
        call.consumers().sync();
        word.load()
    }

    /// The table for the ring's producer.
    pub fn ahead<'k>(self, feed: RingFeed<'k, '_>, field: usize) -> RouteTable<'k> {
        RouteTable { at: feed.stored(field, self.routes), shape: self.shape }
    }
}
