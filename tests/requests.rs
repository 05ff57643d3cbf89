//! Requests that are batched continuously on the shipped models: on the reference machine, and on
//! the simulator, whose kernel chooses tokens by itself. With `TILEWRIGHT_DEVICE=cuda:0` the
//! simulator's part runs on a GPU; `TILEWRIGHT_MODELS` says where the models are if not in the
//! repository that the test was built in.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Poll;
use std::time::Duration;

use proptest::prelude::*;
use tilewright::engine::{
    BatchOptions, Batcher, Chosen, Completion, Device, Engine, EngineError, Event, Finish, Penalties, Request,
    Sampling, ServerEvent, StopCause, Submission, Ticket,
};
use tilewright_flow::ModelShape;
use tilewright_flow::algorithms::{self, CalibrationSample};
use tilewright_flow::memory::Budget;
use tilewright_flow::program::FlowSettings;
use tilewright_kernels::naive::{self, sample};

fn folder(model: &str) -> PathBuf {
    let models = std::env::var_os("TILEWRIGHT_MODELS").map(PathBuf::from);
    models.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("models")).join(model)
}

/// tiny-llama on the reference machine, loaded once.
fn host() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| Engine::load(&folder("tiny-llama"), Device::Cpu { workers: 2 }).expect("the model loads"))
}

/// The GPU that is asked for, or a simulated one.
fn device(seed: u64) -> Device {
    let gpu = std::env::var("TILEWRIGHT_DEVICE").ok().map(|name| name.parse().expect("a device"));
    gpu.unwrap_or(Device::Sim { seed })
}

fn request(prompt: &str, new: usize) -> Submission {
    let prompt_ids = host().tokenizer().encode(prompt).expect("it encodes");
    Submission::from(Request { prompt_ids, max_new_tokens: new })
}

fn hot(seed: u64) -> Sampling {
    Sampling::default().temperature(0.9).top_k(50).top_p(0.95).seed(seed)
}

/// The result of a request on the engine alone.
fn alone(engine: &Engine, submission: &Submission) -> Completion {
    let request = std::slice::from_ref(&submission.request);
    engine.generate(request, submission.sampling, |_, _| ()).expect("generates").0.remove(0)
}

/// Runs to the end; each request's tokens as they were told, and its completion.
fn drain(batcher: &mut Batcher) -> BTreeMap<Ticket, Completion> {
    let mut told = BTreeMap::<Ticket, Vec<u32>>::new();
    let mut ends = BTreeMap::new();
    let mut more = true;
    while more {
        more = batcher.step(|ticket, event| match event {
            Event::Token(token) => told.entry(ticket).or_default().push(token.id),
            Event::End(completion) => assert!(ends.insert(ticket, completion).is_none()),
            Event::Fault(error) => panic!("{error}"),
        });
    }
    for (ticket, completion) in &ends {
        assert_eq!(told.get(ticket).cloned().unwrap_or_default(), completion.token_ids);
    }
    ends
}

prop_compose! {
    /// Requests that begin alike, greedy or at random, some of them with proposals.
    fn requests()(
        system in prop::bool::ANY,
        words in prop::collection::vec(prop::sample::select(vec!["the", "LORD", "said", "unto", "and", "waters"]), 1..9),
        new in 1usize..12,
        seed in prop::option::of(0u64..9),
        speculate in prop::bool::ANY,
        steps in 0usize..6,
    ) -> (Submission, usize) {
        let system = if system { "In the beginning God created the heaven and the earth. " } else { "" };
        let submission = request(&format!("{system}{}", words.join(" ")), new);
        let sampling = seed.map_or(Sampling::GREEDY, hot);
        (Submission { sampling, speculate, ..submission }, steps)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, max_shrink_iters: 40, ..ProptestConfig::default() })]

    /// Few pages, few rows, requests that come while others run: each gets what it gets alone, bit
    /// for bit.
    #[test]
    fn each_request_gets_the_tokens_that_it_gets_alone(
        asked in prop::collection::vec(requests(), 1..7),
        (rows, pages) in (1usize..9, 4usize..9),
        sharing in prop::bool::ANY,
    ) {
        let options = BatchOptions { rows, pages: Some(pages), sharing, ..BatchOptions::for_context(64) };
        let mut batcher = host().batcher(&options).expect("a batcher");
        let mut tickets = Vec::new();
        let mut ended = BTreeMap::new();
        for (submission, steps) in &asked {
            tickets.push(batcher.submit(submission.clone()).expect("it fits"));
            for _ in 0..*steps {
                batcher.step(|ticket, event| {
                    if let Event::End(completion) = event {
                        ended.insert(ticket, completion);
                    }
                });
            }
        }
        while batcher.step(|ticket, event| {
            if let Event::End(completion) = event {
                ended.insert(ticket, completion);
            }
        }) {}
        for (ticket, (submission, _)) in tickets.iter().zip(&asked) {
            prop_assert_eq!(&ended[ticket], &alone(host(), submission));
        }
    }
}

