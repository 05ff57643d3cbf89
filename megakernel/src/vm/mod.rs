//! The virtual machines: what runs a placed program.
//!
//! | room | what it holds |
//! |---|---|
//! | [`mod@reference`] | the machine on CPU threads, whose results define what a program computes |

pub mod reference;
