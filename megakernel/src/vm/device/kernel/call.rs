//! Calls of device functions: records become their arguments.

use tilewright_codegen::build::{Builder, Global, Ptr, Shared, Val};
use tilewright_kernels::gemv::activations::{F16Overflow, Ordered, Scaled, ScaledForm, ScaledOutput};
use tilewright_kernels::gemv::task::{Announce, Early, LinearScratch};
use tilewright_kernels::kv::{CurrentToken, PagedPool, PoolArray, PoolType, Streamed, TokenStage};
use tilewright_kernels::rope::Rotation;
use tilewright_kernels::sample::MASK_HEAD;
use tilewright_kernels::sample::tiles::RowMasks;
use tilewright_kernels::tile::{AccessMode, Array, Copies, Float};
use tilewright_kernels::warps::ConsumerWarps;

use super::context::{KernelContext, Masks};
use super::task::TaskView;
use crate::vm::device::{KvPools, OrderTable, RotationRows, ScaledCode, Storage, status};

/// A call of a device function: the task, and where its operands are. Fields of the record are
/// named by their offsets in the type that the op's row gave to
/// [`Planned::new`](crate::vm::device::Planned::new): `offset_of!(Fields, x)`.
#[derive(Clone, Copy)]
pub struct Call<'k, 'p> {
    pub(super) context: KernelContext<'k, 'p>,
    pub(super) task: TaskView<'k>,
    /// Steps before this one, over all launches.
    pub(super) now: Val<'k, u32>,
}

/// The operand of a task whose packet generation is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// Of the activations that it reads.
    Input,
    /// Of the residual that it reads.
    Residual,
    /// Of what it writes.
    Output,
}

