//! The functions, filters and methods that transformers gives templates, each with bounded work.
//!
//! The engine charges fuel for instructions and for every byte that its own operations make. The
//! code here charges before it makes a text or a list, since the engine would charge for it only
//! afterwards.

use std::fmt::Write;

use chrono::Local;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

use super::source::BOUNDED;

/// Starts the detail of an error of `raise_exception`, which tells it from other errors.
pub(super) const RAISED: &str = "raised: ";

/// Bytes that one unit of fuel pays for, as in the engine.
const BYTES_PER_FUEL: usize = 64;
/// Bytes that an element of a list costs, as in the engine.
const SLOT_BYTES: usize = 32;
/// Deepest nesting of a value that a namespace holds or `tojson` writes. JSON input is at most 127
/// deep.
const MAX_DEPTH: usize = 160;
/// Most characters of a format of `strftime_now`.
const MAX_DATE_FORMAT: usize = 256;

/// The syntax of transformers: `trim_blocks` and `lstrip_blocks`.
pub(super) fn syntax() -> Result<SyntaxConfig, Error> {
    SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()
}

pub(super) fn environment(fuel: u64) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(syntax()?);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_fuel(Some(fuel));
    environment.set_unknown_method_callback(method);
    // As in Python, `none` is not iterable.
    environment.add_test("iterable", |value: Value| {
        let kind = value.kind();
        matches!(kind, ValueKind::Undefined | ValueKind::String | ValueKind::Seq | ValueKind::Iterable | ValueKind::Map)
    });
    environment.add_filter(BOUNDED, bounded);
    environment.add_filter("tojson", tojson);
    environment.add_function("raise_exception", |said: String| -> Result<String, Error> {
        Err(refused(format!("{RAISED}{said}")))
    });
    environment.add_function("strftime_now", |format: String| -> Result<String, Error> {
        let mut date = String::new();
        let is_short = format.chars().count() <= MAX_DATE_FORMAT;
        match is_short.then(|| write!(date, "{}", Local::now().format(&format))) {
            Some(Ok(())) => Ok(date),
            _ => Err(refused(format!("strftime_now has no format {:?}", format.chars().take(60).collect::<String>()))),
        }
    });
    Ok(environment)
}

fn refused(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason.into())
}

/// Charges for a text or a list of that many bytes.
fn charge(state: &State, bytes: usize) -> Result<(), Error> {
    state.consume_fuel((bytes / BYTES_PER_FUEL) as u64 + 1)
}

/// Methods that Python's types have and the engine's lack.
fn method(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        match (method, args) {
            ("title", []) => return Ok(title(text).into()),
            ("removeprefix", [affix]) if affix.as_str().is_some() => {
                return Ok(text.strip_prefix(affix.as_str().unwrap_or_default()).unwrap_or(text).into());
            }
            ("removesuffix", [affix]) if affix.as_str().is_some() => {
                return Ok(text.strip_suffix(affix.as_str().unwrap_or_default()).unwrap_or(text).into());
            }
            ("join", [list]) => return join(state, text, list),
            ("replace", [from, to, ..]) => {
                if let (Some(from), Some(to)) = (from.as_str(), to.as_str()) {
                    let found = text.matches(from).count();
                    charge(state, text.len().saturating_add(found.saturating_mul(to.len())))?;
                }
            }
            ("split", args) => {
                let parts = match args.first().and_then(Value::as_str) {
                    Some(separator) => text.matches(separator).count(),
                    None => text.split_whitespace().count(),
                };
                charge(state, text.len().saturating_add(parts.saturating_mul(SLOT_BYTES)))?;
            }
            ("format", args) => charge(state, text.len().saturating_add(widths(text, args)))?,
            ("splitlines", _) => charge(state, text.len().saturating_add(text.lines().count() * SLOT_BYTES))?,
            _ => charge(state, text.len())?,
        }
    } else if method == "count" {
        charge(state, value.len().unwrap_or(0).saturating_mul(SLOT_BYTES))?;
    }
    pycompat::unknown_method_callback(state, value, method, args)
}

