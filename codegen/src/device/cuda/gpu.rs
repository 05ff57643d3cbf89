//! The back end of NVIDIA GPUs.

use super::context::CudaContext;
use super::link::{self, Link};
use super::memory::{CudaMapped, CudaMemory, CudaPinned};
use super::module::Function;
use super::nccl::{Communicators, nccl};
use super::stream::{CudaEvent, CudaGraph, CudaStream, mine};
use super::tensor_map;
use crate::device::backend::{
    Allocation, Backend, Handle, InFlight, Loaded, MappedWords, PinnedBytes, Span, WordWidth, Work,
};
use crate::device::{DeviceError, End, KernelSource, Properties, Signature, TensorShape};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// A GPU.
#[derive(Debug)]
pub(super) struct CudaDevice {
    pub(super) context: Arc<CudaContext>,
}

impl CudaDevice {
    pub(super) fn new(context: Arc<CudaContext>) -> CudaDevice {
        CudaDevice { context }
    }

    fn stream_of<'h>(&self, stream: &'h Handle) -> Result<&'h CudaStream, DeviceError> {
        mine(&self.context, stream, "stream", CudaStream::context)
    }

    fn event_of<'h>(&self, event: &'h Handle) -> Result<&'h CudaEvent, DeviceError> {
        mine(&self.context, event, "event", CudaEvent::context)
    }

    /// The contexts of devices of this kind.
    fn contexts(devices: &[&dyn Backend]) -> Result<Vec<Arc<CudaContext>>, DeviceError> {
        let of = |&device: &&dyn Backend| {
            let foreign = || DeviceError::NoCollective { device: device.properties().name.clone() };
            let gpu = (device as &dyn Any).downcast_ref::<CudaDevice>().ok_or_else(foreign)?;
            Ok(Arc::clone(&gpu.context))
        };
        devices.iter().map(of).collect()
    }

    fn pinned_of(&self, bytes: Box<dyn PinnedBytes>) -> Result<Box<CudaPinned>, DeviceError> {
        let foreign = || DeviceError::Foreign { what: "pinned buffer", device: self.properties().name.clone() };
        let pinned = (bytes as Box<dyn Any>).downcast::<CudaPinned>().map_err(|_| foreign())?;
        if Arc::ptr_eq(pinned.context(), &self.context) { Ok(pinned) } else { Err(foreign()) }
    }
}

impl Backend for CudaDevice {
    fn properties(&self) -> &Properties {
        self.context.properties()
    }

    fn free_bytes(&self) -> Result<u64, DeviceError> {
        self.context.memory().map(|(free, _)| free)
    }

    fn alloc(&self, bytes: u64) -> Result<Allocation, DeviceError> {
        let memory = CudaMemory::new(&self.context, bytes)?;
        let address = memory.address();
        Ok(Allocation { memory: Handle::new(memory), address })
    }

    fn alloc_pinned(&self, bytes: usize) -> Result<Box<dyn PinnedBytes>, DeviceError> {
        Ok(Box::new(CudaPinned::new(&self.context, bytes)?))
    }

    fn alloc_mapped(&self, words: usize, width: WordWidth) -> Result<Arc<dyn MappedWords>, DeviceError> {
        Ok(Arc::new(CudaMapped::new(&self.context, words, width)?))
    }

    fn load(&self, source: &dyn KernelSource, signature: &Signature) -> Result<Loaded, DeviceError> {
        let (function, mut facts) = Function::load(&self.context, &source.ptx(), signature)?;
        (facts.blocks_per_sm, facts.resident_blocks) = super::launch::resident(&function)?;
        Ok(Loaded { kernel: Handle::new(function), facts })
    }

    fn encode_tensor_map(&self, shape: &TensorShape, address: u64) -> Result<[u8; 128], DeviceError> {
        tensor_map::encode(&self.context, shape, address)
    }

    fn stream(&self) -> Result<Handle, DeviceError> {
        CudaStream::new(&self.context).map(Handle::new)
    }

    fn submit(&self, stream: &Handle, work: &Work) -> Result<(), DeviceError> {
        self.stream_of(stream)?.submit(work)
    }

    fn upload(&self, stream: &Handle, from: &[u8], to: &Span) -> Result<(), DeviceError> {
        self.stream_of(stream)?.upload(from, to)
    }

    fn download(&self, stream: &Handle, from: &Span, to: &mut [u8]) -> Result<(), DeviceError> {
        self.stream_of(stream)?.download(from, to)
    }

