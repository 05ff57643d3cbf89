//! tilewright as a backend of NVIDIA Dynamo: a worker that implements
//! [`LLMEngine`](dynamo_backend_common::LLMEngine), and an HTTP frontend.
//!
//! | module | what it holds |
//! |---|---|
//! | [`worker`] | the command line of a worker |
//! | [`engine`] | the implementation of `LLMEngine` |
//! | [`request`] | requests of Dynamo in the engine's terms |
//! | [`output`] | tokens of the engine as chunks of Dynamo |
//! | [`kv_events`] | which blocks of tokens a worker holds, for KV-aware routing |
//! | [`load`] | how full a worker is, for the router and its gauges |
//! | [`error`] | errors, and how Dynamo classifies them |
//! | [`frontend`] | the HTTP server that routes requests to workers |
#![deny(unsafe_code)]

pub mod engine;
pub mod error;
pub mod frontend;
pub mod kv_events;
pub mod load;
pub mod output;
pub mod request;
pub mod worker;
