//! A scheduler and a machine: requests in, events out, one step or launch at a time.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tilewright_flow::program::Phase;
use tilewright_kernels::sample::Request as Draw;
use tilewright_megakernel::lower::LowerOptions;
use tilewright_megakernel::model::ModelSizes;
use tilewright_megakernel::vm::device::Text;
use tilewright_megakernel::vm::{AbortHandle, MAX_ENDS, NO_TOKEN, RequestSlot};

use super::super::Engine;
use super::super::cells::OwnedCells;
use super::super::error::EngineError;
use super::super::flow::SessionFlow;
use super::super::machines::{Asked, EachStep, Machines, Run, Widths};
use super::super::model::Model;
use super::super::place::Place;
use super::super::request::{Answer, Completion, Finish, check_prompt};
use super::choice::Chooser;
use super::giving::Giving;
use super::kv_events::KvEvent;
use super::pace::Pace;
use super::proposer::MOST_PROPOSED;
use super::scheduler::{FlowLimits, Scheduler, SchedulerLimits, Step};
use super::sequence::Ask;
use super::submission::{BatcherLoad, Event, Statistics, Submission, Ticket};
use super::times::{StepTimes, WidthTimes};
use crate::engine::limits::{CHUNKS, MOST_ROWS};
use crate::engine::session::machines;

/// Options of a batcher.
///
/// ```
/// use tilewright::engine::BatchOptions;
/// let options = BatchOptions { prompt_rows: 4, ..BatchOptions::for_context(2048) };
/// assert_eq!((options.rows, options.deterministic), (16, false));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchOptions {
    /// Longest sequence, in tokens.
    pub context: usize,
    /// Pages of the KV pools; as many as `rows` sequences of `context` tokens need.
    pub pages: Option<usize>,
    /// Most requests that run at a time, 1 to 64. More than 16 on a device are steps of the machine
    /// of many rows, which keeps a second copy of the weights; it has no ops of flows.
    pub rows: usize,
    /// Most rows of a step that hold tokens of prompts while other requests decode; at least 1,
    /// half of the rows. Where the engine has [chunks of prompts](Engine::with_prompt_chunk), these
    /// take the place of this bound.
    pub prompt_rows: usize,
    /// The target time of a step in which requests decode. A prompt chunk in such a step is
    /// shortened to meet it, based on the times of earlier steps. `None`: prompts are prefilled as
    /// fast as possible.
    pub step_time: Option<Duration>,
    /// Most steps of one launch, where the machine chooses tokens by itself.
    pub steps: usize,
    /// Whether requests that begin with the same tokens share pages.
    pub sharing: bool,
    /// Whether every step has the same width, so that a request's tokens are bit for bit those that
    /// it gets alone. On the host they are so in any case.
    pub deterministic: bool,
    /// Whether the machine chooses at random by itself; the host does it otherwise, from logits.
    pub sampling: bool,
}

/// Rows of a step that proposes: the last token, and what may follow it.
const PROPOSED_ROWS: usize = MOST_PROPOSED + 1;
/// Most steps of a launch that need no host between them: what a deadline of another request may
/// wait for.
const LAUNCH_STEPS: usize = 64;
/// Most steps of a launch where a flow keeps states, since no request leaves such a launch early.
const STATE_STEPS: usize = 8;

impl BatchOptions {
    /// 16 rows, of which prompts take 8 while others decode, for sequences of that many tokens.
    pub fn for_context(context: usize) -> BatchOptions {
        BatchOptions {
            context,
            pages: None,
            rows: MOST_ROWS,
            prompt_rows: MOST_ROWS / 2,
            step_time: None,
            steps: LAUNCH_STEPS,
            sharing: true,
            deterministic: false,
            sampling: true,
        }
    }
}

/// The room of a server's requests: [`Engine::batch_options`] makes options of it.
///
/// ```
/// use tilewright::engine::ServerRoom;
/// assert_eq!(ServerRoom::for_rows(16).kv_tokens, None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerRoom {
    /// Most requests that run at a time, 1 to 64.
    pub rows: usize,
    /// Longest sequence, in tokens; the model's positions at most, and by default.
    pub context: Option<usize>,
    /// Tokens that the KV cache holds for all requests together; by default as many as `rows`
    /// sequences need, at most 131,072 or one sequence.
    pub kv_tokens: Option<usize>,
}

