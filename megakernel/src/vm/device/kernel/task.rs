//! The record of a task, in the block's tables.

use std::mem::{offset_of, size_of};

use tilewright_codegen::build::{Global, Ptr, Shared, Val};

use crate::vm::device::record::{TaskRecord, WaitRecord};

/// A field of a record, by its offset in bytes.
macro_rules! field {
    ($record:expr, $Type:ident . $field:ident) => {
        $record.at_byte(offset_of!($Type, $field) as u32).load()
    };
}

pub(super) use field;

/// A task's record.
#[derive(Clone, Copy)]
pub(super) struct TaskView<'k> {
    pub at: Ptr<'k, Shared, u32>,
    /// The tables that its waits and signals lie in.
    pub section: Ptr<'k, Shared, u32>,
}

macro_rules! fields {
    ($($field:ident)+) => {
        impl<'k> TaskView<'k> {
            $(pub fn $field(self) -> Val<'k, u32> {
                field!(self.at, TaskRecord.$field)
            })+
        }
    };
}

fields!(opcode task weights first stages stage_bytes waits wait_count signals signal_count);
fields!(input residual output);

/// Offsets of fields of 16 bits.
macro_rules! short_fields {
    ($($field:ident)+) => {
        impl<'k> TaskView<'k> {
            $(pub fn $field(self) -> Val<'k, u32> {
                self.at.at_byte(offset_of!(TaskRecord, $field) as u32).cast::<u16>().load().cast()
            })+
        }
    };
}

short_fields!(strip_stages prefetched group placement releases signals_early);

impl<'k> TaskView<'k> {
    /// Wait number `number`: counter, threshold, period; and, where it is asked for, whether other
    /// devices signal the counter.
    pub fn wait(self, number: Val<'k, u32>, across: bool) -> ([Val<'k, u32>; 3], Option<Val<'k, bool>>) {
        let wait = self.section.at(self.waits() + number * (size_of::<WaitRecord>() as u32 / 4));
        let words =
            [field!(wait, WaitRecord.counter), field!(wait, WaitRecord.threshold), field!(wait, WaitRecord.period)];
        (words, across.then(|| field!(wait, WaitRecord.across).ne(0)))
    }

    /// Signal number `number`: the counter; of several devices a word of the record's bits.
    pub fn signal(self, number: Val<'k, u32>) -> Val<'k, u32> {
        self.section.at(self.signals() + number).load()
    }

    /// A field of the op's own, by its offset in their type (`offset_of!`).
    pub fn value(self, field: usize) -> Val<'k, u32> {
        self.at.at_byte((offset_of!(TaskRecord, fields) + field) as u32).load()
    }

    /// Where the operand of a field begins in its space.
    pub(super) fn operand(self, space: Ptr<'k, Global, u8>, field: usize) -> Ptr<'k, Global, u8> {
        space.at(self.value(field).mul_wide(16u32))
    }
}
