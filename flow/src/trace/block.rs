//! The input of the cache pass: a block that has just become complete.

use std::marker::PhantomData;
use std::panic::Location;

use tilewright_graph::op::Op;
use tilewright_graph::rows::{Num, Source};
use tilewright_layout::tensor::{Paged, Parameter};

use super::{Recorder, Value};
use crate::declare::{Field, FlowParameter};
use crate::error::FlowProblem;
use crate::format::{Cache, ComputeFormat};

/// A complete block of a key head.
#[derive(Debug)]
pub struct Block<'t> {
    pub(crate) recorder: &'t Recorder,
    pub(crate) marker: PhantomData<fn(&'t ()) -> &'t ()>,
}

impl<'t> Block<'t> {
    fn source<F>(&self, from: Source, at: &'static Location<'static>) -> Value<'t, F, Cache> {
        Value::at(self.recorder, self.recorder.load(from, at))
    }

    /// The block's keys, `[B, D]`.
    #[track_caller]
    pub fn keys(&self) -> Value<'t, Paged, Cache> {
        self.source(Source::Keys, Location::caller())
    }

    /// The block's values, `[B, D]`.
    #[track_caller]
    pub fn values(&self) -> Value<'t, Paged, Cache> {
        self.source(Source::Values, Location::caller())
    }

    /// A parameter of the key head.
    #[track_caller]
    pub fn parameter(&self, weights: FlowParameter) -> Value<'t, Parameter, Cache> {
        self.source(Source::Parameter(weights.0), Location::caller())
    }

    /// Stores a field of the block, once. Returns the computed value for further use.
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
                self.recorder.record(Op::Store { x: value.id, to: Source::Field(field.0) }, at);
            }
        }
        Value::at(self.recorder, value.id)
    }

    /// Stores the same number everywhere in a field.
    #[track_caller]
    pub fn fill(&self, field: Field, number: f64) -> Value<'t, Paged, Cache> {
        let id = self.recorder.fill(field.0, Num(number), Location::caller());
        self.store::<Paged>(field, Value::at(self.recorder, id))
    }
}
