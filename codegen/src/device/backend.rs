//! The interface of a device back end: the trait that [`Device`](super::Device) calls, and the
//! types in its signatures.
//!
//! A back end is thin. Types, ranges, arguments, grids and residency are checked in front of it,
//! once for every kind of device; it moves bytes, runs work in order, and answers for the handles
//! that it gave out. A handle frees what it stands for when its last clone is dropped.

use super::{DeviceError, KernelSource, Properties, Signature, TensorShape};
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

/// A kind of device. Every method may be called from any thread. The place where its figures lie is
/// its identity: two values that return the same reference from [`Backend::properties`] are one
/// device.
pub trait Backend: Any + fmt::Debug + Send + Sync {
    /// The device's figures.
    fn properties(&self) -> &Properties;

    /// Device memory that is free now, bytes.
    ///
    /// # Errors
    /// When the device fails.
    fn free_bytes(&self) -> Result<u64, DeviceError>;

    /// Device memory, at least one byte, aligned to 256 bytes, uninitialised.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`]; when the device fails.
    fn alloc(&self, bytes: u64) -> Result<Allocation, DeviceError>;

    /// Host memory that copies do not have to stage: zeroed, aligned to 64 bytes.
    ///
    /// # Errors
    /// [`DeviceError::HostMemory`]; when the device fails.
    fn alloc_pinned(&self, bytes: usize) -> Result<Box<dyn PinnedBytes>, DeviceError>;

    /// Host memory that kernels read and write in place while the host does: `words` words, zeroed.
    ///
    /// # Errors
    /// [`DeviceError::HostMemory`]; when the device fails.
    fn alloc_mapped(&self, words: usize, width: WordWidth) -> Result<Arc<dyn MappedWords>, DeviceError>;

    /// Makes a kernel ready to launch. Its signature has been checked against the device's
    /// properties.
    ///
    /// # Errors
    /// [`DeviceError::Jit`], [`DeviceError::Layout`], [`DeviceError::LaunchTooLarge`]; when the
    /// device fails.
    fn load(&self, source: &dyn KernelSource, signature: &Signature) -> Result<Loaded, DeviceError>;

    /// A tensor map: the bytes that the device's copy engine reads. The shape has been checked.
    ///
    /// # Errors
    /// [`DeviceError::TensorMap`] where the device has no tensor maps, or not this one.
    fn encode_tensor_map(&self, shape: &TensorShape, address: u64) -> Result<[u8; 128], DeviceError>;

    /// A stream: a queue whose work is done in order.
    ///
    /// # Errors
    /// When the device fails.
    fn stream(&self) -> Result<Handle, DeviceError>;

    /// Queues work.
    ///
    /// # Errors
    /// [`DeviceError::Foreign`]; when the device fails, also in earlier work.
    fn submit(&self, stream: &Handle, work: &Work) -> Result<(), DeviceError>;

    /// Queues launches on devices of this kind, this one's first, that run side by side.
    ///
    /// # Errors
    /// As [`Backend::submit`].
    fn submit_side_by_side(&self, launches: &[(&dyn Backend, &Handle, &Work)]) -> Result<(), DeviceError> {
        launches.iter().try_for_each(|(device, stream, work)| device.submit(stream, work))
    }

    /// Copies host memory to the device after the stream's earlier work; returns when it is done.
    ///
    /// # Errors
    /// As [`Backend::submit`].
    fn upload(&self, stream: &Handle, from: &[u8], to: &Span) -> Result<(), DeviceError>;

    /// Copies device memory to the host after the stream's earlier work; returns when it is done.
    ///
    /// # Errors
    /// As [`Backend::submit`].
    fn download(&self, stream: &Handle, from: &Span, to: &mut [u8]) -> Result<(), DeviceError>;

    /// Queues a copy from the first bytes of pinned memory, which no other code sees until the copy
    /// is done.
    ///
    /// # Errors
    /// As [`Backend::submit`].
    fn upload_pinned(
        &self,
        stream: &Handle,
        from: Box<dyn PinnedBytes>,
        to: &Span,
    ) -> Result<Box<dyn InFlight>, DeviceError>;

    /// Queues a copy to the first bytes of pinned memory, which no other code sees until the copy
    /// is done.
    ///
    /// # Errors
    /// As [`Backend::submit`].
    fn download_pinned(
        &self,
        stream: &Handle,
        from: &Span,
        to: Box<dyn PinnedBytes>,
    ) -> Result<Box<dyn InFlight>, DeviceError>;

    /// Whether all work of the stream is done.
    ///
    /// # Errors
    /// When the device failed in earlier work.
    fn stream_done(&self, stream: &Handle) -> Result<bool, DeviceError>;

    /// Waits until all work of the stream is done.
    ///
    /// # Errors
    /// When the device failed in earlier work.
    fn wait_stream(&self, stream: &Handle) -> Result<(), DeviceError>;

