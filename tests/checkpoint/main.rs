//! Laws of checkpoints: the shipped models open as they were saved, everything else is refused with
//! a reason.

mod bad_input;
mod bounded;
mod chat;
mod config;
mod folder;
mod fuzz;
mod hints;
mod hub;
#[path = "../measure/mod.rs"]
mod measure;
mod messages;
mod models;
mod mutants;
mod quant_decoded;
mod quant_folder;
mod quant_mutants;
mod quant_pack;
mod quant_schemes;
mod quantize;
mod rope;
mod special;
mod stream;
