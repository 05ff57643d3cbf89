//! Tracing: a flow runs once, on values without elements, and what it calls is recorded.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | [`Value`], the recorder |
//! | `elementwise`, `inner`, `row` | the methods of a value: on elements, on `[d0, d1]`, over the blocks of a row |
//! | `step`, `block` | what the two passes are given: [`Step`], [`Block`] |
//!
//! Nothing fails at once. A method that breaks a rule is recorded with its line, gives a value that
//! no further method complains about, and [`trace`](crate::trace()) returns all errors together.

mod block;
mod elementwise;
mod inner;
mod row;
mod step;

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;

use tilewright_graph::Graph;
use tilewright_graph::dim::InnerShape;
use tilewright_graph::graph::{Body, Parts, ValueId};
use tilewright_graph::op::Op;
use tilewright_graph::rows::{Elementwise, FieldId, Memory, Num, ProductOp, Row, Source, StateId};
use tilewright_layout::tensor::AnyFormat;

pub use block::Block;
pub use step::{Done, StateSlot, Step};

use crate::declare::Declarations;
use crate::error::{FlowProblem, Requirement, TraceError};
use crate::format::Indexer;

/// A value of a flow while it is traced: rows of format `F`, in the pass `P`.
///
/// It is `Copy` and has the operators. The lifetime `'t` belongs to one trace, so that values of
/// two traces do not mix.
pub struct Value<'t, F, P = Indexer> {
    id: ValueId,
    recorder: &'t Recorder,
    marker: PhantomData<Marker<'t, F, P>>,
}

/// Invariant in the trace.
type Marker<'t, F, P> = (fn(&'t ()) -> &'t (), F, P);

impl<F, P> Clone for Value<'_, F, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F, P> Copy for Value<'_, F, P> {}

impl<F: AnyFormat, P> fmt::Debug for Value<'_, F, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.id, F::FORMAT, self.shape())
    }
}

impl<'t, F, P> Value<'t, F, P> {
    /// The inner extents.
    pub fn shape(&self) -> InnerShape {
        let parts = self.recorder.parts.borrow();
        let row = parts.nodes.get(self.id.index()).and_then(|node| node.results.first()).and_then(Row::of);
        row.map_or(InnerShape::SCORE, |row| row.shape)
    }

    fn at(recorder: &'t Recorder, id: ValueId) -> Self {
        Value { id, recorder, marker: PhantomData }
    }

    /// Records an op.
    fn record<O>(self, op: Op, at: &'static Location<'static>) -> Value<'t, O, P> {
        Value::at(self.recorder, self.recorder.record(op, at))
    }

    /// A function of single elements, whose first operand this is.
    fn function<O>(self, function: Elementwise, y: Option<ValueId>, at: &'static Location<'static>) -> Value<'t, O, P> {
        self.record(Op::Elementwise { x: self.id, y, function }, at)
    }

    /// A product whose first operand this is.
    fn product<O>(
        self,
        y: ValueId,
        z: Option<ValueId>,
        product: ProductOp,
        at: &'static Location<'static>,
    ) -> Value<'t, O, P> {
        self.record(Op::Product { x: self.id, y, z, product }, at)
    }
}

/// The recording of a trace: ops in the order of the flow's lines.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The ops.
    pub graph: Graph,
    /// The flow's line of each op.
    pub lines: Vec<&'static Location<'static>>,
    /// Requirements that tracing could not decide, with the value of the op.
    pub requirements: Vec<(ValueId, Requirement)>,
}

/// A recorder of the ops of one pass.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub declared: Declarations,
    parts: RefCell<Parts>,
    /// The ops that the flow asked for, those that do not fit too.
    asked: RefCell<Vec<Op>>,
    lines: RefCell<Vec<&'static Location<'static>>>,
    requirements: RefCell<Vec<(ValueId, Requirement)>>,
    errors: RefCell<Vec<TraceError>>,
    /// Values that come from an error: their users are not errors again.
    poisoned: RefCell<HashSet<ValueId>>,
}

impl Recorder {
    pub fn new(name: &str, declared: &Declarations) -> Recorder {
        let Declarations { fields, states, parameters } = declared;
        let memory = Memory {
            fields: fields.iter().map(|field| field.shape).collect(),
            states: states.iter().map(|state| state.shape).collect(),
            parameters: parameters.iter().map(|parameter| parameter.shape).collect(),
        };
        let parts = Parts { name: name.into(), memory, ..Parts::default() };
        Recorder {
            declared: declared.clone(),
            parts: RefCell::new(parts),
            asked: RefCell::default(),
            lines: RefCell::default(),
            requirements: RefCell::default(),
            errors: RefCell::default(),
            poisoned: RefCell::default(),
        }
    }

