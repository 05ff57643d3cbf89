//! The part of a machine on one device: a stream, the kernel, memory. Every device of a machine has
//! its own part.

use half::bf16;
use tilewright_codegen::device::{Arg, Buffer, Device, DeviceError, Kernel, Mapped, Stream};

use super::kernel::{BEGUN, HALT, OWN_COUNTERS, PITCH, TIMES};
use super::load;
use super::record::BlockRecord;
use super::{Plan, text};
use crate::validate::Placed;
use crate::vm::resident::stored::BoundWeights;
use crate::vm::resident::{DeviceKernels, DeviceKv};
use crate::vm::{Lengths, LoadError, MAX_ENDS};

/// A device's part of a machine. Clones share everything.
#[derive(Clone)]
pub(super) struct DevicePart {
    /// The number of the device in the program.
    pub number: usize,
    pub device: Device,
    pub stream: Stream,
    pub kernel: Kernel,
    pub memory: PartMemory,
}

/// The memory of the part.
#[derive(Clone)]
pub(super) struct PartMemory {
    pub prepacked: Buffer<bf16>,
    plain: Buffer<u8>,
    pub state: Buffer<u8>,
    pub pools: Buffer<u8>,
    pub tables: Buffer<u8>,
    pub directory: Buffer<u32>,
    counters: Buffer<u32>,
    /// The tokens that end each row.
    pub ends: Buffer<i32>,
    /// The text whose tokens are proposed.
    pub text: Option<Buffer<i32>>,
    /// Whether each row has a mask.
    pub masked: Option<Buffer<u32>>,
    pub trace: Option<Buffer<u64>>,
}

/// The resources from which a part is made.
#[derive(Clone, Copy)]
pub(super) struct Given<'a> {
    pub placed: &'a Placed,
    pub plan: &'a Plan,
    pub bound: &'a BoundWeights,
    pub kernels: &'a DeviceKernels,
    /// The packed weights, where another machine has them.
    pub prepacked: Option<&'a Buffer<bf16>>,
    /// The pools, where another machine has them.
    pub pools: Option<&'a Buffer<u8>>,
}

