//! Random rows of logits, and what `naive` chooses.

use tilewright_codegen::ir::{Arch, Needs};
use tilewright_codegen::trial::{Draw, Expected, Shipped, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

use super::{
    FeedShape, MASK_HEAD, NO_TOKEN, Request, argmax_rows, best_rows, feed_rows, hide_rows, mask_pitch, sample_rows,
};
use crate::naive::{self, Sampling};
use crate::shipped_entry::ShippedEntry;

/// Warps of the kernels as they are shown.
const WARPS: u32 = 32;

/// The kernels of this module.
pub fn shipped() -> Vec<Box<dyn Shipped>> {
    let entry =
        |name, record, draw| Box::new(ShippedEntry { name, needs: Needs::Sm80, record, draw }) as Box<dyn Shipped>;
    vec![
        entry("argmax", |arch| argmax_rows(arch, WARPS), argmax_trial),
        entry("best", best_rows, best_trial),
        entry("sample", |arch| sample_rows(arch, WARPS), sample_trial),
        entry("hide", |arch| hide_rows(arch, WARPS), hide_trial),
        entry("feed", |arch| feed_rows(arch, FeedShape { rows: 64, ends: 8, requests: true, lines: 4 }), feed_trial),
    ]
}

/// Rows of logits.
struct LogitRows {
    rows: u32,
    count: u32,
    stride: u32,
    warps: u32,
    logits: Vec<f32>,
}

impl LogitRows {
    fn draw(draw: &mut Draw) -> LogitRows {
        let most = [8, 100, 1000, 5000][draw.between(0..=3) as usize];
        let rows = draw.between(1..=3);
        let count = draw.between(1..=most);
        let stride = count + draw.between(0..=3);
        let warps = [1, 4, 7, 16, 32][draw.between(0..=4) as usize];
        let width = [0.01, 3.0, 30.0][draw.between(0..=2) as usize];
        let shape = draw.between(0..=6);
        let logits = (0..rows * stride).map(|_| logit(draw, shape, width)).collect();
        LogitRows { rows, count, stride, warps, logits }
    }

    fn row(&self, row: u32) -> &[f32] {
        &self.logits[(row * self.stride) as usize..][..self.count as usize]
    }

    fn note(&self) -> String {
        let LogitRows { rows, count, stride, warps, .. } = self;
        format!("{rows} rows of {count}, stride {stride}, {warps} warps")
    }
}

/// A logit: of a bell, of few values, all the same, or with some that are no finite numbers among
/// them.
fn logit(draw: &mut Draw, shape: u32, width: f64) -> f32 {
    let bell = (0..4).map(|_| draw.unit()).sum::<f64>() * width;
    let odd = [f32::NAN, f32::NEG_INFINITY, 0.0, -0.0, f32::INFINITY, 1e-40, f32::MIN];
    match shape {
        0..=2 => bell as f32,
        3 => (bell * 2.0).round() as f32,
        4 => -0.0f32 + draw.between(0..=1) as f32 * -0.0,
        5 => odd[draw.between(0..=1) as usize],
        _ if draw.between(0..=3) == 0 => odd[draw.between(0..=6) as usize],
        _ => bell as f32,
    }
}

/// A choice as kernels store it.
fn token(choice: Option<usize>) -> u32 {
    choice.map_or(NO_TOKEN, |token| token as u32)
}

fn argmax_trial(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let rows = LogitRows::draw(draw);
    let best = |row| token(naive::sample(rows.row(row), &Sampling::GREEDY, 0, row));
    let best: Vec<u32> = (0..rows.rows).map(best).collect();
    let mut trial = Trial::new(verify(argmax_rows(arch, rows.warps))?, rows.rows).note(rows.note());
    let logits = trial.input("logits", &rows.logits);
    let tokens = trial.output("tokens", Expected::exact(&best));
    Ok(trial.pass(rows.count).pass(rows.stride).pass(logits).pass(tokens))
}

fn best_trial(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let rows = draw.between(1..=5);
    let count = draw.between(1..=700);
    let keys: Vec<u64> = (0..rows * count).map(|_| draw.bits() >> (16 * draw.between(0..=3))).collect();
    let best = |keys: &[u64]| {
        let best = keys.iter().max().copied().unwrap_or(0);
        let ordered = (best >> 32) as u32;
        let bits = if ordered >> 31 == 1 { ordered & 0x7fff_ffff } else { !ordered };
        if f32::from_bits(bits).is_finite() { !(best as u32) } else { NO_TOKEN }
    };
    let best: Vec<u32> = keys.chunks(count as usize).map(best).collect();
    let mut trial = Trial::new(verify(best_rows(arch))?, rows).note(format!("{rows} rows of {count}"));
    let keys = trial.input("keys", &keys);
    let tokens = trial.output("tokens", Expected::exact(&best));
    Ok(trial.pass(count).pass(keys).pass(tokens))
}

/// A way of sampling.
fn sampling(draw: &mut Draw, count: u32) -> Sampling {
    let temperature = [0.0, 1e-30, 0.3, 0.8, 1.0, 20.0][draw.between(0..=5) as usize];
    let top_k = match draw.between(0..=3) {
        0 => None,
        1 => Some(draw.between(1..=5)),
        2 => Some(draw.between(1..=count)),
        _ => Some(draw.between(count..=2 * count)),
    };
    let top_p = [1.0, 1e-6, 0.5, 0.9, 0.999][draw.between(0..=4) as usize];
    let sampling = Sampling::new(temperature, top_k.map(|k| k as usize), top_p, draw.bits());
    sampling.unwrap_or(Sampling::GREEDY)
}

fn sample_trial(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let rows = LogitRows::draw(draw);
    let mut requests = Vec::new();
    let mut chosen = Vec::new();
    let mut ways = Vec::new();
    for row in 0..rows.rows {
        let sampling = sampling(draw, rows.count);
        let step = draw.bits() >> draw.between(0..=63);
        chosen.push(token(naive::sample(rows.row(row), &sampling, step, row)));
        requests.push(Request::new(&sampling, step, row));
        ways.push(format!("t {} k {:?} p {}", sampling.temperature(), sampling.top_k(), sampling.top_p()));
    }
    let note = format!("{}; {}", rows.note(), ways.join(", "));
    let mut trial = Trial::new(verify(sample_rows(arch, rows.warps))?, rows.rows).note(note);
    let logits = trial.input("logits", &rows.logits);
    let requests = trial.input::<u32>("requests", bytemuck::cast_slice(&requests));
    let tokens = trial.output("tokens", Expected::exact(&chosen));
    Ok(trial.pass(rows.count).pass(rows.stride).pass(logits).pass(requests).pass(tokens))
}

fn hide_trial(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let rows = LogitRows::draw(draw);
    let pitch = mask_pitch(rows.count);
    let slots = rows.rows + draw.between(0..=2);
    // Each block has a row of its own, or none.
    let first = draw.between(0..=slots - 1);
    let named: Vec<i32> = (0..rows.rows)
        .map(|block| if draw.between(0..=4) == 0 { -1 } else { ((first + block) % slots) as i32 })
        .collect();
    let masked: Vec<u32> = (0..slots).map(|_| draw.between(0..=3)).collect();
    let step = draw.bits() as u32;
    let mut masks = Vec::new();
    let mut late = Vec::new();
    for slot in 0..slots {
        // Few bits of a row, some, most, or all.
        let mut word = || match (slot + seed as u32) % 4 {
            0 => draw.bits() & draw.bits() & draw.bits() & draw.bits(),
            1 => draw.bits(),
            2 => draw.bits() | draw.bits() | draw.bits(),
            _ => u64::MAX,
        } as u32;
        let mut words: Vec<u32> = (0..pitch).map(|_| word()).collect();
        let ahead = draw.between(0..=3);
        words[0] = step.wrapping_add(ahead);
        late.push(ahead == 0);
        masks.extend(words);
    }
    let mut hidden = rows.logits.clone();
    for (block, &row) in named.iter().enumerate() {
        let Ok(row) = usize::try_from(row) else { continue };
        for token in (0..rows.count as usize).filter(|_| masked[row] != 0) {
            let word = masks[row * pitch as usize + MASK_HEAD as usize + token / 32];
            if late[row] || word >> (token % 32) & 1 == 0 {
                hidden[block * rows.stride as usize + token] = f32::NEG_INFINITY;
            }
        }
    }
    // As bits, so that what is no number stays what it is.
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    let mut trial = Trial::new(verify(hide_rows(arch, rows.warps))?, rows.rows).note(rows.note());
    let logits = trial.changed("logits", &bits(&rows.logits), Expected::exact(&bits(&hidden)));
    let named = trial.input("rows", &named);
    let masked = trial.input("masked", &masked);
    let steps = trial.input("steps", &[step]);
    let masks = trial.input("masks", &masks);
    let trial = trial.pass(rows.count).pass(rows.stride).pass(logits).pass(pitch).pass(50u32);
    Ok(trial.pass(named).pass(masked).pass(steps).pass(masks))
}

fn feed_trial(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let rows = draw.between(1..=70);
    let ends = draw.between(0..=3);
    let step = draw.between(0..=9);
    let shape = FeedShape { rows, ends, requests: draw.between(0..=1) == 1, lines: draw.between(1..=4) };
    // One in six rows has no choice.
    let chosen: Vec<u32> = (0..rows).map(|_| draw.between(0..=5).wrapping_sub(1)).collect();
    let end_ids: Vec<i32> = (0..rows * ends).map(|_| draw.between(0..=5) as i32 - 1).collect();
    let tokens: Vec<i32> = (0..rows).map(|_| draw.between(0..=4) as i32).collect();
    let positions: Vec<i32> = (0..rows).map(|_| draw.between(0..=9) as i32 - 2).collect();
    let lengths: Vec<u32> = positions.iter().map(|&position| (position + 1).max(0) as u32).collect();
    let requests: Vec<Request> =
        (0..rows).map(|row| Request { step: draw.bits() >> 1, row, ..Request::default() }).collect();
    let mut history = vec![7u32; (shape.lines * rows) as usize];
    let mut after = (tokens.clone(), positions.clone(), lengths.clone(), requests.clone());
    for row in 0..rows as usize {
        let line = &mut history[(step % shape.lines * rows) as usize + row];
        *line = NO_TOKEN;
        if positions[row] >= 0 {
            let token = chosen[row] as i32;
            let is_end = token < 0 || end_ids[row * ends as usize..][..ends as usize].contains(&token);
            *line = chosen[row];
            after.0[row] = token;
            (after.1[row], after.2[row]) = if is_end { (-1, 0) } else { (positions[row] + 1, lengths[row] + 1) };
            after.3[row].step += u64::from(shape.requests);
        }
    }
    let mut trial = Trial::new(verify(feed_rows(arch, shape))?, 1).note(format!("{shape:?}, step {step}"));
    // An array has an element.
    let end_ids = if end_ids.is_empty() { vec![0] } else { end_ids };
    let chosen = trial.input("chosen", &chosen);
    let end_ids = trial.input("ends", &end_ids);
    let tokens = trial.changed("token", &tokens, Expected::exact(&after.0));
    let positions = trial.changed("position", &positions, Expected::exact(&after.1));
    let lengths = trial.changed("length", &lengths, Expected::exact(&after.2));
    let step = trial.changed("step", &[step], Expected::exact(&[step + 1]));
    let before = vec![7u32; history.len()];
    let history = trial.changed("history", &before, Expected::exact(&history));
    let trial = trial.pass(chosen).pass(end_ids).pass(tokens).pass(positions).pass(lengths).pass(step).pass(history);
    if !shape.requests {
        return Ok(trial);
    }
    let mut trial = trial;
    let words = |all: &[Request]| bytemuck::cast_slice::<Request, u32>(all).to_vec();
    let own = trial.changed("requests", &words(&requests), Expected::exact(&words(&after.3)));
    Ok(trial.pass(own))
}
