//! The input of the indexer: a decode step.

use std::marker::PhantomData;
use std::panic::Location;

use tilewright_graph::op::Op;
use tilewright_graph::rows::{Elementwise, Source, StateId, Unary};
use tilewright_layout::tensor::{Batched, Paged, Parameter, Ragged};

use super::{Recorder, Value};
use crate::declare::{Field, FlowParameter, State};
use crate::format::PerBlock;

/// A decode step of a row: a request and a key head. [`Step::select`] takes it, so that a step ends
/// in exactly one selection.
#[derive(Debug)]
#[must_use = "a step ends in a selection"]
pub struct Step<'t> {
    pub(crate) recorder: &'t Recorder,
    pub(crate) marker: PhantomData<fn(&'t ()) -> &'t ()>,
}

/// Proof that a step has selected. Only [`Step::select`] makes one.
#[derive(Debug)]
pub struct Done<'t>(pub(crate) PhantomData<fn(&'t ()) -> &'t ()>);

/// The slot in which a loaded state is saved. Saving consumes it, so that a state is saved once,
/// after it was loaded.
#[derive(Debug)]
#[must_use = "a state that is loaded must be saved"]
pub struct StateSlot<'t> {
    state: StateId,
    recorder: &'t Recorder,
    marker: PhantomData<fn(&'t ()) -> &'t ()>,
}

impl<'t> Step<'t> {
    fn source<F>(&self, from: Source, at: &'static Location<'static>) -> Value<'t, F> {
        Value::at(self.recorder, self.recorder.load(from, at))
    }

    /// The query heads of the key head, `[G, D]`.
    #[track_caller]
    pub fn query(&self) -> Value<'t, Batched> {
        self.source(Source::Query, Location::caller())
    }

    /// The keys of a block, `[B, D]`.
    #[track_caller]
    pub fn keys(&self) -> Value<'t, Paged> {
        self.source(Source::Keys, Location::caller())
    }

    /// The values of a block, `[B, D]`.
    #[track_caller]
    pub fn values(&self) -> Value<'t, Paged> {
        self.source(Source::Values, Location::caller())
    }

    /// The place of a block in its sequence, `[1, 1]`.
    #[track_caller]
    pub fn positions(&self) -> Value<'t, Ragged> {
        self.source(Source::Positions, Location::caller())
    }

    /// A field of a block.
    #[track_caller]
    pub fn field(&self, field: Field) -> Value<'t, Paged> {
        self.source(Source::Field(field.0), Location::caller())
    }

    /// A parameter of the key head.
    #[track_caller]
    pub fn parameter(&self, weights: FlowParameter) -> Value<'t, Parameter> {
        self.source(Source::Parameter(weights.0), Location::caller())
    }

    /// Loads the state that the previous step saved, with the slot in which this step saves.
    #[track_caller]
    pub fn load(&self, state: State) -> (Value<'t, Ragged>, StateSlot<'t>) {
        let value = self.source(Source::State(state.0), Location::caller());
        (value, StateSlot { state: state.0, recorder: self.recorder, marker: PhantomData })
    }

    /// Ends the step: the blocks with the largest scores `[1, 1]`, equal ones by position, NaN
    /// last.
    #[track_caller]
    pub fn select<F: PerBlock>(self, score: Value<'t, F>) -> Done<'t> {
        self.recorder.record(Op::Select { x: score.id }, Location::caller());
        Done(PhantomData)
    }
}

impl<'t> StateSlot<'t> {
    /// Saves the value that the next step loads: a value for each candidate block. Other blocks
    /// keep their values.
    #[track_caller]
    pub fn save<F: PerBlock>(self, value: Value<'t, F>) {
        let at = Location::caller();
        let mut id = value.id;
        if self.recorder.is_source(id) {
            // A save that reads memory would have to wait for other saves, and they for it: a copy
            // reads first.
            let function = Elementwise::Unary(Unary::Copy);
            id = self.recorder.record(Op::Elementwise { x: id, y: None, function }, at);
        }
        self.recorder.record(Op::Store { x: id, to: Source::State(self.state) }, at);
    }
}
