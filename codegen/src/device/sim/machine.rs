//! The simulator as an implementation of the back-end trait.

use super::launch::{self, Setting, SimKernel};
use super::memory::{CompletedCopy, Memorised, SharedStore, SimMapped, SimPinned, device_error, lock};
use super::options::{DEVICE, Options, properties};
use crate::device::backend::{
    Allocation, Backend, Handle, InFlight, Loaded, MappedWords, PinnedBytes, Span, WordWidth, Work,
};
use crate::device::{DeviceError, Facts, KernelSource, Outside, Properties, Signature, TensorShape, TileSwizzle};
use crate::sim::{Counters, Left, OutOfBoundsFill, PrintedLines, TensorElem, TensorMapDescriptor, TensorSwizzle};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tilewright_layout::DType;

/// A simulated device.
#[derive(Debug)]
pub(super) struct SimDevice {
    options: Options,
    properties: Properties,
    store: SharedStore,
    /// Its number among those that share the store.
    number: u32,
    /// Launches so far.
    launches: AtomicU64,
    last: Mutex<Option<Counters>>,
    /// Lines of the last launch.
    printed: Mutex<Vec<String>>,
}

impl SimDevice {
    pub fn new(options: Options) -> SimDevice {
        SimDevice::on(options, SharedStore::default(), 0)
    }

    /// A machine with this memory, of that number among those that share it.
    pub fn on(options: Options, store: SharedStore, number: u32) -> SimDevice {
        SimDevice {
            properties: properties(&options),
            options,
            store,
            number,
            launches: AtomicU64::new(0),
            last: Mutex::new(None),
            printed: Mutex::default(),
        }
    }

    pub fn last_launch(&self) -> Option<Counters> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn printed(&self) -> Vec<String> {
        self.printed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn launch(&self, kernel: &Handle, grid: [u32; 3], params: &[&[u8]], devices: &[u32]) -> Result<(), DeviceError> {
        self.alive()?;
        let kernel = kernel.get::<SimKernel>().ok_or_else(|| foreign("kernel"))?;
        let number = self.launches.fetch_add(1, Ordering::Relaxed);
        let seed = self.options.seed.wrapping_add(number);
        let Options { sms, checks, ref host, loss, patience, ref interrupt, .. } = self.options;
        let loss = loss.filter(|&(launch, _)| launch == number).map(|(_, loss)| loss);
        let interrupt = interrupt.clone();
        let printed = PrintedLines::default();
        let host = host.clone();
        let setting = Setting { sms, checks, host, seed, loss, patience, interrupt, printed: printed.clone() };
        let (snapshots, outcome);
        {
            let mut store = lock(&self.store);
            snapshots = store.before_launch();
            outcome = launch::run(kernel, grid, params, &mut store, &setting);
            store.after_launch(&snapshots);
        }
        drop(snapshots);
        let lines = printed.take();
        lines.iter().for_each(|line| println!("{line}"));
        *self.printed.lock().unwrap_or_else(PoisonError::into_inner) = lines;
        if let (Ok(Counters { left: Some(left), .. }), Some(loss)) = (&outcome, loss) {
            let device = devices.get(loss.device as usize).copied().unwrap_or(loss.device);
            lock(&self.store).lost = Some((device, left.clone()));
        }
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome?);
        Ok(())
    }

    /// Fails if this device is lost.
    fn alive(&self) -> Result<(), DeviceError> {
        match lock(&self.store).lost {
            Some((lost, _)) if lost == self.number => {
                Err(DeviceError::Lost { call: "the simulator", code: 719, name: "CUDA_ERROR_LAUNCH_FAILED".into() })
            }
            _ => Ok(()),
        }
    }

    /// The report of the standstill if the device waits for one that was lost; `None` if its work
    /// is done. Fails if this device is lost.
    fn standing(&self) -> Result<Option<String>, DeviceError> {
        self.alive()?;
        Ok(match &lock(&self.store).lost {
            Some((_, Left::Standing(report))) => Some(report.clone()),
            _ => None,
        })
    }

    /// Reports work that is never done as a fault to the waiting caller.
    fn wait(&self) -> Result<(), DeviceError> {
        let stands = |report| DeviceError::Fault { kernel: String::new(), seed: self.options.seed, report };
        self.standing()?.map_or(Ok(()), |report| Err(stands(report)))
    }

    /// Address and length of a span.
    fn place(&self, span: &Span) -> Result<(u64, usize), DeviceError> {
        let memory = span.memory.get::<Memorised>().filter(|memory| Arc::ptr_eq(&memory.store, &self.store));
        let memory = memory.ok_or_else(|| foreign("buffer"))?;
        Ok((memory.address + span.offset, span.bytes as usize))
    }
}

fn foreign(what: &'static str) -> DeviceError {
    DeviceError::Foreign { what, device: DEVICE.into() }
}

