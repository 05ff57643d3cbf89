//! Steps whose tokens the device chooses: of one step, and of many that feed each other.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use tilewright_kernels::sample::Request;

use super::machine::{Counts, GraphMachine, StepTail};
use super::plan::{LINES, MOST_QUEUED};
use super::sequence::Sequences;
use crate::lower::NEXT_TOKEN;
use crate::vm::steps::{check_count, end_ids, is_last};
use crate::vm::{AccessError, CellError, LaunchError, MAX_ENDS, NO_TOKEN, NoFeedback, StepCells};

/// A callback that receives the tokens of all rows, step by step.
type EachTokens<'e> = &'e mut dyn FnMut(&[u32]) -> ControlFlow<()>;

/// Steps that feed themselves: the token that a row chooses is its next one.
#[derive(Clone, Copy)]
pub(super) struct FedSteps<'a> {
    /// The inputs of the first step.
    pub cells: &'a StepCells<'a>,
    /// The number of steps, unless all rows end before.
    pub steps: usize,
    /// The rows that are not idle.
    pub rows: &'a [usize],
    /// The sampling requests of these rows, or none: greedy choice.
    pub draws: &'a [Request],
}

impl GraphMachine {
    /// Runs a step, and gives the next tokens of these rows, in their order, as the device chooses
    /// them: by `draws`, one for each of the rows, or greedily where there are none; [`NO_TOKEN`] of
    /// a row whose largest logit is infinite.
    /// [`GraphMachine::logits`] gives logits of the same step.
    ///
    /// # Errors
    /// As [`GraphMachine::step`]; a program without a choice; draws of a program that chooses
    /// greedily, or that make no sense.
    pub fn choose(&mut self, cells: &StepCells, rows: &[usize], draws: &[Request]) -> Result<Vec<u32>, LaunchError> {
        let masked = self.masked.take();
        let choices = self.check_choice(rows, draws)?;
        self.submit(cells)?;
        let _release = self.begin_masked(masked, rows)?;
        let mut tokens = Vec::with_capacity(rows.len());
        for (at, rows) in rows.chunks(choices).enumerate() {
            let draws = draws.chunks(choices).nth(at).unwrap_or_default();
            self.set_wanted(rows, draws, choices)?;
            self.submit_choice()?;
            tokens.extend(self.chosen(rows.len())?);
        }
        Ok(tokens)
    }

    /// Runs steps that feed themselves: the token that a row chooses is its next one. `each` gets
    /// the tokens of all rows after each step, [`NO_TOKEN`] for a row that is idle, has ended, or
    /// ends here since its largest logit is infinite, and ends the run by `Break`: it is told of
    /// the steps that were queued by then, and no other runs; where rows have masks, of none. `ends`
    /// has the tokens that end each row, at most [`MAX_ENDS`], or nothing; `draws` are for all rows
    /// that are not idle at the beginning, in their order, or none. Gives the steps that `each` was
    /// told of.
    ///
    /// # Errors
    /// As [`GraphMachine::choose`]; steps beyond [`MAX_STEPS`](crate::vm::MAX_STEPS), more
    /// ends than there is room for.
    pub fn run_until(
        &mut self,
        cells: &StepCells,
        steps: usize,
        draws: &[Request],
        ends: &[&[u32]],
        each: EachTokens,
    ) -> Result<usize, LaunchError> {
        let masked = self.masked.take();
        check_count(steps)?;
        let rows: Vec<usize> = (0..cells.positions.len()).filter(|&row| cells.positions[row] >= 0).collect();
        let choices = self.check_choice(&rows, draws)?;
        cells.check_steps(&self.limits, steps)?;
        let ids = end_ids(ends, self.plan.rows as usize)?;
        let sequences = Sequences::of(cells, self.plan.alone as usize);
        let feeds = [("tokens", &self.cells.token), ("positions", &self.cells.position)];
        if let Some((role, found)) = feeds.into_iter().find(|(_, cells)| cells.len() != 1) {
            return Err(NoFeedback::Cells { role, found: found.len() }.into());
        }
        let fed = FedSteps { cells, steps, rows: &rows, draws };
        match sequences.count() == 0 && sequences.alone.len() == rows.len() && rows.len() <= choices {
            true => self.run_queued(fed, &ids, masked, each),
            false if masked.contains(&1) => Err(LaunchError::NoMasks),
            false => {
                let choose =
                    &mut |cells: &StepCells, rows: &[usize], draws: &[Request]| self.choose(cells, rows, draws);
                run_by_host(fed, ends, choose, each)
            }
        }
    }

    /// Runs steps in which every row is a sequence of its own: its token, position and length
    /// advance in the device's memory.
    fn run_queued(
        &mut self,
        fed: FedSteps<'_>,
        ends: &[i32],
        masked: Vec<u32>,
        each: EachTokens,
    ) -> Result<usize, LaunchError> {
        let FedSteps { cells, rows, draws, .. } = fed;
        let choices = self.plan.choice.as_ref().map_or(1, |choice| choice.rows as usize);
        self.listen()?;
        let counts = self.set_cells(cells)?;
        self.set_wanted(rows, draws, choices)?;
        self.stream.upload(&ends[..choices * MAX_ENDS], &self.memory.ends)?;
        self.stream.upload(&[0u32], &self.memory.steps)?;
        let Some(release) = self.begin_masked(masked, rows)? else {
            return self.run_under_way(fed, ends, counts, false, each);
        };
        let ran = self.run_under_way(fed, ends, counts, true, each);
        // Nothing sends masks to a step that is still queued, and it must not take the next run's.
        drop(release);
        let waited = self.wait();
        let done = ran?;
        waited.map(|()| done)
    }

