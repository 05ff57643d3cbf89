//! The fragment layouts of matrix atoms, in the schema of the golden cases.

use serde_json::{Value as Json, json};
use tilewright_layout::fragment::{Atom, MmaOperand, fragment};

use super::Refusal;
use super::operations::arg;
use super::value::Value;

/// `mma_fragment(ATOM, OPERAND)`; the table of all elements too where the case has one.
///
/// # Errors
/// [`Refusal`]: an atom or operand that does not exist.
pub fn fragment_case(name: &str, args: &[Value], case: &Json) -> Result<Json, Refusal> {
    let atom = word(arg(name, args, 0)?)?;
    let atom = Atom::named(atom).ok_or_else(|| Refusal::UnknownWord {
        word: atom.to_owned(),
        expected: "an atom such as SM90_64x256x16_F32BF16BF16_SS",
    })?;
    let operand = word(arg(name, args, 1)?)?;
    let operand = MmaOperand::ALL
        .into_iter()
        .find(|o| o.name() == operand)
        .ok_or_else(|| Refusal::UnknownWord { word: operand.to_owned(), expected: "A, B or C" })?;
    let found = fragment(&atom, operand);
    let mut out = json!({
        "mnk": found.mnk,
        "rows": found.rows,
        "cols": found.cols,
        "thr_id": Value::from(found.thr_id).to_json(),
        "layout": Value::from(found.layout).to_json(),
    });
    if case["out"].get("table").is_some() {
        let row =
            |thread| (0..found.values()).map(|v| found.layout.at(thread + found.threads() * v)).collect::<Vec<i64>>();
        out["table"] = (0..found.threads()).map(row).collect();
    }
    Ok(out)
}

fn word(value: &Value) -> Result<&str, Refusal> {
    match value {
        Value::Word(word) => Ok(word),
        other => Err(Refusal::Kind { expected: "a word", found: other.kind() }),
    }
}
