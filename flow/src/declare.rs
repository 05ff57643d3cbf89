//! The declarations of a flow: fields of a block, states of a request, parameters of the model.

use std::panic::Location;

use tilewright_graph::dim::{Dim, InnerShape};
use tilewright_graph::rows::{FieldId, ParameterId, StateId};
use tilewright_layout::DType;

use crate::error::{FlowProblem, TraceError};

/// A declared field: one row for each block of the pool, written when the block completes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldDecl {
    /// Its name.
    pub name: String,
    /// The shape of a block's row.
    pub shape: InnerShape,
    /// The type it is stored in.
    pub dtype: DType,
}

/// A declared state: one row for each block of a request, carried from step to step.
#[derive(Clone, Debug, PartialEq)]
pub struct StateDecl {
    /// Its name.
    pub name: String,
    /// The shape of a block's row.
    pub shape: InnerShape,
    /// The value of a block before its first save.
    pub reset: f64,
    /// The type it is stored in.
    pub dtype: DType,
}

/// A declared parameter: a constant of the model, one for each key head of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterDecl {
    /// Its name.
    pub name: String,
    /// Its shape for a key head.
    pub shape: InnerShape,
}

/// The declarations of a flow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Declarations {
    /// Fields, by [`FieldId`].
    pub fields: Vec<FieldDecl>,
    /// States, by [`StateId`].
    pub states: Vec<StateDecl>,
    /// Parameters, by [`ParameterId`].
    pub parameters: Vec<ParameterDecl>,
}

/// A field of the flow. Store it in the cache pass, read it in the indexer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field(pub(crate) FieldId);

/// A parameter of the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowParameter(pub(crate) ParameterId);

/// A state of the flow. It is not `Copy`: loading consumes it, so that it is loaded once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a state is loaded and saved in forward_indexer"]
pub struct State(pub(crate) StateId);

/// Names that the framework uses itself.
const RESERVED: [&str; 4] = ["q", "k", "v", "o"];

/// A recorder of the declarations of fields and parameters.
#[derive(Debug, Default)]
pub struct Declare {
    pub(crate) declared: Declarations,
    pub(crate) errors: Vec<TraceError>,
}

/// A recorder of the declarations of states.
#[derive(Debug)]
pub struct DeclareState {
    pub(crate) declare: Declare,
}

impl Declare {
    /// A field of `shape` for each block, stored in bf16.
    #[track_caller]
    pub fn field(&mut self, name: &str, shape: [Dim; 2]) -> Field {
        self.field_of(DType::BF16, name, shape)
    }

    /// A field stored in another type.
    #[track_caller]
    pub fn field_of(&mut self, dtype: DType, name: &str, shape: [Dim; 2]) -> Field {
        self.check("field", name, InnerShape(shape), Location::caller());
        let id = FieldId(self.declared.fields.len() as u32);
        self.declared.fields.push(FieldDecl { name: name.into(), shape: InnerShape(shape), dtype });
        Field(id)
    }

    /// A parameter of `shape` for each key head.
    #[track_caller]
    pub fn parameter(&mut self, name: &str, shape: [Dim; 2]) -> FlowParameter {
        self.check("parameter", name, InnerShape(shape), Location::caller());
        let id = ParameterId(self.declared.parameters.len() as u32);
        self.declared.parameters.push(ParameterDecl { name: name.into(), shape: InnerShape(shape) });
        FlowParameter(id)
    }

    fn check(&mut self, noun: &'static str, name: &str, shape: InnerShape, at: &'static Location<'static>) {
        let declared = &self.declared;
        let mut names = declared.fields.iter().map(|f| &f.name).chain(declared.states.iter().map(|s| &s.name));
        let taken = names.any(|n| n == name) || declared.parameters.iter().any(|p| p.name == name);
        let why = if name.is_empty() {
            Some("empty")
        } else if RESERVED.contains(&name) {
            Some("reserved")
        } else {
            taken.then_some("taken")
        };
        if let Some(why) = why {
            self.errors.push(TraceError { problem: FlowProblem::Name { noun, name: name.into(), why }, at });
        }
        if !shape.0.iter().all(|dim| dim.is_valid()) || !shape.elements().is_valid() {
            self.errors
                .push(TraceError { problem: FlowProblem::Extent { noun: format!("{noun} `{name}`"), shape }, at });
        }
    }
}

impl DeclareState {
    /// A state of `shape` for each block of a request, `reset` until it is first saved; kept in
    /// f32.
    #[track_caller]
    pub fn state(&mut self, name: &str, shape: [Dim; 2], reset: f64) -> State {
        let shape = InnerShape(shape);
        self.declare.check("state", name, shape, Location::caller());
        let states = &mut self.declare.declared.states;
        let id = StateId(states.len() as u32);
        states.push(StateDecl { name: name.into(), shape, reset, dtype: DType::F32 });
        State(id)
    }
}
