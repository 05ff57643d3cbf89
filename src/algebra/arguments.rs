//! Arguments of operations: one of a number, an optional order, lists of a length.

use tilewright_layout::ops::Order;

use super::ExpressionRefusal;
use super::value::LayoutValue;

/// Most values that a result lists.
pub(super) const MAX_LISTED: i64 = 1 << 16;

/// Argument `index`, or a refusal that says how many there are.
pub(crate) fn arg<'v>(name: &str, args: &'v [LayoutValue], index: usize) -> Result<&'v LayoutValue, ExpressionRefusal> {
    args.get(index).ok_or_else(|| ExpressionRefusal::Arguments {
        operation: name.to_owned(),
        expected: ["at least 1", "at least 2", "at least 3", "at least 4"][index.min(3)],
        found: args.len(),
    })
}

/// Reads an optional order and hands it on.
pub(super) fn with_order<T>(
    order: Option<&LayoutValue>,
    run: impl FnOnce(Order<'_>) -> T,
) -> Result<T, ExpressionRefusal> {
    Ok(match order {
        None => run(Order::Left),
        Some(LayoutValue::Word(word)) => match word.as_str() {
            "LayoutLeft" => run(Order::Left),
            "LayoutRight" => run(Order::Right),
            _ => {
                return Err(ExpressionRefusal::UnknownWord { word: word.clone(), expected: "LayoutLeft, LayoutRight" });
            }
        },
        Some(numbers) => run(Order::By(&numbers.tuple()?)),
    })
}

pub(crate) fn listed(operation: &'static str, size: i64) -> Result<(), ExpressionRefusal> {
    if size > MAX_LISTED { Err(ExpressionRefusal::TooLong { operation, size, limit: MAX_LISTED }) } else { Ok(()) }
}