#[test]
fn forty_requests_share_a_prompt_and_run_sixteen_at_a_time() {
    let system = "And God said unto them, Be fruitful, and multiply, and replenish the earth, and subdue it: ";
    let asked: Vec<Submission> = (0..40).map(|at| request(&format!("{system}{at}"), 1 + at % 4)).collect();
    let mut batcher = host().batcher(&BatchOptions::for_context(128)).expect("a batcher");
    let tickets: Vec<Ticket> = asked.iter().map(|s| batcher.submit(s.clone()).expect("it fits")).collect();
    let ended = drain(&mut batcher);
    for (ticket, submission) in tickets.iter().zip(&asked).step_by(9) {
        assert_eq!(ended[ticket], alone(host(), submission));
    }
    let statistics = batcher.statistics();
    let tokens: usize = ended.values().map(|completion| completion.token_ids.len()).sum();
    assert_eq!((statistics.tokens, ended.len()), (tokens as u64, 40));
    assert!(statistics.shared_tokens > 30 * 16 && statistics.rows > statistics.steps * 5, "{statistics:?}");
}

/// A repeated prompt: what follows is in it, and most of what is proposed is accepted; the text is
/// the same.
#[test]
fn speculation_changes_no_token() {
    for sampling in [Sampling::GREEDY, hot(3)] {
        let plain =
            Submission { sampling, ..request("And God said, Let there be light: and God said, Let there be", 24) };
        let mut batcher = host().batcher(&BatchOptions::for_context(128)).expect("a batcher");
        let ticket = batcher.submit(Submission { speculate: true, ..plain.clone() }).expect("it fits");
        let found = drain(&mut batcher).remove(&ticket);
        assert_eq!(found, Some(alone(host(), &plain)));
        let statistics = batcher.statistics();
        println!("{statistics:?}");
        assert!(statistics.proposed >= statistics.accepted && statistics.steps <= statistics.tokens + 4);
    }
}

#[test]
fn log_probabilities_and_penalties_come_from_the_models_own_logits() {
    let plain = request("In the beginning", 6);
    let mut batcher = host().batcher(&BatchOptions::for_context(64)).expect("a batcher");
    let penalties = Penalties { no_repeat: 1, ..Penalties::NONE };
    batcher.submit(Submission { logprobs: Some(3), penalties, ..plain.clone() }).expect("it fits");
    let mut ids = plain.request.prompt_ids.clone();
    while batcher.step(|_, event| {
        let Event::Token(token) = event else { return };
        let logits = host().logits(&ids).expect("computes");
        let mut last = logits[logits.len() - host().spec().vocab..].to_vec();
        let sum: f64 = last.iter().map(|&x| f64::from(x).exp()).sum();
        let found = token.logprobs.expect("asked for");
        let expected = f64::from(last[token.id as usize]) - sum.ln();
        assert!((f64::from(found.chosen) - expected).abs() < 1e-4, "{} {expected}", found.chosen);
        assert_eq!(found.top[0].0, sample(&last, &naive::Sampling::GREEDY, 0, 0).expect("a token") as u32);
        ids.iter().for_each(|&id| last[id as usize] = f32::NEG_INFINITY);
        assert_eq!(token.id, sample(&last, &naive::Sampling::GREEDY, 0, 0).expect("a token") as u32);
        ids.push(token.id);
    }) {}
    assert_eq!(ids.len(), plain.request.prompt_ids.len() + 6);
}

