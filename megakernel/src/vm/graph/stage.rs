//! A stage of a pipeline as a graph: the residual stream comes from another stage, or is for one.
//!
//! The stream is where all launches have it. The pending addition of the last product is made by
//! the kernel that adds and normalises; its norm is not read.

use tilewright_codegen::device::{Buffer, DeviceError};
use tilewright_layout::DType;

use super::activations::{NormOf, Pending};
use super::launch::{LaunchMemory, Scratch};
use super::machine::GraphMachine;
use super::memory::AnyBuffer;
use super::planner::GraphPlanner;
use crate::lower::{HIDDEN_IN, HIDDEN_OUT};
use crate::program::BufferKind;
use crate::vm::{AccessError, LaunchError, Unsupported};

impl GraphPlanner<'_> {
    /// The residual stream begins as the program's input, where it has one.
    pub(super) fn enter(&mut self) -> Result<(), Unsupported> {
        // The devices of a stage that is not the last have no common sum at its end.
        let is_stage = [HIDDEN_IN, HIDDEN_OUT].iter().any(|name| self.program.buffer_named(name).is_some());
        if is_stage && self.program.devices > 1 {
            return Err(Unsupported::Launch { what: "a stage of a pipeline that several devices share" });
        }
        let inputs = self.program.buffers.iter().filter(|buffer| buffer.kind == BufferKind::Input);
        for (number, input) in inputs.enumerate() {
            if number > 0 || input.dtype != DType::F32 {
                return Err(Unsupported::Launch { what: "an input that is not the residual stream alone, in f32" });
            }
            let [rows, width] = self.extents(input.id)?;
            let rows = self.rows(rows)?;
            self.residual(input.id, [rows, width]);
        }
        Ok(())
    }

    /// Completes the pending addition to a residual stream that another stage continues with.
    pub(super) fn leave(&mut self) -> Result<(), Unsupported> {
        self.settle();
        let out = match self.pending {
            Some(Pending::Added { out, .. }) => out,
            Some(Pending::Parts { .. }) => {
                return Err(Unsupported::Launch {
                    what: "parts of a residual stream that nothing normalises at the end",
                });
            }
            Some(Pending::Begun { .. }) | None => return Ok(()),
        };
        match self.last_norm.filter(|_| self.buffer(out).kind == BufferKind::Output) {
            Some(norm) => self.norm(NormOf { x: out, ..norm }).map(drop),
            None => Err(Unsupported::Launch { what: "a residual stream that nothing normalises at the end" }),
        }
    }
}

impl GraphMachine {
    /// Sets the input of f32: what a stage of a pipeline takes
    /// ([`HIDDEN_IN`](crate::lower::HIDDEN_IN)).
    ///
    /// # Errors
    /// If there is no such input of that length, or the device fails.
    pub fn set_input(&mut self, name: &str, values: &[f32]) -> Result<(), LaunchError> {
        let stream = self.input(name)?;
        let expected = stream.len();
        let found = values.len();
        if expected != found {
            return Err(AccessError::Length { name: name.to_owned(), expected, found }.into());
        }
        Ok(self.stream.upload(values, &stream)?)
    }

    /// The memory of that input, for copies from another device while no step is under way.
    ///
    /// # Errors
    /// If there is no such input.
    pub fn input(&self, name: &str) -> Result<Buffer<f32>, LaunchError> {
        self.hidden(name, BufferKind::Input, "sets input buffers only")
    }

    /// The memory of the output that another stage continues with, valid until the next step.
    ///
    /// # Errors
    /// If there is no such output.
    pub fn output(&self, name: &str) -> Result<Buffer<f32>, LaunchError> {
        self.hidden(name, BufferKind::Output, "reads output buffers only")
    }

    /// All elements of the output that the next stage reads
    /// ([`HIDDEN_OUT`](crate::lower::HIDDEN_OUT)), of the step that was submitted.
    ///
    /// # Errors
    /// If there is no such output, or the device fails.
    pub fn f32(&self, name: &str) -> Result<Vec<f32>, LaunchError> {
        Ok(self.stream.read(&self.output(name)?)?)
    }

    /// The residual stream, which a buffer of the program stands for.
    fn hidden(&self, name: &str, kind: BufferKind, action: &'static str) -> Result<Buffer<f32>, LaunchError> {
        let missing = || AccessError::Missing { name: name.to_owned() };
        let buffer = self.step.buffer_named(name).ok_or_else(missing)?;
        if buffer.kind != kind {
            return Err(AccessError::Kind { name: name.to_owned(), found: buffer.kind, action }.into());
        }
        let [rows, width] = buffer.shape[..] else { return Err(missing().into()) };
        let Some(AnyBuffer::Bytes(stream)) = self.memory.get(LaunchMemory::Scratch(Scratch::Residual)) else {
            return Err(missing().into());
        };
        let bytes = rows * width * size_of::<f32>();
        if rows != self.plan.rows as usize || bytes != stream.len() {
            // Logits and choices lie elsewhere.
            return Err(missing().into());
        }
        let cast = || -> Result<Buffer<f32>, DeviceError> { stream.slice(0..bytes)?.cast() };
        Ok(cast()?)
    }
}
