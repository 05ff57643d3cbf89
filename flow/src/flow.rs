//! A flow, and what tracing makes of it.

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;

use tilewright_graph::Graph;
use tilewright_graph::dim::ModelShape;
use tilewright_graph::graph::ValueId;
use tilewright_graph::op::Op;
use tilewright_graph::passes::{Cleaned, RemovalReason, clean};
use tilewright_graph::rows::{FieldId, Source, StateId};

use crate::declare::{Declarations, Declare, DeclareState};
use crate::error::{FlowErrors, FlowProblem, Requirement, TraceError};
use crate::trace::{Block, Done, Recorder, Recording, Step};

/// A selection of the blocks of keys and values that a query attends to.
///
/// A block is summarised once, when it completes, by [`Flow::forward_cache`]. At every decode step
/// [`Flow::forward_indexer`] gives each candidate block a number, and the largest are attended to.
///
/// ```
/// use tilewright_flow::prelude::*;
///
/// /// A block counts as its mean key.
/// struct Centroids;
///
/// impl Flow for Centroids {
///     type Fields = Field;
///     type State = ();
///
///     fn name(&self) -> &str {
///         "centroids"
///     }
///     fn fields(&self, declare: &mut Declare) -> Field {
///         declare.field("centroid", [Dim::ONE, Dim::HEAD_DIM])
///     }
///     fn state(&self, _: &mut DeclareState) {}
///
///     fn forward_cache(&self, block: &Block<'_>, centroid: &Field) {
///         block.store(*centroid, block.keys().mean(D0));
///     }
///     fn forward_indexer<'t>(&self, step: Step<'t>, centroid: &Field, (): ()) -> Done<'t> {
///         let score = step.query().mean(D0).gemm(step.field(*centroid));
///         step.select(score)
///     }
/// }
///
/// let traced = trace(&Centroids)?;
/// assert_eq!(traced.indexer.ids().count(), 5);
/// assert!(traced.report.removed.is_empty());
/// # Ok::<(), FlowErrors>(())
/// ```
pub trait Flow {
    /// Handles of the fields and parameters.
    type Fields;
    /// Handles of the states; `()` where a flow keeps none.
    type State;

    /// The name in commands and errors.
    fn name(&self) -> &str;

    /// Declares what is kept of each block, and the parameters.
    fn fields(&self, declare: &mut Declare) -> Self::Fields;

    /// Declares what a request carries from step to step.
    fn state(&self, declare: &mut DeclareState) -> Self::State;

    /// Summarises a block that has just become complete.
    fn forward_cache(&self, block: &Block<'_>, fields: &Self::Fields);

    /// Scores the candidate blocks of a step and selects.
    fn forward_indexer<'t>(&self, step: Step<'t>, fields: &Self::Fields, state: Self::State) -> Done<'t>;
}

/// A flow that was traced without an error. Only [`trace`] makes one.
#[derive(Clone, Debug)]
pub struct Traced {
    /// The name of the flow.
    pub name: String,
    /// Fields, states and parameters.
    pub declared: Declarations,
    /// The pass of a complete block.
    pub cache: Graph,
    /// The pass of a step.
    pub indexer: Graph,
    /// The requirements of the live ops on a model.
    pub requirements: Vec<Requirement>,
    /// The ops that tracing removed, and probable oversights.
    pub report: FlowReport,
}

/// A pass of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowPass {
    /// A block becomes complete.
    Cache,
    /// A decode step.
    Indexer,
}

/// Information about a flow for its author.
#[derive(Clone, Debug, Default)]
pub struct FlowReport {
    /// Ops that are not in the graphs.
    pub removed: Vec<Removed>,
    /// Fields that are stored and that no live op of the indexer reads.
    pub unread_fields: Vec<FieldId>,
    /// States whose loaded value no live op reads.
    pub unread_states: Vec<StateId>,
}

/// An op that was recorded and is not in the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The op.
    pub op: &'static str,
    /// Its place among the recorded ops.
    pub index: usize,
    /// Why it went.
    pub reason: RemovalReason,
    /// The flow's line.
    pub at: &'static Location<'static>,
}

impl fmt::Display for Removed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.reason {
            RemovalReason::Dead => "dead: nothing that is selected, saved or stored needs it",
            RemovalReason::Same => "the same as an op before it",
        };
        write!(f, "{} at {}: {why}", self.op, self.at)
    }
}

/// The recording of a flow, before anything is removed.
#[derive(Clone, Debug)]
pub struct RecordedFlow {
    /// Fields, states and parameters.
    pub declared: Declarations,
    /// The pass of a complete block.
    pub cache: Recording,
    /// The pass of a step.
    pub indexer: Recording,
}