/// Most tokens of the KV cache where the caller does not say.
const MOST_KV_TOKENS: usize = 128 << 10;

impl ServerRoom {
    /// Room for that many requests at a time, by default otherwise.
    pub fn for_rows(rows: usize) -> ServerRoom {
        ServerRoom { rows, context: None, kv_tokens: None }
    }

    /// Tokens of the KV cache by default.
    fn tokens(rows: usize, context: usize) -> usize {
        rows.saturating_mul(context).min(MOST_KV_TOKENS.max(context))
    }
}

impl Engine {
    /// The options of a batcher that serves requests in this room.
    ///
    /// ```
    /// use tilewright::engine::{Device, Engine, ServerRoom};
    /// let engine = Engine::load("models/tiny-llama".as_ref(), Device::cpu())?;
    /// let room = ServerRoom { context: Some(256), ..ServerRoom::for_rows(4) };
    /// let options = engine.batch_options(room);
    /// assert_eq!((options.rows, options.context), (4, 256));
    /// # Ok::<(), tilewright::engine::EngineError>(())
    /// ```
    pub fn batch_options(&self, room: ServerRoom) -> BatchOptions {
        let positions = self.spec().max_positions;
        let context = room.context.map_or(positions, |most| most.min(positions));
        let tokens = room.kv_tokens.unwrap_or_else(|| ServerRoom::tokens(room.rows, context));
        let pages = Some(self.kv_pages(tokens.max(1)));
        BatchOptions { rows: room.rows, pages, ..BatchOptions::for_context(context) }
    }
}

/// Requests that are batched continuously: each enters when there is room, and leaves when it ends,
/// between any two steps.
///
/// [`Batcher::step`] does the work on the caller's thread; [`Server`](super::Server) runs a batcher
/// on a thread of its own.
///
/// ```no_run
/// use std::path::Path;
/// use tilewright::engine::{BatchOptions, Device, Engine, Event, Request, Submission};
/// let engine = Engine::load(Path::new("models/tiny-llama"), Device::cpu())?;
/// let mut batcher = engine.batcher(&BatchOptions::for_context(256))?;
/// for prompt in ["In the beginning", "And God said"] {
///     let prompt_ids = engine.tokenizer().encode(prompt)?;
///     batcher.submit(Submission::from(Request { prompt_ids, max_new_tokens: 48 }))?;
/// }
/// while batcher.step(|ticket, event| {
///     if let Event::End(completion) = event {
///         println!("{}: {} tokens", ticket.number(), completion.token_ids.len());
///     }
/// }) {}
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Batcher {
    machines: Box<dyn Machines>,
    scheduler: Scheduler,
    choosers: HashMap<Ticket, Chooser>,
    /// Requests for no token, which have ended.
    empty: Vec<Ticket>,
    next: u64,
    shape: BatcherShape,
    pace: Pace,
    times: StepTimes,
    clock: Clock,
    attention: CallBackFlag,
}

/// Most requests that run at a time.
pub(in crate::engine) const MOST_SEATS: usize = 64;

/// The facts about its model and machines that a batcher needs besides the scheduler's limits.
#[derive(Clone, Debug)]
pub(super) struct BatcherShape {
    pub sizes: ModelSizes,
    pub context: usize,
    /// Entries of a row of the page table.
    pub per_row: usize,
    /// Whether machines choose at random.
    pub sampling: bool,
    /// Whether a flow keeps states of requests.
    pub states: bool,
}

/// A clock.
pub(super) type Clock = Box<dyn Fn() -> Duration + Send>;

/// Set when another thread waits for a batcher to return from a launch.
pub(super) type CallBackFlag = Arc<AtomicBool>;

/// Whether a launch goes on: some request still wants its tokens, no deadline has passed, and no
/// command waits.
fn go_on(wanted: bool, deadline: Option<Duration>, clock: &Clock, attention: &CallBackFlag) -> ControlFlow<()> {
    let over = deadline.is_some_and(|deadline| deadline <= clock());
    match wanted && !over && !attention.load(Ordering::Acquire) {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    }
}

