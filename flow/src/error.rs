//! Errors of a flow: found while tracing, while binding to a model, or while running.

use std::fmt;
use std::panic::Location;

use thiserror::Error;
use tilewright_graph::dim::{ExtentError, InnerShape, ModelShape, Need, Relation};
use tilewright_graph::{GraphErrors, Problem, interpret};

/// A rule that an op of a flow breaks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FlowProblem {
    /// Operands that do not go together, or a shape that no model has.
    #[error("{op}: {problem}")]
    Op {
        /// The op.
        op: &'static str,
        /// The rule of the graph.
        problem: Problem,
    },
    /// A graph that is not valid.
    #[error(transparent)]
    Graph(GraphErrors),
    /// A declared extent that no model has.
    #[error("{noun}: shape {shape} has an extent that is 0, a fraction or too large; give whole extents of at least 1")]
    Extent {
        /// The declaration.
        noun: String,
        /// The shape.
        shape: InnerShape,
    },
    /// A name that cannot be declared.
    #[error("{noun} `{name}` cannot be declared: the name is {why}; choose another")]
    Name {
        /// Field, state or parameter.
        noun: &'static str,
        /// The name.
        name: String,
        /// Taken, reserved or empty.
        why: &'static str,
    },
    /// A handle that this flow did not declare.
    #[error(
        "{noun} number {index} is not declared by this flow, which has {declared}; use the handle that `declare` gave"
    )]
    Handle {
        /// Field, state or parameter.
        noun: &'static str,
        /// Its number.
        index: usize,
        /// The number of declarations.
        declared: usize,
    },
    /// A field without a value.
    #[error("field `{0}` is declared and never stored; store it in forward_cache, or declare it as a state")]
    NeverStored(String),
    /// A field with two values.
    #[error("field `{0}` is stored twice in one pass; store it once")]
    StoredTwice(String),
    /// A state that the flow does not look at.
    #[error("state `{0}` is declared and never loaded; load it in forward_indexer, or do not declare it")]
    NeverLoaded(String),
    /// A state that keeps its reset value.
    #[error("state `{0}` is loaded and never saved; save what the next step must see")]
    NeverSaved(String),
}

/// A problem and the line of the flow that has it.
#[derive(Clone, Debug, Error)]
#[error("{problem} (at {at})")]
pub struct TraceError {
    /// The problem.
    pub problem: FlowProblem,
    /// The line of the flow's author.
    pub at: &'static Location<'static>,
}

/// All errors that tracing found in a flow.
#[derive(Clone, Debug)]
pub struct FlowErrors {
    /// The flow.
    pub flow: String,
    /// The errors, in the order of the flow's lines; at least one.
    pub errors: Vec<TraceError>,
}

impl fmt::Display for FlowErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "flow `{}`", self.flow)?;
        for (index, error) in self.errors.iter().enumerate() {
            write!(f, "{} {error}", if index == 0 { ":" } else { ";" })?;
        }
        Ok(())
    }
}

impl std::error::Error for FlowErrors {}

/// A relation of two extents that tracing could not decide. Binding checks it.
#[derive(Clone, Copy, Debug)]
pub struct Requirement {
    /// The relation.
    pub need: Need,
    /// The op that asks.
    pub op: &'static str,
    /// The flow's line.
    pub at: &'static Location<'static>,
}

impl Requirement {
    /// Whether it limits the tokens of a block.
    pub fn is_of_blocks(&self) -> bool {
        self.need.left.is_of_blocks() || self.need.right.is_of_blocks()
    }

    /// Checks it for a model.
    ///
    /// # Errors
    /// [`BindError::Requirement`], or as [`Dim::bind`](tilewright_graph::dim::Dim::bind).
    pub fn check(&self, model: &ModelShape) -> Result<(), BindError> {
        let left = self.need.left.bind(model)?;
        let right = self.need.right.bind(model)?;
        let holds = match self.need.relation {
            Relation::Equal => left == right,
            Relation::Multiple => left.is_multiple_of(right),
            Relation::AtLeast => left >= right,
        };
        if holds { Ok(()) } else { Err(BindError::Requirement { requirement: *self, left, right }) }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.need.fmt(f)
    }
}

