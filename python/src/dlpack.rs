//! Tensors of other libraries by DLPack (`dlpack.h`, version 1.2): capsules, and the table of C
//! functions by which a type describes its tensors without one.
#![expect(unsafe_code, reason = "structures and functions of other libraries, as the protocol has them")]

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyBufferError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyType};
use tilewright::layout::DType;

/// A tensor.
#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// Fills in a tensor for an object of Python; 0, or -1 with an exception set.
type Describe = unsafe extern "C" fn(*mut c_void, *mut DlTensor) -> c_int;

/// Stores the stream on which a library queues its work on a device; 0, or -1 with an exception set.
type Current = unsafe extern "C" fn(i32, i32, *mut *mut c_void) -> c_int;

/// The functions of a type.
#[repr(C)]
struct ExchangeApi {
    major: u32,
    minor: u32,
    previous: *const c_void,
    allocate: *const c_void,
    managed_from_object: *const c_void,
    object_from_managed: *const c_void,
    describe: Option<Describe>,
    current_stream: Option<Current>,
}

/// The major version of [`ExchangeApi`].
const MAJOR: u32 = 1;
/// The name of a capsule that nothing has consumed.
const DLTENSOR: &CStr = c"dltensor";
/// The name of the capsule with a type's functions.
const EXCHANGE: &CStr = c"dlpack_exchange_api";

/// The kinds of devices: the host, and CUDA.
pub const CPU: i32 = 1;
pub const CUDA: i32 = 2;

/// What tells the current stream of a library.
#[derive(Clone, Copy)]
pub struct CurrentStream(Current);

impl CurrentStream {
    /// The handle of the current stream of a GPU.
    pub fn handle(self, py: Python<'_>, device: u32) -> PyResult<u64> {
        let mut stream = std::ptr::null_mut();
        // SAFETY: the function is of a table of the protocol, called with Python's lock held; it
        // stores a stream where it returns 0.
        if unsafe { self.0(CUDA, device as i32, &raw mut stream) } != 0 {
            return Err(PyErr::fetch(py));
        }
        Ok(stream as usize as u64)
    }
}

/// The kind and number of a tensor's device, its address, type, shape and strides in elements, and what
/// tells its library's current stream.
pub struct Described {
    pub kind: i32,
    pub number: i32,
    pub address: u64,
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub strides: Vec<usize>,
    pub current_stream: Option<CurrentStream>,
}

impl DlTensor {
    /// # Safety
    /// Shape and strides are null, or have a number for each axis.
    unsafe fn described(&self) -> PyResult<Described> {
        if self.lanes != 1 {
            return Err(PyBufferError::new_err("vectors of elements have no op"));
        }
        let dtype = match (self.code, self.bits) {
            (0, 8) => DType::I8,
            (0, 32) => DType::I32,
            (0, 64) => DType::I64,
            (1, 8) => DType::U8,
            (1, 32) => DType::U32,
            (2, 16) => DType::F16,
            (2, 32) => DType::F32,
            (2, 64) => DType::F64,
            (4, 16) => DType::BF16,
            (6, 8) => DType::Bool,
            (10, 8) => DType::F8E4M3,
            (code, bits) => {
                let error = format!("no op takes elements of DLPack's type {code} of {bits} bits");
                return Err(PyBufferError::new_err(error));
            }
        };
        let axes = usize::try_from(self.ndim).unwrap_or(0);
        let extents = |from: *const i64| -> PyResult<Option<Vec<usize>>> {
            if axes == 0 || from.is_null() {
                return Ok(None);
            }
            // SAFETY: there is a number for each axis, as the caller promises.
            let numbers = unsafe { std::slice::from_raw_parts(from, axes) };
            let negative = || PyBufferError::new_err("an array has a negative extent or stride");
            let whole = numbers.iter().map(|&number| usize::try_from(number).map_err(|_| negative()));
            whole.collect::<PyResult<Vec<usize>>>().map(Some)
        };
        let shape = extents(self.shape)?.unwrap_or_default();
        let strides = extents(self.strides)?.unwrap_or_else(|| {
            let mut strides = vec![1usize; shape.len()];
            for axis in (1..shape.len()).rev() {
                strides[axis - 1] = shape[axis].saturating_mul(strides[axis]);
            }
            strides
        });
        let address = (self.data as usize as u64).wrapping_add(self.byte_offset);
        let DlTensor { device_type: kind, device_id: number, .. } = *self;
        Ok(Described { kind, number, address, dtype, shape, strides, current_stream: None })
    }
}

/// The tensor of a capsule, which stays its owner.
pub fn described(capsule: &Bound<'_, PyCapsule>) -> PyResult<Described> {
    let tensor = capsule.pointer_checked(Some(DLTENSOR))?.cast::<DlTensor>();
    // SAFETY: a capsule of this name holds a `DLManagedTensor`, which begins with a `DLTensor` with a
    // number for each axis, as the protocol says; it lives as long as the capsule.
    unsafe { tensor.as_ref().described() }
}

/// What a type's functions tell.
#[derive(Clone, Copy)]
struct Exchange {
    describe: Describe,
    current_stream: Option<CurrentStream>,
}

/// The types that were asked, with their functions.
static TYPES: Mutex<Vec<(Py<PyType>, Option<Exchange>)>> = Mutex::new(Vec::new());
/// Types that are remembered.
const MOST_TYPES: usize = 64;

/// The tensor that an object is, if its type has functions that say so.
pub fn exchanged(object: Borrowed<'_, '_, PyAny>) -> PyResult<Option<Described>> {
    let of = object.get_type();
    let types = || TYPES.lock().unwrap_or_else(PoisonError::into_inner);
    let known = types().iter().find(|(known, _)| known.is(&of)).map(|(_, exchange)| *exchange);
    let exchange = match known {
        Some(exchange) => exchange,
        None => {
            let exchange = functions(&of)?;
            if types().len() < MOST_TYPES {
                types().push((of.unbind(), exchange));
            }
            exchange
        }
    };
    let Some(Exchange { describe, current_stream }) = exchange else { return Ok(None) };
    let mut tensor = MaybeUninit::<DlTensor>::uninit();
    // SAFETY: the function is that of the object's own type, called with Python's lock held; it fills
    // in the tensor where it returns 0.
    if unsafe { describe(object.as_ptr().cast(), tensor.as_mut_ptr()) } != 0 {
        return Err(PyErr::fetch(object.py()));
    }
    // SAFETY: it was filled in, and the object, which is borrowed, keeps shape and strides.
    let described = unsafe { tensor.assume_init_ref().described() }?;
    Ok(Some(Described { current_stream, ..described }))
}

/// The functions of a type, if it has any that describe its tensors.
fn functions(of: &Bound<'_, PyType>) -> PyResult<Option<Exchange>> {
    let Some(capsule) = of.getattr_opt(intern!(of.py(), "__dlpack_c_exchange_api__"))? else { return Ok(None) };
    let capsule = capsule.cast::<PyCapsule>()?;
    let api: NonNull<ExchangeApi> = capsule.pointer_checked(Some(EXCHANGE))?.cast();
    // SAFETY: a capsule of this name holds a header with the version, and functions in this order where
    // the major version is 1; a type keeps them as long as the process.
    let api = unsafe { api.as_ref() };
    let current_stream = api.current_stream.map(CurrentStream);
    let describe = api.describe.filter(|_| api.major == MAJOR);
    Ok(describe.map(|describe| Exchange { describe, current_stream }))
}