impl DevicePart {
    /// Loads a part onto the device of a number: compiles its kernel, sends its weights; tells how
    /// many bytes of these are on their way.
    pub fn new(
        device: &Device,
        number: usize,
        given: Given<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<DevicePart, LoadError> {
        let Given { placed, plan, bound, kernels, prepacked, pools } = given;
        let found = device.properties().sms as usize;
        let wanted = placed.target.sms;
        if found < wanted {
            return Err(LoadError::Sms { wanted, found });
        }
        plan.orders.iter().try_for_each(|table| table.check(placed, bound))?;
        room(plan, device, number, prepacked.is_none(), pools.is_none())?;
        let stream = device.stream()?;
        // The driver compiles while the weights are on their way.
        let (kernel, prepacked) = std::thread::scope(|scope| {
            let kernel = scope.spawn(|| kernels.of(plan));
            let prepacked = match prepacked {
                Some(prepacked) => Ok(prepacked.clone()),
                None => load::packed(device, &stream, plan, number, bound, progress),
            };
            let kernel = kernel.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (kernel, prepacked)
        });
        let kernel = kernel?;
        let zeroed = |bytes: u64| -> Result<Buffer<u8>, DeviceError> {
            let buffer = device.buffer::<u8>(bytes.max(16) as usize)?;
            stream.fill(&buffer, 0)?;
            Ok(buffer)
        };
        let memory = PartMemory {
            prepacked: prepacked?,
            plain: stream.buffer(&load::plain(plan, placed, bound))?,
            state: zeroed(plan.places.state)?,
            pools: pools.map_or_else(|| zeroed(plan.places.pools), |pools| Ok(pools.clone()))?,
            tables: stream.buffer(&plan.tables)?,
            directory: stream.buffer::<u32>(bytemuck::cast_slice(plan.directory_of(number)))?,
            text: match plan.options.propose {
                true => Some(stream.buffer(&vec![0i32; text::words(plan)])?),
                false => None,
            },
            masked: match plan.masked_tokens() {
                Some(_) => Some(stream.buffer(&vec![0u32; plan.rows as usize])?),
                None => None,
            },
            // Queues that are shorter than the longest leave their part as it is.
            trace: match plan.options.timeline {
                true => Some(stream.buffer(&vec![0u64; (plan.blocks * plan.longest_queue() * TIMES) as usize])?),
                false => None,
            },
            counters: stream.buffer(&vec![0u32; ((plan.counters + OWN_COUNTERS) * PITCH) as usize])?,
            ends: stream.buffer(&vec![-1i32; plan.rows as usize * MAX_ENDS])?,
        };
        Ok(DevicePart { number, device: device.clone(), stream, kernel, memory })
    }

    /// The arguments of its launch: `numbers` are the steps so far, those of the launch, and what
    /// it feeds; `all` are the parts of all devices.
    pub fn args<'a>(
        &'a self,
        plan: &Plan,
        numbers: [u32; 3],
        status: &'a Mapped<u32>,
        all: &[DevicePart],
    ) -> Vec<Arg<'a>> {
        let PartMemory { prepacked, plain, state, pools, tables, directory, counters, ends, text, masked, trace } =
            &self.memory;
        let mut args = vec![prepacked.into(), plain.into(), state.into(), pools.into(), tables.into()];
        args.extend([directory.into(), counters.into()]);
        // Mapped words have one address for all devices, and belong to the first.
        args.push(if self.number == 0 { status.into() } else { Arg::peer_mapped(status) });
        args.extend(numbers.map(Into::into));
        let Lengths { pages, table_width } = plan.lengths;
        args.extend([pages, table_width].map(Into::into));
        args.push(ends.into());
        args.extend(text.iter().map(Into::into));
        args.extend(masked.iter().map(Into::into));
        args.extend(trace.iter().map(Into::into));
        if all.len() > 1 {
            args.push((self.number as u32).into());
            args.extend(all.iter().map(|part| Arg::peer(&part.memory.counters)));
            args.extend(all.iter().map(|part| Arg::peer(&part.memory.state)));
        }
        args
    }

    /// Sets the number of steps after a launch that ended because all rows had ended, and lets the
    /// next one begin.
    pub fn rest(&self, plan: &Plan, epoch: u32) -> Result<(), DeviceError> {
        for (counter, value) in [(BEGUN, epoch), (HALT, 0)] {
            let at = ((plan.counters + counter) * PITCH) as usize;
            self.stream.upload(&[value], &self.memory.counters.slice(at..at + 1)?)?;
        }
        Ok(())
    }

    /// Counters as of the beginning: a launch that was stopped left them anywhere.
    pub fn recover(&self) -> Result<(), DeviceError> {
        self.stream.fill(&self.memory.counters, 0)?;
        // Generations count from the beginning too: none that was written must look like one to
        // come.
        self.stream.fill(&self.memory.state, 0)?;
        self.stream.wait()
    }

    /// Changes the tables; for faults.
    pub fn set_tables(&self, directory: &[BlockRecord], tables: &[u8]) -> Result<(), DeviceError> {
        self.stream.upload(tables, &self.memory.tables)?;
        let each = self.memory.directory.len() * size_of::<u32>() / size_of::<BlockRecord>();
        let own = directory.chunks(each.max(1)).nth(self.number).unwrap_or_default();
        self.stream.upload::<u32>(bytemuck::cast_slice(own), &self.memory.directory)
    }
}

impl DeviceKv {
    /// The pools of the device of a number.
    pub(super) fn of_device(&self, number: usize) -> Option<&Buffer<u8>> {
        self.memory.get(number)
    }
}

/// Fails where a device has too little free memory, before anything is sent to it.
pub(super) fn room(plan: &Plan, device: &Device, number: usize, prepacked: bool, pools: bool) -> Result<(), LoadError> {
    let weights = plan.plain_bytes + if prepacked { plan.packed_of(number) } else { 0 };
    let pools = if pools { plan.places.pools } else { 0 };
    let counters = u64::from(plan.counters + OWN_COUNTERS) * u64::from(PITCH) * 4;
    let rest = plan.places.state + plan.tables.len() as u64 + counters;
    let free = device.free_bytes()?;
    if weights.saturating_add(pools).saturating_add(rest) > free {
        return Err(LoadError::Memory { free, weights, pools, rest });
    }
    Ok(())
}
