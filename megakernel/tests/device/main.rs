//! The device machine on the simulator: what the reference machine computes, under every seed;
//! every failure an error.
//!
//! With `TILEWRIGHT_DEVICE=cuda:0` on a GPU instead. The mutants must be left out, since some of
//! them trap: `TILEWRIGHT_DEVICE=cuda:0 cargo test -p tilewright-megakernel --test device -- --skip
//! mutants --test-threads 1`.

mod activations;
mod agree;
mod both;
mod choose;
mod codes;
mod cut;
mod damaged;
mod devices;
mod ends;
mod experts;
mod faults;
mod lab;
mod lengths;
mod lost;
mod masks;
mod merges;
mod mutants;
mod no_choice;
mod order;
mod ordered;
mod paths;
mod prefetch;
mod propose;
mod quantised;
mod quantised_resources;
mod queue;
mod refusals;
mod resident;
mod resources;
mod sections;
mod selected;
mod shared_codes;
mod skip_semaphores;
mod stage_order;
mod stages;
mod streams;
mod targets;
mod timeline;
