//! Errors of a graph.

use std::fmt;

use thiserror::Error;

use crate::rows::RowProblem;

/// A rule that an op or a declaration breaks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// A value that is not there yet.
    #[error("operand `{operand}` is {value}, which no earlier op defines; ops read results of ops before them")]
    Undefined {
        /// The operand.
        operand: &'static str,
        /// The value.
        value: String,
    },
    /// A weight or table that the graph does not declare.
    #[error("{role} is {index}, which is not declared; the graph declares {count}")]
    Undeclared {
        /// The role in which the op uses it.
        role: &'static str,
        /// The index.
        index: String,
        /// The number of declarations.
        count: usize,
    },
    /// An operand that does not fit another operand or a weight.
    #[error("operand `{operand}` is {found}, which does not fit {other} {expected}: {rule}")]
    Mismatch {
        /// The operand.
        operand: &'static str,
        /// Its type.
        found: String,
        /// The other operand, or the weight and its name.
        other: String,
        /// Its shape.
        expected: String,
        /// The rule.
        rule: &'static str,
    },
    /// An operand that the op cannot take.
    #[error("operand `{operand}` is {found}; {rule}")]
    Operand {
        /// The operand.
        operand: &'static str,
        /// Its type.
        found: String,
        /// The rule.
        rule: &'static str,
    },
    /// An attribute or a field of a declaration out of range.
    #[error("`{attribute}` is {value}; it must be {rule}")]
    Attribute {
        /// The attribute.
        attribute: &'static str,
        /// Its value.
        value: String,
        /// The rule.
        rule: &'static str,
    },
    /// Results of other types than the op gives.
    #[error("the results are stated as {found}, but the op gives {expected}")]
    Results {
        /// The results that the graph states.
        found: String,
        /// The results that the op gives.
        expected: String,
    },
    /// Rows whose shapes do not go together.
    #[error(transparent)]
    Rows(#[from] RowProblem),
    /// Two ops that append to one cache.
    #[error("cache {cache} has two ops that append to it; give each its own cache")]
    Appended {
        /// The cache.
        cache: String,
    },
    /// Two ops that store to one place.
    #[error("{target} is stored by two ops; store it once")]
    Stored {
        /// The field or the state.
        target: String,
    },
    /// An output of a group that the group does not define.
    #[error("output {value} is not a result of the group; a group's outputs are results of its own ops")]
    Foreign {
        /// The value.
        value: String,
    },
    /// A value of a fused group that is read outside of it.
    #[error("operand `{operand}` is {value}, which is inside of a fused group; list it among the group's outputs")]
    Inside {
        /// The operand.
        operand: &'static str,
        /// The value.
        value: String,
    },
}

/// A problem with its place.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{at}: {problem}")]
pub struct GraphError {
    /// The op or declaration, as the text form has it.
    pub at: String,
    /// The problem.
    #[source]
    pub problem: Problem,
}

/// All errors of a graph.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct GraphErrors {
    /// The graph's name.
    pub graph: String,
    /// The problems, in the order of the ops.
    pub errors: Vec<GraphError>,
}

impl GraphErrors {
    /// Most problems that a check reports.
    pub const LIMIT: usize = 16;
}

impl fmt::Display for GraphErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors: Vec<String> = self.errors.iter().map(GraphError::to_string).collect();
        write!(f, "graph `{}` is not valid: {}", self.graph.escape_debug(), errors.join("; "))
    }
}
