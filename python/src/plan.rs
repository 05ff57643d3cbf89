//! A decode step, or a part of one, on a caller's stream.
#![expect(unsafe_code, reason = "streams of other libraries, by handle")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tilewright::codegen::device::Buffer;
use tilewright::engine::{DecodePlan, PlanOptions, PlanPart};

use crate::error::{EngineError, engine_error};
use crate::operands::type_name;
use crate::stream::LastStream;

/// A decode step of a model, or of a part of it.
#[pyclass(frozen, module = "tilewright._native")]
pub struct Plan {
    plan: Mutex<DecodePlan>,
    last: LastStream,
}

/// What a plan is made for: part, first layer and layers, rows, context, pages, sampling.
#[derive(FromPyObject)]
pub struct Asked(String, usize, usize, usize, usize, Option<usize>, bool);

impl Asked {
    fn options(self) -> PyResult<PlanOptions> {
        let Asked(part, first, layers, rows, context, pages, sampling) = self;
        let part = match part.as_str() {
            "model" => PlanPart::Model,
            "layers" => PlanPart::Layers(first..first.saturating_add(layers)),
            "attention" => PlanPart::Attention(first),
            "mlp" => PlanPart::Mlp(first),
            other => return Err(EngineError::new_err(format!("{other} is no part of a model"))),
        };
        Ok(PlanOptions { part, rows, context, pages, sampling })
    }
}

impl Plan {
    pub fn new(engine: &tilewright::Engine, asked: Asked) -> PyResult<Plan> {
        let plan = engine.decode_plan(&asked.options()?).map_err(engine_error)?;
        Ok(Plan { plan: Mutex::new(plan), last: LastStream::default() })
    }

    fn plan(&self) -> MutexGuard<'_, DecodePlan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory(&self, name: &str) -> PyResult<Buffer<u8>> {
        Ok(self.plan().buffer(name).map_err(engine_error)?.memory)
    }
}

/// Name, type, shape and address of a buffer.
type Described = (String, &'static str, Vec<usize>, u64);

#[pymethods]
impl Plan {
    fn buffers(&self) -> PyResult<Vec<Described>> {
        let buffers = self.plan().buffers().map_err(engine_error)?;
        Ok(buffers.into_iter().map(|b| (b.name, type_name(b.dtype), b.shape, b.memory.address())).collect())
    }

    /// Queues a step on the stream of that handle; on the plan's own where there is none.
    #[pyo3(signature = (stream=None))]
    fn queue(&self, stream: Option<u64>) -> PyResult<()> {
        let plan = self.plan();
        let Some(raw) = stream else { return plan.queue(plan.stream()).map_err(engine_error) };
        // SAFETY: the package passes the current stream of torch, or what its caller says is a stream
        // of this device; both are of the primary context.
        let stream = unsafe { self.last.stream(plan.device(), raw) }.map_err(engine_error)?;
        plan.queue(&stream).map_err(engine_error)
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.plan().check()).map_err(engine_error)
    }

    fn run(&self, py: Python<'_>, tokens: Vec<i32>, positions: Vec<i32>, steps: usize) -> PyResult<Vec<u32>> {
        py.detach(|| self.plan().run(&tokens, &positions, steps)).map_err(engine_error)
    }

    /// Writes a buffer: bytes of its elements.
    fn write(&self, py: Python<'_>, name: &str, bytes: &[u8]) -> PyResult<()> {
        let memory = self.memory(name)?;
        if memory.len() != bytes.len() {
            let (found, expected) = (bytes.len(), memory.len());
            return Err(EngineError::new_err(format!("{name} has {expected} bytes, {found} were given")));
        }
        let stream = self.plan().stream().clone();
        py.detach(|| stream.upload(bytes, &memory)).map_err(engine_error)
    }

    /// Reads a buffer.
    fn read<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyBytes>> {
        let memory = self.memory(name)?;
        let stream = self.plan().stream().clone();
        let bytes: Vec<u8> = py.detach(|| stream.read(&memory)).map_err(engine_error)?;
        Ok(PyBytes::new(py, &bytes))
    }
}
