//! Arrays of Python as operands of an op: where each lies, its tensor on that device, and the
//! results of a simulated device on their way home.
//!
//! A tensor whose type has DLPack's table of C functions is described by it. Any other array is
//! described by `tilewright.ops._described`.
#![expect(unsafe_code, reason = "memory of other libraries, by address")]

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyTuple};
use tilewright::codegen::device::{self, Buffer, Stream, cuda};
use tilewright::layout::DType;
use tilewright::ops::{self, Tensor, spanned};

use crate::dlpack::{self, CurrentStream, Described};
use crate::error::{OpError, op_error};
use crate::stream::LastStream;

/// What Python passes.
pub type Object<'py> = Bound<'py, PyAny>;

/// Where an array lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the host's memory.
    Host,
    /// On a GPU of this number.
    Cuda(u32),
}

/// Address, type, shape and strides in elements: of a tuple of these, or of a tensor.
pub struct Array {
    pub address: u64,
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub strides: Vec<usize>,
}

impl<'py> FromPyObject<'_, 'py> for Array {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Array> {
        if let Ok(tuple) = object.cast::<PyTuple>() {
            let (address, ElementType(dtype), shape, strides) = tuple.extract()?;
            return Ok(Array { address, dtype, shape, strides });
        }
        if let Some(Described { address, dtype, shape, strides, .. }) = dlpack::exchanged(object)? {
            return Ok(Array { address, dtype, shape, strides });
        }
        let py = object.py();
        let ElementType(dtype) = object.getattr(intern!(py, "dtype"))?.extract()?;
        Ok(Array {
            address: object.call_method0(intern!(py, "data_ptr"))?.extract()?,
            dtype,
            shape: object.getattr(intern!(py, "shape"))?.extract()?,
            strides: object.call_method0(intern!(py, "stride"))?.extract()?,
        })
    }
}

/// The type of elements: a name, or an object of which the text is one, such as `torch.float32`.
struct ElementType(DType);

impl<'py> FromPyObject<'_, 'py> for ElementType {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<ElementType> {
        if let Ok(name) = object.cast::<PyString>() {
            return Ok(ElementType(dtype_of(name.to_str()?)?));
        }
        let text = object.str()?;
        Ok(ElementType(dtype_of(text.to_str()?.trim_start_matches("torch."))?))
    }
}

/// The types that ops take, by name.
const TYPE_NAMES: [(&str, DType); 11] = [
    ("float32", DType::F32),
    ("float16", DType::F16),
    ("bfloat16", DType::BF16),
    ("float64", DType::F64),
    ("int64", DType::I64),
    ("int32", DType::I32),
    ("uint32", DType::U32),
    ("int8", DType::I8),
    ("uint8", DType::U8),
    ("float8_e4m3fn", DType::F8E4M3),
    ("bool", DType::Bool),
];

/// The name of a type in numpy and torch; empty for one that no op takes.
pub fn type_name(dtype: DType) -> &'static str {
    TYPE_NAMES.iter().find(|(_, known)| *known == dtype).map_or("", |(name, _)| name)
}

fn dtype_of(name: &str) -> PyResult<DType> {
    let found = TYPE_NAMES.iter().find(|(known, _)| *known == name);
    let error = || OpError::new_err(format!("no op takes elements of type {name}"));
    found.map(|(_, dtype)| *dtype).ok_or_else(error)
}

/// The ops of a simulated device, on which the host's arrays are copied.
#[pyclass(frozen, module = "tilewright._native")]
pub struct Simulator {
    ops: Arc<ops::Ops>,
    stream: Stream,
}

#[pymethods]
impl Simulator {
    /// The simulated device whose schedule follows from a seed.
    #[new]
    fn new(seed: u64) -> PyResult<Simulator> {
        let device = device::open(&format!("sim:{seed}")).map_err(op_error)?;
        let stream = device.stream().map_err(op_error)?;
        Ok(Simulator { ops: Arc::new(ops::Ops::new(&device).map_err(op_error)?), stream })
    }
}

thread_local! {
    /// The simulated device that this thread's calls use for arrays in the host's memory.
    static SIMULATOR: RefCell<Option<Py<Simulator>>> = const { RefCell::new(None) };
}

/// Lets this thread's calls use a simulated device, or none; returns the one before.
#[pyfunction]
#[pyo3(signature = (simulator))]
pub fn simulate(simulator: Option<Py<Simulator>>) -> Option<Py<Simulator>> {
    SIMULATOR.replace(simulator)
}

/// The ops of a GPU, and the stream that was used last.
struct Gpu {
    ops: Arc<ops::Ops>,
    last: LastStream,
}

/// The GPUs that were used, by number.
static GPUS: Mutex<Vec<(u32, Arc<Gpu>)>> = Mutex::new(Vec::new());

