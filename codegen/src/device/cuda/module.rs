//! From PTX to a kernel: the driver's compiler with its log, modules shared while they are in use,
//! and the compiled code's own word on its parameters and costs.
//!
//! A module is found by its whole text. On disk, the driver keeps compiled code itself, by text,
//! architecture and driver version (CUDA C++ Programming Guide, "Just-in-Time Compilation"): a
//! second cache would repeat it.

use super::context::{CudaContext, ignore};
use super::probe::check;
use crate::device::backend::Facts;
use crate::device::source::declared_params;
use crate::device::{DeviceError, Signature};
use cudarc::driver::sys::{self, CUfunction, CUfunction_attribute, CUjit_option, CUmodule, CUresult};
use std::collections::HashMap;
use std::ffi::{CString, c_int, c_void};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

/// Room for what the compiler says, bytes.
const LOG_BYTES: usize = 64 << 10;
/// Percent of a multiprocessor's memory that is shared where a kernel is granted more than usual:
/// as much as there can be.
const MOST_SHARED: u32 = 100;

/// The loaded modules, by the number of their device and their PTX. A module keeps its device's
/// context alive; a device has one context while it is open.
static LOADED: LazyLock<Mutex<LoadedModules>> = LazyLock::new(Mutex::default);

type LoadedModules = HashMap<(c_int, Box<str>), Weak<Module>>;

fn loaded() -> MutexGuard<'static, LoadedModules> {
    LOADED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A loaded module.
#[derive(Debug)]
pub(super) struct Module {
    context: Arc<CudaContext>,
    raw: CUmodule,
    log: String,
}

// SAFETY: module handles may be used from any thread.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    /// The module of a text, and whether it was loaded before.
    fn of(context: &Arc<CudaContext>, kernel: &str, ptx: &str) -> Result<(Arc<Module>, bool), DeviceError> {
        let key = (context.ordinal(), Box::from(ptx));
        if let Some(module) = loaded().get(&key).and_then(Weak::upgrade) {
            return Ok((module, true));
        }
        // Not under the lock: compilation takes long, and other kernels need not wait. Two loads of
        // one text at once make two modules, of which the later one is shared from then on.
        let module = Arc::new(Module::compile(context, kernel, ptx)?);
        let mut modules = loaded();
        modules.retain(|_, module| module.strong_count() > 0);
        modules.insert(key, Arc::downgrade(&module));
        Ok((module, false))
    }

    fn compile(context: &Arc<CudaContext>, kernel: &str, ptx: &str) -> Result<Module, DeviceError> {
        let fail = |name: String, log: String| DeviceError::Jit { kernel: kernel.into(), name, log };
        let text = CString::new(ptx)
            .map_err(|zero| fail("not a text".into(), format!("a zero byte at {}", zero.nul_position())))?;
        let mut info = vec![0u8; LOG_BYTES];
        let mut error = vec![0u8; LOG_BYTES];
        let options: [(CUjit_option, *mut c_void); 5] = [
            (CUjit_option::CU_JIT_INFO_LOG_BUFFER, info.as_mut_ptr().cast()),
            (CUjit_option::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, number(LOG_BYTES)),
            (CUjit_option::CU_JIT_ERROR_LOG_BUFFER, error.as_mut_ptr().cast()),
            (CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, number(LOG_BYTES)),
            (CUjit_option::CU_JIT_LOG_VERBOSE, number(1)),
        ];
        let mut keys = options.map(|(key, _)| key);
        let mut values = options.map(|(_, value)| value);
        let mut raw: CUmodule = std::ptr::null_mut();
        // SAFETY: `load` made the context current; the text ends with a zero; keys and values are
        // as many as said, the two buffers as long as said, and all live through the call. Numbers
        // are passed in place of pointers, as the driver asks.
        let result = unsafe {
            sys::cuModuleLoadDataEx(
                &raw mut raw,
                text.as_ptr().cast(),
                keys.len() as u32,
                keys.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        let info = until_zero(&info);
        let error = until_zero(&error);
        if let Err(failure) = check("cuModuleLoadDataEx", result) {
            return Err(match failure {
                DeviceError::Driver { name, .. } if result != CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                    fail(name, if error.is_empty() { "the driver gave no reason".into() } else { error })
                }
                other => other,
            });
        }
        Ok(Module { context: Arc::clone(context), raw, log: [info, error].concat() })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        self.context.settle();
        // SAFETY: the module is of `cuModuleLoadDataEx` and unloaded only here; no kernel of it
        // runs any more.
        ignore(unsafe { sys::cuModuleUnload(self.raw) });
    }
}

/// A number where the driver takes either a number or a pointer.
fn number(value: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(value)
}