impl Engine {
    /// A batcher for requests to this model; nothing runs before its first [step](Batcher::step).
    ///
    /// Where the engine has a [flow](Engine::with_flow), it chooses for each request what it would
    /// choose for it alone: states belong to a request, and pages are shared as far as what they
    /// hold depends on tokens alone. Nothing is proposed then.
    ///
    /// # Errors
    /// If the model has fewer positions, cannot be lowered, or does not fit the device; more rows
    /// than a device's step with a flow has.
    pub fn batcher(&self, options: &BatchOptions) -> Result<Batcher, EngineError> {
        self.batcher_for(None, options)
    }

    /// A batcher. If its requests are known and no others follow, `first_prompt` is the number of
    /// tokens of the first prompt.
    pub(in crate::engine) fn batcher_for(
        &self,
        first_prompt: Option<usize>,
        options: &BatchOptions,
    ) -> Result<Batcher, EngineError> {
        let base = self.lowering(options.context, options.sampling);
        let ends = self.ends();
        let abort = self.abort_handle();
        let flow = self.session_flow(options.rows.clamp(1, MOST_SEATS));
        let setup = BatcherSetup { ends, chunk: self.prompt_chunk, first_prompt, options, base, flow };
        batcher_of(self.place(), self.model(), &abort, setup)
    }
}

/// The inputs from which a batcher is made.
pub(crate) struct BatcherSetup<'a> {
    /// Tokens that end a sequence.
    pub ends: &'a [u32],
    /// Rows of a prompt's chunks, if they are given.
    pub chunk: Option<usize>,
    /// Tokens of the first prompt, where all requests are known: its kernels are compiled first,
    /// and prompts are fed in the largest chunks.
    pub first_prompt: Option<usize>,
    pub options: &'a BatchOptions,
    /// The lowering options, except for pages.
    pub base: LowerOptions,
    pub flow: Option<SessionFlow>,
}

/// Makes a batcher of a model on a place.
pub(crate) fn batcher_of(
    place: &Arc<Place>,
    model: &Model,
    abort: &AbortHandle,
    setup: BatcherSetup,
) -> Result<Batcher, EngineError> {
    let BatcherSetup { ends, chunk, first_prompt, options, base, flow } = setup;
    let on_host = matches!(**place, Place::Host { .. });
    let chunk = chunk.or(first_prompt.filter(|_| on_host).map(|_| CHUNKS[0]));
    let known = first_prompt.is_some() && !on_host;
    // Requests with a flow's selection run on the decode machine only.
    let first_prompt = first_prompt.filter(|_| known && flow.is_none());
    if !on_host && options.rows > MOST_ROWS {
        place.check_rows(flow.is_some(), options.rows)?;
    }
    let seats = options.rows.clamp(1, MOST_SEATS);
    // Rows of a step: those that decode, or a prompt's chunk.
    let most = chunk.unwrap_or(0).max(seats);
    let pages = options.pages.unwrap_or_else(|| seats.saturating_mul(base.pages_per_sequence()));
    let lowering = LowerOptions { pages: Some(pages), ..base };
    let widths = match first_prompt {
        Some(_) => Widths::of_session(place, seats).with_chunk(chunk),
        None => Widths::of_batch(most, options.deterministic),
    };
    let paces = Pace::new(options.step_time, widths.beside(seats));
    // Requests with a flow's selection run on the decode machine; prompts may have more rows.
    let widths = match flow.is_some() && !on_host {
        true => {
            let widths = Widths { sampling: most, ..Widths::of_batch(seats, options.deterministic) };
            widths.with_chunk(chunk.map(|_| most))
        }
        false => widths,
    };
    let of_flow = flow.as_ref();
    let states = flow.as_ref().is_some_and(SessionFlow::is_stateful);
    // The host's phases differ in their bits; on a device they are separated only on request.
    let apart = on_host || options.deterministic;
    let flow_limits = of_flow.map(|flow| FlowLimits { covered: flow.covered_tokens(), apart });
    let most_steps = if states { STATE_STEPS.min(options.steps) } else { options.steps };
    let mut machines = machines(place, model, &lowering, widths, flow, abort);
    let mut seats = seats;
    match flow_limits {
        Some(FlowLimits { covered, .. }) if known => {
            // A prompt's chunks are compiled while the weights are on their way, and what chooses
            // once the budget is exceeded.
            machines.set_phase(Phase::Prompt, true);
            machines.ahead(MOST_ROWS);
            machines.set_phase(Phase::Decode, false);
            if covered > 0 {
                if options.context > covered {
                    machines.ahead(seats);
                }
                machines.set_phase(Phase::Prompt, false);
            }
        }
        Some(_) => {
            machines.set_phase(Phase::Prompt, false);
            machines.ahead(1);
            seats = machines.width(seats)?.min(seats);
            machines.set_phase(Phase::Decode, false);
        }
        None => {}
    }
    let seats = match first_prompt {
        Some(_) => {
            machines.begin(seats, first_prompt)?;
            machines.most_rows().min(seats)
        }
        None => {
            // The last of a prompt's sequences decodes in one row: that is compiled while the
            // weights are on their way.
            machines.ahead(1);
            machines.width(seats)?.min(seats)
        }
    };
    let rows = match known {
        true => machines.chunk_rows().max(seats),
        false if most > MOST_ROWS => most,
        false => seats,
    };
    let prompt_rows = if chunk.is_some() || known { rows } else { options.prompt_rows };
    let limits = SchedulerLimits {
        seats,
        rows,
        prompt_rows: prompt_rows.clamp(1, rows),
        steps: most_steps.clamp(1, machines.most_steps().max(1)),
        positions: model.spec.max_positions,
        pages,
        page_tokens: lowering.page_tokens,
        sharing: options.sharing,
        prompts_first: known,
        proposals: machines.proposes() && rows > 1 && flow_limits.is_none(),
        fixed_width: options.deterministic,
        ends: ends.to_vec(),
        flow: flow_limits,
    };
    let shape = BatcherShape {
        sizes: *model.spec,
        context: options.context,
        per_row: lowering.pages_per_sequence(),
        sampling: lowering.sampling,
        states,
    };
    let started = Instant::now();
    Ok(Batcher::of(machines, limits, shape, paces, Box::new(move || started.elapsed())))
}

