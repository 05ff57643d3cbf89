//! A stage is committed without being filled.
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
    producer.acquire().commit();
}

fn main() {}