fn until_zero(bytes: &[u8]) -> String {
    let text = bytes.split(|&b| b == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// A kernel of a loaded module, checked against its signature.
#[derive(Debug)]
pub(super) struct Function {
    module: Arc<Module>,
    raw: CUfunction,
    /// The signature that the compiled code agreed to.
    pub signature: Signature,
    /// Offset and size of each parameter, and the size of all.
    pub params: (Vec<(usize, usize)>, usize),
}

// SAFETY: function handles may be used from any thread, as long as the module is loaded.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Function {
    pub(super) fn load(
        context: &Arc<CudaContext>,
        ptx: &str,
        signature: &Signature,
    ) -> Result<(Function, Facts), DeviceError> {
        let start = Instant::now();
        // Also for a module that is loaded already: this thread may never have used the device.
        context.bind()?;
        let (module, cached) = Module::of(context, &signature.name, ptx)?;
        let jit = |log: &str| DeviceError::Jit {
            kernel: signature.name.clone(),
            name: "no such entry".into(),
            log: log.into(),
        };
        let name = CString::new(signature.name.as_str()).map_err(|_| jit("the kernel's name has a zero byte"))?;
        let mut raw: CUfunction = std::ptr::null_mut();
        // SAFETY: the module is loaded, the name ends with a zero, the pointer is live.
        let result = unsafe { sys::cuModuleGetFunction(&raw mut raw, module.raw, name.as_ptr()) };
        if result == CUresult::CUDA_ERROR_NOT_FOUND {
            return Err(jit("the PTX has no visible entry of the kernel's name"));
        }
        check("cuModuleGetFunction", result)?;
        let function = Function { module, raw, signature: signature.clone(), params: signature.param_spans() };
        function.check_params(declared_params(ptx, &signature.name))?;
        let mut facts = function.facts()?;
        function.grant_shared(facts.static_shared)?;
        facts.cached = cached;
        facts.load_time = start.elapsed();
        Ok((function, facts))
    }

    pub(super) fn context(&self) -> &Arc<CudaContext> {
        &self.module.context
    }

    pub(super) fn raw(&self) -> CUfunction {
        self.raw
    }

    /// Compares the signature with the compiled code, by whose sizes the driver reads arguments.
    /// Offsets are not compared: those of the compiled code count from the device's parameter
    /// space, which does not begin at a multiple of 64.
    ///
    /// Compares the number of parameters with the text of the module. The driver would report a
    /// mismatch as a failed call, which tools that watch its calls report.
    fn check_params(&self, declared: usize) -> Result<(), DeviceError> {
        let spans = &self.params.0;
        for index in 0..spans.len().max(declared) {
            let expected = spans.get(index).map(|&(_, size)| size);
            let found = if index < declared { Some(self.param_size(index)?) } else { None };
            if found != expected {
                let text = |size: Option<usize>| size.map_or("not there".into(), |size| format!("{size} bytes"));
                let kernel = self.signature.name.clone();
                return Err(DeviceError::Layout { kernel, index, expected: text(expected), found: text(found) });
            }
        }
        Ok(())
    }

    /// Bytes of a parameter of the compiled code, which has one of that number.
    fn param_size(&self, index: usize) -> Result<usize, DeviceError> {
        let mut offset = 0usize;
        let mut size = 0usize;
        // SAFETY: the function is of a loaded module and the pointers are live.
        let result = unsafe { sys::cuFuncGetParamInfo(self.raw, index, &raw mut offset, &raw mut size) };
        check("cuFuncGetParamInfo", result)?;
        Ok(size)
    }

    fn facts(&self) -> Result<Facts, DeviceError> {
        let facts = Facts {
            registers: self.attribute(CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            local_bytes: self.attribute(CUfunction_attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            static_shared: self.attribute(CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            log: self.module.log.clone(),
            ..Facts::default()
        };
        let limit = self.attribute(CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
        self.within("threads per block", self.signature.launch.threads_per_block(), limit)?;
        Ok(facts)
    }

    /// Grants the launch its dynamic shared memory, which beyond 48 KiB a kernel has to be allowed.
    fn grant_shared(&self, declared: u32) -> Result<(), DeviceError> {
        let dynamic = self.signature.dynamic_shared;
        let limit = self.context().properties().shared_bytes_per_block;
        self.within("bytes of shared memory per block", declared.saturating_add(dynamic), limit)?;
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // Never lowered: the module may be shared with a load that was granted more.
        if self.attribute(attribute)? >= dynamic {
            return Ok(());
        }
        self.set_attribute(attribute, dynamic)?;
        // All such kernels divide a multiprocessor's memory alike: by itself the driver takes the
        // least division that holds a kernel's blocks, and blocks that want another one wait until
        // the multiprocessor is idle.
        self.set_attribute(CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, MOST_SHARED)
    }

    fn set_attribute(&self, attribute: CUfunction_attribute, value: u32) -> Result<(), DeviceError> {
        // SAFETY: the function is of a loaded module.
        let result = unsafe { sys::cuFuncSetAttribute(self.raw, attribute, value as c_int) };
        check("cuFuncSetAttribute", result)
    }

    fn within(&self, what: &'static str, needed: u32, limit: u32) -> Result<(), DeviceError> {
        if needed <= limit {
            return Ok(());
        }
        let kernel = self.signature.name.clone();
        let device = self.context().properties().name.clone();
        Err(DeviceError::LaunchTooLarge { kernel, what, needed: needed.into(), limit: limit.into(), device })
    }

    fn attribute(&self, attribute: CUfunction_attribute) -> Result<u32, DeviceError> {
        let mut value: c_int = 0;
        // SAFETY: the function is of a loaded module and the pointer live.
        let result = unsafe { sys::cuFuncGetAttribute(&raw mut value, attribute, self.raw) };
        check("cuFuncGetAttribute", result)?;
        Ok(u32::try_from(value).unwrap_or(0))
    }
}
