//! What every operator promises, as functions: tests, golden vectors and users call the same ones.
//!
//! A law enumerates the domain, so it costs the layout's size. Each gives `Ok(())` or the first counterexample.

/// The largest domain that a check by enumeration walks.
pub const MAX_ENUMERATION: i64 = 1 << 22;
