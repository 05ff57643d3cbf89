//! An error and its causes as one text.

use std::error::Error;

/// An error and its causes, the outermost first. A cause whose text its parent ends with is not
/// repeated, as that of a transparent error.
///
/// ```
/// use tilewright::{Device, Engine, chain};
/// let Err(error) = Engine::load("no/such/folder".as_ref(), Device::cpu()) else { unreachable!() };
/// assert!(chain(&error).contains("no/such/folder"));
/// ```
pub fn chain(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.ends_with(&text) {
            line = format!("{line}: {text}");
        }
        cause = error.source();
    }
    line
}
