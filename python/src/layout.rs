//! Layouts: the facade's algebra by name, with Python's integers and tuples as its values.

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyString, PyTuple};
use tilewright::algebra::{self, LayoutValue};
use tilewright::layout::fragment::{ATOMS, Atom, MmaOperand};
use tilewright::layout::picture::Colour;
use tilewright::layout::{Composed, Layout, analysis};

use crate::error::{LayoutError, layout_error};

/// Deepest nesting of a Python value.
const MAX_DEPTH: usize = 64;

/// A layout, a swizzle or a swizzled layout.
#[pyclass(frozen, eq, module = "tilewright._native")]
#[derive(PartialEq)]
pub struct Value(LayoutValue);

#[pymethods]
impl Value {
    /// `layout`, `swizzle` or `swizzled`.
    #[getter]
    fn kind(&self) -> &'static str {
        match self.0 {
            LayoutValue::Layout(_) => "layout",
            LayoutValue::Swizzle(_) => "swizzle",
            _ => "swizzled",
        }
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __hash__(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut state = DefaultHasher::new();
        self.0.to_string().hash(&mut state);
        state.finish()
    }

    /// Shape, of a layout.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, self.composed()?.layout().shape().into())
    }

    /// Stride, of a layout; that of the inner layout where it is swizzled.
    #[getter]
    fn stride<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, self.composed()?.layout().stride().into())
    }

    /// Whether no two coordinates share an offset.
    #[getter]
    fn is_injective(&self) -> PyResult<bool> {
        // A swizzle is a permutation of offsets.
        Ok(self.composed()?.layout().is_injective())
    }

    /// The widest vector of elements of `element_bits` that can be moved everywhere.
    fn vector_width(&self, element_bits: i64) -> PyResult<i64> {
        Ok(self.composed()?.vector_width(element_bits))
    }
}

impl Value {
    fn composed(&self) -> PyResult<Composed> {
        match &self.0 {
            LayoutValue::Layout(layout) => Ok(Composed::Plain(**layout)),
            LayoutValue::Swizzled(swizzled) => Ok(Composed::Swizzled(**swizzled)),
            other => Err(LayoutError::new_err(format!("expected a layout, found {}", other.kind()))),
        }
    }

    fn plain(&self) -> PyResult<Layout> {
        self.0.layout().map_err(layout_error)
    }
}

/// The value of an expression, such as `zipped_divide((4,6):(6,1), (2,3))`.
#[pyfunction]
pub fn evaluate<'py>(py: Python<'py>, expression: &str) -> PyResult<Bound<'py, PyAny>> {
    match algebra::locate(expression) {
        Ok(value) => to_python(py, value),
        Err(mistake) => {
            let excerpt = mistake.excerpt().map_or_else(String::new, |excerpt| format!("\n{}", excerpt.trim_end()));
            Err(LayoutError::new_err(format!("{}{excerpt}", mistake.refusal)))
        }
    }
}

/// The operation of that name, applied.
#[pyfunction]
#[pyo3(signature = (name, *values))]
pub fn apply<'py>(py: Python<'py>, name: &str, values: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let values = values.iter().map(|value| from_python(&value, 0)).collect::<PyResult<Vec<_>>>()?;
    to_python(py, algebra::apply(name, &values).map_err(layout_error)?)
}

/// The picture of a layout as text.
#[pyfunction]
pub fn text(value: &Value, rows: i64, columns: i64) -> PyResult<String> {
    algebra::text(&value.composed()?, (rows.max(0), columns.max(0))).map_err(layout_error)
}

