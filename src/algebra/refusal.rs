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
        /// The kind that the operation takes.
        expected: &'static str,
        /// The kind that was given.
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
        /// The number that it takes.
        expected: &'static str,
        /// The number that was given.
        found: usize,
    },
    /// A result too long to list.
    #[error("{operation} would list {size} values; at most {limit} are listed")]
    TooLong {
        /// The operation.
        operation: &'static str,
        /// The number of items.
        size: i64,
        /// The limit.
        limit: i64,
    },
    /// JSON that the golden schema does not have.
    #[error("`{text}` is no value of the golden schema")]
    Json {
        /// The JSON.
        text: String,
    },
    /// Text that is not an expression.
    #[error("column {column}: expected {expected}, found {found}")]
    Syntax {
        /// The column, counted from 1.
        column: usize,
        /// The expected token.
        expected: &'static str,
        /// The token that was found.
        found: String,
    },
    /// Parentheses too deep.
    #[error("column {column}: more than {limit} levels of nesting")]
    TooDeep {
        /// The column, counted from 1.
        column: usize,
        /// The deepest nesting.
        limit: usize,
    },
}
