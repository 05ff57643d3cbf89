//! Why an expression or a golden case was not evaluated.

use thiserror::Error;
use tilewright_layout::LayoutError;
use tilewright_layout::view::ViewError;

/// Why an expression or a golden case was not evaluated.
#[derive(Debug, Error)]
pub enum ExpressionRefusal {
    /// The algebra refused.
    #[error("{0}")]
    Layout(#[source] LayoutError),
    /// A view of the elements was refused.
    #[error("{0}")]
    View(#[source] ViewError),
    /// A value of the wrong kind.
    #[error("expected {expected}, found {found}")]
    Kind {
        /// What the operation takes.
        expected: &'static str,
        /// What was given.
        found: &'static str,
    },
    /// A negative number where an index or a count belongs.
    #[error("{value} is negative; an index or a count is at least 0")]
    Negative {
        /// The number.
        value: i64,
    },
    /// No operation of that name.
    #[error("no operation is called `{name}`; `tilewright layout eval --help` lists them")]
    UnknownOperation {
        /// The name.
        name: String,
    },
    /// A word that the operation does not know.
    #[error("`{word}` is not one of {expected}")]
    UnknownWord {
        /// The word.
        word: String,
        /// The words that are known.
        expected: &'static str,
    },
    /// The wrong number of arguments.
    #[error("{operation} takes {expected} arguments, {found} given")]
    Arguments {
        /// The operation.
        operation: String,
        /// How many it takes.
        expected: &'static str,
        /// How many were given.
        found: usize,
    },
    /// A result too long to list.
    #[error("{operation} would list {size} values; at most {limit} are listed")]
    TooLong {
        /// The operation.
        operation: &'static str,
        /// How many there would be.
        size: i64,
        /// How many are listed.
        limit: i64,
    },
    /// JSON that the golden schema does not have.
    #[error("`{text}` is no value of the golden schema")]
    Json {
        /// The JSON.
        text: String,
    },
    /// Text that is no expression.
    #[error("column {column}: expected {expected}, found {found}")]
    Syntax {
        /// Where, counted from 1.
        column: usize,
        /// What may stand there.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// Parentheses too deep.
    #[error("column {column}: more than {limit} levels of nesting")]
    TooDeep {
        /// Where, counted from 1.
        column: usize,
        /// How deep an expression may nest.
        limit: usize,
    },
}
