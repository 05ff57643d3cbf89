//! The graph machine on the simulator: what the reference machine computes, however a prompt is
//! cut; the device machine decodes after it; every refusal is one line.
//!
//! With `TILEWRIGHT_DEVICE=cuda:0` on a GPU instead:
//! `TILEWRIGHT_DEVICE=cuda:0 cargo test -p tilewright-megakernel --test graph -- --test-threads 1`.

mod agree;
mod codes;
#[path = "../device/damaged.rs"]
mod damaged;
mod decode;
mod device_barriers;
mod devices;
mod exchanges;
mod lab;
mod long;
mod masks;
mod no_choice;
mod refusals;
mod resources;
mod shards;
mod stages;
