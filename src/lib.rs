//! tilewright: typed layouts, tile kernels and a persistent megakernel for language models on NVIDIA GPUs.
//!
//! | room | what it holds |
//! |---|---|
//! | [`checkpoint`] | Hugging Face folders: architecture, weights, tokenizer |
//! | [`cli`] | the command line |
//! | [`engine`] | prompts in, tokens out |
//! | [`shipped`] | every kernel of this build, by name |
#![deny(unsafe_code)]

pub mod checkpoint;
pub mod cli;
pub mod engine;
pub mod shipped;
