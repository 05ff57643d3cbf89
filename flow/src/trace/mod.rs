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
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;

use tilewright_layout::tensor::{AnyFormat, Format};

pub use block::Block;
pub use step::{Done, StateSlot, Step};

use crate::declare::Declarations;
use crate::dim::{InnerShape, Requirement};
use crate::error::{FlowProblem, TraceError};
use crate::format::Indexer;
use crate::graph::{OpNode, ValueId};
use crate::op::{Effect, FieldId, FlowOp, SourceOp, StateId, infer};

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
        self.recorder.recording.borrow().nodes[self.id.index()].shape
    }

    fn at(recorder: &'t Recorder, id: ValueId) -> Self {
        Value { id, recorder, marker: PhantomData }
    }

    /// Records an op whose first operand this is.
    fn record<O: AnyFormat>(self, op: FlowOp, others: &[ValueId], at: &'static Location<'static>) -> Value<'t, O, P> {
        let mut operands = vec![self.id];
        operands.extend_from_slice(others);
        Value::at(self.recorder, self.recorder.record(op, operands, O::FORMAT, at))
    }
}

/// What a trace has recorded: ops in the order of the flow's lines.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// The ops. Operands come before what uses them.
    pub nodes: Vec<OpNode>,
    /// What tracing could not decide, with the op that asks.
    pub requirements: Vec<(ValueId, Requirement)>,
}

/// Takes down the ops of one pass.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub declared: Declarations,
    recording: RefCell<Recording>,
    errors: RefCell<Vec<TraceError>>,
    /// Values that come from an error: their users are not errors again.
    poisoned: RefCell<Vec<bool>>,
}

impl Recorder {
    pub fn new(declared: &Declarations) -> Recorder {
        Recorder {
            declared: declared.clone(),
            recording: RefCell::default(),
            errors: RefCell::default(),
            poisoned: RefCell::default(),
        }
    }

    pub fn into_parts(self) -> (Recording, Vec<TraceError>) {
        (self.recording.into_inner(), self.errors.into_inner())
    }

    /// Adds an error.
    pub fn refuse(&self, problem: FlowProblem, at: &'static Location<'static>) {
        self.errors.borrow_mut().push(TraceError { problem, at });
    }

    /// Adds an op.
    pub fn record(
        &self,
        op: FlowOp,
        operands: Vec<ValueId>,
        format: Format,
        at: &'static Location<'static>,
    ) -> ValueId {
        let mut recording = self.recording.borrow_mut();
        let mut poisoned = self.poisoned.borrow_mut();
        let shapes: Vec<InnerShape> = operands.iter().map(|o| recording.nodes[o.index()].shape).collect();
        let mut needs = Vec::new();
        let mut poison = operands.iter().any(|o| poisoned[o.index()]);
        let shape = match infer(&op, &shapes, &self.declared, &mut needs) {
            Ok(shape) => shape,
            Err(problem) => {
                if !poison {
                    self.refuse(problem, at);
                }
                poison = true;
                needs.clear();
                InnerShape::SCORE
            }
        };
        let name = op.name();
        let id = ValueId::at(recording.nodes.len());
        let requirement = |(left, relation, right)| (id, Requirement { left, relation, right, op: name, at });
        recording.requirements.extend(needs.into_iter().map(requirement));
        recording.nodes.push(OpNode { op, operands, shape, format, at });
        poisoned.push(poison);
        id
    }

    /// A source; one that the flow did not declare is an error.
    pub fn source(&self, source: SourceOp, format: Format, at: &'static Location<'static>) -> ValueId {
        let declared = &self.declared;
        let (noun, index, declared) = match source {
            SourceOp::Field(id) | SourceOp::Fill(id, _) => ("field", id.index(), declared.fields.len()),
            SourceOp::Parameter(id) => ("parameter", id.index(), declared.parameters.len()),
            SourceOp::Load(id) => ("state", id.index(), declared.states.len()),
            SourceOp::Query | SourceOp::Keys | SourceOp::Values | SourceOp::Positions => ("source", 0, 1),
        };
        if index < declared {
            return self.record(FlowOp::Source(source), vec![], format, at);
        }
        self.refuse(FlowProblem::Handle { noun, index, declared }, at);
        let id = self.record(FlowOp::Source(SourceOp::Positions), vec![], format, at);
        self.poisoned.borrow_mut()[id.index()] = true;
        id
    }

    fn count(&self, wanted: &FlowOp) -> usize {
        self.recording.borrow().nodes.iter().filter(|node| node.op == *wanted).count()
    }

    /// How often a field is stored.
    pub fn stores(&self, field: FieldId) -> usize {
        self.count(&FlowOp::Effect(Effect::Store(field)))
    }

    /// How often a state is loaded and saved.
    pub fn uses(&self, state: StateId) -> (usize, usize) {
        (self.count(&FlowOp::Source(SourceOp::Load(state))), self.count(&FlowOp::Effect(Effect::Save(state))))
    }

    /// Whether a value is one of the sources.
    fn is_source(&self, id: ValueId) -> bool {
        self.recording.borrow().nodes[id.index()].op.is_source()
    }
}
