//! A batcher on fake machines: what is done to it, and what must hold afterwards.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tilewright_flow::program::Phase;
use tilewright_megakernel::model::{ModelSizes, ModelSpec};

use super::super::super::error::EngineError;
use super::super::super::request::{Finish, Request};
use super::super::super::sampling::Sampling;
use super::super::batcher::{Batcher, BatcherShape};
use super::super::cache::StoredBlocks;
use super::super::choice::{Chooser, logprobs};
use super::super::kv_events::KvEvent;
use super::super::pace::Pace;
use super::super::processor::{LogitsHook, LogitsProcessor, TokenMask};
use super::super::scheduler::{FlowLimits, SchedulerLimits};
use super::super::submission::{EndTokens, Event, Logprobs, Penalties, Statistics, Submission, Ticket};
use super::fake::{Fake, FakeFault, FakeFlow, FaultPlan, TokenMemory, VOCAB, logits, seen};

/// The token that ends a sequence.
pub const END: u32 = 11;

/// A batcher and its machines.
#[derive(Clone, Debug)]
pub struct TrialConfig {
    pub pages: usize,
    pub page_tokens: usize,
    pub seats: usize,
    pub rows: usize,
    pub prompt_rows: usize,
    /// Most rows that the machines turn out to have, where those are fewer.
    pub widest: Option<usize>,
    pub steps: usize,
    /// Rows of a step that take a millisecond, and how many of these a step should take.
    pub pace: Option<(u64, u64)>,
    pub sharing: bool,
    pub prompts_first: bool,
    /// Whether machines choose tokens by themselves.
    pub launches: bool,
    pub memory: TokenMemory,
    pub positions: usize,
    /// A flow, and whether its phases are distinguished.
    pub flow: Option<(FakeFlow, bool)>,
}

impl TrialConfig {
    /// A configuration with memory and seats for every request.
    pub fn ample() -> TrialConfig {
        TrialConfig {
            pages: 64,
            page_tokens: 4,
            seats: 8,
            rows: 8,
            prompt_rows: 4,
            widest: None,
            steps: 16,
            pace: None,
            sharing: true,
            prompts_first: false,
            launches: false,
            memory: None,
            positions: 200,
            flow: None,
        }
    }
}

/// A request.
#[derive(Clone, Debug)]
pub struct TrialRequest {
    pub submission: Submission,
    /// The caller ends the request with this token.
    pub taken: Option<usize>,
}

/// Never the same token twice in a row; each call's tokens continue those of the call before.
#[derive(Default)]
struct NoStutter(Vec<u32>);

impl LogitsProcessor for NoStutter {
    fn process(&mut self, new: &[u32], logits: &mut [f32]) -> Result<(), String> {
        assert!(new.starts_with(&self.0), "{new:?} after {:?}", self.0);
        self.0 = new.to_vec();
        if let Some(&last) = new.last() {
            logits[last as usize] = f32::NEG_INFINITY;
        }
        Ok(())
    }
}

/// The same by a mask.
#[derive(Default)]
struct NoStutterMask(NoStutter);

impl TokenMask for NoStutterMask {
    fn allow(&mut self, new: &[u32], mask: &mut [u32]) -> Result<(), String> {
        assert!(mask.iter().all(|&word| word == 0), "a mask is empty before it is filled");
        let mut logits = vec![0.0; mask.len() * 32];
        self.0.process(new, &mut logits)?;
        let allowed = logits.iter().enumerate().filter(|(_, logit)| logit.is_finite());
        allowed.for_each(|(token, _)| mask[token / 32] |= 1 << (token % 32));
        Ok(())
    }
}

impl TrialRequest {
    pub fn new(prompt: &[u32], new: usize) -> TrialRequest {
        let request = Request { prompt_ids: prompt.to_vec(), max_new_tokens: new };
        TrialRequest { submission: Submission::from(request), taken: None }
    }

    pub fn hot(self, seed: u64) -> TrialRequest {
        let sampling = Sampling::default().temperature(0.9).top_k(8).top_p(0.95).seed(seed);
        TrialRequest { submission: Submission { sampling, ..self.submission }, ..self }
    }