/// A stream can be polled, waited on for a while, and cancelled; the last event says so.
#[test]
fn a_stream_is_polled_and_cancelled_without_blocking() {
    let server = host().server(&BatchOptions::for_context(256)).expect("a server");
    let mut stream = server.submit(request("And", 250), &[]).expect("it fits");
    let first = loop {
        match stream.try_next() {
            Poll::Ready(event) => break event.expect("it has begun"),
            Poll::Pending => std::thread::yield_now(),
        }
    };
    assert!(matches!(first, ServerEvent::Token { .. }));
    let second = stream.recv_timeout(Duration::from_secs(60));
    assert!(matches!(second, Poll::Ready(Some(ServerEvent::Token { .. }))));
    stream.cancel();
    let end = stream.by_ref().last().expect("an end");
    let ServerEvent::End { completion, .. } = end else { panic!("{end:?}") };
    assert_eq!(completion.finish, Finish::Cancelled);
    assert!((2..250).contains(&completion.token_ids.len()), "{}", completion.token_ids.len());
    assert!(matches!(stream.try_next(), Poll::Ready(None)));
    assert!(matches!(stream.recv_timeout(Duration::ZERO), Poll::Ready(None)));
}

#[test]
fn a_server_takes_requests_from_any_thread_and_forgets_who_has_gone() {
    let server = host().server(&BatchOptions { rows: 3, ..BatchOptions::for_context(256) }).expect("a server");
    let endless = request("And", 200);
    let gone = server.submit(endless.clone(), &[]).expect("it fits");
    let late = Submission { deadline: Some(Duration::ZERO), ..endless.clone() };
    let late = server.submit(late, &[]).expect("it fits").wait().expect("no fault").0;
    assert_eq!((late.finish, late.token_ids.len()), (Finish::Deadline, 0));
    std::thread::scope(|scope| {
        for at in 0..5 {
            let server = &server;
            let submission = request(&format!("And {at} said"), 9);
            scope.spawn(move || {
                let (completion, text) =
                    server.submit(submission.clone(), &[]).expect("it fits").wait().expect("no fault");
                let expected = alone(host(), &submission);
                assert_eq!(completion, expected);
                assert_eq!(text, host().tokenizer().decode(&expected.token_ids).expect("decodes"));
            });
        }
    });
    drop(gone);
    // A stop text that the whole text has in it.
    let submission = request("In the beginning", 24);
    let whole = host().tokenizer().decode(&alone(host(), &submission).token_ids).expect("decodes");
    let stop = whole.chars().skip(8).take(3).collect::<String>();
    let stream = server.submit(submission, std::slice::from_ref(&stop)).expect("it fits");
    let mut text = String::new();
    let mut tokens = 0;
    for event in stream {
        match event {
            ServerEvent::Token { text: piece, .. } => (text, tokens) = (text + &piece, tokens + 1),
            ServerEvent::End { completion, text: rest } => {
                text += &rest;
                let stopped = Finish::Stop(StopCause::StopText(0));
                assert_eq!((completion.finish, completion.token_ids.len()), (stopped, tokens));
            }
            ServerEvent::Fault(error) => panic!("{error}"),
        }
    }
    assert_eq!(text, whole[..whole.find(&stop).expect("it is there")]);
    assert!(matches!(server.submit(request("And", 900), &[]), Err(EngineError::RequestContext { .. })));
    assert!(matches!(server.submit(request("And", 2), &[String::new()]), Err(EngineError::Stop(_))));
    assert!(server.statistics().tokens < 200, "who has gone got no more");
}

/// The kernel chooses tokens, greedily and at random, in launches of several steps; prompts come in
/// beside them. Every step has the same width, so nothing depends on the company.
#[test]
fn requests_on_a_device_get_the_tokens_that_they_get_alone() {
    let engine = Engine::load(&folder("tiny-qwen3"), device(5)).expect("the model loads");
    alone_and_together(&engine);
}

/// Requests by the machine of many rows: chunks of prompts beside rows that decode, tokens chosen
/// by the device.
#[test]
fn chunks_beside_decoding_rows_change_no_token() {
    let engine = Engine::load(&folder("tiny-qwen3"), device(6)).expect("the model loads");
    alone_and_together(&engine.with_prompt_chunk(32).expect("a device takes chunks"));
}