/// A launch of several steps, whose tokens are given as they come.
struct Launch<'l, 'g> {
    giving: &'l mut Giving<'g>,
    /// Whether it runs all of its steps.
    stays: bool,
    deadline: Option<Duration>,
    clock: &'l Clock,
    attention: &'l CallBackFlag,
}

impl EachStep for Launch<'_, '_> {
    fn tokens(&mut self, tokens: &[u32]) -> ControlFlow<()> {
        let goes_on = self.giving.tokens(tokens);
        match self.stays {
            true => ControlFlow::Continue(()),
            false => go_on(goes_on, self.deadline, self.clock, self.attention),
        }
    }

    fn masks(&mut self, masks: &mut [(usize, Vec<u32>)]) {
        self.giving.fill(masks);
    }
}

impl Batcher {
    /// A batcher that drives any machines.
    pub(super) fn of(
        machines: Box<dyn Machines>,
        limits: SchedulerLimits,
        shape: BatcherShape,
        pace: Pace,
        clock: Clock,
    ) -> Batcher {
        Batcher {
            machines,
            scheduler: Scheduler::new(limits),
            choosers: HashMap::new(),
            empty: Vec::new(),
            next: 0,
            shape,
            pace,
            times: StepTimes::default(),
            clock,
            attention: CallBackFlag::default(),
        }
    }

