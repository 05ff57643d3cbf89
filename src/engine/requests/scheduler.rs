//! The state machine of continuous batching: which rows the next step feeds, and in which pages. It
//! knows no machine, no clock and no text.
//!
//! A request waits or runs. A running one has a seat, pages, and tokens that are *pending*: a
//! prompt in chunks, or the one token that was chosen last. Feeding its last pending token gives
//! the next. So prompts, decoding and what is computed again after a loss of pages are one thing.
//!
//! All requests have one order: by priority, then by submission. The first request takes rows
//! first; a request that lacks a page takes those of the last, which waits again and keeps its
//! tokens. The first one thus goes on in every step, and each request that fits the pools alone
//! ends.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use tilewright_flow::program::Phase;

use super::super::request::{Completion, Finish};
use super::cache::PageCache;
use super::choice::logprobs;
use super::flow_limits::other;
use super::proposer::{MOST_PROPOSED, Proposer};
use super::sequence::{Ask, OrderKey, Sequence};
use super::slots::Slots;
use super::submission::{BatcherLoad, Logprobs, Statistics, Ticket};

pub use super::flow_limits::FlowLimits;
pub use super::step::{Piece, Step};

/// The resources of a scheduler.
#[derive(Clone, Debug)]
pub struct SchedulerLimits {
    /// Most requests that run at a time, at least 1.
    pub seats: usize,
    /// Most rows of a step, at least as many.
    pub rows: usize,
    /// Most of them that hold a prompt's tokens where others decode, at least 1.
    pub prompt_rows: usize,
    /// Most steps of a launch, at least 1.
    pub steps: usize,
    /// Positions of the model.
    pub positions: usize,
    /// Pages of the pools.
    pub pages: usize,
    /// Tokens of a page.
    pub page_tokens: usize,
    /// Whether prefixes are shared.
    pub sharing: bool,
    /// Whether no request decodes while others have a prompt to feed: then wide steps need not
    /// choose at random.
    pub prompts_first: bool,
    /// Whether a launch proposes tokens of a sequence by itself.
    pub proposals: bool,
    /// Whether all steps have one width: then no step is dearer than another.
    pub fixed_width: bool,
    /// Tokens that end a sequence.
    pub ends: Vec<u32>,
    /// The limits of the flow, if a flow selects blocks.
    pub flow: Option<FlowLimits>,
}

/// Requests, and the pages that they hold.
#[derive(Debug)]
pub struct Scheduler {
    pub(super) limits: SchedulerLimits,
    cache: PageCache,
    pub(super) sequences: BTreeMap<Ticket, Sequence>,
    waiting: BTreeSet<OrderKey>,
    pub(super) running: BTreeSet<OrderKey>,
    slots: Slots,
    /// The phase of the last step.
    pub(super) phase: Phase,
    statistics: Statistics,
}

/// A step that is being put together.
struct Draft {
    phase: Phase,
    pieces: Vec<(OrderKey, usize)>,
    rows: usize,
    prompt_rows: usize,
    preempted: bool,
}

impl Draft {
    fn add(&mut self, place: OrderKey, rows: usize) {
        if rows > 0 {
            self.pieces.push((place, rows));
            self.rows -= rows;
        }
    }

    fn remove(&mut self, place: OrderKey) {
        let rows: usize = self.pieces.iter().filter(|piece| piece.0 == place).map(|piece| piece.1).sum();
        self.pieces.retain(|piece| piece.0 != place);
        self.rows += rows;
        self.preempted = true;
    }
}

impl Scheduler {
    /// A scheduler without requests.
    pub fn new(limits: SchedulerLimits) -> Scheduler {
        Scheduler {
            cache: PageCache::new(limits.pages, limits.page_tokens),
            slots: Slots::new(limits.seats),
            phase: Phase::Decode,
            limits,
            sequences: BTreeMap::new(),
            waiting: BTreeSet::new(),
            running: BTreeSet::new(),
            statistics: Statistics::default(),
        }
    }

    /// Submits a request, which must fit the pools alone.
    pub fn submit(&mut self, ticket: Ticket, ask: Ask) {
        let sequence = Sequence::new(ask);
        self.waiting.insert(sequence.place(ticket));
        self.sequences.insert(ticket, sequence);
    }

    /// Ends a request; gives what it has.
    pub fn end(&mut self, ticket: Ticket, finish: Finish) -> Option<Completion> {
        let mut sequence = self.sequences.remove(&ticket)?;
        let place = sequence.place(ticket);
        self.slots.leave(sequence.slot.take());
        self.waiting.remove(&place);
        self.running.remove(&place);
        self.cache.leave(&sequence.pages);
        Some(Completion { token_ids: sequence.generated().to_vec(), finish })
    }