fn alone_and_together(engine: &Engine) {
    let new = if let Device::Sim { .. } = device(5) { 4 } else { 40 };
    let options = BatchOptions { rows: 4, prompt_rows: 2, deterministic: true, ..BatchOptions::for_context(128) };
    let ask = |ids: &[u32], new, sampling, speculate| {
        let request = Request { prompt_ids: ids.to_vec(), max_new_tokens: new };
        Submission { sampling, speculate, ..Submission::from(request) }
    };
    let asked = [
        ask(&[5, 6, 7, 8, 9, 10], new, Sampling::GREEDY, false),
        ask(&(0..37).collect::<Vec<u32>>(), new - 1, hot(1), false),
        ask(&[9, 10, 9, 10, 9], new, Sampling::GREEDY, true),
    ];
    let run = |asked: &[Submission]| {
        let mut batcher = engine.batcher(&options).expect("a batcher");
        let tickets: Vec<Ticket> = asked.iter().map(|s| batcher.submit(s.clone()).expect("it fits")).collect();
        let mut ended = drain(&mut batcher);
        tickets.iter().filter_map(|ticket| ended.remove(ticket)).collect::<Vec<_>>()
    };
    let together = run(&asked);
    for (asked, together) in asked.iter().zip(&together) {
        assert_eq!(run(&[Submission { speculate: false, ..asked.clone() }]), std::slice::from_ref(together));
    }
}

/// More sequences than a step has rows: the library's `generate` batches them.
#[test]
fn more_sequences_than_rows_are_batched_on_a_device() {
    let engine = Engine::load(&folder("tiny-qwen3"), device(7)).expect("the model loads");
    let requests: Vec<Request> =
        (0..18).map(|at| Request { prompt_ids: vec![5 + at], max_new_tokens: 1 + at as usize % 2 }).collect();
    let mut told = vec![Vec::new(); requests.len()];
    let (found, speed) =
        engine.generate(&requests, Sampling::GREEDY, |at, token| told[at].push(token)).expect("generates");
    assert_eq!(speed.tokens, 27);
    for ((request, found), told) in requests.iter().zip(&found).zip(told) {
        assert_eq!((found.token_ids.len(), &found.token_ids), (request.max_new_tokens, &told));
    }
    if let Device::Sim { .. } = device(7) {
        // On a GPU another width may choose otherwise where two tokens are close.
        let alone = engine.generate(&requests[1..2], Sampling::GREEDY, |_, _| ()).expect("generates").0;
        assert_eq!(found[1], alone[0]);
    }
}

#[test]
fn an_abort_ends_the_step_that_runs_and_the_batcher_goes_on() {
    let engine = Engine::load(&folder("tiny-llama"), Device::Cpu { workers: 2 }).expect("the model loads");
    let options = BatchOptions { rows: 1, ..BatchOptions::for_context(64) };
    let mut batcher = engine.batcher(&options).expect("a batcher");
    let asked = [request("And God", 5), request("And the", 5)];
    let tickets = asked.clone().map(|submission| batcher.submit(submission).expect("it fits"));
    engine.abort_handle().abort();
    let mut faults = Vec::new();
    let mut ended = BTreeMap::new();
    while batcher.step(|ticket, event| match event {
        Event::Token(_) => {}
        Event::End(completion) => _ = ended.insert(ticket, completion),
        Event::Fault(error) => faults.push((ticket, error.is_abort())),
    }) {}
    assert_eq!(faults, [(tickets[0], true)]);
    assert_eq!(ended[&tickets[1]], alone(host(), &asked[1]));
}

/// A flow of small blocks that chooses few of them.
fn flow_of(engine: &Engine, name: &str, block_tokens: usize) -> FlowSettings {
    let algorithm = algorithms::named(name).expect("a flow");
    let flow = FlowSettings::new(
        algorithm.trace().expect("no errors"),
        block_tokens,
        Budget::new(1, 0.0, 1, 1).expect("a budget"),
    );
    let flow = flow.expect("a flow");
    let spec = engine.spec();
    if flow.traced().declared.parameters.is_empty() {
        return flow;
    }
    let model = ModelShape { kv_heads: spec.kv_heads, group: spec.group(), head_dim: spec.head_dim, block_tokens };
    let drawn = |count: usize| (0..count).map(|i| ((i * 37 + 11) % 19) as f64 / 19.0 - 0.5).collect::<Vec<f64>>();
    let queries = drawn(spec.heads * spec.head_dim);
    let keys = drawn(spec.kv_heads * spec.head_dim);
    let parameters =
        algorithm.calibrate(&model, CalibrationSample { queries: &queries, keys: &keys }).expect("parameters");
    flow.with_parameters(vec![parameters; spec.layers])
}