    pub fn punished(self) -> TrialRequest {
        let penalties = Penalties { repetition: 1.3, frequency: 0.1, ..Penalties::NONE };
        let processor = Some(LogitsHook::new(|| Box::new(NoStutter::default())));
        TrialRequest { submission: Submission { penalties, processor, ..self.submission }, ..self }
    }

    pub fn masked(self) -> TrialRequest {
        let processor = Some(LogitsHook::masking(|| Box::new(NoStutterMask::default())));
        TrialRequest { submission: Submission { processor, ..self.submission }, ..self }
    }

    pub fn speculating(self) -> TrialRequest {
        TrialRequest { submission: Submission { speculate: true, ..self.submission }, ..self }
    }

    pub fn ending(self, ends: EndTokens) -> TrialRequest {
        TrialRequest { submission: Submission { ends, ..self.submission }, ..self }
    }

    pub fn scored(self, count: usize) -> TrialRequest {
        TrialRequest { submission: Submission { prompt_logprobs: Some(count), ..self.submission }, ..self }
    }

    /// The log probabilities of its prompt, computed from the logits of its tokens.
    fn scores(&self, config: &TrialConfig) -> Vec<Logprobs> {
        let prompt = &self.submission.request.prompt_ids;
        let Some(count) = self.submission.prompt_logprobs else { return Vec::new() };
        let flow = config.flow.map(|(flow, _)| flow);
        let ends = 1..prompt.len();
        let of = |end: usize| logits(&prompt[..end], seen(&prompt[..end], prompt.len(), flow), config.memory);
        ends.map(|end| logprobs(&of(end), prompt[end] as usize, count)).collect()
    }

    pub fn urgent(self, priority: i32) -> TrialRequest {
        TrialRequest { submission: Submission { priority, ..self.submission }, ..self }
    }

    /// The result of the request alone, computed from the logits of its tokens, without pages.
    pub fn alone(&self, config: &TrialConfig) -> (Vec<u32>, Finish) {
        let Request { prompt_ids, max_new_tokens } = &self.submission.request;
        let mut tokens = prompt_ids.clone();
        let mut chooser = Chooser::new(self.submission.clone());
        let mut finish = Finish::Length;
        while tokens.len() - prompt_ids.len() < *max_new_tokens {
            let flow = seen(&tokens, prompt_ids.len(), config.flow.map(|(flow, _)| flow));
            let logits = logits(&tokens, flow, config.memory);
            let token = chooser.choose(&tokens, prompt_ids.len(), &logits).expect("a token").id;
            tokens.push(token);
            finish = if let Some(cause) = self.submission.ends.cause(token, &[END]) {
                Finish::Stop(cause)
            } else if tokens.len() - prompt_ids.len() == *max_new_tokens {
                Finish::Length
            } else if tokens.len() > config.positions {
                Finish::Positions
            } else {
                continue;
            };
            break;
        }
        (tokens.split_off(prompt_ids.len()), finish)
    }
}

/// An action of the trial.
#[derive(Clone, Debug)]
pub enum Action {
    Submit(TrialRequest),
    /// The request that was taken as that one goes on: its prompt, its tokens so far, then those of
    /// this prompt.
    Follow(usize, TrialRequest),
    /// Of the requests that were taken, the one of this number, modulo how many there are.
    Cancel(usize),
    Step,
    Fault(FakeFault),
    /// A time in milliseconds.
    Wait(u64),
}

/// The history of a request.
#[derive(Debug, Default)]
pub struct Story {
    pub asked: Option<TrialRequest>,
    pub tokens: Vec<u32>,
    /// Log probabilities of its prompt.
    pub scores: Vec<Logprobs>,
    /// `Err`: a fault.
    pub end: Option<Result<Finish, String>>,
    pub cancelled: bool,
}

/// A batcher under test.
pub struct Drive {
    pub batcher: Batcher,
    pub stories: BTreeMap<Ticket, Story>,
    /// The order in which requests ended.
    pub ended: Vec<Ticket>,
    config: TrialConfig,
    plan: FaultPlan,
    time: Arc<AtomicU64>,
    faults: usize,
    /// The blocks that can be shared, according to the events.
    stored: StoredBlocks,
}

/// Steps after which a batcher that is still at work has lost its way.
const MOST_STEPS: usize = 20_000;

