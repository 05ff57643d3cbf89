//! Programs of several devices: the validator's verdict equals the oracle's, on valid ones, on
//! mutants of every class, and on mutants of what lies and runs where.
//!
//! `TILEWRIGHT_LONG` in the environment: more than 100,000 mutants instead of some thousands.

use std::collections::BTreeMap;

use tilewright_megakernel::ops::{Linear, LinearOutput, Op, Reduce};
use tilewright_megakernel::program::{DeviceId, Program};
use tilewright_megakernel::testing::generate::sharded;
use tilewright_megakernel::testing::{Rng, judge};
use tilewright_megakernel::validate::validate;

use crate::fuzz::{compare, print};
use crate::mutate::{CLASSES, Mutation, any, replace};

/// Mutations that only programs of several devices have.
const OF_DEVICES: [(&str, Mutation); 8] = [
    ("move_task", move_task),
    ("move_task_and_queue", move_task_and_queue),
    ("move_buffer", move_buffer),
    ("unplace_buffer", unplace_buffer),
    ("send_to_fewer", send_to_fewer),
    ("send_elsewhere", send_elsewhere),
    ("sum_of_others", sum_of_others),
    ("other_device_count", other_device_count),
];

/// Programs of a plain `cargo test`, and of a long run. Some classes find fewer places than they
/// are asked for.
const SHORT: usize = 3_000;
const LONG: usize = 125_000;
/// Mutants that a long run has to see.
const MUTANTS: usize = 100_000;

#[test]
fn the_validator_agrees_with_the_oracle_on_every_sharded_program() {
    let long = std::env::var_os("TILEWRIGHT_LONG").is_some();
    let total = if long { LONG } else { SHORT };
    let seed = std::env::var("TILEWRIGHT_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_261_124u64);
    let mut rng = Rng::new(seed);
    let mut rows = BTreeMap::new();
    let each = total / (CLASSES.len() + 3 * OF_DEVICES.len() + 1);
    for _ in 0..each {
        let program = sharded(&mut rng);
        assert!(program.devices > 1 && judge(&program).is_ok() && validate(&program).is_valid());
        compare("valid", &program, &mut rows, seed);
    }
    let all = CLASSES.iter().map(|class| (class, each)).chain(OF_DEVICES.iter().map(|class| (class, 3 * each)));
    for (&(name, mutation), count) in all {
        let mut left = count;
        let mut tries = 0;
        while left > 0 && tries < 100 * count {
            let mut program = sharded(&mut rng);
            tries += 1;
            if mutation(&mut program, &mut rng).is_some() {
                compare(name, &program, &mut rows, seed);
                left -= 1;
            }
        }
    }
    print(&rows, seed);
    // What lies and runs elsewhere is refused; what is sent to fewer is refused where somebody
    // reads it.
    assert!(
        OF_DEVICES.iter().all(|(name, _)| rows[*name].rejected > 0),
        "a class of mutants that never breaks anything"
    );
    assert_eq!(rows["valid"].rejected, 0);
    let mutants: usize = rows.iter().filter(|(class, _)| *class != "valid").map(|(_, row)| row.count()).sum();
    assert!(!long || mutants >= MUTANTS, "a long run of {mutants} mutants");
}

fn other(p: &Program, rng: &mut Rng, than: DeviceId) -> DeviceId {
    DeviceId::from((than.index() + rng.within(1, p.devices)) % (p.devices + 1))
}

fn move_task(p: &mut Program, rng: &mut Rng) -> Option<()> {
    let at = rng.below(p.tasks.len());
    p.tasks[at].device = other(p, rng, p.tasks[at].device);
    Some(())
}

/// The task runs on another device altogether: where its operands are not.
fn move_task_and_queue(p: &mut Program, rng: &mut Rng) -> Option<()> {
    let at = rng.below(p.tasks.len());
    let to = other(p, rng, p.tasks[at].device);
    let first = p.sms_of(to).start;
    let queues = p.queues.as_mut()?;
    queues.iter_mut().for_each(|queue| queue.retain(|id| id.index() != at));
    queues.get_mut(first)?.push(p.tasks[at].id);
    (p.tasks[at].device, p.tasks[at].sm) = (to, None);
    Some(())
}

fn move_buffer(p: &mut Program, rng: &mut Rng) -> Option<()> {
    let at = any(rng, p.buffers.len(), |b| p.buffers[b].device.is_some())?;
    p.buffers[at].device = p.buffers[at].device.map(|device| other(p, rng, device));
    Some(())
}

/// A buffer on every device; or one that every device has, on one.
fn unplace_buffer(p: &mut Program, rng: &mut Rng) -> Option<()> {
    let at = rng.below(p.buffers.len());
    let one = DeviceId::from(rng.below(p.devices));
    p.buffers[at].device = if p.buffers[at].device.is_some() { None } else { Some(one) };
    Some(())
}

/// Changes where a product's part is sent.
fn resend(
    p: &mut Program,
    rng: &mut Rng,
    change: impl FnOnce(&mut Vec<tilewright_megakernel::program::BufferId>),
) -> Option<()> {
    let sends = |t: usize| {
        let linear = p.tasks[t].op.get::<Linear>();
        linear.is_some_and(|linear| matches!(&linear.output, LinearOutput::Store { sent, .. } if !sent.is_empty()))
    };
    let at = any(rng, p.tasks.len(), sends)?;
    let mut linear = p.tasks[at].op.get::<Linear>().cloned()?;
    let LinearOutput::Store { sent, .. } = &mut linear.output else { return None };
    change(sent);
    replace(p, at, Op::from(linear))
}

fn send_to_fewer(p: &mut Program, rng: &mut Rng) -> Option<()> {
    resend(p, rng, |sent| sent.truncate(sent.len() - 1))
}

fn send_elsewhere(p: &mut Program, rng: &mut Rng) -> Option<()> {
    let like = |name: &str| name.starts_with("part") || name.starts_with('x');
    let to = any(rng, p.buffers.len(), |b| like(&p.buffers[b].name))?;
    let to = p.buffers[to].id;
    resend(p, rng, |sent| sent.iter_mut().take(1).for_each(|sent| *sent = to))
}

/// A sum that reads a part where another device has it.
fn sum_of_others(p: &mut Program, rng: &mut Rng) -> Option<()> {
    let at = any(rng, p.tasks.len(), |t| p.tasks[t].op.is::<Reduce>())?;
    let mut sum = p.tasks[at].op.get::<Reduce>().cloned()?;
    let to = any(rng, p.buffers.len(), |b| p.buffers[b].name.starts_with("part") && p.buffers[b].id != sum.parts[0])?;
    sum.parts[0] = p.buffers[to].id;
    replace(p, at, Op::from(sum))
}

fn other_device_count(p: &mut Program, rng: &mut Rng) -> Option<()> {
    p.devices = [0, 1, p.devices + 1, 65][rng.below(4)];
    Some(())
}