/// Few pages, requests that come while others run, prompts that share pages and are computed again:
/// the flow chooses for each what it chooses for it alone, bit for bit.
#[test]
fn a_flow_chooses_for_each_request_what_it_chooses_for_it_alone() {
    let system = "In the beginning God created the heaven and the earth. ";
    let asked = [
        (request(&format!("{system}And the earth was"), 26), 3),
        (request(&format!("{system}And God said"), 16), 6),
        (Submission { sampling: hot(4), speculate: true, ..request("And the waters", 34) }, 2),
        (request(&format!("{system}And God said"), 20), 0),
    ];
    for name in ["running-average", "q-filter"] {
        let engine = Engine::load(&folder("tiny-llama"), Device::Cpu { workers: 2 }).expect("the model loads");
        let flow = flow_of(&engine, name, 4);
        let engine = engine.with_flow(flow).expect("a flow that fits");
        let options = BatchOptions { rows: 3, prompt_rows: 2, pages: Some(4), ..BatchOptions::for_context(64) };
        let mut batcher = engine.batcher(&options).expect("a batcher");
        let mut tickets = Vec::new();
        let mut ended = BTreeMap::new();
        for (submission, steps) in &asked {
            tickets.push(batcher.submit(submission.clone()).expect("it fits"));
            (0..*steps).for_each(|_| _ = batcher.step(|ticket, event| hear(&mut ended, ticket, event)));
        }
        while batcher.step(|ticket, event| hear(&mut ended, ticket, event)) {}
        for (ticket, (submission, _)) in tickets.iter().zip(&asked) {
            assert_eq!(ended[ticket], alone(&engine, submission), "{name}: {}", ticket.number());
        }
        let found = batcher.statistics();
        assert!(found.preemptions > 0 && found.shared_tokens > 0, "{name}: {found:?}");
    }
}

fn hear(ended: &mut BTreeMap<Ticket, Completion>, ticket: Ticket, event: Event) {
    match event {
        Event::Token(_) => {}
        Event::End(completion) => _ = ended.insert(ticket, completion),
        Event::Fault(error) => panic!("{error}"),
    }
}

/// On a device: states, launches of several steps, prompts beside rows that the flow chooses for.
#[test]
fn requests_with_a_flow_on_a_device_get_the_tokens_that_they_get_alone() {
    with_a_flow(None);
}

/// Requests with flows whose prompts are prefilled by graphs of launches, which summarise their
/// blocks afterwards.
#[test]
fn prompts_by_graphs_with_a_flow_change_no_token() {
    with_a_flow(Some(32));
}

fn with_a_flow(chunk: Option<usize>) {
    let simulated = matches!(device(8), Device::Sim { .. });
    for name in if simulated { &["running-average"][..] } else { &["quest", "running-average", "gqa-h2o", "moba"] } {
        let engine = Engine::load(&folder("tiny-qwen3"), device(8)).expect("the model loads");
        let engine = match chunk {
            Some(rows) => engine.with_prompt_chunk(rows).expect("a device takes chunks"),
            None => engine,
        };
        let flow = flow_of(&engine, name, 16);
        let engine = engine.with_flow(flow).expect("a flow that fits");
        let new = if simulated { 3 } else { 60 };
        let ask = |from: u32, tokens: u32, new, seed: Option<u64>| {
            let request = Request { prompt_ids: (from..from + tokens).collect(), max_new_tokens: new };
            Submission { sampling: seed.map_or(Sampling::GREEDY, hot), ..Submission::from(request) }
        };
        // Covered by the budget of three blocks, and not.
        let long = if simulated { 50 } else { 70 };
        let again = if simulated { 2 } else { new + 1 };
        let asked =
            [ask(5, long, new, None), ask(9, 6, new, Some(1)), ask(5, long, again, Some(2)), ask(30, 81, 2, None)];
        let asked = &asked[..if simulated { 2 } else { 4 }];
        let rows = if simulated { 8 } else { 2 };
        let options = BatchOptions { rows, deterministic: true, ..BatchOptions::for_context(160) };
        let run = |asked: &[Submission]| {
            let mut batcher = engine.batcher(&options).expect("a batcher");
            let tickets: Vec<Ticket> = asked.iter().map(|s| batcher.submit(s.clone()).expect("it fits")).collect();
            let mut ended = drain(&mut batcher);
            tickets.iter().filter_map(|ticket| ended.remove(ticket)).collect::<Vec<_>>()
        };
        let together = run(asked);
        for (at, (asked, together)) in asked.iter().zip(&together).enumerate().take(if simulated { 1 } else { 4 }) {
            assert_eq!(run(std::slice::from_ref(asked)), std::slice::from_ref(together), "{name}: {at}");
        }
    }
}