    fn upload_pinned(
        &self,
        stream: &Handle,
        from: Box<dyn PinnedBytes>,
        to: &Span,
    ) -> Result<Box<dyn InFlight>, DeviceError> {
        Ok(Box::new(self.stream_of(stream)?.upload_pinned(self.pinned_of(from)?, to)?))
    }

    fn download_pinned(
        &self,
        stream: &Handle,
        from: &Span,
        to: Box<dyn PinnedBytes>,
    ) -> Result<Box<dyn InFlight>, DeviceError> {
        Ok(Box::new(self.stream_of(stream)?.download_pinned(from, self.pinned_of(to)?)?))
    }

    fn stream_done(&self, stream: &Handle) -> Result<bool, DeviceError> {
        self.stream_of(stream)?.done()
    }

    fn wait_stream(&self, stream: &Handle) -> Result<(), DeviceError> {
        self.stream_of(stream)?.wait()
    }

    fn record(&self, stream: &Handle) -> Result<Handle, DeviceError> {
        self.stream_of(stream)?.record().map(Handle::new)
    }

    fn wait_in_stream(&self, stream: &Handle, event: &Handle) -> Result<(), DeviceError> {
        self.stream_of(stream)?.wait_for(self.event_of(event)?)
    }

    fn event_done(&self, event: &Handle) -> Result<bool, DeviceError> {
        self.event_of(event)?.done()
    }

    fn wait_event(&self, event: &Handle) -> Result<(), DeviceError> {
        self.event_of(event)?.wait()
    }

    fn elapsed(&self, from: &Handle, to: &Handle) -> Result<Duration, DeviceError> {
        self.event_of(to)?.since(self.event_of(from)?)
    }

    fn graph(&self, work: &[Work]) -> Result<Handle, DeviceError> {
        CudaGraph::new(&self.context, work).map(Handle::new)
    }

    fn submit_graph(&self, stream: &Handle, graph: &Handle) -> Result<(), DeviceError> {
        let graph = mine(&self.context, graph, "graph", CudaGraph::context)?;
        self.stream_of(stream)?.launch_graph(graph)
    }

    fn collective(&self, devices: &[&dyn Backend]) -> Result<Handle, DeviceError> {
        Communicators::new(CudaDevice::contexts(devices)?).map(Handle::new)
    }

    fn graphs(&self, with: &Handle, devices: &[&dyn Backend], work: &[Vec<Work>]) -> Result<Vec<Handle>, DeviceError> {
        let graphs = communicators(with)?.graphs(&CudaDevice::contexts(devices)?, work)?;
        Ok(graphs.into_iter().map(Handle::new).collect())
    }

    fn join_collective(&self, id: &[u8], rank: usize, size: usize) -> Result<Handle, DeviceError> {
        Communicators::join(&self.context, id, rank, size).map(Handle::new)
    }

    fn check_collective(&self, with: &Handle) -> Result<(), DeviceError> {
        communicators(with)?.check_state()
    }

    fn abort_collective(&self, with: &Handle) -> Result<(), DeviceError> {
        communicators(with).map(Communicators::abort)
    }

    fn check_links(&self) -> Result<(), DeviceError> {
        nccl().map(drop)
    }

    fn link_id(&self) -> Result<Vec<u8>, DeviceError> {
        link::id()
    }

    fn open_link(&self, stream: &Handle, id: &[u8], end: End) -> Result<Handle, DeviceError> {
        Link::open(self.stream_of(stream)?, id, end).map(Handle::new)
    }

    fn pass(&self, link: &Handle, stream: &Handle, span: &Span) -> Result<(), DeviceError> {
        let foreign = || DeviceError::Foreign { what: "way", device: self.properties().name.clone() };
        link.get::<Link>().ok_or_else(foreign)?.pass(self.stream_of(stream)?, span)
    }

    fn check_link(&self, link: &Handle) -> Result<(), DeviceError> {
        link.get::<Link>().map_or(Ok(()), Link::check)
    }

    fn abort_link(&self, link: &Handle) {
        if let Some(link) = link.get::<Link>() {
            link.abort();
        }
    }
}

fn communicators(with: &Handle) -> Result<&Communicators, DeviceError> {
    with.get().ok_or_else(|| DeviceError::Foreign { what: "collective", device: "an NVIDIA GPU".into() })
}
