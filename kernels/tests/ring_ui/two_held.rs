//! A consumer whose releases are deferred waits for a stage while it has not said what becomes of
//! the one before.
#![allow(unused, reason = "each case uses what it needs")]

use tilewright_codegen::build::{Builder, Global, Ptr};
use tilewright_kernels::ring::{ByBulk, Consumer, BulkSource, Producer, StageTile};
use tilewright_layout::typed::Contiguous as Line;

enum Keys {}
enum Values {}
type Row = (StageTile<f32, Line<128>>,);

fn kernel<'k>(
    k: &'k Builder,
    x: Ptr<'k, Global, f32>,
    mut producer: Producer<'k, Keys, Row, ByBulk>,
    mut consumer: Consumer<'k, Keys, Row>,
) {
    let mut consumer = consumer.deferred();
    let first = consumer.wait();
    let second = consumer.wait();
    first.release_previous();
    second.release_previous();
}

fn main() {}