impl<'k> Call<'k, '_> {
    /// The recorder.
    pub fn builder(self) -> &'k Builder {
        self.context.k
    }

    /// The warps that compute.
    pub fn consumers(self) -> ConsumerWarps<'k> {
        self.context.consumers
    }

    /// Shared memory of the task.
    pub fn scratch(self) -> LinearScratch<'k> {
        LinearScratch { overflow: self.context.shape.has_halves.then(|| self.overflow()), ..self.context.scratch }
    }

    /// Reports f16 overflow of this task's activations.
    fn overflow(self) -> F16Overflow<'k> {
        let word = |at: u32| self.context.sync.status(at);
        let code = word(status::CODE);
        let place = word(status::TASK);
        F16Overflow { code, status: status::F16_OVERFLOW, place, task: self.task.task() }
    }

    /// A number.
    pub fn value(self, field: usize) -> Val<'k, u32> {
        self.task.value(field)
    }

    /// An operand among activations, cells, inputs and outputs.
    pub fn state(self, field: usize) -> Ptr<'k, Global, u8> {
        self.task.operand(self.context.memory.state, field)
    }

    /// An operand in the state of a device; `None` is this device.
    pub fn state_on(self, device: Option<u32>, field: usize) -> Ptr<'k, Global, u8> {
        let far = device.and_then(|device| self.context.memory.peers?.state(device));
        self.task.operand(far.unwrap_or(self.context.memory.state), field)
    }

    /// An operand among activations on a device, as [`Call::state_on`] has it.
    pub fn array_on(self, device: Option<u32>, field: usize, float: Float) -> Array<'k> {
        let array = Array::new(self.state_on(device, field), float).accessed(AccessMode::Relaxed);
        if device.is_some() { array.across_devices() } else { array }
    }

    /// The buffers on some devices that get a result, whose operands are consecutive fields.
    pub fn copies(self, field: usize, devices: &[u32], storage: Storage) -> Copies<'k> {
        let of = |(at, &device): (usize, &u32)| {
            let state = self.state_on(Some(device), field + at * size_of::<u32>());
            let array = Array::new(state, storage.float).accessed(AccessMode::Relaxed);
            self.as_packets(array, storage, Generation::Output).across_devices()
        };
        devices.iter().enumerate().map(of).collect()
    }

    /// An operand among the weights that are read as they are.
    pub fn plain(self, field: usize, float: Float) -> Array<'k> {
        Array::new(self.plain_at(field), float)
    }

    /// The address of an operand among weights as the checkpoint has them.
    pub fn plain_at(self, field: usize) -> Ptr<'k, Global, u8> {
        self.task.operand(self.context.memory.plain, field)
    }

    /// The task's packed weights.
    pub fn packed(self) -> Ptr<'k, Global, u8> {
        self.context.memory.prepacked.at(self.task.weights().mul_wide(512u32))
    }

    /// An operand among activations, that other blocks may write later.
    pub fn array(self, field: usize, float: Float) -> Array<'k> {
        Array::new(self.state(field), float).accessed(AccessMode::Relaxed)
    }

    /// An operand among activations, as packets if its storage says so.
    pub fn stored(self, field: usize, storage: Storage, generation: Generation) -> Array<'k> {
        let left = self.left().filter(|_| self.context.shape.skips_semaphores);
        self.as_packets(self.array(field, storage.float), storage, generation).unless(left)
    }

    fn as_packets(self, array: Array<'k>, storage: Storage, generation: Generation) -> Array<'k> {
        if storage.period == 0 {
            return array;
        }
        let within = match generation {
            Generation::Input => self.task.input(),
            Generation::Residual => self.task.residual(),
            Generation::Output => self.task.output(),
        };
        array.accessed(AccessMode::Packets(self.now * storage.period + within))
    }

    /// Passes the masks of rows to a choice of tokens, where the machine takes any.
    pub fn with_masks<R>(self, choose: impl FnOnce(Option<RowMasks<'k, '_>>) -> R) -> R {
        let Some(Masks { masked, words, pitch }) = self.context.masks else { return choose(None) };
        let wait =
            |row: Val<'k, u32>| self.context.sync.wait_for_host(words.at(row.mul_wide(pitch)), self.now + 1, self.task);
        choose(Some(RowMasks { masked, masks: words.at(MASK_HEAD), pitch, wait: &wait }))
    }

    /// The current token's keys and values as packets, whose operands are two fields; of no
    /// generations there are none.
    pub fn current_token(self, field: usize, period: u32, generation: Generation) -> Option<CurrentToken<'k>> {
        let storage = Storage { float: Float::Bf16, period };
        let packets = |field: usize| self.stored(field, storage, generation);
        (period > 0).then(|| CurrentToken { keys: packets(field), values: packets(field + size_of::<u32>()) })
    }

    /// The terms of activations: the operands of terms and sums of squares are two fields, one
    /// after the other.
    pub fn scaled(self, field: usize, form: ScaledForm) -> Scaled<'k> {
        let terms = self.array(field, form.float());
        let squares = form.has_norm().then(|| self.array(field + size_of::<u32>(), Float::F32));
        Scaled { form, terms, squares }
    }

    /// Where terms are stored; the third field has the weight of a norm, or the table of an
    /// act-order.
    pub fn scaled_output(self, field: usize, code: ScaledCode) -> ScaledOutput<'k> {
        let form = code.form;
        let third = field + 2 * size_of::<u32>();
        let (places, weight) = if form.is_ordered() {
            let (places, weight) = self.order(third, form.k());
            (Some(places), code.weight.map(|_| weight))
        } else {
            (None, code.weight.map(|weight| self.plain(third, weight)))
        };
        let overflow = (form.float() == Float::F16).then(|| self.overflow());
        ScaledOutput { to: self.scaled(field, form), weight, places, overflow }
    }

    /// Activations, rows of `k` elements, in the order of the table that a field has; of a norm of
    /// an `eps` its weights lie after.
    pub fn ordered(self, field: usize, x: Array<'k>, k: u32, eps: Option<f32>) -> Ordered<'k> {
        let (indexes, weight) = self.order(field, k);
        Ordered { x, indexes, norm: eps.map(|eps| (weight, eps)) }
    }

    /// The table of an order of `k` columns, and the weights of a norm after it.
    fn order(self, field: usize, k: u32) -> (Ptr<'k, Global, u32>, Array<'k>) {
        let table = self.task.operand(self.context.memory.plain, field);
        (table.cast(), Array::new(table.at(OrderTable::weight_at(k)), Float::F32))
    }

    /// The pages of an operand among the pools; the second field has the scale of pools of codes
    /// ([`Planner::pool_scale`](crate::vm::device::Planner::pool_scale)), and is not looked at for
    /// others.
    pub fn pages(self, fields: [usize; 2], pools: KvPools) -> PagedPool<'k> {
        task_pages(self.context, self.task, fields, pools)
    }

    /// Pages of another array, by the pools' positions and page tables.
    pub fn pages_of(self, pool: Array<'k>, pools: KvPools) -> PagedPool<'k> {
        pages_of(self.context, pool.into(), pools)
    }

    /// A table of cosines and sines.
    pub fn rotation(self, RotationRows { table, half }: RotationRows) -> Rotation<'k> {
        let table = self.context.memory.plain.at(self.context.k.lit(table).mul_wide(16u32)).cast::<f32>();
        Rotation { table, half }
    }

    /// The tokens of the step that come through the ring.
    pub fn streamed(self, stage: TokenStage) -> Option<Streamed<'k>> {
        self.context.cells.streamed(stage)
    }

    /// Signals where what the task stores from now on is packets: who waits for it polls these
    /// next.
    pub fn signal(self, out: Storage) {
        if out.period > 0 {
            self.signal_early();
        }
    }

    /// The word that says that packets are looked for no longer: the launch ends, and what a task
    /// stores then is not read after its step. Nothing where no task of the plan looks for packets
    /// that may not come.
    pub fn left(self) -> Option<Ptr<'k, Shared, u32>> {
        self.context.sync.left_word()
    }

    /// Signals before the task's last stores, all of them packets; by one thread.
    fn signal_early(self) {
        self.context.sync.signal_early(self.task);
    }

    /// Runs a product that signals early, where it does.
    pub(crate) fn announcing(self, early: Option<Early>, run: impl FnOnce(Option<Announce<'_>>)) {
        let say = || self.signal_early();
        run(early.map(|at| Announce { at, say: &say }));
    }
}

/// The pages of the pool that is this operand of a task; `scale` is the field of what its codes are
/// multiplied by.
pub(super) fn task_pages<'k>(
    context: KernelContext<'k, '_>,
    task: TaskView<'k>,
    [field, scale]: [usize; 2],
    pools: KvPools,
) -> PagedPool<'k> {
    let operand = task.operand(context.memory.pools, field);
    let pool = match pools.of {
        PoolType::Float(float) => Array::new(operand, float).into(),
        PoolType::E4m3 => PoolArray::E4m3 { codes: operand, scale: task.value(scale).bits() },
    };
    pages_of(context, pool, pools)
}

fn pages_of<'k>(context: KernelContext<'k, '_>, pool: PoolArray<'k>, pools: KvPools) -> PagedPool<'k> {
    let (position, table) = context.cells.of(pools);
    let KvPools { page_tokens, dim, split_pages, .. } = pools;
    PagedPool { pool, pages: context.pages, page_tokens, dim, position, table, split_pages }
}
