//! The virtual machines: what runs a placed program.
//!
//! | room | what it holds |
//! |---|---|
//! | [`device`] | the machine on a GPU, or on its simulator: one persistent kernel |
//! | [`mod@reference`] | the machine on CPU threads, whose results define what a program computes |

pub mod device;
pub mod reference;