    /// The recording, or its errors.
    pub fn finish(self) -> Result<Recording, Vec<TraceError>> {
        let errors = self.errors.into_inner();
        if !errors.is_empty() {
            return Err(errors);
        }
        let mut parts = self.parts.into_inner();
        let is_effect = |body: &Body| body.ops().any(Op::is_effect);
        let effects = parts.nodes.iter().enumerate().filter(|(_, node)| is_effect(&node.body));
        parts.outputs = effects.map(|(place, _)| ValueId(place as u32)).collect();
        let lines = self.lines.into_inner();
        let requirements = self.requirements.into_inner();
        match Graph::check(parts) {
            Ok(graph) => Ok(Recording { graph, lines, requirements }),
            Err(errors) => {
                let at = lines.first().copied().unwrap_or(Location::caller());
                Err(vec![TraceError { problem: FlowProblem::Graph(errors), at }])
            }
        }
    }

    /// Adds an error.
    pub fn refuse(&self, problem: FlowProblem, at: &'static Location<'static>) {
        self.errors.borrow_mut().push(TraceError { problem, at });
    }

    /// Adds an op.
    pub fn record(&self, op: Op, at: &'static Location<'static>) -> ValueId {
        let name = op.name();
        let is_poisoned = op.operands().iter().any(|(_, id)| self.poisoned.borrow().contains(id));
        self.asked.borrow_mut().push(op.clone());
        let pushed = self.parts.borrow_mut().push(op);
        let (id, is_poisoned) = match pushed {
            Ok((id, needs)) => {
                let requirement = |need| (id, Requirement { need, op: name, at });
                self.requirements.borrow_mut().extend(needs.into_iter().map(requirement));
                (id, is_poisoned)
            }
            Err(problem) => {
                if !is_poisoned {
                    self.refuse(FlowProblem::Op { op: name, problem }, at);
                }
                // A value that is there for every flow.
                let stand_in = self.parts.borrow_mut().push(Op::Load { from: Source::Positions });
                (stand_in.map_or(ValueId(0), |(id, _)| id), true)
            }
        };
        self.lines.borrow_mut().push(at);
        if is_poisoned {
            self.poisoned.borrow_mut().insert(id);
        }
        id
    }

    /// A source; an undeclared source is an error.
    pub fn load(&self, from: Source, at: &'static Location<'static>) -> ValueId {
        let declared = &self.declared;
        let (noun, index, declared) = match from {
            Source::Field(id) => ("field", id.index(), declared.fields.len()),
            Source::Parameter(id) => ("parameter", id.index(), declared.parameters.len()),
            Source::State(id) => ("state", id.index(), declared.states.len()),
            Source::Query | Source::Keys | Source::Values | Source::Positions => ("source", 0, 1),
        };
        self.declared(noun, [index, declared], Op::Load { from }, at)
    }

    /// A number in the shape of a field.
    pub fn fill(&self, field: FieldId, number: Num, at: &'static Location<'static>) -> ValueId {
        let declared = [field.index(), self.declared.fields.len()];
        self.declared("field", declared, Op::Fill { field, number }, at)
    }

    fn declared(
        &self,
        noun: &'static str,
        [index, declared]: [usize; 2],
        op: Op,
        at: &'static Location<'static>,
    ) -> ValueId {
        if index < declared {
            return self.record(op, at);
        }
        self.refuse(FlowProblem::Handle { noun, index, declared }, at);
        let id = self.record(Op::Load { from: Source::Positions }, at);
        self.poisoned.borrow_mut().insert(id);
        id
    }

    fn count(&self, is_wanted: impl Fn(&Op) -> bool) -> usize {
        self.asked.borrow().iter().filter(|op| is_wanted(op)).count()
    }

    /// The number of stores of a field.
    pub fn stores(&self, field: FieldId) -> usize {
        self.count(|op| matches!(op, Op::Store { to: Source::Field(id), .. } if *id == field))
    }

    /// The numbers of loads and saves of a state.
    pub fn uses(&self, state: StateId) -> (usize, usize) {
        let loads = self.count(|op| *op == Op::Load { from: Source::State(state) });
        (loads, self.count(|op| matches!(op, Op::Store { to: Source::State(id), .. } if *id == state)))
    }

    /// Whether a value is one of the sources.
    fn is_source(&self, id: ValueId) -> bool {
        self.parts.borrow().nodes.get(id.index()).is_some_and(|node| node.body.ops().any(Op::is_source))
    }
}