    /// Requests whose deadline is over.
    pub fn expired(&self, now: Duration) -> Vec<Ticket> {
        let over = |(_, sequence): &(&Ticket, &Sequence)| sequence.expires.is_some_and(|expires| expires <= now);
        self.sequences.iter().filter(over).map(|(&ticket, _)| ticket).collect()
    }

    /// The time of the next deadline.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.sequences.values().filter_map(|sequence| sequence.expires).min()
    }

    /// Limits steps to `rows` rows from now on. Steps planned with more rows are planned again.
    pub fn narrow(&mut self, rows: usize) {
        let limits = &mut self.limits;
        limits.rows = rows.max(1);
        limits.seats = limits.seats.min(limits.rows);
        limits.prompt_rows = limits.prompt_rows.min(limits.rows);
    }

    /// Whether there is no request.
    pub fn is_idle(&self) -> bool {
        self.sequences.is_empty()
    }

    /// Its requests and pages.
    pub fn load(&self) -> BatcherLoad {
        BatcherLoad {
            running: self.running.len(),
            waiting: self.waiting.len(),
            seats: self.limits.seats,
            held_pages: self.held_pages(),
            pages: self.limits.pages,
            statistics: self.statistics,
        }
    }

    /// The tokens at which a machine may end these requests by itself: the model's, unless a
    /// request goes on after them.
    pub fn machine_ends(&self, pieces: &[Piece]) -> Vec<u32> {
        let ignores = |piece: &Piece| self.sequences.get(&piece.ticket).is_some_and(|s| s.ends.ignore_model);
        if pieces.iter().any(ignores) { Vec::new() } else { self.limits.ends.clone() }
    }

    /// Pages that requests hold.
    pub fn held_pages(&self) -> usize {
        self.limits.pages - self.cache.available()
    }

    /// Its limits.
    pub fn limits(&self) -> &SchedulerLimits {
        &self.limits
    }

    /// Whether a request waits for a seat or for pages.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// A request that is there.
    pub fn sequence(&self, ticket: Ticket) -> Option<&Sequence> {
        self.sequences.get(&ticket)
    }

    /// Counters of the work done so far.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Forgets the contents of pages that may be shared: a machine failed, and their contents are
    /// unknown.
    pub fn forget_pages(&mut self) {
        self.cache.forget_all();
    }

    /// The pages, and which of them are found.
    pub(super) fn cache_mut(&mut self) -> &mut PageCache {
        &mut self.cache
    }

    /// Plans the next step and takes its pages; `None` if there is no request to run. `beside` maps
    /// the number of decoding rows to the number of rows that the step may have with prompts.
    pub fn plan(&mut self, beside: impl Fn(usize) -> usize) -> Option<Step> {
        let phase = self.next_phase();
        let step = self.plan_phase(phase, &beside);
        // There may be no page for any row of this phase.
        let step = match self.limits.flow {
            Some(_) => step.or_else(|| self.plan_phase(other(phase), &beside)),
            None => step,
        };
        self.phase = step.as_ref().map_or(phase, |step| step.phase);
        step
    }

    /// Plans the next step of a phase.
    fn plan_phase(&mut self, phase: Phase, beside: &impl Fn(usize) -> usize) -> Option<Step> {
        let rows = match (phase, self.limits.flow) {
            // A request has one row of a step that chooses.
            (Phase::Decode, Some(_)) => self.limits.seats.min(self.limits.rows),
            (Phase::Prompt, _) | (Phase::Decode, None) => self.limits.rows,
        };
        let mut draft = Draft { phase, pieces: Vec::new(), rows, prompt_rows: rows, preempted: false };
        let prompts_first = self.limits.prompts_first;
        if !prompts_first {
            self.add_decoding(&mut draft);
        }
        let decoding = rows - draft.rows;
        // Requests that decode in the other phase wait for this step, too.
        let waits = self.running.iter().any(|&place| self.is_left_out(place, phase));
        if decoding > 0 {
            draft.prompt_rows = beside(decoding).saturating_sub(decoding).clamp(1, self.limits.prompt_rows);
        } else if waits {
            draft.prompt_rows = beside(0).clamp(1, rows);
        }
        let decodes = decoding > 0 || waits;
        self.add_prompts(&mut draft);
        // A request that just lost its pages takes none of others' in the same step.
        if !draft.preempted {
            self.admit(&mut draft);
        }
        if prompts_first && draft.pieces.is_empty() {
            self.add_decoding(&mut draft);
        }
        if draft.pieces.is_empty() {
            return None;
        }
        let mut pieces: Vec<Piece> = draft.pieces.iter().map(|&(place, rows)| self.piece(place.ticket, rows)).collect();
        let alone = matches!(&pieces[..], [piece] if self.is_by_device(piece));
        for piece in pieces.iter_mut().filter(|_| !alone) {
            draft.rows -= self.propose(piece, draft.rows);
        }
        if let [piece] = &pieces[..]
            && alone
            && self.proposes(piece.ticket)
        {
            let steps = self.limits.steps;
            let wanted = self.limits.steps.saturating_mul(MOST_PROPOSED + 1);
            let proposes = self.reserve_steps(&pieces, wanted);
            return Some(Step { pieces, steps, decodes, phase, proposes });
        }
        let single = pieces.iter().all(|piece| piece.gives && !piece.by_host && piece.tokens.len() == 1);
        let most = self.most_steps(&pieces, phase);
        let steps = if single { self.reserve_steps(&pieces, most) } else { 1 };
        Some(Step { pieces, steps, decodes, phase, proposes: 0 })
    }

    /// Records that more tokens of a request were fed, all of them its own; the last one's choice
    /// is its next token, where there is one. Says why the request ends, where it does; it is still
    /// there.
    pub fn accept(&mut self, ticket: Ticket, fed: usize, token: Option<u32>) -> Option<Finish> {
        let sequence = self.sequences.get_mut(&ticket)?;
        sequence.computed += fed;
        let size = self.limits.page_tokens;
        // Rows with a flow's selection leave data in pages that depends on more than the tokens.
        let alike = self.limits.flow.map_or(usize::MAX, |flow| sequence.alike(flow)).min(sequence.computed);
        while self.limits.sharing && (sequence.filled + 1) * size <= alike {
            let at = sequence.filled;
            let before = at.checked_sub(1).map(|before| sequence.pages[before]);
            let tokens = &sequence.tokens[at * size..][..size];
            sequence.pages[at] = self.cache.fill(sequence.pages[at], before, tokens);
            sequence.filled += 1;
        }
        let token = token?;
        self.statistics.tokens += 1;
        sequence.push(token, &self.limits.ends, self.limits.positions)
    }

    /// Records the logits of a position of a prompt; they give the log probability of its next
    /// token.
    pub fn score(&mut self, ticket: Ticket, position: usize, logits: &[f32]) {
        let Some(sequence) = self.sequences.get_mut(&ticket) else { return };
        let next = sequence.tokens.get(position + 1).copied();
        if let (Some(scores), Some(next)) = (&mut sequence.scores, next) {
            scores.found.push(logprobs(logits, next as usize, scores.count));
        }
    }

    /// Takes the log probabilities of a prompt; there are none a second time.
    pub fn take_scores(&mut self, ticket: Ticket) -> Vec<Logprobs> {
        let scores = self.sequences.get_mut(&ticket).and_then(|sequence| sequence.scores.take());
        scores.map(|scores| scores.found).unwrap_or_default()
    }

    /// Records a launch: its steps, and their rows in all.
    pub fn launched(&mut self, steps: usize, rows: usize) {
        self.statistics.steps += steps as u64;
        self.statistics.rows += rows as u64;
    }

    /// Records how many of a piece's proposed tokens were accepted.
    pub fn verified(&mut self, ticket: Ticket, proposed: usize, accepted: usize) {
        self.statistics.proposed += proposed as u64;
        self.statistics.accepted += accepted as u64;
        if let Some(proposer) = self.sequences.get_mut(&ticket).and_then(|sequence| sequence.proposer.as_mut()) {
            proposer.verified(proposed, accepted);
        }
    }

    /// Whether the only running sequence continues by steps of several of its tokens, which the
    /// machine proposes.
    pub fn proposes(&self, ticket: Ticket) -> bool {
        let known = self.sequences.get(&ticket).filter(|sequence| self.limits.proposals && sequence.proposer.is_some());
        known.is_some_and(|sequence| self.limits.fixed_width || sequence.gain.is_wide())
    }

    /// Records how many tokens a step of such a launch gave, and how many were proposed.
    pub fn gave(&mut self, ticket: Ticket, tokens: usize, proposed: usize) {
        self.statistics.proposed += proposed as u64;
        self.statistics.accepted += tokens.saturating_sub(1) as u64;
        if let Some(sequence) = self.sequences.get_mut(&ticket) {
            sequence.gain.gave(tokens);
        }
    }

    /// Whether the machine, and not the host, proposes the tokens that follow a piece that is
    /// alone.
    fn is_by_device(&self, piece: &Piece) -> bool {
        let proposed = self.limits.proposals && self.sequence_of(piece).proposer.is_some();
        proposed && piece.gives && piece.tokens.len() == 1 && !piece.by_host
    }

    /// A row of every running request that decodes.
    fn add_decoding(&mut self, draft: &mut Draft) {
        for place in self.running.clone() {
            if draft.rows > 0
                && self.running.contains(&place)
                && self.sequences[&place.ticket].pending() == 1
                && self.feedable(place, draft.phase) == 1
            {
                let rows = self.reserve(place, 1, draft);
                draft.add(place, rows);
            }
        }
    }

    /// Chunks of the prompts of running requests, in order.
    fn add_prompts(&mut self, draft: &mut Draft) {
        for place in self.running.clone() {
            if self.running.contains(&place) && self.sequences[&place.ticket].pending() > 1 {
                self.add_chunk(place, draft);
            }
        }
    }

    fn add_chunk(&mut self, place: OrderKey, draft: &mut Draft) {
        let rows = self.feedable(place, draft.phase).min(draft.rows).min(draft.prompt_rows);
        if rows > 0 {
            let rows = self.reserve(place, rows, draft);
            draft.add(place, rows);
            draft.prompt_rows -= rows;
        }
    }

    /// Waiting requests take seats, in order; none overtakes another.
    fn admit(&mut self, draft: &mut Draft) {
        while let Some(&place) = self.waiting.first().filter(|_| draft.prompt_rows > 0) {
            if !self.seat(place, draft) {
                break;
            }
            self.add_chunk(place, draft);
        }
    }

    /// A seat, a row and the prefix that is there for a waiting request; those of a lower priority
    /// are taken.
    fn seat(&mut self, place: OrderKey, draft: &mut Draft) -> bool {
        let lower =
            |scheduler: &Scheduler| scheduler.running.last().copied().filter(|last| last.priority > place.priority);
        while self.running.len() >= self.limits.seats || draft.rows == 0 {
            let Some(last) = lower(self) else { return false };
            self.preempt(last, draft);
        }
        let sequence = &self.sequences[&place.ticket];
        let tokens = &sequence.tokens;
        let pages = tokens.len().div_ceil(self.limits.page_tokens);
        // The last token is fed in any case: its logits are wanted.
        let alike = self.limits.flow.map_or(usize::MAX, |flow| sequence.alike(flow)).min(tokens.len() - 1);
        let alike = alike.min(sequence.shareable());
        let shared = if self.limits.sharing { self.cache.share(&tokens[..alike]) } else { Vec::new() };
        loop {
            // A page is left for those that run, or the newcomer would soon lose its own to them.
            let spare = usize::from(!self.running.is_empty());
            if self.cache.available() >= pages - shared.len() + spare {
                break;
            }
            let Some(last) = lower(self) else {
                self.cache.leave(&shared);
                return false;
            };
            self.preempt(last, draft);
        }
        let Some(sequence) = self.sequences.get_mut(&place.ticket) else { return false };
        sequence.computed = shared.len() * self.limits.page_tokens;
        sequence.filled = shared.len();
        sequence.pages = shared;
        sequence.slot = self.slots.take();
        self.statistics.shared_tokens += sequence.computed as u64;
        self.waiting.remove(&place);
        self.running.insert(place);
        true
    }

    /// Takes pages for more tokens, from the last request if there are no others; returns the
    /// number of tokens that fit.
    fn reserve(&mut self, place: OrderKey, rows: usize, draft: &mut Draft) -> usize {
        loop {
            if self.extend(place.ticket, rows) {
                return rows;
            }
            match self.running.last() {
                Some(&last) if last > place => self.preempt(last, draft),
                _ => {
                    let sequence = &self.sequences[&place.ticket];
                    return sequence.pages.len() * self.limits.page_tokens - sequence.computed;
                }
            }
        }
    }

    /// Takes the pages that more tokens need, as far as there are some; returns whether all were
    /// found.
    fn extend(&mut self, ticket: Ticket, tokens: usize) -> bool {
        let Some(sequence) = self.sequences.get_mut(&ticket) else { return false };
        while sequence.pages.len() * self.limits.page_tokens < sequence.computed + tokens {
            let Some(page) = self.cache.take() else { return false };
            sequence.pages.push(page);
        }
        true
    }

    /// Preempts a running request: takes its pages, and puts it back to waiting.
    fn preempt(&mut self, place: OrderKey, draft: &mut Draft) {
        if let Some(sequence) = self.sequences.get_mut(&place.ticket) {
            self.cache.leave(&std::mem::take(&mut sequence.pages));
            (sequence.computed, sequence.filled) = (0, 0);
            // The flow's states are computed again with its tokens.
            self.slots.leave(sequence.slot.take());
        }
        self.running.remove(&place);
        self.waiting.insert(place);
        self.statistics.preemptions += 1;
        draft.remove(place);
    }

    fn piece(&self, ticket: Ticket, rows: usize) -> Piece {
        let sequence = &self.sequences[&ticket];
        let gives = rows == sequence.pending();
        let by_host = gives && (sequence.by_host || sequence.generated().is_empty());
        Piece {
            ticket,
            position: sequence.computed,
            tokens: sequence.tokens[sequence.computed..][..rows].to_vec(),
            proposed: 0,
            gives,
            by_host,
            masked: gives && sequence.masked && !by_host,
            scored: within(sequence.unscored(), sequence.computed, rows),
        }
    }

    fn sequence_of(&self, piece: &Piece) -> &Sequence {
        &self.sequences[&piece.ticket]
    }

    /// Appends proposed tokens to a piece that decodes, where rows and pages are left; gives how
    /// many.
    fn propose(&mut self, piece: &mut Piece, rows: usize) -> usize {
        let sequence = &self.sequences[&piece.ticket];
        let Some(proposer) = sequence.proposer.as_ref().filter(|_| piece.gives && piece.tokens.len() == 1) else {
            return 0;
        };
        let room = (sequence.pages.len() + self.cache.available()) * self.limits.page_tokens - sequence.computed - 1;
        let left = sequence.left(self.limits.positions).saturating_sub(1);
        let proposed = proposer.propose(&sequence.tokens, rows.min(MOST_PROPOSED).min(left).min(room));
        if !self.extend(piece.ticket, 1 + proposed.len()) {
            return 0;
        }
        piece.proposed = proposed.len();
        piece.tokens.extend(proposed);
        piece.proposed
    }

    /// Steps for which all pieces have room, and that no request's proposals wait for; the pages
    /// for them come from no request.
    fn reserve_steps(&mut self, pieces: &[Piece], most: usize) -> usize {
        let waits = !matches!(pieces, [piece] if self.is_by_device(piece));
        let size = self.limits.page_tokens;
        let sequences = pieces.iter().map(|piece| self.sequence_of(piece));
        let left = sequences.map(|sequence| {
            let patience = sequence.proposer.as_ref().filter(|_| waits).map_or(usize::MAX, Proposer::patience);
            sequence.left(self.limits.positions).min(patience)
        });
        let mut steps = left.min().unwrap_or(1).min(most).max(1);
        let needed = |steps: usize| -> usize {
            let sequences = pieces.iter().map(|piece| self.sequence_of(piece));
            sequences.map(|s| (s.computed + steps).div_ceil(size).saturating_sub(s.pages.len())).sum()
        };
        while steps > 1 && needed(steps) > self.cache.available() {
            steps /= 2;
        }
        pieces.iter().for_each(|piece| _ = self.extend(piece.ticket, steps));
        steps
    }
}

/// The part of a range of positions that `rows` rows from a position on have, by row.
fn within(positions: Range<usize>, first: usize, rows: usize) -> Range<usize> {
    let row = |position: usize| position.saturating_sub(first).min(rows);
    row(positions.start)..row(positions.end)
}

#[cfg(test)]
impl Scheduler {
    /// Asserts that every page is free, idle or held by those that run, and that each request waits
    /// or runs.
    pub fn check(&self) {
        self.cache.check(self.sequences.values().map(|sequence| &sequence.pages[..]));
        let places: BTreeSet<OrderKey> = self.sequences.iter().map(|(&ticket, s)| s.place(ticket)).collect();
        assert_eq!(places, self.waiting.union(&self.running).copied().collect());
        assert!(self.waiting.is_disjoint(&self.running));
        for place in &self.waiting {
            let sequence = &self.sequences[&place.ticket];
            assert!(sequence.pages.is_empty() && sequence.slot.is_none(), "who waits holds no page and no slot");
        }
        self.slots.check(self.running.iter().map(|place| self.sequences[&place.ticket].slot));
        assert_eq!(self.cache.len(), self.limits.pages);
    }
}