/// The picture of a layout as an SVG image, coloured by tiles, banks or threads.
#[pyfunction]
#[pyo3(signature = (value, *, tile=None, bank=None, thread=None))]
pub fn svg(value: &Value, tile: Option<(i64, i64)>, bank: Option<i64>, thread: Option<&Value>) -> PyResult<String> {
    let colour = match (tile, bank, thread) {
        (tile, None, None) => {
            let (rows, columns) = tile.unwrap_or((1, 1));
            Colour::Tile { rows: rows.max(1), columns: columns.max(1) }
        }
        (None, Some(element_bytes @ 1..=16), None) => Colour::Bank { element_bytes },
        (None, Some(found), None) => {
            return Err(LayoutError::new_err(format!("bank has the bytes of an element, 1 to 16, found {found}")));
        }
        (None, None, Some(fragment)) => Colour::Thread { fragment: fragment.plain()? },
        _ => return Err(LayoutError::new_err("a picture is coloured by one of tile, bank and thread")),
    };
    algebra::svg(&value.composed()?, colour).map_err(layout_error)
}

/// Reads of shared memory that an access costs, and without bank conflicts.
#[pyfunction]
pub fn wavefronts(access: &Value, element_bytes: i64, bytes: i64) -> PyResult<(i64, i64)> {
    let found = analysis::wavefronts(&access.composed()?, element_bytes, bytes).map_err(layout_error)?;
    Ok((found.count, found.ideal))
}

/// The layout from (thread, value) to `row + rows * column` of an operand of a matrix instruction,
/// and its rows and columns.
#[pyfunction]
pub fn fragment(atom: &str, operand: &str) -> PyResult<(Value, i64, i64)> {
    let found = Atom::named(atom).ok_or_else(|| {
        LayoutError::new_err(format!("`{atom}` is no matrix instruction; tilewright.atoms() lists those of a warp"))
    })?;
    let operand = MmaOperand::ALL.into_iter().find(|known| known.name() == operand);
    let operand = operand.ok_or_else(|| LayoutError::new_err("an operand is \"A\", \"B\" or \"C\""))?;
    let held = tilewright::layout::fragment::fragment(&found, operand);
    Ok((Value(held.layout.into()), held.rows, held.cols))
}

/// The names of the matrix instructions of a warp.
#[pyfunction]
pub fn atoms() -> Vec<String> {
    ATOMS.iter().map(|atom| atom.name().as_str().to_owned()).collect()
}

fn to_python(py: Python<'_>, value: LayoutValue) -> PyResult<Bound<'_, PyAny>> {
    match value {
        LayoutValue::Int(value) => value.into_bound_py_any(py),
        LayoutValue::Open => Ok(py.None().into_bound(py)),
        LayoutValue::Bool(truth) => truth.into_bound_py_any(py),
        LayoutValue::Word(word) => word.into_bound_py_any(py),
        LayoutValue::List(items) => {
            let items = items.into_iter().map(|item| to_python(py, item)).collect::<PyResult<Vec<_>>>()?;
            PyTuple::new(py, items)?.into_bound_py_any(py)
        }
        value @ (LayoutValue::Layout(_) | LayoutValue::Swizzle(_) | LayoutValue::Swizzled(_)) => {
            Value(value).into_bound_py_any(py)
        }
    }
}

fn from_python(value: &Bound<'_, PyAny>, depth: usize) -> PyResult<LayoutValue> {
    if depth > MAX_DEPTH {
        return Err(LayoutError::new_err(format!("more than {MAX_DEPTH} levels of nesting")));
    }
    if let Ok(value) = value.cast::<Value>() {
        return Ok(value.get().0.clone());
    }
    if value.is_none() {
        return Ok(LayoutValue::Open);
    }
    if let Ok(truth) = value.cast::<PyBool>() {
        return Ok(LayoutValue::Bool(truth.is_true()));
    }
    if value.is_instance_of::<PyInt>() {
        return Ok(LayoutValue::Int(value.extract()?));
    }
    if let Ok(word) = value.cast::<PyString>() {
        let word = word.to_cow()?;
        return Ok(if word == "_" { LayoutValue::Open } else { LayoutValue::Word(word.into_owned()) });
    }
    if let Ok(items) = value.cast::<PyTuple>() {
        let items = items.iter().map(|item| from_python(&item, depth + 1)).collect::<PyResult<_>>()?;
        return Ok(LayoutValue::List(items));
    }
    let found = value.get_type().name()?;
    Err(PyTypeError::new_err(format!("expected an integer, a layout, None, a word or a tuple of these, found {found}")))
}