/// The sum of the numbers that a text of `str.format` may mean as widths and precisions.
fn widths(text: &str, args: &[Value]) -> usize {
    let stated = text.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let stated = stated.map(|digits| digits.parse().unwrap_or(usize::MAX)).fold(0, usize::saturating_add);
    // A width may be an argument: `{:{width}}`.
    let is_nested = text.contains(":{") || text.contains(".{");
    let given = args.iter().filter(|_| is_nested).filter_map(Value::as_usize).fold(0, usize::saturating_add);
    stated.saturating_add(given)
}

/// Python's `title`: letters that follow a letter become lowercase, others uppercase.
fn title(text: &str) -> String {
    let mut follows_letter = false;
    let cased = text.chars().flat_map(|letter| {
        let small = std::mem::replace(&mut follows_letter, letter.is_alphabetic());
        let cased: String = if small { letter.to_lowercase().collect() } else { letter.to_uppercase().collect() };
        cased.chars().collect::<Vec<_>>()
    });
    cased.collect()
}

/// Python's `join`, which takes texts alone.
fn join(state: &State, separator: &str, list: &Value) -> Result<Value, Error> {
    let mut joined = String::new();
    for (at, item) in list.try_iter()?.enumerate() {
        let Some(text) = item.as_str() else {
            return Err(refused(format!("sequence item {at}: expected a string, found {}", item.kind())));
        };
        charge(state, separator.len() + text.len())?;
        if at > 0 {
            joined.push_str(separator);
        }
        joined.push_str(text);
    }
    Ok(joined.into())
}

/// Returns the value of an assignment to a namespace unchanged, or refuses it.
fn bounded(state: &State, value: Value) -> Result<Value, Error> {
    check(state, &value, 0)?;
    Ok(value)
}

fn check(state: &State, value: &Value, depth: usize) -> Result<(), Error> {
    let Some(object) = value.as_object() else { return Ok(()) };
    if object.type_name().ends_with("::Namespace") {
        return Err(refused("a namespace may not hold a namespace"));
    }
    if depth >= MAX_DEPTH {
        return Err(refused(format!("a namespace may hold values nested at most {MAX_DEPTH} deep")));
    }
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            for item in value.try_iter()? {
                charge(state, SLOT_BYTES / 4)?;
                check(state, &item, depth + 1)?;
            }
        }
        ValueKind::Map => {
            for key in value.try_iter()? {
                charge(state, SLOT_BYTES / 4)?;
                check(state, &value.get_item(&key)?, depth + 1)?;
                check(state, &key, depth + 1)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// The output style of `tojson`.
struct Style {
    indent: Option<String>,
    separators: [String; 2],
    ascii: bool,
    sorted: bool,
}

/// Python's `json.dumps`, as transformers gives it to templates: no escapes for HTML, other scripts
/// as they are.
fn tojson(state: &State, value: Value, indent: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let indent = match indent {
        Some(indent) => Some(indent),
        None => kwargs.get::<Option<Value>>("indent")?,
    };
    let indent = match indent.filter(|indent| !indent.is_none()) {
        None => None,
        Some(indent) => match (indent.as_str(), indent.as_i64()) {
            (Some(text), _) => Some(text.to_owned()),
            (None, Some(columns)) => Some(" ".repeat(columns.clamp(0, 64) as usize)),
            (None, None) => return Err(refused("tojson: indent must be a number or a text")),
        },
    };
    let separators = match kwargs.get::<Option<Vec<String>>>("separators")?.map(<[String; 2]>::try_from) {
        Some(Ok(pair)) => pair,
        Some(Err(_)) => return Err(refused("tojson: separators must be a pair of texts")),
        None if indent.is_some() => [",".to_owned(), ": ".to_owned()],
        None => [", ".to_owned(), ": ".to_owned()],
    };
    let ascii = kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    let sorted = kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    kwargs.assert_all_used()?;
    let style = Style { indent, separators, ascii, sorted };
    let mut out = String::new();
    write_json(state, &mut out, &value, &style, 0)?;
    Ok(out.into())
}

fn write_json(state: &State, out: &mut String, value: &Value, style: &Style, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(refused(format!("tojson: the value is nested more than {MAX_DEPTH} deep")));
    }
    let before = out.len();
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number if value.is_integer() => _ = write!(out, "{value}"),
        ValueKind::Number => out.push_str(&python_float(f64::try_from(value.clone())?)),
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            charge(state, text.len())?;
            write_text(out, text, style.ascii);
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let items = value.try_iter()?.map(|item| (None, item));
            write_container(state, out, items, ["[", "]"], style, depth)?;
        }
        ValueKind::Map => {
            let mut pairs = Vec::new();
            for key in value.try_iter()? {
                charge(state, SLOT_BYTES)?;
                let item = value.get_item(&key)?;
                let name = match key.kind() {
                    ValueKind::String => key.as_str().unwrap_or_default().to_owned(),
                    ValueKind::Number if !key.is_integer() => python_float(f64::try_from(key.clone())?),
                    ValueKind::Number => key.to_string(),
                    ValueKind::Bool => if key.is_true() { "true" } else { "false" }.to_owned(),
                    ValueKind::None => "null".to_owned(),
                    other => return Err(refused(format!("tojson: keys must be texts or numbers, found {other}"))),
                };
                pairs.push((Some(name), item));
            }
            if style.sorted {
                pairs.sort_by(|a, b| a.0.cmp(&b.0));
            }
            write_container(state, out, pairs.into_iter(), ["{", "}"], style, depth)?;
        }
        other => return Err(refused(format!("tojson: a value of type {other} is not JSON"))),
    }
    charge(state, out.len() - before)
}

