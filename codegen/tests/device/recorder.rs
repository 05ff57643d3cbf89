//! A device that keeps memory in the host's, copies and fills for real, and writes down what it was
//! asked to launch.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tilewright_codegen::device::backend::{
    Allocation, AtomicWords, Backend, Handle, InFlight, Loaded, MappedWords, PinnedBytes, Span, WordWidth,
};
use tilewright_codegen::device::{Device, DeviceError, Facts, KernelSource, Properties, Signature, TensorShape, Work};

/// A launch that was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Launched {
    pub kernel: String,
    pub grid: [u32; 3],
    pub params: Vec<u8>,
}

/// The record of a test.
#[derive(Debug, Default)]
pub struct Record {
    pub launches: Mutex<Vec<Launched>>,
    /// Pieces of device memory that are not freed.
    pub live: AtomicUsize,
    /// Pieces of pinned and mapped memory that are not freed.
    pub live_host: Arc<AtomicUsize>,
    next: AtomicU64,
}

#[derive(Debug)]
struct Recorder {
    properties: Properties,
    record: Arc<Record>,
}

/// A device like an H100, and its record.
pub fn device() -> (Device, Arc<Record>) {
    device_with(Properties {
        name: "recorder".into(),
        capability: (9, 0),
        sms: 4,
        shared_bytes_per_block: 232_448,
        threads_per_block: 1024,
        memory_bytes: 1 << 20,
        cooperative: true,
        ..Properties::default()
    })
}

pub fn device_with(properties: Properties) -> (Device, Arc<Record>) {
    let record = Arc::new(Record::default());
    (Device::new(Arc::new(Recorder { properties, record: Arc::clone(&record) })), record)
}

