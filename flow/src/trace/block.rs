//! What the cache pass is given: a block that has just become complete.

use std::marker::PhantomData;
use std::panic::Location;

use tilewright_layout::tensor::{Format, Paged, Parameter};

use super::{Recorder, Value};
use crate::declare::{Field, FlowParameter};
use crate::error::FlowProblem;
use crate::format::{Cache, ComputeFormat};
use crate::op::{Effect, FlowOp, Num, SourceOp};

/// A complete block of a key head.
#[derive(Debug)]
pub struct Block<'t> {
    pub(crate) recorder: &'t Recorder,
    pub(crate) marker: PhantomData<fn(&'t ()) -> &'t ()>,
}

impl<'t> Block<'t> {
    fn source<F>(&self, source: SourceOp, format: Format, at: &'static Location<'static>) -> Value<'t, F, Cache> {
        Value::at(self.recorder, self.recorder.source(source, format, at))
    }

    /// The block's keys, `[B, D]`.
    #[track_caller]
    pub fn keys(&self) -> Value<'t, Paged, Cache> {
        self.source(SourceOp::Keys, Format::Paged, Location::caller())
    }

    /// The block's values, `[B, D]`.
    #[track_caller]
    pub fn values(&self) -> Value<'t, Paged, Cache> {
        self.source(SourceOp::Values, Format::Paged, Location::caller())
    }

    /// A parameter of the key head.
    #[track_caller]
    pub fn parameter(&self, weights: FlowParameter) -> Value<'t, Parameter, Cache> {
        self.source(SourceOp::Parameter(weights.0), Format::Parameter, Location::caller())
    }

    /// Stores a field of the block, once. What comes back is the value as it was computed, to go on
    /// with.
    #[track_caller]
    pub fn store<F: ComputeFormat>(&self, field: Field, value: Value<'t, F, Cache>) -> Value<'t, Paged, Cache> {
        let at = Location::caller();
        match self.recorder.declared.fields.get(field.0.index()) {
            None => {
                let declared = self.recorder.declared.fields.len();
                self.recorder.refuse(FlowProblem::Handle { noun: "field", index: field.0.index(), declared }, at);
            }
            Some(decl) => {
                if self.recorder.stores(field.0) > 0 {
                    self.recorder.refuse(FlowProblem::StoredTwice(decl.name.clone()), at);
                }
                self.recorder.record(FlowOp::Effect(Effect::Store(field.0)), vec![value.id], Format::Paged, at);
            }
        }
        Value::at(self.recorder, value.id)
    }

    /// Stores the same number everywhere in a field.
    #[track_caller]
    pub fn fill(&self, field: Field, number: f64) -> Value<'t, Paged, Cache> {
        let value = self.source::<Paged>(SourceOp::Fill(field.0, Num(number)), Format::Paged, Location::caller());
        self.store(field, value)
    }
}