impl Drive {
    pub fn new(config: &TrialConfig) -> Drive {
        let context = config.positions.min(config.pages * config.page_tokens);
        let per_row = context.div_ceil(config.page_tokens);
        let plan = FaultPlan::default();
        let time = Arc::new(AtomicU64::new(0));
        let flow = config.flow.map(|(flow, _)| flow);
        let states = flow.is_some_and(|flow| flow.states);
        let fake = Fake {
            flow,
            phase: Phase::Decode,
            slots: Vec::new(),
            states: HashMap::new(),
            summaries: vec![0; config.pages * config.page_tokens],
            launches: if config.launches { 64 } else { 0 },
            memory: config.memory,
            page_tokens: config.page_tokens,
            per_row,
            widest: config.widest.unwrap_or(usize::MAX),
            pool: vec![(0, 0); config.pages * config.page_tokens],
            plan: Arc::clone(&plan),
            time: Arc::clone(&time),
            per_millisecond: config.pace.map_or(0, |(rows, _)| rows),
        };
        let limits = SchedulerLimits {
            seats: config.seats,
            rows: config.rows,
            prompt_rows: config.prompt_rows,
            steps: config.steps,
            positions: config.positions,
            pages: config.pages,
            page_tokens: config.page_tokens,
            sharing: config.sharing,
            prompts_first: config.prompts_first,
            proposals: config.launches && config.rows > 1 && flow.is_none() && config.widest.is_none(),
            fixed_width: false,
            ends: vec![END],
            flow: config.flow.map(|(FakeFlow { covered, .. }, apart)| FlowLimits { covered, apart }),
        };
        let known = ModelSpec::named("llama-3.2-1b").expect("a model");
        let sizes = ModelSizes { vocab: VOCAB, max_positions: config.positions, ..*known };
        let shape = BatcherShape { sizes, context, per_row, sampling: true, states };
        let clock = Arc::clone(&time);
        let clock = Box::new(move || Duration::from_millis(clock.load(Ordering::Relaxed)));
        let widths = (0..).map(|power| 1 << power).take_while(|&width| width < 2 * config.rows).collect();
        let pace = Pace::new(config.pace.map(|(_, bound)| Duration::from_millis(bound)), widths);
        let mut batcher = Batcher::of(Box::new(fake), limits, shape, pace, clock);
        batcher.record_kv_events();
        let stories = BTreeMap::new();
        let ended = Vec::new();
        let stored = StoredBlocks::new();
        Drive { batcher, stories, ended, config: config.clone(), plan, time, faults: 0, stored }
    }

    /// Checks the pages, and that events tell which of them can be shared.
    fn check(&mut self) {
        self.batcher.check();
        for event in self.batcher.take_kv_events() {
            match event {
                KvEvent::Stored { block, parent, tokens } => {
                    assert!(
                        parent.is_none_or(|parent| self.stored.contains_key(&parent)),
                        "{block} follows {parent:?}"
                    );
                    assert!(self.stored.insert(block, tokens).is_none(), "{block} is stored twice");
                }
                KvEvent::Removed { block } => assert!(self.stored.remove(&block).is_some(), "{block} is not stored"),
                KvEvent::Cleared => self.stored.clear(),
            }
        }
        assert_eq!(self.stored, self.batcher.stored_blocks());
    }