    /// Submits a request. It waits until there is a seat and memory for its prompt; it is never
    /// refused for lack of them.
    ///
    /// # Errors
    /// An empty prompt, ids outside of the vocabulary, penalties that make no sense; more tokens
    /// than a sequence may hold, or than all pages together hold.
    pub fn submit(&mut self, mut submission: Submission) -> Result<Ticket, EngineError> {
        if submission.ends.min_new_tokens > 0 && !submission.ends.ignore_model {
            submission.ends.tokens.extend(&self.scheduler.limits().ends);
        }
        let Submission { request, .. } = &submission;
        let prompt = request.prompt_ids.len();
        let new = request.max_new_tokens;
        check_prompt(&self.shape.sizes, &request.prompt_ids)?;
        submission.check()?;
        let tokens = request.room(self.shape.sizes.max_positions);
        if tokens > self.shape.context {
            return Err(EngineError::RequestContext { prompt, new, context: self.shape.context });
        }
        let &SchedulerLimits { pages, page_tokens, .. } = self.scheduler.limits();
        let needed = tokens.div_ceil(page_tokens);
        if needed > pages {
            return Err(EngineError::RequestPages { prompt, new, needed, pages });
        }
        let ticket = Ticket(self.next);
        self.next += 1;
        if new == 0 {
            self.empty.push(ticket);
            return Ok(ticket);
        }
        let masked = submission.is_masked();
        // What is proposed is judged by rows whose masks depend on each other.
        let judged = masked && submission.speculate;
        let drawn = !submission.sampling.is_greedy() && !self.shape.sampling;
        let by_host = submission.needs_host() || drawn || judged;
        let ask = Ask {
            prompt: request.prompt_ids.clone(),
            max_new_tokens: new,
            priority: submission.priority,
            expires: submission.deadline.map(|deadline| (self.clock)().saturating_add(deadline)),
            by_host,
            masked,
            // Requests with a flow's selection run one token at a time.
            speculate: submission.speculate && self.scheduler.limits().flow.is_none(),
            ends: submission.ends.clone(),
            prompt_logprobs: submission.prompt_logprobs,
        };
        if ask.speculate && self.scheduler.limits().proposals {
            self.machines.ahead(PROPOSED_ROWS);
        }
        self.scheduler.submit(ticket, ask);
        self.choosers.insert(ticket, Chooser::new(submission));
        Ok(ticket)
    }

