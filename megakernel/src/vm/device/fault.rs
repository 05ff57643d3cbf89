//! Faults to inject: what a machine must survive, for tests.

use bytemuck::{bytes_of, bytes_of_mut};

use super::record::{BlockRecord, TaskRecord, sum};
use super::{DeviceMachine, Plan};
use crate::program::TaskId;
use crate::validate::Placed;
use crate::vm::LaunchError;

/// A fault in the tables of a machine until [`DeviceMachine::mend`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceFault {
    /// A task with another opcode.
    Opcode {
        /// The task.
        task: TaskId,
        /// The opcode.
        opcode: u32,
    },
    /// A task that publishes nothing.
    Silent {
        /// The task.
        task: TaskId,
    },
    /// A task whose packets have a generation that no reader accepts: as if they never came.
    Stale {
        /// The task.
        task: TaskId,
    },
    /// A block that ends its step early.
    Quits {
        /// The block.
        block: usize,
        /// Tasks that it runs.
        after: u32,
    },
    /// A device whose blocks all end their step early.
    Leaves {
        /// The device.
        device: usize,
        /// Tasks that each of them runs.
        after: u32,
    },
    /// A word of a block's tables that something wrote over: the sum is not made good, as it is for
    /// the others.
    Corrupt {
        /// The block.
        block: usize,
        /// The word in its part of the tables.
        word: usize,
    },
}

/// The directory and tables of a plan with a fault.
fn faulty(placed: &Placed, plan: &Plan, fault: DeviceFault) -> Option<(Vec<BlockRecord>, Vec<u8>)> {
    let mut directory = plan.directory.clone();
    let mut tables = plan.tables.clone();
    let place = |task: TaskId| {
        let mut queues = placed.queues().iter().enumerate();
        queues.find_map(|(block, queue)| Some((block, queue.iter().position(|&id| id == task)?)))
    };
    let mut edit = |task: TaskId, change: &dyn Fn(&mut TaskRecord)| {
        let (block, index) = place(task)?;
        let size = plan.record_bytes as usize;
        let at = plan.record_place(&directory[block], index);
        let bytes = tables.get_mut(at..at + size)?;
        let mut record = TaskRecord::default();
        bytes_of_mut(&mut record)[..size].copy_from_slice(bytes);
        change(&mut record);
        bytes.copy_from_slice(&bytes_of(&record)[..size]);
        Some(block)
    };
    let (block, honest) = match fault {
        DeviceFault::Opcode { task, opcode } => (edit(task, &|record| record.opcode = opcode)?, true),
        DeviceFault::Silent { task } => (edit(task, &|record| record.signal_count = 0)?, true),
        DeviceFault::Stale { task } => (edit(task, &|record| record.output = 0)?, true),
        DeviceFault::Quits { block, after } => {
            directory.get_mut(block)?.tasks = after;
            (block, true)
        }
        DeviceFault::Leaves { device, after } => {
            let blocks = directory.chunks_mut(plan.blocks.max(1) as usize).nth(device)?;
            for block in blocks {
                block.tasks = block.tasks.min(after);
                block.sum = sum(block, &tables);
            }
            return Some((directory, tables));
        }
        DeviceFault::Corrupt { block, word } => {
            let at = directory.get(block)?.start as usize + word * 4;
            tables.get_mut(at).map(|byte| *byte ^= 0x10)?;
            (block, false)
        }
    };
    if honest {
        directory[block].sum = sum(&directory[block], &tables);
    }
    Some((directory, tables))
}

impl DeviceMachine {
    /// Makes every launch from now on suffer a fault; `false` where the program has no such place.
    ///
    /// # Errors
    /// If the device fails.
    pub fn inject(&mut self, fault: DeviceFault) -> Result<bool, LaunchError> {
        match faulty(self.program(), self.plan(), fault) {
            Some((directory, tables)) => self.set_tables(&directory, &tables).map(|()| true),
            None => Ok(false),
        }
    }

    /// Removes all faults.
    ///
    /// # Errors
    /// If the device fails.
    pub fn mend(&mut self) -> Result<(), LaunchError> {
        let directory = self.plan().directory.clone();
        let tables = self.plan().tables.clone();
        self.set_tables(&directory, &tables)
    }
}
