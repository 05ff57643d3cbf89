//! Steps: one, or many in a launch that feeds tokens back by itself and ends where every row has
//! ended.

use std::ops::ControlFlow;

use tilewright_codegen::device::Stream;
use tilewright_kernels::sample::Request;

use super::DeviceMachine;
use super::kernel::Feeds;
use crate::vm::steps::{check_count, end_ids};
use crate::vm::{LaunchError, RequestSlot, StepCells};

impl DeviceMachine {
    /// Sets what the next token of every row is chosen by, until it is set again: greedily, where
    /// it was never set. A launch of many steps counts the requests' steps on, but not here.
    ///
    /// # Errors
    /// If there is not one request for each row, or one makes no sense.
    pub fn set_requests(&mut self, requests: &[Request]) -> Result<(), LaunchError> {
        self.limits.check_requests(requests)?;
        self.requests = requests.to_vec();
        Ok(())
    }

    /// Sets which slot each row has, until it is set again: row `r` slot `r`, where it was never
    /// set.
    ///
    /// # Errors
    /// If there is not one for each row, a slot is not there, or two rows have the same.
    pub fn set_slots(&mut self, slots: &[RequestSlot]) -> Result<(), LaunchError> {
        self.limits.check_slots(slots)?;
        self.slots = slots.to_vec();
        Ok(())
    }

    /// Runs one step.
    ///
    /// # Errors
    /// Cells that do not fit, before anything runs; a launch that did not end as it should.
    pub fn step(&mut self, cells: &StepCells) -> Result<(), LaunchError> {
        let masked = self.masked.take();
        self.set_cells(cells)?;
        self.launch(1, Feeds::Nothing, masked, &mut |_| ControlFlow::Continue(())).map(drop)
    }

    /// Runs many steps in one launch, each feeding the choice of the one before; gives the tokens,
    /// `[steps, rows]`.
    ///
    /// # Errors
    /// As [`DeviceMachine::step`]; steps that the page tables have no room for.
    pub fn run(&mut self, cells: &StepCells, steps: usize) -> Result<Vec<u32>, LaunchError> {
        let mut tokens = Vec::with_capacity(steps * self.plan().rows as usize);
        self.run_each(cells, steps, &mut |step| {
            tokens.extend_from_slice(step);
            ControlFlow::Continue(())
        })?;
        Ok(tokens)
    }

    /// Runs at most that many steps in one launch; `each` gets every row's token as soon as a step
    /// ends, while the next one runs, and ends the launch by `Break`. Gives how many steps it was
    /// told of.
    ///
    /// Data in the KV pools of steps after the last one that `each` received lies after the last
    /// position, and is written again when that position is fed.
    ///
    /// # Errors
    /// As [`DeviceMachine::run`].
    pub fn run_each(
        &mut self,
        cells: &StepCells,
        steps: usize,
        each: &mut dyn FnMut(&[u32]) -> ControlFlow<()>,
    ) -> Result<usize, LaunchError> {
        self.run_until(cells, steps, &[], each)
    }

    /// Runs steps until every row has ended; `ends` has the tokens that end each row, at most
    /// [`MAX_ENDS`](crate::vm::MAX_ENDS), or nothing. Such a token is the last of its row: it is
    /// not fed, the row is idle from the next step on, and [`NO_TOKEN`](crate::vm::NO_TOKEN) stands
    /// for its token. A row whose largest logit is infinite has no token and ends: `NO_TOKEN` stands
    /// there already. The launch ends with the step in which the last row ends.
    ///
    /// # Errors
    /// As [`DeviceMachine::run`]; more ends than there is room for.
    pub fn run_until(
        &mut self,
        cells: &StepCells,
        steps: usize,
        ends: &[&[u32]],
        each: &mut dyn FnMut(&[u32]) -> ControlFlow<()>,
    ) -> Result<usize, LaunchError> {
        let masked = self.masked.take();
        check_count(steps)?;
        self.plan().feedback?;
        cells.check_steps(&self.limits, steps)?;
        self.set_ends(ends)?;
        self.set_cells(cells)?;
        self.launch(steps as u32, Feeds::Choices, masked, each).map(|steps| steps as usize)
    }

    /// Queues one step on a stream of the machine's device, and waits for nothing. Cells and inputs
    /// are in [`DeviceMachine::memory`] when the stream comes to it. A CUDA graph may capture it.
    ///
    /// What fails is reported by [`DeviceMachine::check`]; steps that are queued behind it do nothing.
    ///
    /// # Errors
    /// [`LaunchError::NotQueued`] for a machine that was not made for it, and errors of the device.
    pub fn queue(&self, stream: &Stream) -> Result<(), LaunchError> {
        if !self.plan().options.queued || self.parts().len() > 1 {
            return Err(LaunchError::NotQueued);
        }
        self.responds()?;
        Ok(stream.submit(&self.work(self.first(), 1, Feeds::Nothing)?)?)
    }

    /// Reports the failure of queued steps, whose streams have ended, and prepares the next ones.
    ///
    /// # Errors
    /// The first failure since the last call.
    pub fn check(&mut self) -> Result<(), LaunchError> {
        let code = self.code()?;
        if code == 0 {
            return Ok(());
        }
        let failure = self.failure(code)?;
        self.recover()?;
        self.clear()?;
        Err(failure)
    }

    pub(super) fn set_ends(&mut self, ends: &[&[u32]]) -> Result<(), LaunchError> {
        let ids = end_ids(ends, self.plan().rows as usize)?;
        let part = self.first();
        part.stream.upload(&ids, &part.memory.ends).map_err(|error| self.named(error))
    }

    pub(super) fn set_cells(&mut self, cells: &StepCells) -> Result<(), LaunchError> {
        cells.check(&self.limits)?;
        let set = [
            (&self.cells.token, cells.tokens),
            (&self.cells.position, cells.positions),
            (&self.cells.page_table, cells.page_table),
            (&self.cells.request, bytemuck::cast_slice(&self.requests)),
            (&self.cells.slot, bytemuck::cast_slice(&self.slots)),
        ];
        for part in self.parts() {
            for (buffers, values) in set {
                for &buffer in buffers {
                    let cell = self.state_of::<i32>(part, buffer, values.len())?;
                    part.stream.upload(values, &cell).map_err(|error| self.named(error))?;
                }
            }
        }
        Ok(())
    }
}