/// A stream of the device of that number.
struct StreamOf(u32);

/// A moment: the host's clock, since work is done when it is queued.
struct Moment(Instant);

impl Backend for SimDevice {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn free_bytes(&self) -> Result<u64, DeviceError> {
        Ok(self.options.memory_bytes.saturating_sub(lock(&self.store).used))
    }

    fn alloc(&self, bytes: u64) -> Result<Allocation, DeviceError> {
        let address = lock(&self.store).alloc(bytes, self.options.memory_bytes)?;
        let memory = Memorised { store: Arc::clone(&self.store), address, bytes };
        Ok(Allocation { memory: Handle::new(memory), address })
    }

    fn alloc_pinned(&self, bytes: usize) -> Result<Box<dyn PinnedBytes>, DeviceError> {
        Ok(Box::new(SimPinned::new(bytes)?))
    }

    fn alloc_mapped(&self, words: usize, width: WordWidth) -> Result<Arc<dyn MappedWords>, DeviceError> {
        Ok(SimMapped::new(&self.store, words, width)?)
    }

    fn load(&self, source: &dyn KernelSource, signature: &Signature) -> Result<Loaded, DeviceError> {
        let start = Instant::now();
        let not_recorded = || DeviceError::NotRecorded { kernel: signature.name.clone(), device: DEVICE.into() };
        let verified = source.verified().ok_or_else(not_recorded)?.clone();
        let blocks_per_sm = launch::blocks_per_sm(&self.properties, &verified);
        let cluster = u64::from(signature.launch.blocks_per_cluster().max(1));
        let static_shared = if signature.dynamic_shared == 0 { verified.kernel().shared_bytes() } else { 0 };
        let facts = Facts {
            static_shared,
            blocks_per_sm,
            resident_blocks: u64::from(blocks_per_sm) * u64::from(self.options.sms) / cluster * cluster,
            load_time: start.elapsed(),
            ..Facts::default()
        };
        let kernel = SimKernel { verified, signature: signature.clone(), facts: facts.clone() };
        Ok(Loaded { kernel: Handle::new(kernel), facts })
    }

    fn encode_tensor_map(&self, shape: &TensorShape, address: u64) -> Result<[u8; 128], DeviceError> {
        let map = TensorMapDescriptor {
            address,
            elem: element(shape)?,
            dims: shape.dims.clone(),
            strides: shape.strides.clone(),
            extent: shape.tile.clone(),
            steps: vec![1; shape.dims.len()],
            swizzle: match shape.swizzle {
                TileSwizzle::None => TensorSwizzle::None,
                TileSwizzle::Bytes32 => TensorSwizzle::B32,
                TileSwizzle::Bytes64 => TensorSwizzle::B64,
                TileSwizzle::Bytes128 => TensorSwizzle::B128,
            },
            fill: match shape.outside {
                Outside::Zero => OutOfBoundsFill::Zero,
                Outside::Nan => OutOfBoundsFill::Nan,
            },
        };
        map.encode().map_err(|error| DeviceError::TensorMap { rule: format!("is refused: {error}") })
    }

    fn stream(&self) -> Result<Handle, DeviceError> {
        Ok(Handle::new(StreamOf(self.number)))
    }

    fn submit(&self, _: &Handle, work: &Work) -> Result<(), DeviceError> {
        self.alive()?;
        match work {
            Work::Launch { kernel, grid, params, .. } => self.launch(kernel, *grid, &[params], &[self.number]),
            Work::Fill { to, byte } => {
                let (address, bytes) = self.place(to)?;
                lock(&self.store).memory.fill(address, bytes, *byte).map_err(device_error)
            }
            Work::Poison { to, byte } => {
                let (address, bytes) = self.place(to)?;
                let memory = &mut lock(&self.store).memory;
                memory.fill(address, bytes, *byte).and_then(|()| memory.forget(address, bytes)).map_err(device_error)
            }
            Work::Copy { from, to } => {
                let ((from, bytes), (to, _)) = (self.place(from)?, self.place(to)?);
                lock(&self.store).memory.transfer(from, to, bytes).map_err(device_error)
            }
            Work::Sum { .. } => Err(DeviceError::SumAlone),
        }
    }

