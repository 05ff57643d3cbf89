//! The package's exceptions. Each message is one line: what was wrong, where, and what to do.

use std::error::Error;

use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use tilewright::chain;

create_exception!(tilewright, LayoutError, PyValueError, "A layout, or an operation on one, that does not exist.");
create_exception!(tilewright, EngineError, PyRuntimeError, "A model that cannot be loaded or run as asked.");

create_exception!(tilewright, OpError, PyValueError, "An op whose operands do not fit, or that no kernel computes.");

/// The error of an op.
pub fn op_error(error: impl Error) -> PyErr {
    OpError::new_err(line(&error))
}

/// The error with its causes on one line.
pub fn engine_error(error: impl Error) -> PyErr {
    EngineError::new_err(line(&error))
}

/// The error of a layout.
pub fn layout_error(error: impl Error) -> PyErr {
    LayoutError::new_err(line(&error))
}

fn line(error: &dyn Error) -> String {
    chain(error).replace(['\n', '\r'], " ")
}