    /// An event that is reached when the stream's earlier work is done.
    ///
    /// # Errors
    /// As [`Backend::submit`].
    fn record(&self, stream: &Handle) -> Result<Handle, DeviceError>;

    /// Makes the stream's later work wait for an event.
    ///
    /// # Errors
    /// As [`Backend::submit`].
    fn wait_in_stream(&self, stream: &Handle, event: &Handle) -> Result<(), DeviceError>;

    /// Whether an event is reached.
    ///
    /// # Errors
    /// When the device failed in earlier work.
    fn event_done(&self, event: &Handle) -> Result<bool, DeviceError>;

    /// Waits until an event is reached.
    ///
    /// # Errors
    /// When the device failed in earlier work.
    fn wait_event(&self, event: &Handle) -> Result<(), DeviceError>;

    /// Device time from one event to a later one. Both are reached.
    ///
    /// # Errors
    /// When the device fails.
    fn elapsed(&self, from: &Handle, to: &Handle) -> Result<Duration, DeviceError>;

    /// A list of work made ready to be submitted at once, again and again.
    ///
    /// # Errors
    /// As [`Backend::submit`].
    fn graph(&self, work: &[Work]) -> Result<Handle, DeviceError>;

    /// Queues the work of a graph.
    ///
    /// # Errors
    /// As [`Backend::submit`].
    fn submit_graph(&self, stream: &Handle, graph: &Handle) -> Result<(), DeviceError>;

    /// Opens the collective by which devices of this kind, this one the first, add up arrays.
    ///
    /// # Errors
    /// [`DeviceError::NoCollective`] where this kind has none; when it cannot be had.
    fn collective(&self, devices: &[&dyn Backend]) -> Result<Handle, DeviceError> {
        let of = devices.first().map_or(self.properties(), |first| first.properties());
        Err(DeviceError::NoCollective { device: of.name.clone() })
    }

    /// The work of each of a collective's devices as a graph; each has as many sums as the others.
    ///
    /// # Errors
    /// As [`Backend::submit`].
    fn graphs(&self, with: &Handle, devices: &[&dyn Backend], work: &[Vec<Work>]) -> Result<Vec<Handle>, DeviceError> {
        let _ = (with, work);
        self.collective(devices).map(|handle| vec![handle])
    }

    /// Opens this device's side of a collective whose other devices are other processes'.
    ///
    /// # Errors
    /// As [`Backend::collective`].
    fn join_collective(&self, id: &[u8], rank: usize, size: usize) -> Result<Handle, DeviceError> {
        let _ = (id, rank, size);
        Err(DeviceError::NoCollective { device: self.properties().name.clone() })
    }

    /// Checks that no error was found in a collective.
    ///
    /// # Errors
    /// The error; [`DeviceError::GivenUp`].
    fn check_collective(&self, with: &Handle) -> Result<(), DeviceError> {
        let _ = with;
        Ok(())
    }

    /// Makes the sums of a collective that are under way end.
    ///
    /// # Errors
    /// When the device fails.
    fn abort_collective(&self, with: &Handle) -> Result<(), DeviceError> {
        let _ = with;
        Ok(())
    }

    /// Checks that devices of this kind can have links to devices of other processes.
    ///
    /// # Errors
    /// As [`Backend::collective`].
    fn check_links(&self) -> Result<(), DeviceError> {
        Err(DeviceError::NoCollective { device: self.properties().name.clone() })
    }

    /// A number for a way to a device of another process.
    ///
    /// # Errors
    /// As [`Backend::check_links`].
    fn link_id(&self) -> Result<Vec<u8>, DeviceError> {
        self.check_links().map(|()| Vec::new())
    }

    /// An end of the way of that number, once the other is there.
    ///
    /// # Errors
    /// As [`Backend::check_links`]; when the device fails.
    fn open_link(&self, stream: &Handle, id: &[u8], end: End) -> Result<Handle, DeviceError> {
        let _ = (id, end);
        self.check_links().map(|()| stream.clone())
    }

    /// Queues what is done with a span at this end of a way.
    ///
    /// # Errors
    /// As [`Backend::submit`]; [`DeviceError::GivenUp`].
    fn pass(&self, link: &Handle, stream: &Handle, span: &Span) -> Result<(), DeviceError> {
        let _ = (link, stream, span);
        self.check_links()
    }

    /// Checks that no error was found at this end of a link.
    ///
    /// # Errors
    /// The error; [`DeviceError::GivenUp`].
    fn check_link(&self, link: &Handle) -> Result<(), DeviceError> {
        let _ = link;
        Ok(())
    }

    /// Makes what is under way at this end of a way end.
    fn abort_link(&self, link: &Handle) {
        let _ = link;
    }
}

