//! Products whose columns are those of slots: how many there are is known when the step runs.
//!
//! A row of activations has a run of columns for each slot. The weights that meet it are strips of
//! one slot: those of the expert that the slot has. Columns come by phases, as those of long rows
//! do: each of some slots, or of a part of one, whose activations are in registers.
//! Of the last phase some slots may be missing. Their stages do not come, and the activations of
//! the last slot stand in for theirs.

use tilewright_codegen::build::Val;

use crate::experts::RouteTable;
use crate::gemv::activations::{AOperand, Packing, Prologue};
use crate::weights::Strip;

/// The columns of slots, by phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotPlan {
    /// Slots of a phase: 1 where a slot has several phases.
    pub slots: u32,
    /// Phases of a slot.
    pub parts: u32,
    /// Strips of the ring whose sums wait in shared memory.
    pub waiting: u32,
}

impl SlotPlan {
    /// The phases of slots whose strips are `strip`, `most` slots at most: as many columns as fit in
    /// a number of registers of a lane. `None`: the least phase does not fit.
    ///
    /// ```
    /// use tilewright_kernels::gemv::activations::Packing;
    /// use tilewright_kernels::gemv::task::SlotPlan;
    /// use tilewright_kernels::{tile::Float, weights::Strip};
    /// let plan = |k, rows| SlotPlan::new(Strip::new(k, 8, 16_384).unwrap(), Packing::of(rows, Float::F32), 128, 128, 2);
    /// // Qwen3-30B-A3B: eight slots of 768 columns of a single row, two of sixteen rows.
    /// assert_eq!([1, 16].map(|rows| plan(768, rows).unwrap().slots), [10, 2]);
    /// // Mixtral: an expert of 14,336 columns takes two phases.
    /// assert_eq!((plan(14_336, 1).unwrap().slots, plan(14_336, 1).unwrap().parts), (1, 2));
    /// ```
    pub fn new(strip: Strip, packing: Packing, registers: u32, most: u32, strips: u32) -> Option<SlotPlan> {
        let waiting = strips.next_multiple_of(8);
        let of_slot = AOperand::registers(strip, packing).max(1);
        if of_slot <= registers {
            return Some(SlotPlan { slots: (registers / of_slot).clamp(1, most.max(1)), parts: 1, waiting });
        }
        let stages = AOperand::phase(strip, packing, registers)?;
        Some(SlotPlan { slots: 1, parts: strip.stages() / stages, waiting })
    }

    /// Stages of a phase of a slot.
    pub fn stages(self, strip: Strip) -> u32 {
        strip.stages() / self.parts
    }

    /// Phases of `used` slots.
    pub fn phases<'k>(self, used: Val<'k, u32>) -> Val<'k, u32> {
        if self.parts > 1 { used * self.parts } else { (used + (self.slots - 1)) / self.slots }
    }

    /// What phase `number` has of `used` slots.
    pub fn phase<'k>(self, number: Val<'k, u32>, used: Val<'k, u32>) -> SlotPhase<'k> {
        let k = number.builder();
        match self.parts {
            1 => {
                let first = number * self.slots;
                SlotPhase { first, here: (used - first).min(self.slots), part: k.lit(0) }
            }
            parts => SlotPhase { first: number / parts, here: k.lit(1), part: number % parts },
        }
    }

    /// What a phase multiplies of the strips of a slot.
    pub(in crate::gemv) fn part(self, strip: Strip) -> Strip {
        if self.parts == 1 { strip } else { strip.part(0, self.stages(strip)) }
    }

    /// The A operand of a phase.
    pub fn a_operand(self, strip: Strip) -> AOperand {
        AOperand::Phases { stages: self.stages(strip) * self.slots, waiting: self.waiting }
    }

    /// Bytes of shared memory for the operand of a phase and the sums that wait.
    pub fn operand_bytes(self, strip: Strip, packing: Packing) -> u32 {
        self.a_operand(strip).operand_bytes(self.part(strip).repeated(self.slots), packing)
    }
}

/// What a phase has of the slots: some of them, or a part of one.
#[derive(Clone, Copy)]
pub struct SlotPhase<'k> {
    /// The first slot.
    pub first: Val<'k, u32>,
    /// Slots that are there.
    pub here: Val<'k, u32>,
    /// The part of each: 0 where a slot has one phase.
    pub part: Val<'k, u32>,
}

/// The slots of a product.
#[derive(Clone, Copy)]
pub struct SlotPhases<'k> {
    /// Slots in use, at least one.
    pub used: Val<'k, u32>,
    /// How they come by phases.
    pub plan: SlotPlan,
    /// Which rows have chosen which slots, if activations of others are not to be loaded: they are
    /// zeros.
    pub table: Option<RouteTable<'k>>,
}

/// Words of the sets of slots that a lane keeps of a row, at most.
const SET_WORDS: usize = 8;

/// The slots that the rows of a lane have chosen: of the operand's rows 0 to 7, and 8 to 15.
#[derive(Clone, Copy)]
pub(in crate::gemv) struct SlotSets<'k>([[Option<Val<'k, u32>>; SET_WORDS]; 2]);

impl<'k> SlotSets<'k> {
    /// The sets of a lane's rows, where these are few enough to be kept.
    pub fn of(table: RouteTable<'k>, rows: impl Iterator<Item = Val<'k, u32>>) -> Option<SlotSets<'k>> {
        let mut all = [[None; SET_WORDS]; 2];
        for (words, row) in all.iter_mut().zip(rows) {
            let set = table.set(row);
            if set.len() > SET_WORDS {
                return None;
            }
            words.iter_mut().zip(set).for_each(|(to, word)| *to = Some(word));
        }
        Some(SlotSets(all))
    }

    /// Whether each row of the lane has chosen a slot.
    pub fn has(self, slot: Val<'k, u32>) -> [Option<Val<'k, bool>>; 2] {
        self.0.map(|words| {
            let of_slot = |(word, number): (Val<'k, u32>, u32), other: Option<Val<'k, u32>>| {
                other.map_or(word, |other| (slot / 32).eq(number).select(word, other))
            };
            let words = words.into_iter().flatten().zip(0u32..);
            let word = words.fold(None, |other, word| Some(of_slot(word, other)))?;
            Some((word >> (slot % 32) & 1).ne(0))
        })
    }
}

/// The slots of a phase.
#[derive(Clone, Copy)]
pub(in crate::gemv) struct PassSlots<'k> {
    /// Stages of a slot.
    pub stages: u32,
    /// Slots that are there.
    pub here: Val<'k, u32>,
    /// What is multiplied of a slot.
    pub part: Strip,
    /// Columns of a slot.
    pub columns: u32,
    /// Slots of a phase.
    pub slots: u32,
    /// The first of them.
    pub first: Val<'k, u32>,
    /// The slots that rows have chosen.
    pub sets: Option<SlotSets<'k>>,
}

impl<'k> PassSlots<'k> {
    /// The activations of each slot of the phase, and which rows have chosen it.
    pub fn inputs(self, input: Prologue<'k>) -> impl Iterator<Item = (Prologue<'k>, [Option<Val<'k, bool>>; 2])> {
        (0..self.slots).map(move |slot| {
            let there = self.here.builder().lit(slot).min(self.here - 1);
            (input.from(there * self.columns), self.sets.map_or([None; 2], |sets| sets.has(self.first + there)))
        })
    }
}
