//! The ops of a device, and the one [`CustomOp1`] through which all of them run.

use std::sync::Arc;

use candle_core::{CpuStorage, CudaStorage, CustomOp1, DType, Device, Layout, Result, Shape, Storage, Tensor};
use half::{bf16, f16};
use tilewright::codegen::device::{Buffer, DeviceError, Stream, sim};
use tilewright::layout;
use tilewright::ops::{self, OpError, Ops};

use crate::Error;

/// The ops of one device. Clones share the compiled kernels.
#[derive(Clone, Debug)]
pub struct Context {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    ops: Ops,
    place: Place,
}

/// The device of a context.
#[derive(Debug)]
enum Place {
    Simulated(Stream),
    #[cfg(feature = "cuda")]
    Cuda(crate::cuda::Gpu),
}

impl Context {
    /// Returns the ops of a candle device, launched on that device's stream.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a device other than CUDA, and for every device without the
    /// feature `cuda`; [`Error::Op`] for a GPU older than compute capability 8.0.
    pub fn new(device: &Device) -> Result<Context> {
        match device {
            #[cfg(feature = "cuda")]
            Device::Cuda(device) => {
                let (gpu, device) = crate::cuda::Gpu::new(device)?;
                let ops = Ops::new(&device).map_err(Error::from)?;
                Ok(Context { inner: Arc::new(Inner { ops, place: Place::Cuda(gpu) }) })
            }
            #[cfg(not(feature = "cuda"))]
            Device::Cuda(_) => Err(Error::Unsupported { found: "a CUDA device" }.into()),
            Device::Cpu => Err(Error::Unsupported { found: "the CPU" }.into()),
            Device::Metal(_) => Err(Error::Unsupported { found: "a Metal device" }.into()),
        }
    }

    /// Returns ops for CPU tensors, run in tilewright's GPU simulator: for tests. The seed chooses
    /// the order in which simulated warps run.
    ///
    /// # Errors
    /// A device error of the simulator.
    pub fn simulated(seed: u64) -> Result<Context> {
        let device = sim::open(seed);
        let stream = device.stream().map_err(Error::from)?;
        let ops = Ops::new(&device).map_err(Error::from)?;
        Ok(Context { inner: Arc::new(Inner { ops, place: Place::Simulated(stream) }) })
    }

    /// Returns tilewright's ops of the device.
    pub fn ops(&self) -> &Ops {
        &self.inner.ops
    }

    fn name(&self) -> String {
        self.inner.ops.device().properties().name.clone()
    }

    /// Runs `launch` on `inputs` and a new tensor of type `dtype` and shape `shape`.
    ///
    /// `launch` gets the inputs in their order, then the output.
    pub(crate) fn run<const N: usize, F>(
        &self,
        op: &'static str,
        inputs: [&Tensor; N],
        (dtype, shape): (DType, Shape),
        launch: F,
    ) -> Result<Tensor>
    where
        F: Fn(&Ops, &Stream, [&ops::Tensor; N], &ops::Tensor) -> std::result::Result<(), OpError>,
    {
        let Some((first, others)) = inputs.split_first() else {
            return Err(Error::Config("an op needs an operand").into());
        };
        let launch = |ops: &Ops, stream: &Stream, tensors: &[ops::Tensor]| {
            let (Some(inputs), Some(out)) = (tensors.first_chunk::<N>(), tensors.last()) else {
                return Ok(());
            };
            launch(ops, stream, inputs.each_ref(), out)
        };
        first.apply_op1_no_bwd(&Call { context: self, op, others, dtype, shape, launch })
    }
}

/// An op on `N` tensors as candle's unary op: the other operands are locked while it runs.
struct Call<'c, F> {
    context: &'c Context,
    op: &'static str,
    others: &'c [&'c Tensor],
    dtype: DType,
    shape: Shape,
    launch: F,
}