/// An object of a back end, shared; dropped with its last clone.
#[derive(Clone)]
pub struct Handle(Arc<dyn Any + Send + Sync>);

impl Handle {
    /// A handle of a thing.
    pub fn new(thing: impl Any + Send + Sync) -> Handle {
        Handle(Arc::new(thing))
    }

    /// A handle of a thing that is shared already.
    pub fn shared(thing: Arc<dyn Any + Send + Sync>) -> Handle {
        Handle(thing)
    }

    /// The thing, if it is a `T`.
    ///
    /// ```
    /// use tilewright_codegen::device::backend::Handle;
    /// let handle = Handle::new(7u32);
    /// assert_eq!((handle.get::<u32>(), handle.get::<u64>()), (Some(&7), None));
    /// ```
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }

    /// Whether both handles are of the same object.
    pub fn same(&self, other: &Handle) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle")
    }
}

/// Device memory as a back end hands it out.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// The memory.
    pub memory: Handle,
    /// Its address on the device.
    pub address: u64,
}

/// A part of a piece of device memory.
#[derive(Clone, Debug)]
pub struct Span {
    /// The memory.
    pub memory: Handle,
    /// First byte, from the memory's start.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// Work that a stream does, or a graph repeats.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Work {
    /// Runs a kernel.
    Launch {
        /// The kernel, as [`Backend::load`] returned it.
        kernel: Handle,
        /// Blocks by axis.
        grid: [u32; 3],
        /// The parameter block: each parameter at its offset in the signature.
        params: Vec<u8>,
        /// The memory that the parameters point to; it lives as long as the work.
        keep: Vec<Handle>,
    },
    /// Sets every byte of a span.
    Fill {
        /// The span.
        to: Span,
        /// The byte.
        byte: u8,
    },
    /// Makes the bytes of a span worthless: a device that knows what was written forgets that these
    /// were, any other sets them to `byte`.
    Poison {
        /// The span.
        to: Span,
        /// The byte.
        byte: u8,
    },
    /// Copies one span to another of the same size on the same device.
    Copy {
        /// The source.
        from: Span,
        /// The destination.
        to: Span,
    },
    /// This device's side of a sum over the devices of a [`Collective`](super::Collective), whose
    /// graphs alone have such.
    Sum {
        /// The summand of this device.
        from: Span,
        /// The destination of the sum, of the same size.
        to: Span,
        /// Its elements.
        float: SumFloat,
        /// The collective.
        with: Handle,
    },
}

/// The element type of a collective's sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumFloat {
    /// Numbers of 32 bits.
    F32,
    /// The upper halves of such.
    Bf16,
}

/// A kernel that is ready to launch.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The kernel.
    pub kernel: Handle,
    /// The results of compilation.
    pub facts: Facts,
}

/// The resources of a loaded kernel, and the number of its blocks that fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Registers per thread.
    pub registers: u32,
    /// Local memory per thread, bytes: the stack and spilled registers.
    pub local_bytes: u32,
    /// Shared memory that the code declares itself, bytes.
    pub static_shared: u32,
    /// Blocks resident on one multiprocessor.
    pub blocks_per_sm: u32,
    /// Blocks resident on the device at once.
    pub resident_blocks: u64,
    /// The log of the compiler.
    pub log: String,
    /// Time that loading took, compilation included.
    pub load_time: Duration,
    /// Whether the compiled code was there from an earlier load.
    pub cached: bool,
}

/// Pinned host memory of one owner.
pub trait PinnedBytes: Any + Send + Sync {
    /// The bytes.
    fn bytes(&self) -> &[u8];

    /// The bytes, to write.
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// A copy that holds its pinned memory until it is done. Dropping it waits.
pub trait InFlight: Send {
    /// Whether the copy is done.
    ///
    /// # Errors
    /// When the device failed in it or in earlier work.
    fn done(&self) -> Result<bool, DeviceError>;

    /// Waits for the copy and gives the memory back.
    ///
    /// # Errors
    /// When the device failed in it or in earlier work.
    fn wait(self: Box<Self>) -> Result<Box<dyn PinnedBytes>, DeviceError>;
}

/// Host memory that kernels see.
pub trait MappedWords: Any + Send + Sync {
    /// Its address on the device.
    fn address(&self) -> u64;

    /// The words.
    fn words(&self) -> AtomicWords<'_>;
}

/// The width of the words of mapped memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordWidth {
    /// 32 bits.
    Bits32,
    /// 64 bits.
    Bits64,
}

/// Words that host and device access atomically.
#[derive(Clone, Copy, Debug)]
pub enum AtomicWords<'m> {
    /// Of 32 bits.
    Bits32(&'m [AtomicU32]),
    /// Of 64 bits.
    Bits64(&'m [AtomicU64]),
}

/// The end of a link that a process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The sending end.
    Sends,
    /// The receiving end.
    Takes,
}
