//! Delivers the results of a step: decides which rows' tokens count, and passes them to their
//! requests.

use std::collections::HashMap;
use std::sync::Arc;

use rayon::prelude::*;
use tilewright_megakernel::vm::NO_TOKEN;
use tilewright_megakernel::vm::device::Accepted;

use super::super::error::EngineError;
use super::super::request::Finish;
use super::choice::{Chooser, Unchosen, is_usable};
use super::scheduler::{Scheduler, Step};
use super::step::Piece;
use super::submission::{Event, Ticket, Token};

/// A step whose results arrive row by row.
pub struct Giving<'g> {
    step: &'g Step,
    scheduler: &'g mut Scheduler,
    choosers: &'g mut HashMap<Ticket, Chooser>,
    each: &'g mut dyn FnMut(Ticket, Event) -> bool,
    /// The state of each piece.
    states: Vec<PieceState>,
    /// Whether a request has ended.
    ended: bool,
}

/// The state of a piece during delivery.
struct PieceState {
    /// The row of its first token in the step.
    first: usize,
    /// Whether its next row's choice counts.
    goes_on: bool,
    /// The last token chosen in this step.
    chosen: Option<u32>,
    /// Proposed tokens that were chosen.
    accepted: usize,
}

impl<'g> Giving<'g> {
    /// Begins the delivery of a step; there are no results yet.
    pub fn new(
        step: &'g Step,
        scheduler: &'g mut Scheduler,
        choosers: &'g mut HashMap<Ticket, Chooser>,
        each: &'g mut dyn FnMut(Ticket, Event) -> bool,
    ) -> Giving<'g> {
        let mut rows = 0;
        let states = step.pieces.iter().map(|piece| {
            let first = rows;
            rows += piece.tokens.len();
            PieceState { first, goes_on: piece.gives, chosen: None, accepted: 0 }
        });
        Giving { states: states.collect(), step, scheduler, choosers, each, ended: false }
    }

    /// The rows that give tokens which the host chooses, or those whose tokens the machine does.
    pub fn wanted(&self, by_host: bool) -> Vec<usize> {
        let giving = self.step.pieces.iter().zip(&self.states);
        let giving = giving.filter(|(piece, _)| piece.gives && piece.by_host == by_host);
        giving.flat_map(|(piece, state)| (state.first..).take(piece.tokens.len()).skip(piece.own() - 1)).collect()
    }

    /// The rows whose logits the host wants: those whose tokens it chooses, and those that give log
    /// probabilities of prompts.
    pub fn hosted(&self) -> Vec<usize> {
        let pieces = self.step.pieces.iter().zip(&self.states);
        let scored = pieces.flat_map(|(piece, state)| piece.scored.clone().map(|offset| state.first + offset));
        let mut rows: Vec<usize> = scored.chain(self.wanted(true)).collect();
        rows.sort_unstable();
        rows
    }

    /// The rows whose tokens the machine chooses among some, and the first masks of a launch, of
    /// `vocab` tokens.
    pub fn masks(&mut self, vocab: usize) -> Vec<(usize, Vec<u32>)> {
        let pieces = self.step.pieces.iter().zip(&self.states);
        let masked = pieces.filter(|(piece, _)| piece.masked);
        let mask = |(piece, state): (&Piece, &PieceState)| (state.first + piece.own() - 1, vec![0; vocab.div_ceil(32)]);
        let mut masks: Vec<(usize, Vec<u32>)> = masked.map(mask).collect();
        self.fill(&mut masks);
        masks
    }

    /// Fills the masks of rows' next tokens, in parallel. Where a request has ended, or no token may
    /// follow, none is allowed.
    pub fn fill(&mut self, masks: &mut [(usize, Vec<u32>)]) {
        struct Work<'w> {
            at: usize,
            mask: &'w mut [u32],
            /// Nothing where the request has ended.
            chooser: Option<Chooser>,
            found: Result<(), Unchosen>,
        }
        let mut works = Vec::with_capacity(masks.len());
        for (row, mask) in masks {
            mask.fill(0);
            let at = self.states.partition_point(|state| state.first <= *row) - 1;
            let chooser = self.choosers.remove(&self.step.pieces[at].ticket);
            works.push(Work { at, mask, chooser, found: Ok(()) });
        }
        let (step, scheduler) = (self.step, &*self.scheduler);
        works.par_iter_mut().for_each(|work| {
            let sequence = scheduler.sequence(step.pieces[work.at].ticket);
            if let (Some(chooser), Some(sequence)) = (&mut work.chooser, sequence) {
                work.found = chooser.mask(&sequence.tokens, sequence.prompt, work.mask);
            }
        });
        for Work { at, mask, chooser, found } in works {
            self.choosers.extend(chooser.map(|chooser| (step.pieces[at].ticket, chooser)));
            if let Err(error) = found {
                mask.fill(0);
                match error {
                    Unchosen::NotANumber => self.refuse(at),
                    Unchosen::Processor(reason) => self.end(at, EngineError::Processor { reason }),
                }
            }
        }
    }

    /// Takes the logits of a row whose token the host chooses.
    pub fn logits(&mut self, row: usize, logits: &[f32]) {
        let at = self.states.partition_point(|state| state.first <= row) - 1;
        let offset = row - self.states[at].first;
        let piece = &self.step.pieces[at];
        let ticket = piece.ticket;
        if piece.scored.contains(&offset) {
            // An earlier row of it may have ended the request.
            return match self.scheduler.sequence(ticket) {
                Some(_) if is_usable(logits) => self.scheduler.score(ticket, piece.position + offset, logits),
                Some(_) => self.refuse(at),
                None => {}
            };
        }
        if !self.counts(at, offset) {
            return;
        }
        let (Some(chooser), Some(sequence)) = (self.choosers.get_mut(&ticket), self.scheduler.sequence(ticket)) else {
            return;
        };
        match chooser.choose(&sequence.tokens, sequence.prompt, logits) {
            Ok(token) => self.give(at, offset, token),
            Err(Unchosen::NotANumber) => self.refuse(at),
            Err(Unchosen::Processor(reason)) => self.end(at, EngineError::Processor { reason }),
        }
    }

    /// Takes the tokens that a machine chose, of all rows; whether another step of the same launch
    /// makes sense. A row whose choice counts and that has none ends its request.
    pub fn tokens(&mut self, tokens: &[u32]) -> bool {
        let mut stray = false;
        for at in 0..self.step.pieces.len() {
            let piece = &self.step.pieces[at];
            if piece.by_host {
                continue;
            }
            let own = piece.own() - 1;
            for offset in own..piece.tokens.len() {
                let id = tokens[self.states[at].first + offset];
                match (self.counts(at, offset), id) {
                    (true, NO_TOKEN) => self.refuse(at),
                    (true, _) => self.give(at, offset, Token { id, logprobs: None, prompt: Vec::new() }),
                    // A row that ended by a token which the machine does not look for goes on
                    // there.
                    (false, _) => stray |= id != NO_TOKEN,
                }
            }
        }
        let waited_for = self.ended && self.scheduler.has_waiting();
        // Alone, it goes on by other steps where these pay more.
        let turns =
            matches!(&self.step.pieces[..], [piece] if self.scheduler.proposes(piece.ticket) != self.proposes());
        !stray && !waited_for && !turns && self.states.iter().any(|state| state.goes_on)
    }

    /// Takes the result of a step whose tokens the machine proposed; returns whether another step
    /// of the same launch makes sense.
    pub fn accepted(&mut self, accepted: &Accepted) -> bool {
        let tokens = accepted.tokens.len();
        if tokens == 0 {
            return self.tokens(&[NO_TOKEN]);
        }
        for (number, &token) in accepted.tokens.iter().enumerate() {
            if number + 1 == tokens {
                self.scheduler.gave(self.step.pieces[0].ticket, tokens, accepted.proposed);
            }
            if !self.tokens(&[token]) {
                return false;
            }
        }
        true
    }

    fn proposes(&self) -> bool {
        self.step.proposes > 0
    }

    /// Ends the delivery: rows that were fed and gave no token are complete.
    pub fn finish(self) {
        for (piece, state) in self.step.pieces.iter().zip(&self.states) {
            if !piece.gives {
                self.scheduler.accept(piece.ticket, piece.tokens.len(), None);
            }
            if piece.proposed > 0 {
                self.scheduler.verified(piece.ticket, piece.proposed, state.accepted);
            }
        }
    }

    /// Whether a row's choice counts: a proposed token's does where the row before chose it.
    fn counts(&mut self, at: usize, offset: usize) -> bool {
        let piece = &self.step.pieces[at];
        let state = &mut self.states[at];
        if offset >= piece.own() {
            let is_chosen = state.chosen == Some(piece.tokens[offset]);
            state.goes_on &= is_chosen;
            state.accepted += usize::from(state.goes_on);
        }
        state.goes_on
    }

    /// Ends a request: no token is the likeliest after its last one.
    fn refuse(&mut self, at: usize) {
        let ticket = self.step.pieces[at].ticket;
        let position = self.scheduler.sequence(ticket).map_or(0, |sequence| sequence.tokens.len() - 1);
        self.end(at, EngineError::NotANumber { position });
    }

    /// Ends a request by an error.
    fn end(&mut self, at: usize, error: EngineError) {
        let ticket = self.step.pieces[at].ticket;
        self.states[at].goes_on = false;
        self.ended = true;
        self.choosers.remove(&ticket);
        self.scheduler.end(ticket, Finish::Cancelled);
        (self.each)(ticket, Event::Fault(Arc::new(error)));
    }

    fn give(&mut self, at: usize, offset: usize, mut token: Token) {
        let piece = &self.step.pieces[at];
        let ticket = piece.ticket;
        // The first choice of a step comes with all rows before it; a launch of several steps feeds
        // one more in each.
        let fed = if self.states[at].chosen.is_none() { piece.own() } else { 1 };
        debug_assert!(fed == 1 || offset + 1 == piece.own());
        self.states[at].chosen = Some(token.id);
        token.prompt = self.scheduler.take_scores(ticket);
        let finish = self.scheduler.accept(ticket, fed, Some(token.id));
        let goes_on = (self.each)(ticket, Event::Token(token));
        if let Some(finish) = finish.or((!goes_on).then_some(Finish::Cancelled)) {
            self.states[at].goes_on = false;
            self.ended = true;
            self.choosers.remove(&ticket);
            if let Some(completion) = self.scheduler.end(ticket, finish) {
                (self.each)(ticket, Event::End(completion));
            }
        }
    }
}