struct Memory {
    bytes: Mutex<Vec<u8>>,
    record: Arc<Record>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.record.live.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts a piece of host memory while it lives.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(live: &Arc<AtomicUsize>) -> Counted {
        live.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(live))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Pinned(Vec<u64>, #[expect(dead_code, reason = "counts while it lives")] Counted);

impl PinnedBytes for Pinned {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

struct Done(Box<dyn PinnedBytes>);

impl InFlight for Done {
    fn done(&self) -> Result<bool, DeviceError> {
        Ok(true)
    }

    fn wait(self: Box<Self>) -> Result<Box<dyn PinnedBytes>, DeviceError> {
        Ok(self.0)
    }
}

struct Mapped(Vec<AtomicU32>, Vec<AtomicU64>, #[expect(dead_code, reason = "counts while it lives")] Counted);

impl MappedWords for Mapped {
    fn address(&self) -> u64 {
        0x7000
    }

    fn words(&self) -> AtomicWords<'_> {
        if self.1.is_empty() { AtomicWords::Bits32(&self.0) } else { AtomicWords::Bits64(&self.1) }
    }
}

fn with<R>(span: &Span, act: impl FnOnce(&mut [u8]) -> R) -> R {
    let memory = span.memory.get::<Memory>().expect("memory of a recorder");
    let mut bytes = memory.bytes.lock().expect("no thread panicked");
    act(&mut bytes[span.offset as usize..][..span.bytes as usize])
}

impl Backend for Recorder {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn free_bytes(&self) -> Result<u64, DeviceError> {
        Ok(self.properties.memory_bytes)
    }

    fn alloc(&self, bytes: u64) -> Result<Allocation, DeviceError> {
        if bytes > self.properties.memory_bytes {
            return Err(DeviceError::OutOfMemory { asked: bytes, free: self.properties.memory_bytes });
        }
        self.record.live.fetch_add(1, Ordering::Relaxed);
        let address = 0x1_0000 + self.record.next.fetch_add(bytes.next_multiple_of(256), Ordering::Relaxed);
        let memory = Memory { bytes: Mutex::new(vec![0xcd; bytes as usize]), record: Arc::clone(&self.record) };
        Ok(Allocation { memory: Handle::new(memory), address })
    }

    fn alloc_pinned(&self, bytes: usize) -> Result<Box<dyn PinnedBytes>, DeviceError> {
        Ok(Box::new(Pinned(vec![0; bytes.div_ceil(8)], Counted::new(&self.record.live_host))))
    }

    fn alloc_mapped(&self, words: usize, width: WordWidth) -> Result<Arc<dyn MappedWords>, DeviceError> {
        let (narrow, wide) = if width == WordWidth::Bits32 { (words, 0) } else { (0, words) };
        let mapped = Mapped(
            std::iter::repeat_with(AtomicU32::default).take(narrow).collect(),
            std::iter::repeat_with(AtomicU64::default).take(wide).collect(),
            Counted::new(&self.record.live_host),
        );
        Ok(Arc::new(mapped))
    }

    fn load(&self, _: &dyn KernelSource, signature: &Signature) -> Result<Loaded, DeviceError> {
        let resident = u64::from(self.properties.sms) * 2;
        let facts = Facts { blocks_per_sm: 2, resident_blocks: resident, ..Facts::default() };
        Ok(Loaded { kernel: Handle::new(signature.name.clone()), facts })
    }

    fn encode_tensor_map(&self, _: &TensorShape, address: u64) -> Result<[u8; 128], DeviceError> {
        let mut map = [0xee; 128];
        map[..8].copy_from_slice(&address.to_le_bytes());
        Ok(map)
    }

    fn stream(&self) -> Result<Handle, DeviceError> {
        Ok(Handle::new(()))
    }

    fn submit(&self, _: &Handle, work: &Work) -> Result<(), DeviceError> {
        match work {
            Work::Launch { kernel, grid, params, .. } => {
                let kernel = kernel.get::<String>().expect("a kernel of a recorder").clone();
                let launched = Launched { kernel, grid: *grid, params: params.clone() };
                self.record.launches.lock().expect("no thread panicked").push(launched);
            }
            Work::Fill { to, byte } => with(to, |bytes| bytes.fill(*byte)),
            Work::Copy { from, to } => {
                let bytes = with(from, |bytes| bytes.to_vec());
                with(to, |to| to.copy_from_slice(&bytes));
            }
            _ => panic!("work that the recorder does not know: {work:?}"),
        }
        Ok(())
    }

    fn upload(&self, _: &Handle, from: &[u8], to: &Span) -> Result<(), DeviceError> {
        with(to, |to| to.copy_from_slice(from));
        Ok(())
    }

    fn download(&self, _: &Handle, from: &Span, to: &mut [u8]) -> Result<(), DeviceError> {
        with(from, |from| to.copy_from_slice(from));
        Ok(())
    }

    fn upload_pinned(
        &self,
        _: &Handle,
        from: Box<dyn PinnedBytes>,
        to: &Span,
    ) -> Result<Box<dyn InFlight>, DeviceError> {
        with(to, |to| to.copy_from_slice(&from.bytes()[..to.len()]));
        Ok(Box::new(Done(from)))
    }

    fn download_pinned(
        &self,
        _: &Handle,
        from: &Span,
        mut to: Box<dyn PinnedBytes>,
    ) -> Result<Box<dyn InFlight>, DeviceError> {
        with(from, |from| to.bytes_mut()[..from.len()].copy_from_slice(from));
        Ok(Box::new(Done(to)))
    }

    fn stream_done(&self, _: &Handle) -> Result<bool, DeviceError> {
        Ok(true)
    }

    fn wait_stream(&self, _: &Handle) -> Result<(), DeviceError> {
        Ok(())
    }

    fn record(&self, _: &Handle) -> Result<Handle, DeviceError> {
        let launches = self.record.launches.lock().expect("no thread panicked").len() as u64;
        Ok(Handle::new(launches))
    }

    fn wait_in_stream(&self, _: &Handle, _: &Handle) -> Result<(), DeviceError> {
        Ok(())
    }

    fn event_done(&self, _: &Handle) -> Result<bool, DeviceError> {
        Ok(true)
    }

    fn wait_event(&self, _: &Handle) -> Result<(), DeviceError> {
        Ok(())
    }

    /// A microsecond for each launch between the two.
    fn elapsed(&self, from: &Handle, to: &Handle) -> Result<Duration, DeviceError> {
        let at = |event: &Handle| *event.get::<u64>().expect("an event of a recorder");
        Ok(Duration::from_micros(at(to) - at(from)))
    }

    fn graph(&self, work: &[Work]) -> Result<Handle, DeviceError> {
        Ok(Handle::new(work.to_vec()))
    }

    fn submit_graph(&self, stream: &Handle, graph: &Handle) -> Result<(), DeviceError> {
        graph.get::<Vec<Work>>().expect("a graph of a recorder").iter().try_for_each(|work| self.submit(stream, work))
    }
}
