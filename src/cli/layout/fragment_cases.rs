//! The fragment layouts of matrix atoms, in the schema of the golden cases.

use serde_json::{Value as Json, json};
use tilewright_layout::fragment::{Atom, MmaOperand, fragment};

use crate::algebra::{ExpressionRefusal, LayoutValue, arg};

/// `mma_fragment(ATOM, OPERAND)`; the table of all elements too where the case has one.
///
/// # Errors
/// [`ExpressionRefusal`]: an atom or operand that does not exist.
pub fn fragment_case(name: &str, args: &[LayoutValue], case: &Json) -> Result<Json, ExpressionRefusal> {
    let atom = word(arg(name, args, 0)?)?;
    let atom = Atom::named(atom).ok_or_else(|| ExpressionRefusal::UnknownWord {
        word: atom.to_owned(),
        expected: "an atom such as SM90_64x256x16_F32BF16BF16_SS",
    })?;
    let operand = word(arg(name, args, 1)?)?;
    let operand = MmaOperand::ALL
        .into_iter()
        .find(|o| o.name() == operand)
        .ok_or_else(|| ExpressionRefusal::UnknownWord { word: operand.to_owned(), expected: "A, B or C" })?;
    let found = fragment(&atom, operand);
    let mut out = json!({
        "mnk": found.mnk,
        "rows": found.rows,
        "cols": found.cols,
        "thr_id": LayoutValue::from(found.thr_id).to_json(),
        "layout": LayoutValue::from(found.layout).to_json(),
    });
    if case["out"].get("table").is_some() {
        let row =
            |thread| (0..found.values()).map(|v| found.layout.at(thread + found.threads() * v)).collect::<Vec<i64>>();
        out["table"] = (0..found.threads()).map(row).collect();
    }
    Ok(out)
}

fn word(value: &LayoutValue) -> Result<&str, ExpressionRefusal> {
    match value {
        LayoutValue::Word(word) => Ok(word),
        other => Err(ExpressionRefusal::Kind { expected: "a word", found: other.kind() }),
    }
}