    /// Queues steps, whose inputs are set, and tells of them as they end. Where rows have masks, what
    /// is queued may not have ended after.
    fn run_under_way(
        &mut self,
        fed: FedSteps<'_>,
        ends: &[i32],
        counts: Counts,
        has_masks: bool,
        each: EachTokens,
    ) -> Result<usize, LaunchError> {
        let FedSteps { cells, steps, rows, .. } = fed;
        let choices = self.plan.choice.as_ref().map_or(1, |choice| choice.rows as usize);
        let mut done = 0;
        let mut goes_on = true;
        // A simulated step runs when it is queued, and cannot wait for a mask.
        let queued = if has_masks && self.is_simulated() { 1 } else { MOST_QUEUED };
        let mut under_way = VecDeque::new();
        let mut active = rows.to_vec();
        loop {
            while goes_on && under_way.len() < queued.min(steps - done) {
                self.listen()?;
                self.launch(counts, StepTail::Feed)?;
                under_way.push_back(self.stream.record()?);
            }
            let Some(step) = under_way.pop_front() else { return Ok(done) };
            step.wait()?;
            if active.is_empty() {
                // It was queued before the last row ended.
                self.wait()?;
                return Ok(done);
            }
            let first = done % LINES * choices;
            let line = (first..first + choices).map(|word| self.memory.history.load(word));
            let mut tokens = line.collect::<Result<Vec<_>, _>>()?;
            tokens.resize(cells.positions.len(), NO_TOKEN);
            active.retain(|&row| {
                let ends = &ends[row * MAX_ENDS..][..MAX_ENDS];
                !is_last(tokens[row], ends.iter().map(|&end| end as u32))
            });
            done += 1;
            goes_on &= each(&tokens).is_continue();
            if has_masks && (!goes_on || active.is_empty()) {
                return Ok(done);
            }
        }
    }

    /// The number of rows that are sampled at a time.
    pub(super) fn check_choice(&self, rows: &[usize], draws: &[Request]) -> Result<usize, LaunchError> {
        let Some(choice) = &self.plan.choice else { return Err(NoFeedback::Choices { found: 0 }.into()) };
        let count = self.plan.rows as usize;
        if let Some(&row) = rows.iter().find(|row| **row >= count) {
            return Err(AccessError::Row { name: NEXT_TOKEN.to_owned(), rows: count, row }.into());
        }
        let expected = if choice.sampled && !draws.is_empty() { rows.len() } else { 0 };
        if draws.len() != expected {
            return Err(CellError::Length { cell: "request", expected, found: draws.len() }.into());
        }
        for (&row, draw) in rows.iter().zip(draws) {
            draw.sampling().map_err(|source| CellError::Request { row, source })?;
        }
        Ok(choice.rows as usize)
    }

    /// The tokens that were chosen last, of the first `rows` rows.
    pub(super) fn chosen(&self, rows: usize) -> Result<Vec<u32>, LaunchError> {
        Ok(self.stream.read(&self.memory.chosen.slice(0..rows)?)?)
    }

    /// Names the rows that are chosen for, and what by.
    pub(super) fn set_wanted(&self, rows: &[usize], draws: &[Request], choices: usize) -> Result<(), LaunchError> {
        let mut wanted = vec![-1i32; choices];
        wanted.iter_mut().zip(rows).for_each(|(wanted, &row)| *wanted = row as i32);
        self.stream.upload(&wanted, &self.memory.wanted)?;
        if self.plan.choice.as_ref().is_some_and(|choice| choice.sampled) {
            let mut all = vec![Request::default(); choices];
            all.iter_mut().zip(draws).for_each(|(request, draw)| *request = *draw);
            self.stream.upload(&all, &self.memory.requests)?;
        }
        Ok(())
    }
}

/// Runs a step and chooses tokens of rows.
pub(super) type Choose<'c> = &'c mut dyn FnMut(&StepCells, &[usize], &[Request]) -> Result<Vec<u32>, LaunchError>;

/// Rows that belong together, heads that decode attention is not made for, or several devices: the
/// host sets the cells of every step.
pub(super) fn run_by_host(
    fed: FedSteps<'_>,
    ends: &[&[u32]],
    choose: Choose,
    each: EachTokens,
) -> Result<usize, LaunchError> {
    let FedSteps { cells, steps, rows, draws } = fed;
    let mut tokens = cells.tokens.to_vec();
    let mut positions = cells.positions.to_vec();
    let mut left: Vec<(usize, Option<Request>)> =
        rows.iter().enumerate().map(|(at, &row)| (row, draws.get(at).copied())).collect();
    for step in 0..steps {
        let (rows, draws): (Vec<usize>, Vec<Option<Request>>) = left.iter().copied().unzip();
        let draws: Vec<Request> = draws.into_iter().flatten().collect();
        let now = StepCells { tokens: &tokens, positions: &positions, page_table: cells.page_table };
        let chosen = choose(&now, &rows, &draws)?;
        let mut all = vec![NO_TOKEN; positions.len()];
        for (&row, &token) in rows.iter().zip(&chosen) {
            all[row] = token;
            if is_last(token, ends.get(row).copied().unwrap_or_default().iter().copied()) {
                positions[row] = -1;
                continue;
            }
            tokens[row] = i32::try_from(token).unwrap_or(i32::MAX);
            positions[row] += 1;
        }
        left.retain(|(row, _)| positions[*row] >= 0);
        left.iter_mut().filter_map(|(_, draw)| draw.as_mut()).for_each(|draw| draw.step += 1);
        if each(&all).is_break() || left.is_empty() {
            return Ok(step + 1);
        }
    }
    Ok(steps)
}