/// Why a flow does not fit a model or its parameters.
#[derive(Clone, Debug, Error)]
pub enum BindError {
    /// An extent that has no number in this model.
    #[error(transparent)]
    Extent(#[from] ExtentError),
    /// A model that attends to nothing.
    #[error("a model with 0 key heads has no attention; give at least 1")]
    NoHeads,
    /// A requirement of an op on the model.
    #[error(
        "{op} at {at} asks for {requirement}, but the model has {left} and {right}; choose other sizes of blocks or another flow",
        op = .requirement.op, at = .requirement.at
    )]
    Requirement {
        /// The requirement.
        requirement: Requirement,
        /// The left extent in the model.
        left: usize,
        /// The right extent in the model.
        right: usize,
    },
    /// A parameter that was not given.
    #[error("parameter `{name}` was not given; give {elements} numbers for each key head")]
    ParameterMissing {
        /// The parameter.
        name: String,
        /// Elements for each key head.
        elements: usize,
    },
    /// A parameter of another size.
    #[error("parameter `{name}` has {found} numbers; give {wanted}: {heads} key heads of {shape:?}")]
    ParameterLength {
        /// The parameter.
        name: String,
        /// The number given.
        found: usize,
        /// The required number.
        wanted: usize,
        /// Key heads.
        heads: usize,
        /// Extents for each key head.
        shape: [usize; 2],
    },
}

impl PartialEq for BindError {
    fn eq(&self, other: &BindError) -> bool {
        self.to_string() == other.to_string()
    }
}

/// Why a pool, a request or a query was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RunError {
    /// Sizes of a pool that do not fit each other.
    #[error(
        "pool: pages of {page_tokens} tokens are not whole blocks of {block_tokens}; give a multiple of at least 1"
    )]
    PageTokens {
        /// Tokens of a page.
        page_tokens: usize,
        /// Tokens of a block.
        block_tokens: usize,
    },
    /// A pool too large to address.
    #[error("pool: {pages} pages have more elements than memory has addresses; give fewer")]
    PoolSize {
        /// Pages.
        pages: usize,
    },
    /// A page table that is too short.
    #[error("request: {tokens} tokens need {needed} pages, the table has {pages}; give more pages")]
    TableLength {
        /// Tokens that it would have.
        tokens: usize,
        /// Pages that they need.
        needed: usize,
        /// Pages of the table.
        pages: usize,
    },
    /// A page that the pool lacks.
    #[error("request: page {page} is not in the pool of {pages} pages; give pages below {pages}")]
    Page {
        /// The page.
        page: usize,
        /// Pages of the pool.
        pages: usize,
    },
    /// A slice of another length.
    #[error("{what}: {found} numbers were given; give {wanted}")]
    Length {
        /// The argument.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The length that it must have.
        wanted: usize,
    },
    /// A pool that was made for another flow or model.
    #[error("pool: it was made for {found}, the flow is bound to {wanted}; make it from the bound flow")]
    Foreign {
        /// The flow and model that the pool was made for.
        found: String,
        /// The flow and model that the flow is bound to.
        wanted: String,
    },
    /// A graph that cannot be run.
    #[error(transparent)]
    Graph(#[from] interpret::RunError),
    /// A budget that covers no sensible selection.
    #[error("budget: {name} is {value}; give {bound}")]
    Budget {
        /// The name of the number.
        name: &'static str,
        /// Its value.
        value: String,
        /// The permitted values.
        bound: &'static str,
    },
    /// More blocks than a table of 32-bit counts holds.
    #[error("batch: {blocks} blocks do not fit in 32-bit counts; split the batch")]
    Blocks {
        /// Their number, or the largest number where it is more.
        blocks: usize,
    },
}