/// Records a flow as it is written.
///
/// # Errors
/// [`FlowErrors`]: everything that is wrong with it.
#[track_caller]
pub fn record<F: Flow + ?Sized>(flow: &F) -> Result<RecordedFlow, FlowErrors> {
    let caller = Location::caller();
    let mut declare = Declare::default();
    let fields = flow.fields(&mut declare);
    let mut declare = DeclareState { declare };
    let state = flow.state(&mut declare);
    let Declare { declared, mut errors } = declare.declare;

    let recorder = Recorder::new(flow.name(), &declared);
    flow.forward_cache(&Block { recorder: &recorder, marker: PhantomData }, &fields);
    for (index, field) in declared.fields.iter().enumerate() {
        if recorder.stores(FieldId(index as u32)) == 0 {
            recorder.refuse(FlowProblem::NeverStored(field.name.clone()), caller);
        }
    }
    let cache = recorder.finish();

    let recorder = Recorder::new(flow.name(), &declared);
    let Done(_) = flow.forward_indexer(Step { recorder: &recorder, marker: PhantomData }, &fields, state);
    for (index, state) in declared.states.iter().enumerate() {
        match recorder.uses(StateId(index as u32)) {
            (0, _) => recorder.refuse(FlowProblem::NeverLoaded(state.name.clone()), caller),
            (_, 0) => recorder.refuse(FlowProblem::NeverSaved(state.name.clone()), caller),
            (_, _) => {}
        }
    }
    match (cache, recorder.finish()) {
        (Ok(cache), Ok(indexer)) if errors.is_empty() => Ok(RecordedFlow { declared, cache, indexer }),
        (cache, indexer) => {
            errors.extend([cache, indexer].into_iter().filter_map(Result::err).flatten());
            Err(FlowErrors { flow: flow.name().into(), errors })
        }
    }
}

/// Traces a flow: records both passes, removes what is dead or repeated, and reports it.
///
/// # Errors
/// [`FlowErrors`]: everything that is wrong with it.
#[track_caller]
pub fn trace<F: Flow + ?Sized>(flow: &F) -> Result<Traced, FlowErrors> {
    let caller = Location::caller();
    let recorded = record(flow)?;
    let mut requirements = Vec::new();
    let mut removed = Vec::new();
    let mut graph_of = |recording: &Recording| {
        let Cleaned { graph, removed: gone, values } = clean(&recording.graph).map_err(|errors| {
            let errors = vec![TraceError { problem: FlowProblem::Graph(errors), at: caller }];
            FlowErrors { flow: flow.name().into(), errors }
        })?;
        let live = recording.requirements.iter().filter(|(id, _)| values[id.index()].is_some());
        requirements.extend(live.map(|(_, requirement)| *requirement));
        let steps: Vec<_> = recording.graph.steps().collect();
        // A source that is not read is not an oversight: handles are sources.
        let gone = gone.into_iter().filter(|(index, _)| !steps[*index].op.is_source());
        removed.extend(gone.map(|(index, reason)| Removed {
            op: steps[index].op.name(),
            index,
            reason,
            at: recording.lines[index],
        }));
        Ok(graph)
    };
    let cache = graph_of(&recorded.cache)?;
    let indexer = graph_of(&recorded.indexer)?;
    let RecordedFlow { declared, .. } = recorded;
    let fields = (0..declared.fields.len() as u32).map(FieldId);
    let states = (0..declared.states.len() as u32).map(StateId);
    let report = FlowReport {
        removed,
        unread_fields: fields.filter(|id| !indexer.loads(Source::Field(*id))).collect(),
        unread_states: states.filter(|id| !indexer.loads(Source::State(*id))).collect(),
    };
    Ok(Traced { name: flow.name().into(), declared, cache, indexer, requirements, report })
}

impl Traced {
    /// The graph of a pass.
    pub const fn graph(&self, pass: FlowPass) -> &Graph {
        match pass {
            FlowPass::Cache => &self.cache,
            FlowPass::Indexer => &self.indexer,
        }
    }

    /// The tokens of a block that the flow takes: `preferred` where its ops allow it, else 16, else
    /// 1; `preferred` where none of them fits, so that binding says why.
    ///
    /// ```
    /// use tilewright_flow::algorithms;
    /// let block = |name: &str| algorithms::named(name).unwrap().trace().unwrap().block_tokens(16);
    /// assert_eq!((block("quest"), block("h2o-tokens")), (16, 1));
    /// ```
    pub fn block_tokens(&self, preferred: usize) -> usize {
        let fits = |&block_tokens: &usize| {
            let model = ModelShape { kv_heads: 1, group: 1, head_dim: 32, block_tokens };
            self.extents(&model).is_ok()
        };
        [preferred, 16, 1].into_iter().find(fits).unwrap_or(preferred)
    }

    /// The reports, a line each.
    pub fn notices(&self) -> Vec<String> {
        let report = &self.report;
        let mut lines: Vec<String> = report.removed.iter().map(|removed| format!("removed {removed}")).collect();
        let fields = report.unread_fields.iter().map(|id| &self.declared.fields[id.index()].name);
        lines.extend(fields.map(|name| format!("field `{name}` is stored for every block and never read")));
        let states = report.unread_states.iter().map(|id| &self.declared.states[id.index()].name);
        lines.extend(states.map(|name| format!("state `{name}` is saved at every step and its value never used")));
        lines
    }

    /// The label of a value in text forms: the name of a source, the id of everything else.
    pub fn label(&self, graph: &Graph, id: ValueId) -> String {
        let declared = &self.declared;
        match *graph.op(id) {
            Op::Load { from: Source::Query } => "q".into(),
            Op::Load { from: Source::Keys } => "k".into(),
            Op::Load { from: Source::Values } => "v".into(),
            Op::Load { from: Source::Positions } => "position".into(),
            Op::Load { from: Source::Field(id) } => declared.fields[id.index()].name.clone(),
            Op::Load { from: Source::Parameter(id) } => declared.parameters[id.index()].name.clone(),
            Op::Load { from: Source::State(id) } => format!("load({})", declared.states[id.index()].name),
            Op::Fill { number, .. } => number.to_string(),
            _ => id.to_string(),
        }
    }
}
