//! Memory and the stream of a CUDA device of candle, in place.
#![expect(unsafe_code, reason = "memory of candle, by address")]

use std::sync::Arc;

use candle_core::cuda::cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DevicePtrMut, DeviceRepr, SyncOnDrop};
use candle_core::cuda::{CudaDType, CudaStorageSlice};
use candle_core::{CudaDevice, CudaStorage, DType, Layout, Result};
use half::{bf16, f16};
use tilewright::codegen::device::{self, Buffer, Stream, cuda};
use tilewright::ops::{self, OpError, Ops};

use crate::Error;
use crate::context::tensor;

/// A CUDA device of candle with its stream.
#[derive(Debug)]
pub(crate) struct Gpu {
    device: CudaDevice,
    /// Keeps the stream of `stream` alive.
    owner: Arc<CudaStream>,
    stream: Stream,
}

impl Gpu {
    /// Opens tilewright's device of the same ordinal, which shares the primary context.
    pub fn new(of: &CudaDevice) -> Result<(Gpu, device::Device)> {
        let owner = of.cuda_stream();
        let opened = device::open(&format!("cuda:{}", owner.context().ordinal())).map_err(Error::from)?;
        // SAFETY: candle uses the primary context, and `owner` keeps the stream as long as this value.
        let stream = unsafe { cuda::foreign_stream(&opened, owner.cu_stream() as u64) }.map_err(Error::from)?;
        Ok((Gpu { device: of.clone(), owner, stream }, opened))
    }

    /// Whether tensors of `device` are used on this stream.
    pub fn owns(&self, device: &CudaDevice) -> bool {
        device.cuda_stream().cu_stream() == self.owner.cu_stream()
            && device.cuda_stream().context().ordinal() == self.owner.context().ordinal()
    }

    /// Launches an op on contiguous operands and a new output of type and shape `out`.
    pub fn run(
        &self,
        op: &'static str,
        ops: &Ops,
        operands: &[(&CudaStorage, &Layout)],
        out: (DType, &[usize]),
        launch: impl Fn(&Stream, &[ops::Tensor]) -> std::result::Result<(), OpError>,
    ) -> Result<CudaStorage> {
        // The guards record their events when they are dropped, after the launch.
        let mut guards: Vec<SyncOnDrop<'_>> = Vec::new();
        let mut tensors = Vec::with_capacity(operands.len() + 1);
        for (storage, layout) in operands {
            let (memory, dtype) = self.borrowed(op, ops, storage, layout, &mut guards)?;
            tensors.push(tensor(op, memory, dtype, layout.dims())?);
        }
        let call = Output { gpu: self, op, ops, out, tensors, launch };
        match out.0 {
            DType::F32 => call.run::<f32>(),
            DType::F16 => call.run::<f16>(),
            DType::BF16 => call.run::<bf16>(),
            found => Err(Error::Type { op, found }.into()),
        }
    }

    /// The memory of an operand.
    fn borrowed<'a>(
        &'a self,
        op: &'static str,
        ops: &Ops,
        storage: &'a CudaStorage,
        layout: &Layout,
        guards: &mut Vec<SyncOnDrop<'a>>,
    ) -> std::result::Result<(Buffer<u8>, DType), Error> {
        let (first, count) = (layout.start_offset(), layout.shape().elem_count());
        let mut of = |(address, guard): (u64, SyncOnDrop<'a>), dtype: DType| {
            guards.push(guard);
            let size = dtype.size_in_bytes();
            // SAFETY: candle's layout says that the storage has these elements from this offset on.
            // The storage is borrowed while the launch is queued, and candle frees it in stream order.
            let memory = unsafe { cuda::foreign_buffer(ops.device(), address + (first * size) as u64, count * size) };
            Ok((memory?, dtype))
        };
        match &storage.slice {
            CudaStorageSlice::F32(slice) => of(slice.device_ptr(&self.owner), DType::F32),
            CudaStorageSlice::F16(slice) => of(slice.device_ptr(&self.owner), DType::F16),
            CudaStorageSlice::BF16(slice) => of(slice.device_ptr(&self.owner), DType::BF16),
            CudaStorageSlice::U8(slice) => of(slice.device_ptr(&self.owner), DType::U8),
            CudaStorageSlice::U32(slice) => of(slice.device_ptr(&self.owner), DType::U32),
            CudaStorageSlice::I32(slice) => of(slice.device_ptr(&self.owner), DType::I32),
            _ => {
                use candle_core::backend::BackendStorage;
                Err(Error::Type { op, found: storage.dtype() })
            }
        }
    }
}

/// A launch whose output is not allocated yet.
struct Output<'c, F> {
    gpu: &'c Gpu,
    op: &'static str,
    ops: &'c Ops,
    out: (DType, &'c [usize]),
    tensors: Vec<ops::Tensor>,
    launch: F,
}

impl<F: Fn(&Stream, &[ops::Tensor]) -> std::result::Result<(), OpError>> Output<'_, F> {
    fn run<T: CudaDType + DeviceRepr>(mut self) -> Result<CudaStorage> {
        let (dtype, shape) = self.out;
        let count = shape.iter().product::<usize>();
        // SAFETY: the op writes every element of its output before anything reads one.
        let mut slice: CudaSlice<T> = unsafe { self.gpu.device.alloc(count) }?;
        {
            let (address, _guard) = slice.device_ptr_mut(&self.gpu.owner);
            // SAFETY: the slice has these bytes, and is freed in stream order after the launch.
            let memory = unsafe { cuda::foreign_buffer(self.ops.device(), address, count * dtype.size_in_bytes()) };
            self.tensors.push(tensor(self.op, memory.map_err(Error::from)?, dtype, shape)?);
            (self.launch)(&self.gpu.stream, &self.tensors).map_err(Error::from)?;
        }
        Ok(CudaStorage::wrap_cuda_slice(slice, self.gpu.device.clone()))
    }
}