fn gpu(number: u32) -> PyResult<Arc<Gpu>> {
    let gpus = || GPUS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, gpu)) = gpus().iter().find(|(known, _)| *known == number) {
        return Ok(Arc::clone(gpu));
    }
    let device = device::open(&format!("cuda:{number}")).map_err(op_error)?;
    let gpu = Arc::new(Gpu { ops: Arc::new(ops::Ops::new(&device).map_err(op_error)?), last: LastStream::default() });
    // Two threads may open the same one; both share what the first has made.
    let mut gpus = gpus();
    if let Some((_, first)) = gpus.iter().find(|(known, _)| *known == number) {
        return Ok(Arc::clone(first));
    }
    gpus.push((number, Arc::clone(&gpu)));
    Ok(gpu)
}

/// An argument that is an array, by its name: the op reads it, or also writes it.
#[derive(Clone, Copy)]
pub struct Argument<'a, 'py> {
    name: &'static str,
    array: Option<&'a Object<'py>>,
    is_written: bool,
}

/// An array that the op reads, if it is given.
pub fn reads<'a, 'py>(name: &'static str, array: impl Into<Option<&'a Object<'py>>>) -> Argument<'a, 'py>
where
    'py: 'a,
{
    Argument { name, array: array.into(), is_written: false }
}

/// An array that the op writes, if it is given.
pub fn writes<'a, 'py>(name: &'static str, array: impl Into<Option<&'a Object<'py>>>) -> Argument<'a, 'py>
where
    'py: 'a,
{
    Argument { is_written: true, ..reads(name, array) }
}

/// An array with where it lies.
struct Located {
    place: Place,
    array: Array,
    current_stream: Option<CurrentStream>,
}

impl Argument<'_, '_> {
    fn located(self) -> PyResult<Option<Located>> {
        let Some(object) = self.array else { return Ok(None) };
        if !self.needs_gradient(object)?
            && let Some(described) = dlpack::exchanged(object.as_borrowed())?
        {
            let Described { kind, number, address, dtype, shape, strides, current_stream } = described;
            if let Some(place) = place_of(kind, number) {
                let array = Array { address, dtype, shape, strides };
                return Ok(Some(Located { place, array, current_stream }));
            }
        }
        static DESCRIBED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let describe = DESCRIBED.import(object.py(), "tilewright.ops", "_described")?;
        let (device, array): (i32, Array) = describe.call1((self.name, object, self.is_written))?.extract()?;
        let place = u32::try_from(device).map_or(Place::Host, Place::Cuda);
        Ok(Some(Located { place, array, current_stream: None }))
    }

    /// Whether autograd would record what an op computes of this tensor, as far as the tensor says.
    fn needs_gradient(self, object: &Object<'_>) -> PyResult<bool> {
        object.getattr_opt(intern!(object.py(), "requires_grad"))?.map_or(Ok(false), |needs| needs.is_truthy())
    }
}

/// The place of DLPack's kind and number of a device.
fn place_of(kind: i32, number: i32) -> Option<Place> {
    match kind {
        dlpack::CPU => Some(Place::Host),
        dlpack::CUDA => u32::try_from(number).ok().map(Place::Cuda),
        _ => None,
    }
}

/// The stream on which the library of a tensor queues its work now, 0 where it has none.
fn current_stream(py: Python<'_>, number: u32, of: Option<CurrentStream>) -> PyResult<u64> {
    match of {
        Some(of) => of.handle(py, number),
        None => {
            static CURRENT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
            CURRENT.import(py, "tilewright.ops", "_current_stream")?.call1((number,))?.extract()
        }
    }
}

/// An operand of a call, on its device.
pub struct Operand {
    tensor: Option<Tensor>,
    /// The place in the host's memory to which a simulated device's result goes.
    home: Option<(u64, usize)>,
}

impl Operand {
    /// The tensor, if the operand was given.
    pub fn tensor(&self) -> Option<&Tensor> {
        self.tensor.as_ref()
    }
}

/// A copy of host memory, of an address and bytes, on the simulated device.
struct HostCopy {
    of: (u64, usize),
    buffer: Buffer<u8>,
    is_written: bool,
}

/// A call of an op.
pub struct Call {
    stream: Stream,
    ops: Arc<ops::Ops>,
    is_simulated: bool,
}

impl Call {
    /// The device of the arrays, its stream, which is the current one where none is given, and the
    /// arrays as its tensors. The first array says where.
    pub fn new<const N: usize>(
        py: Python<'_>,
        stream: Option<u64>,
        arguments: [Argument<'_, '_>; N],
    ) -> PyResult<(Call, [Operand; N])> {
        let mut call = None;
        let mut copies: Vec<HostCopy> = Vec::new();
        let mut operands = [const { Operand { tensor: None, home: None } }; N];
        for (argument, operand) in arguments.into_iter().zip(&mut operands) {
            let Some(located) = argument.located()? else { continue };
            let (of, call) = match &call {
                Some(known) => known,
                None => &*call.insert((located.place, Call::at(py, &located, argument.name, stream)?)),
            };
            if *of != located.place {
                let name = argument.name;
                return Err(OpError::new_err(format!("{name} lies on another device than the first operand")));
            }
            *operand = call.operand(located.array, argument.is_written, &mut copies)?;
        }
        let (_, call) = call.ok_or_else(missing)?;
        Ok((call, operands))
    }

    /// A call where its first array lies, on the stream that is given or on the current one.
    fn at(py: Python<'_>, first: &Located, name: &str, stream: Option<u64>) -> PyResult<Call> {
        let Place::Cuda(number) = first.place else {
            return SIMULATOR.with_borrow(|simulator| {
                let Some(simulator) = simulator else {
                    return Err(OpError::new_err(format!(
                        "{name} lies in the host's memory; ops run on NVIDIA GPUs, and on a simulated one \
                         inside `with tilewright.ops.simulator():`"
                    )));
                };
                let Simulator { ops, stream } = simulator.get();
                Ok(Call { stream: stream.clone(), ops: Arc::clone(ops), is_simulated: true })
            });
        };
        let gpu = gpu(number)?;
        let handle = stream.map_or_else(|| current_stream(py, number, first.current_stream), Ok)?;
        // SAFETY: this is the current stream of the framework that owns the arrays, which uses the
        // primary context and keeps its streams, or one that the caller names as such.
        let stream = unsafe { gpu.last.stream(gpu.ops.device(), handle) }.map_err(op_error)?;
        Ok(Call { stream, ops: Arc::clone(&gpu.ops), is_simulated: false })
    }

    /// The ops of the arrays' device.
    pub fn ops(&self) -> &ops::Ops {
        &self.ops
    }

    fn operand(&self, array: Array, is_written: bool, copies: &mut Vec<HostCopy>) -> PyResult<Operand> {
        let Array { address, dtype, shape, strides } = array;
        let bytes = spanned(&shape, &strides).and_then(|spanned| spanned.checked_mul(dtype.bits() / 8));
        let bytes = bytes.ok_or_else(|| OpError::new_err("an array spans more bytes than memory has"))?;
        let buffer = if self.is_simulated {
            self.copied(copies, (address, bytes), is_written)?
        } else {
            // SAFETY: the caller's array has these elements, on this device, and its library keeps
            // the memory until work of the stream that was queued before is done.
            unsafe { cuda::foreign_buffer(self.ops.device(), address, bytes) }.map_err(op_error)?
        };
        let tensor = Tensor::strided(buffer, dtype, shape, strides).map_err(op_error)?;
        let home = (self.is_simulated && is_written).then_some((address, bytes));
        Ok(Operand { tensor: Some(tensor), home })
    }

    /// The copy of host memory on the simulated device: one for arrays that are the same.
    fn copied(&self, copies: &mut Vec<HostCopy>, of: (u64, usize), is_written: bool) -> PyResult<Buffer<u8>> {
        let (address, bytes) = of;
        if let Some(same) = copies.iter_mut().find(|copy| copy.of == of) {
            same.is_written |= is_written;
            return Ok(same.buffer.clone());
        }
        let overlaps =
            |&(first, length): &(u64, usize)| first < address + bytes as u64 && address < first + length as u64;
        // Each would have results of its own.
        if copies.iter().any(|copy| overlaps(&copy.of) && (is_written || copy.is_written)) {
            return Err(OpError::new_err("arrays in the host's memory overlap in part; give each its own"));
        }
        let from: &[u8] = match bytes {
            0 => &[],
            // SAFETY: the caller's array has these bytes, and Python's lock keeps others from them.
            _ => unsafe { std::slice::from_raw_parts(address as usize as *const u8, bytes) },
        };
        let buffer = self.stream.buffer(from).map_err(op_error)?;
        copies.push(HostCopy { of, buffer: buffer.clone(), is_written });
        Ok(buffer)
    }

    /// Runs the op on its first `R` operands, which there are, and brings results home.
    pub fn run<const R: usize, const N: usize>(
        &self,
        py: Python<'_>,
        operands: [&Operand; N],
        op: impl FnOnce(&ops::Ops, &Stream, [&Tensor; R]) -> Result<(), ops::OpError> + Send,
    ) -> PyResult<()> {
        let needed = operands.iter().take(R).filter_map(|operand| operand.tensor()).collect::<Vec<&Tensor>>();
        let needed = needed.try_into().map_err(|_| missing())?;
        // Other threads go on while a kernel is made.
        py.detach(|| op(&self.ops, &self.stream, needed)).map_err(op_error)?;
        for operand in operands {
            let (Some(tensor), Some((address, bytes))) = (operand.tensor(), operand.home) else { continue };
            if bytes > 0 {
                // SAFETY: as in `copied`; the op writes this array, so that it is writable.
                let to = unsafe { std::slice::from_raw_parts_mut(address as usize as *mut u8, bytes) };
                self.stream.download(tensor.buffer(), to).map_err(op_error)?;
            }
        }
        Ok(())
    }
}

fn missing() -> PyErr {
    OpError::new_err("an operand is missing")
}
