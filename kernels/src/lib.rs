//! Front page, filled in by the rooms below.
#![forbid(unsafe_code)]