    fn submit_side_by_side(&self, launches: &[(&dyn Backend, &Handle, &Work)]) -> Result<(), DeviceError> {
        let launch = |work| match work {
            &Work::Launch { ref kernel, grid, ref params, .. } => Ok((kernel, grid, &params[..])),
            _ => Err(foreign("copy among launches")),
        };
        let all = launches.iter().map(|&(_, _, work)| launch(work)).collect::<Result<Vec<_>, _>>()?;
        let Some(&(first, grid, _)) = all.first() else { return Ok(()) };
        let of = |kernel: &Handle| kernel.get::<SimKernel>().map(|kernel| kernel.verified.kernel().clone());
        let wanted = of(first).ok_or_else(|| foreign("kernel"))?;
        let rule = all.iter().find_map(|&(kernel, other, _)| match of(kernel) {
            Some(kernel) if kernel == wanted => (other != grid).then_some("a grid has another shape than the first"),
            _ => Some("another device runs another kernel; the simulator runs one on all"),
        });
        if let Some(rule) = rule {
            return Err(DeviceError::SideBySide { kernel: wanted.name, rule });
        }
        let devices: Vec<u32> =
            launches.iter().filter_map(|(_, stream, _)| stream.get::<StreamOf>()).map(|stream| stream.0).collect();
        let lost = lock(&self.store).lost.as_ref().map(|&(lost, _)| lost);
        if let Some(at) = devices.iter().position(|&device| lost == Some(device)) {
            // The launch on a device that is lost says so; nothing runs.
            return launches[at].0.stream_done(launches[at].1).map(drop);
        }
        self.launch(first, grid, &all.iter().map(|&(_, _, params)| params).collect::<Vec<_>>(), &devices)
    }

    fn upload(&self, _: &Handle, from: &[u8], to: &Span) -> Result<(), DeviceError> {
        self.alive()?;
        let (address, bytes) = self.place(to)?;
        lock(&self.store).memory.put(address, &from[..bytes.min(from.len())]).map_err(device_error)
    }

    fn download(&self, _: &Handle, from: &Span, to: &mut [u8]) -> Result<(), DeviceError> {
        self.wait()?;
        let (address, bytes) = self.place(from)?;
        let store = lock(&self.store);
        let found = store.memory.get(address, bytes.min(to.len())).map_err(device_error)?;
        to[..found.len()].copy_from_slice(found);
        Ok(())
    }

    fn upload_pinned(
        &self,
        stream: &Handle,
        from: Box<dyn PinnedBytes>,
        to: &Span,
    ) -> Result<Box<dyn InFlight>, DeviceError> {
        self.upload(stream, from.bytes(), to)?;
        Ok(Box::new(CompletedCopy(from)))
    }

    fn download_pinned(
        &self,
        stream: &Handle,
        from: &Span,
        mut to: Box<dyn PinnedBytes>,
    ) -> Result<Box<dyn InFlight>, DeviceError> {
        self.download(stream, from, to.bytes_mut())?;
        Ok(Box::new(CompletedCopy(to)))
    }

    fn stream_done(&self, _: &Handle) -> Result<bool, DeviceError> {
        Ok(self.standing()?.is_none())
    }

    fn wait_stream(&self, _: &Handle) -> Result<(), DeviceError> {
        self.wait()
    }

    fn record(&self, _: &Handle) -> Result<Handle, DeviceError> {
        self.alive()?;
        Ok(Handle::new(Moment(Instant::now())))
    }

    fn wait_in_stream(&self, _: &Handle, _: &Handle) -> Result<(), DeviceError> {
        Ok(())
    }

    fn event_done(&self, _: &Handle) -> Result<bool, DeviceError> {
        Ok(self.standing()?.is_none())
    }

    fn wait_event(&self, _: &Handle) -> Result<(), DeviceError> {
        self.wait()
    }

    fn elapsed(&self, from: &Handle, to: &Handle) -> Result<Duration, DeviceError> {
        match (from.get::<Moment>(), to.get::<Moment>()) {
            (Some(from), Some(to)) => Ok(to.0.saturating_duration_since(from.0)),
            _ => Err(foreign("event")),
        }
    }

    fn graph(&self, work: &[Work]) -> Result<Handle, DeviceError> {
        Ok(Handle::new(work.to_vec()))
    }

    fn submit_graph(&self, stream: &Handle, graph: &Handle) -> Result<(), DeviceError> {
        let work = graph.get::<Vec<Work>>().ok_or_else(|| foreign("graph"))?;
        work.iter().try_for_each(|work| self.submit(stream, work))
    }
}

/// The element type as the simulator names it.
fn element(shape: &TensorShape) -> Result<TensorElem, DeviceError> {
    Ok(match shape.dtype {
        DType::F32 => TensorElem::F32,
        DType::F16 => TensorElem::F16,
        DType::BF16 => TensorElem::BF16,
        DType::F64 if shape.outside == Outside::Zero => TensorElem::F64,
        DType::U64 => TensorElem::U64,
        DType::I64 => TensorElem::S64,
        DType::U32 => TensorElem::U32,
        DType::I32 => TensorElem::S32,
        // Elements that are moved unchanged need only a width.
        DType::U16 | DType::I16 => TensorElem::U16,
        DType::U8 | DType::I8 | DType::Bool | DType::F8E4M3 | DType::F8E5M2 => TensorElem::U8,
        DType::F64 => {
            return Err(DeviceError::TensorMap {
                rule: "of f64 that reads not-a-number outside is not among those that the simulator has".into(),
            });
        }
    })
}