    /// The time, in milliseconds.
    pub fn time(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.time)
    }

    pub fn act(&mut self, action: &Action) {
        match action {
            Action::Submit(asked) => _ = self.submit(asked.clone()),
            Action::Follow(at, asked) => self.follow(*at, asked.clone()),
            Action::Cancel(at) => self.cancel(*at),
            Action::Step => _ = self.step(),
            Action::Fault(fault) => {
                self.faults += 1;
                *self.plan.lock().unwrap() = Some(*fault);
            }
            Action::Wait(time) => _ = self.time.fetch_add(*time, Ordering::Relaxed),
        }
        self.check();
    }

    pub fn submit(&mut self, asked: TrialRequest) -> Option<Ticket> {
        let Request { prompt_ids, max_new_tokens } = &asked.submission.request;
        let room = (prompt_ids.len() + max_new_tokens.saturating_sub(1)).min(self.config.positions);
        let fits = room <= self.config.pages * self.config.page_tokens;
        match self.batcher.submit(asked.submission.clone()) {
            Ok(ticket) => {
                assert!(fits, "{room} tokens were taken");
                let story = Story { asked: Some(asked), ..Story::default() };
                assert!(self.stories.insert(ticket, story).is_none());
                Some(ticket)
            }
            Err(error) => {
                let known = matches!(error, EngineError::RequestContext { .. } | EngineError::RequestPages { .. });
                assert!(known && !fits, "{error}");
                None
            }
        }
    }

    fn follow(&mut self, at: usize, mut asked: TrialRequest) {
        let Some(story) = self.stories.values().nth(at % self.stories.len().max(1)) else { return };
        let before = story.asked.as_ref().map_or(&[][..], |asked| &asked.submission.request.prompt_ids);
        let request = &mut asked.submission.request;
        request.prompt_ids = [before, &story.tokens, &request.prompt_ids].concat();
        if request.prompt_ids.len() <= self.config.positions {
            self.submit(asked);
        }
    }

    fn cancel(&mut self, at: usize) {
        let Some(&ticket) = self.stories.keys().nth(at % self.stories.len().max(1)) else { return };
        let given = self.batcher.cancel(ticket);
        let story = self.stories.get_mut(&ticket).expect("a story");
        assert_eq!(given.is_some(), story.end.is_none(), "who has ended cannot be cancelled");
        if let Some(given) = given {
            assert_eq!(given.token_ids, story.tokens);
            (story.end, story.cancelled) = (Some(Ok(given.finish)), true);
        }
    }

    pub fn step(&mut self) -> bool {
        let stories = &mut self.stories;
        let ended = &mut self.ended;
        self.batcher.step(|ticket, event| {
            let story = stories.get_mut(&ticket).expect("it was submitted");
            assert!(story.end.is_none(), "an event after the end: {event:?}");
            match event {
                Event::Token(token) => {
                    assert!(token.prompt.is_empty() || story.tokens.is_empty(), "the first token has the prompt's");
                    story.scores.extend(token.prompt);
                    story.tokens.push(token.id);
                    let taken = story.asked.as_ref().and_then(|asked| asked.taken);
                    if taken.is_some_and(|taken| story.tokens.len() > taken) {
                        return ControlFlow::Break(());
                    }
                }
                Event::End(completion) => {
                    assert_eq!(completion.token_ids, story.tokens);
                    story.end = Some(Ok(completion.finish));
                    ended.push(ticket);
                }
                Event::Fault(error) => {
                    story.end = Some(Err(error.to_string()));
                    ended.push(ticket);
                }
            }
            ControlFlow::Continue(())
        })
    }

    /// Runs to the end, and asserts the properties of every request.
    pub fn finish(&mut self) -> Statistics {
        let mut steps = 0;
        while self.step() {
            self.check();
            steps += 1;
            assert!(steps < MOST_STEPS, "requests wait for ever");
        }
        assert!(self.batcher.is_idle());
        self.check();
        let mut given = 0;
        for (ticket, story) in &self.stories {
            let asked = story.asked.as_ref().expect("it was asked");
            let (alone, finish) = asked.alone(&self.config);
            given += story.tokens.len();
            if !story.tokens.is_empty() {
                assert_eq!(story.scores, asked.scores(&self.config), "{ticket:?}: {asked:?}");
            }
            assert_eq!(story.tokens, alone[..story.tokens.len().min(alone.len())], "{ticket:?}: {asked:?}");
            match story.end.as_ref().unwrap_or_else(|| panic!("{ticket:?} never ended")) {
                Ok(Finish::Cancelled) if story.cancelled => {}
                Ok(Finish::Cancelled) => assert_eq!(Some(story.tokens.len()), asked.taken.map(|taken| taken + 1)),
                Ok(Finish::Deadline) => assert!(asked.submission.deadline.is_some()),
                Ok(found) => assert_eq!((story.tokens.len(), *found), (alone.len(), finish), "{ticket:?}: {asked:?}"),
                Err(error) => assert!(self.faults > 0, "{error}"),
            }
        }
        assert_eq!(self.batcher.statistics().tokens as usize, given, "tokens that were told");
        self.batcher.statistics()
    }
}