/// Rows that the budget covers go along in the steps of a request that the flow chooses for; chunks
/// of prompts take turns with them.
#[test]
fn rows_that_a_budget_covers_go_along_with_those_that_are_chosen_for() {
    let Device::Sim { .. } = device(3) else { return };
    let engine = Engine::load(&folder("tiny-qwen3"), device(3)).expect("the model loads");
    let flow = flow_of(&engine, "running-average", 16);
    let engine = engine.with_flow(flow).expect("a flow that fits");
    let options = BatchOptions { rows: 8, ..BatchOptions::for_context(64) };
    let ask = |prompt: std::ops::Range<u32>, new| {
        Submission::from(Request { prompt_ids: prompt.collect(), max_new_tokens: new })
    };
    let long = ask(5..55, 6);
    let short = ask(9..20, 2);
    let mut batcher = engine.batcher(&options).expect("a batcher");
    let first = batcher.submit(long.clone()).expect("it fits");
    let mut told = Vec::new();
    let mut hear = |ticket: Ticket, event: Event| match event {
        Event::Token(token) => told.push((ticket, token.id)),
        Event::End(_) => {}
        Event::Fault(error) => panic!("{error}"),
    };
    (0..7).for_each(|_| _ = batcher.step(&mut hear));
    let second = batcher.submit(short.clone()).expect("it fits");
    let mut rows = vec![batcher.statistics().rows];
    for _ in 0..5 {
        batcher.step(&mut hear);
        rows.push(batcher.statistics().rows);
    }
    let rows: Vec<u64> = rows.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(rows, [1, 8, 1, 3, 2]);
    while batcher.step(&mut hear) {}
    for (ticket, submission) in [(first, long), (second, short)] {
        let found: Vec<u32> = told.iter().filter(|(told, _)| *told == ticket).map(|(_, token)| *token).collect();
        assert_eq!(found, alone(&engine, &submission).token_ids, "{}", ticket.number());
    }
}

/// Blocks that a graph of launches completed have their summaries when a flow chooses by them: it
/// chooses what it chooses where the prompt came in by the decode machine, but for blocks that
/// rounding tells apart.
#[test]
fn blocks_that_graphs_completed_are_summarised() {
    let chosen = |chunk: Option<usize>| {
        let engine = Engine::load(&folder("tiny-llama"), device(4)).expect("the model loads");
        let engine = match chunk {
            Some(rows) => engine.with_prompt_chunk(rows).expect("a device takes chunks"),
            None => engine,
        };
        let flow = flow_of(&engine, "quest", 16);
        let all = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&all);
        let engine = engine.with_flow(flow).expect("a flow that fits");
        let engine = engine.with_observer(Arc::new(move |chosen: &Chosen| to.lock().unwrap().push(chosen.clone())));
        let request = Request { prompt_ids: (0..122).map(|i| 2 + i * i * 7 % 90).collect(), max_new_tokens: 2 };
        engine.generate(&[request], Sampling::GREEDY, |_, _| ()).expect("generates");
        let mut all = std::mem::take(&mut *all.lock().unwrap());
        all.sort_by_key(|chosen| (chosen.layer, chosen.kv_head));
        all.into_iter().map(|chosen| chosen.blocks).collect::<Vec<_>>()
    };
    let steps = chosen(None);
    let graphs = chosen(Some(32));
    assert_eq!((steps.len(), graphs.len()), (8, 8));
    let same = steps.iter().zip(&graphs).filter(|(a, b)| a == b).count();
    assert!(same >= 7, "{steps:?} {graphs:?}");
    // Without summaries all blocks score alike, and the first candidate wins.
    assert!(steps.iter().filter(|blocks| blocks[1] != 1).count() >= 4, "{steps:?}");
}

#[test]
fn more_rows_than_a_step_with_a_flow_has_are_refused() {
    let engine = || Engine::load(&folder("tiny-qwen3"), device(9)).expect("the model loads");
    let flow = flow_of(host(), "quest", 16);
    let engine = engine().with_flow(flow).expect("a flow that fits");
    let rows = engine.batcher(&BatchOptions { rows: 17, ..BatchOptions::for_context(64) }).err().expect("refused");
    assert!(rows.to_string().contains("17 requests are to run at a time; with a flow"), "{rows}");
}
