//! The virtual machines: what runs a placed program.
//!
//! | module | what it holds |
//! |---|---|
//! | [`device`] | the machine on a GPU, or on its simulator: one persistent kernel |
//! | [`graph`] | the machine of many rows on a GPU, or on its simulator: a graph of launches |
//! | [`mod@reference`] | the machine on CPU threads, whose results define what a program computes |

pub mod device;
pub mod graph;
pub mod reference;
