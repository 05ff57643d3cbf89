//! `?` for `const fn`.

/// The value of a `Result`, or a return with its error: what `?` does, in a `const fn`.
macro_rules! tri {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(error) => return Err(error),
        }
    };
}