impl<F> CustomOp1 for Call<'_, F>
where
    F: Fn(&Ops, &Stream, &[ops::Tensor]) -> std::result::Result<(), OpError>,
{
    fn name(&self) -> &'static str {
        self.op
    }

    fn cpu_fwd(&self, first: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        // Without the feature `cuda` the pattern always matches.
        #[cfg_attr(not(feature = "cuda"), expect(irrefutable_let_patterns, reason = "one kind of device"))]
        let Place::Simulated(stream) = &self.context.inner.place else {
            return Err(self.misplaced(0, "the CPU", "move it to that device").into());
        };
        let mut tensors = vec![self.upload(stream, 0, first, layout)?];
        for (index, other) in self.others.iter().enumerate() {
            let (storage, layout) = other.storage_and_layout();
            let Storage::Cpu(storage) = &*storage else {
                return Err(self.misplaced(index + 1, "a GPU", "move it to the CPU").into());
            };
            tensors.push(self.upload(stream, index + 1, storage, layout)?);
        }
        let count = self.shape.elem_count();
        let memory = match self.dtype {
            DType::F32 => stream.buffer(&vec![0f32; count]).and_then(|buffer| buffer.cast()),
            DType::BF16 => stream.buffer(&vec![bf16::ZERO; count]).and_then(|buffer| buffer.cast()),
            DType::F16 => stream.buffer(&vec![f16::ZERO; count]).and_then(|buffer| buffer.cast()),
            found => return Err(Error::Type { op: self.op, found }.into()),
        };
        let memory: Buffer<u8> = memory.map_err(Error::from)?;
        tensors.push(self.tensor(memory.clone(), self.dtype, self.shape.dims())?);
        (self.launch)(&self.context.inner.ops, stream, &tensors).map_err(Error::from)?;
        let storage = match self.dtype {
            DType::F32 => memory.cast().and_then(|memory| stream.read(&memory)).map(CpuStorage::F32),
            DType::BF16 => memory.cast().and_then(|memory| stream.read(&memory)).map(CpuStorage::BF16),
            _ => memory.cast().and_then(|memory| stream.read(&memory)).map(CpuStorage::F16),
        };
        Ok((storage.map_err(Error::from)?, self.shape.clone()))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, first: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        let Place::Cuda(gpu) = &self.context.inner.place else {
            return Err(self.misplaced(0, "a GPU", "use Context::new of its device").into());
        };
        let guards: Vec<_> = self.others.iter().map(|other| other.storage_and_layout()).collect();
        let mut operands = vec![(first, layout)];
        for (index, (storage, layout)) in guards.iter().enumerate() {
            let Storage::Cuda(storage) = &**storage else {
                return Err(self.misplaced(index + 1, "another device", "move it to that GPU").into());
            };
            operands.push((storage, layout));
        }
        for (index, (storage, layout)) in operands.iter().enumerate() {
            self.contiguous(index, layout)?;
            if !gpu.owns(&storage.device) {
                return Err(self.misplaced(index, "another GPU or stream", "use the context's device").into());
            }
        }
        let out = (self.dtype, self.shape.dims());
        let storage = gpu.run(self.op, self.context.ops(), &operands, out, |stream, tensors| {
            (self.launch)(self.context.ops(), stream, tensors)
        })?;
        Ok((storage, self.shape.clone()))
    }

    #[cfg(not(feature = "cuda"))]
    fn cuda_fwd(&self, _: &CudaStorage, _: &Layout) -> Result<(CudaStorage, Shape)> {
        Err(self.misplaced(0, "a GPU", "build with the feature `cuda`").into())
    }
}

impl<F> Call<'_, F> {
    fn misplaced(&self, operand: usize, found: &'static str, hint: &'static str) -> Error {
        Error::Place { op: self.op, operand, found, context: self.context.name(), hint }
    }

    fn contiguous(&self, operand: usize, layout: &Layout) -> std::result::Result<(), Error> {
        if layout.is_contiguous() {
            return Ok(());
        }
        let (shape, strides) = (layout.dims().to_vec(), layout.stride().to_vec());
        Err(Error::Strided { op: self.op, operand, shape, strides })
    }

    /// Copies an operand to the simulated device.
    fn upload(
        &self,
        stream: &Stream,
        operand: usize,
        storage: &CpuStorage,
        layout: &Layout,
    ) -> std::result::Result<ops::Tensor, Error> {
        self.contiguous(operand, layout)?;
        let elements = layout.start_offset()..layout.start_offset() + layout.shape().elem_count();
        fn copied<T: bytemuck::Pod>(
            stream: &Stream,
            from: &[T],
            elements: std::ops::Range<usize>,
        ) -> std::result::Result<Buffer<u8>, DeviceError> {
            stream.buffer(from.get(elements).unwrap_or_default())?.cast()
        }
        let (memory, dtype) = match storage {
            CpuStorage::F32(from) => (copied(stream, from, elements)?, DType::F32),
            CpuStorage::F16(from) => (copied(stream, from, elements)?, DType::F16),
            CpuStorage::BF16(from) => (copied(stream, from, elements)?, DType::BF16),
            CpuStorage::U8(from) => (copied(stream, from, elements)?, DType::U8),
            CpuStorage::U32(from) => (copied(stream, from, elements)?, DType::U32),
            CpuStorage::I32(from) => (copied(stream, from, elements)?, DType::I32),
            other => {
                use candle_core::backend::BackendStorage;
                return Err(Error::Type { op: self.op, found: other.dtype() });
            }
        };
        self.tensor(memory, dtype, layout.dims())
    }

    fn tensor(&self, memory: Buffer<u8>, dtype: DType, shape: &[usize]) -> std::result::Result<ops::Tensor, Error> {
        tensor(self.op, memory, dtype, shape)
    }
}

/// Wraps device memory as an operand of tilewright's ops.
pub(crate) fn tensor(
    op: &'static str,
    memory: Buffer<u8>,
    dtype: DType,
    shape: &[usize],
) -> std::result::Result<ops::Tensor, Error> {
    let dtype = match dtype {
        DType::F32 => layout::DType::F32,
        DType::F16 => layout::DType::F16,
        DType::BF16 => layout::DType::BF16,
        DType::U8 => layout::DType::U8,
        DType::U32 => layout::DType::U32,
        DType::I32 => layout::DType::I32,
        found => return Err(Error::Type { op, found }),
    };
    Ok(ops::Tensor::new(memory, dtype, shape)?)
}