fn write_container(
    state: &State,
    out: &mut String,
    items: impl Iterator<Item = (Option<String>, Value)>,
    [open, close]: [&str; 2],
    style: &Style,
    depth: usize,
) -> Result<(), Error> {
    let line = |out: &mut String, depth: usize| -> Result<(), Error> {
        if let Some(indent) = &style.indent {
            charge(state, indent.len() * depth)?;
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
        Ok(())
    };
    out.push_str(open);
    let mut is_empty = true;
    for (key, item) in items {
        if !std::mem::replace(&mut is_empty, false) {
            out.push_str(&style.separators[0]);
        }
        line(out, depth + 1)?;
        if let Some(key) = key {
            write_text(out, &key, style.ascii);
            out.push_str(&style.separators[1]);
        }
        write_json(state, out, &item, style, depth + 1)?;
    }
    if !is_empty {
        line(out, depth)?;
    }
    out.push_str(close);
    Ok(())
}

/// A JSON string with the escapes of Python's `json`.
fn write_text(out: &mut String, text: &str, ascii: bool) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            other if other < ' ' || (ascii && !(' '..='~').contains(&other)) => {
                let mut units = [0; 2];
                other.encode_utf16(&mut units).iter().for_each(|unit| _ = write!(out, "\\u{unit:04x}"));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

/// Python's `repr` of a float: the shortest digits, with an exponent below 1e-4 and from 1e16 on.
fn python_float(x: f64) -> String {
    if !x.is_finite() {
        let name = if x.is_nan() {
            "NaN"
        } else if x > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        };
        return name.to_owned();
    }
    let scientific = format!("{x:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>().unwrap_or(0) {
        exponent if x != 0.0 && !(-4..16).contains(&exponent) => {
            format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
        }
        _ => {
            let plain = format!("{x}");
            if plain.contains('.') { plain } else { plain + ".0" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_those_of_python() {
        let cases = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e-5, "1.5e-05"),
            (0.0001, "0.0001"),
            (-2.5e300, "-2.5e+300"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ];
        for (x, text) in cases {
            assert_eq!(python_float(x), text);
        }
    }
}