    /// Ends a request; returns its tokens, or nothing if it has ended already. No event follows.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<Completion> {
        self.choosers.remove(&ticket);
        if let Some(at) = self.empty.iter().position(|empty| *empty == ticket) {
            self.empty.remove(at);
            return Some(Completion { token_ids: Vec::new(), finish: Finish::Cancelled });
        }
        self.scheduler.end(ticket, Finish::Cancelled)
    }

    /// Runs one step, or one launch of several; whether requests are left. `each` gets what happens
    /// to them in order, and ends a request by `Break` where it answers a token with a
    /// `ControlFlow`.
    ///
    /// A step that fails ends the requests that were part of it by [`Event::Fault`]; the others go
    /// on.
    pub fn step<A: Answer>(&mut self, mut each: impl FnMut(Ticket, Event) -> A) -> bool {
        self.step_by(&mut |ticket, event| each(ticket, event).goes_on())
    }

    fn step_by(&mut self, each: &mut dyn FnMut(Ticket, Event) -> bool) -> bool {
        for ticket in std::mem::take(&mut self.empty) {
            each(ticket, Event::End(Completion { token_ids: Vec::new(), finish: Finish::Length }));
        }
        for ticket in self.scheduler.expired((self.clock)()) {
            self.choosers.remove(&ticket);
            if let Some(completion) = self.scheduler.end(ticket, Finish::Deadline) {
                each(ticket, Event::End(completion));
            }
        }
        if let Some(step) = self.scheduler.plan(|decoding| self.pace.rows(decoding))
            && let Err(error) = self.run(&step, each)
        {
            self.fail(&step, error, each);
        }
        !self.scheduler.is_idle()
    }

    /// Counters of the work done so far.
    pub fn statistics(&self) -> Statistics {
        self.scheduler.statistics()
    }

    /// Takes the times of steps by width since the last call, narrow ones first.
    pub fn take_times(&mut self) -> Vec<WidthTimes> {
        self.times.take()
    }

    /// Records changes of the pages that requests can share, from now on.
    /// [`Batcher::take_kv_events`] is then called after each step.
    pub fn record_kv_events(&mut self) {
        self.scheduler.cache_mut().record_events();
    }

    /// Takes the changes of the pages that requests can share since the last call; none where they
    /// are not recorded.
    pub fn take_kv_events(&mut self) -> Vec<KvEvent> {
        self.scheduler.cache_mut().take_events()
    }

    /// Tokens of a page of the KV pools.
    pub fn page_tokens(&self) -> usize {
        self.scheduler.limits().page_tokens
    }

    /// Its requests and pages at this moment.
    pub fn load(&self) -> BatcherLoad {
        let load = self.scheduler.load();
        BatcherLoad { waiting: load.waiting + self.empty.len(), ..load }
    }

    /// Pages that running requests hold.
    pub fn held_pages(&self) -> usize {
        self.scheduler.held_pages()
    }

    /// Whether no request waits or runs.
    pub fn is_idle(&self) -> bool {
        self.empty.is_empty() && self.scheduler.is_idle()
    }

    /// The flag by which another thread calls the batcher back from a launch.
    pub(super) fn attention(&self) -> CallBackFlag {
        Arc::clone(&self.attention)
    }

    fn run(&mut self, step: &Step, each: &mut dyn FnMut(Ticket, Event) -> bool) -> Result<(), EngineError> {
        if step.proposes > 0 {
            return self.propose(step, each);
        }
        let rows: usize = step.pieces.iter().map(|piece| piece.tokens.len()).sum();
        let has_flow = self.scheduler.limits().flow.is_some();
        // If no request decodes together with a prompt, machines may have other widths for its
        // chunks.
        let prompts_first = self.scheduler.limits().prompts_first;
        if has_flow || prompts_first {
            let feeds = prompts_first && step.pieces.iter().any(|piece| piece.tokens.len() > 1);
            self.machines.set_phase(step.phase, feeds);
        }
        let width = self.machines.width(rows)?;
        if width < rows {
            // The machines turned out to have fewer rows: the step is planned again.
            self.scheduler.narrow(width);
            return Ok(());
        }
        let step = &*step.masking_at_most(self.machines.masked_steps(width));
        if has_flow {
            self.tell_requests(step, width)?;
        }
        let mut cells = OwnedCells::new(width, self.shape.per_row);
        for piece in &step.pieces {
            let pages = self.scheduler.sequence(piece.ticket).map_or(&[][..], |sequence| &sequence.pages);
            for (position, &token) in (piece.position..).zip(&piece.tokens) {
                cells.push(token, position, &pages[..pages.len().min(self.shape.per_row)]);
            }
        }
        let by_host = self.machines.most_steps() == 0;
        let draws = if by_host || !self.shape.sampling { Vec::new() } else { self.draws(step) };
        let started = (self.clock)();
        let deadline = self.scheduler.next_deadline();
        let ends = self.scheduler.machine_ends(&step.pieces);
        let mut giving = Giving::new(step, &mut self.scheduler, &mut self.choosers, each);
        let masks = giving.masks(self.shape.sizes.vocab);
        let mut steps = 1;
        if by_host {
            let wanted = [giving.wanted(false), giving.hosted()].concat();
            self.machines.step(width, &cells.cells(), &wanted, &mut |row, logits| giving.logits(row, logits))?;
        } else if step.steps == 1 {
            let rows = giving.wanted(false);
            let hosted = giving.hosted();
            if rows.is_empty() {
                // Programs that only feed prompts need not choose, and the host need not wait for a
                // chunk whose tokens are followed by others.
                self.machines.step(width, &cells.cells(), &hosted, &mut |row, logits| giving.logits(row, logits))?;
            } else {
                let draws: Vec<Draw> = rows.iter().filter_map(|&row| draws.get(row).copied()).collect();
                let asked = Asked { rows: &rows, draws: &draws, logits: &hosted, masks: &masks };
                let mut each = |row, logits: &[f32]| giving.logits(row, logits);
                let chosen = self.machines.choose(width, &cells.cells(), asked, &mut each)?;
                let mut tokens = vec![NO_TOKEN; width];
                rows.iter().zip(chosen).for_each(|(&row, token)| tokens[row] = token);
                giving.tokens(&tokens);
            }
        } else {
            let run = Run { steps: step.steps, draws: &draws, ends: &ends, masks: &masks };
            // A step that is under way when a launch is left has saved its states.
            let stays = self.shape.states;
            let (clock, attention) = (&self.clock, &self.attention);
            let mut launch = Launch { giving: &mut giving, stays, deadline, clock, attention };
            steps = self.machines.run(width, &cells.cells(), run, &mut launch)?;
        }
        giving.finish();
        let took = (self.clock)().saturating_sub(started);
        self.times.note(width, steps, took);
        if step.decodes && step.steps == 1 {
            self.pace.note(width, took);
        }
        self.scheduler.launched(steps, steps * rows);
        Ok(())
    }

    /// Sets the request of each row, and the slot of its flow states.
    fn tell_requests(&mut self, step: &Step, width: usize) -> Result<(), EngineError> {
        let mut slots = Vec::with_capacity(width);
        let mut requests = Vec::with_capacity(width);
        for piece in &step.pieces {
            // Adjacent rows of one request are those without a choice of tokens.
            slots.push(self.scheduler.sequence(piece.ticket).and_then(|s| s.slot).unwrap_or(RequestSlot::NONE));
            requests.resize(requests.len() + piece.tokens.len(), piece.ticket.number());
            slots.resize(requests.len(), RequestSlot::NONE);
        }
        slots.resize(width, RequestSlot::NONE);
        self.machines.set_requests(&requests);
        if self.shape.states { self.machines.set_slots(width, &slots) } else { Ok(()) }
    }

    /// Goes on with one sequence, several of its tokens in a step.
    fn propose(&mut self, step: &Step, each: &mut dyn FnMut(Ticket, Event) -> bool) -> Result<(), EngineError> {
        let width = self.machines.width(PROPOSED_ROWS.min(self.scheduler.limits().rows))?;
        let draws = if self.shape.sampling { self.draws(step) } else { Vec::new() };
        let sequence = self.scheduler.sequence(step.pieces[0].ticket);
        let (tokens, pages) = sequence.map(|s| (s.tokens.clone(), s.pages.clone())).unwrap_or_default();
        let ends = self.scheduler.machine_ends(&step.pieces);
        let deadline = self.scheduler.next_deadline();
        let text = Text {
            tokens: &tokens,
            pages: &pages[..pages.len().min(self.shape.per_row)],
            request: draws.first().copied(),
            ends: &ends[..ends.len().min(MAX_ENDS)],
            left: step.proposes,
            proposed: MOST_PROPOSED,
            script: None,
        };
        let mut giving = Giving::new(step, &mut self.scheduler, &mut self.choosers, each);
        let mut rows = 0;
        let started = (self.clock)();
        let steps = self.machines.propose(width, &text, step.steps, &mut |accepted| {
            rows += 1 + accepted.proposed;
            let goes_on = giving.accepted(accepted);
            go_on(goes_on, deadline, &self.clock, &self.attention)
        })?;
        giving.finish();
        self.times.note(width, steps, (self.clock)().saturating_sub(started));
        self.scheduler.launched(steps, rows);
        Ok(())
    }

    /// The draws by which the machine samples each row's token.
    fn draws(&self, step: &Step) -> Vec<Draw> {
        let mut draws = Vec::new();
        for piece in &step.pieces {
            let new = self.scheduler.sequence(piece.ticket).map_or(0, |sequence| sequence.generated().len() as u64);
            let submission = self.choosers.get(&piece.ticket).map(|chooser| &chooser.submission);
            let own = piece.tokens.len() - piece.proposed;
            for row in 0..piece.tokens.len() {
                // A row that gives no token draws like the first that does; its token is not used.
                let drawn = (row + 1).saturating_sub(own) as u64;
                draws
                    .push(submission.map_or(Draw::default(), |s| Draw::new(&s.sampling.checked(), new + drawn, s.row)));
            }
        }
        draws
    }

    /// Ends the requests of a step that failed.
    fn fail(&mut self, step: &Step, error: EngineError, each: &mut dyn FnMut(Ticket, Event) -> bool) {
        // The data that its steps wrote is undefined, also for requests whose tokens were delivered
        // and whose pages were full by then.
        self.scheduler.forget_pages();
        let error = Arc::new(error);
        for piece in &step.pieces {
            self.choosers.remove(&piece.ticket);
            if self.scheduler.end(piece.ticket, Finish::Cancelled).is_some() {
                each(piece.ticket, Event::Fault(Arc::clone(&error)));
            }
        }
    }

    #[cfg(test)]
    pub(super) fn stored_blocks(&mut self) -> super::cache::StoredBlocks {
        self.scheduler.cache_mut().stored()
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        self.scheduler.check();
    }
}
