//! Ranks that end, hang or are interrupted: every other rank names them.

use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tilewright::engine::{Device, Engine, EngineError, Request, Sampling};

use crate::shards::wide;
use crate::{Launch, engine};

const SIZE: usize = 4;

/// Rank 0 in the middle of a long text.
fn long_text(engine: &Engine, mut on_token: impl FnMut()) -> Result<(), EngineError> {
    let request = Request { prompt_ids: vec![1, 2, 3], max_new_tokens: 400 };
    engine.generate(&[request], Sampling::default().temperature(1.0), |_, _| on_token()).map(drop)
}

/// The errors of all ranks, where one rank does not run but does this with its stage.
fn errors(launch: &Launch, lost: usize, gone: impl FnOnce(tilewright::engine::Stage) + Send) -> Vec<String> {
    errors_of(launch, || engine("tiny-llama"), lost, gone)
}

/// The same with engines of another kind.
fn errors_of(
    launch: &Launch,
    engine: impl Fn() -> Engine + Sync,
    lost: usize,
    gone: impl FnOnce(tilewright::engine::Stage) + Send,
) -> Vec<String> {
    let engine = &engine;
    let mut gone = Some(gone);
    thread::scope(|scope| {
        let stages: Vec<_> = (1..launch.size)
            .map(|rank| {
                let gone = if rank == lost { gone.take() } else { None };
                scope.spawn(move || {
                    let stage = launch.stage(rank, engine()).expect("joins");
                    match gone {
                        Some(gone) => {
                            gone(stage);
                            None
                        }
                        None => Some(stage.run().expect_err("a rank is lost").to_string()),
                    }
                })
            })
            .collect();
        let driver = launch.driver(engine()).expect("all join");
        let first = long_text(&driver, || ()).expect_err("a rank is lost").to_string();
        drop(driver);
        let others = stages.into_iter().filter_map(|stage| stage.join().expect("no panic"));
        [first].into_iter().chain(others).collect()
    })
}

/// Each rank, one after the other.
#[test]
fn a_rank_that_ends_is_named_by_all() {
    for lost in 1..SIZE {
        let begun = Instant::now();
        let errors = errors(&Launch::new(SIZE), lost, drop);
        assert!(begun.elapsed() < Duration::from_secs(20), "long before the timeout: {:?}", begun.elapsed());
        assert_eq!(errors.len(), SIZE - 1);
        for error in errors {
            assert!(error.starts_with(&format!("rank {lost} ")), "{error}");
            assert!(error.ends_with("it closed the connection"), "{error}");
        }
    }
}

/// The others wait for it in a sum, or for the words of a step.
#[test]
fn a_shard_that_ends_or_hangs_is_named_by_all() {
    let folder = TempDir::new().expect("a folder");
    wide(folder.path());
    let made = || Engine::load(folder.path(), Device::Sim { seed: 7 }).expect("the model loads");
    for (lost, hangs) in [(1, false), (2, false), (3, false), (2, true)] {
        let launch = Launch::new(SIZE).timeout(if hangs { "4" } else { "60" }).sharded();
        let begun = Instant::now();
        let errors = errors_of(&launch, made, lost, |stage| {
            thread::sleep(Duration::from_secs(if hangs { 8 } else { 0 }));
            drop(stage);
        });
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        assert_eq!(errors.len(), SIZE - 1);
        for error in errors {
            assert!(error.starts_with(&format!("rank {lost} ")), "{error}");
            let reason = if hangs { "it sent nothing for 2 s" } else { "it closed the connection" };
            assert!(error.ends_with(reason), "{error}");
        }
    }
}

/// In the middle of sums, of the words of a step, or of logits.
#[test]
fn a_link_of_shards_that_fails_names_the_rank_at_its_other_end() {
    let folder = TempDir::new().expect("a folder");
    wide(folder.path());
    let made = || Engine::load(folder.path(), Device::Sim { seed: 3 }).expect("the model loads");
    for (lost, after) in [(0, 0), (1, 1), (2, 3), (3, 6), (0, 9)] {
        let launch = Launch::new(SIZE).sharded();
        launch.network.fail(lost, after);
        thread::scope(|scope| {
            let stages: Vec<_> = (1..SIZE)
                .map(|rank| {
                    let launch = &launch;
                    scope.spawn(move || launch.stage(rank, made())?.run())
                })
                .collect();
            let driver = launch.driver(made()).expect("all join");
            let mut errors = vec![long_text(&driver, || ()).expect_err("a link failed").to_string()];
            drop(driver);
            let others = stages.into_iter().map(|stage| stage.join().expect("no panic"));
            errors.extend(others.map(|result| result.expect_err("a link failed").to_string()));
            for error in errors {
                assert!(error.starts_with(&format!("rank {lost} ")), "rank {lost} after {after}: {error}");
            }
        });
    }
}

/// An abort in the middle of a text ends all ranks in good order.
#[test]
fn an_abort_of_rank_0_ends_the_shards() {
    let folder = TempDir::new().expect("a folder");
    wide(folder.path());
    let made = || Engine::load(folder.path(), Device::Sim { seed: 3 }).expect("the model loads");
    Launch::new(2).sharded().run(made, |driver| {
        let abort = driver.abort_handle();
        let mut tokens = 0;
        let result = long_text(&driver, || {
            tokens += 1;
            if tokens == 3 {
                abort.abort();
            }
        });
        assert!(result.is_err_and(|error| error.is_abort()), "the text is aborted after three tokens");
    });
}

/// A process that is stopped sends nothing; its connections stay.
#[test]
fn a_rank_that_hangs_is_named_within_the_timeout() {
    for lost in 1..SIZE {
        let launch = Launch::new(SIZE).timeout("4");
        let begun = Instant::now();
        let errors = errors(&launch, lost, |stage| {
            thread::sleep(Duration::from_secs(8));
            drop(stage);
        });
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        for error in errors {
            assert!(error.starts_with(&format!("rank {lost} ")), "{error}");
            assert!(error.ends_with("it sent nothing for 2 s"), "{error}");
        }
    }
}

/// What NCCL reports of a link in the middle of a text: all ranks name the rank at its other end.
#[test]
fn a_link_that_fails_names_the_rank_at_its_other_end() {
    for lost in 0..SIZE {
        let launch = Launch::new(SIZE);
        launch.network.fail(lost, 5);
        thread::scope(|scope| {
            let stages: Vec<_> = (1..SIZE)
                .map(|rank| {
                    let launch = &launch;
                    scope.spawn(move || launch.stage(rank, engine("tiny-llama"))?.run())
                })
                .collect();
            let driver = launch.driver(engine("tiny-llama")).expect("all join");
            let mut errors = vec![long_text(&driver, || ()).expect_err("a link failed").to_string()];
            drop(driver);
            errors.extend(
                stages.into_iter().map(|stage| stage.join().expect("no panic").expect_err("a link failed").to_string()),
            );
            for error in errors {
                assert!(error.starts_with(&format!("rank {lost} ")), "rank {lost}: {error}");
            }
        });
    }
}

#[test]
fn an_interrupted_rank_is_named_by_all_and_ends_with_the_abort() {
    let launch = Launch::new(SIZE);
    thread::scope(|scope| {
        let (sender, stages) = std::sync::mpsc::channel();
        for rank in 1..SIZE {
            let (launch, sender) = (&launch, sender.clone());
            scope.spawn(move || {
                let stage = launch.stage(rank, engine("tiny-llama")).expect("joins");
                let abort = stage.engine().abort_handle();
                if rank == 2 {
                    sender.send((rank, Some(abort), Ok(()))).expect("the test waits");
                }
                let result = stage.run();
                sender.send((rank, None, result)).expect("the test waits");
            });
        }
        drop(sender);
        let driver = launch.driver(engine("tiny-llama")).expect("all join");
        let (_, abort, _) = stages.recv().expect("rank 2 joins");
        let abort = abort.expect("the handle comes first");
        let mut tokens = 0;
        let error = long_text(&driver, || {
            tokens += 1;
            if tokens == 5 {
                abort.abort();
            }
        });
        assert_eq!(error.expect_err("rank 2 is interrupted").to_string(), "rank 2 failed: the work was aborted");
        drop(driver);
        for (rank, _, result) in stages {
            let error = result.expect_err("rank 2 is interrupted");
            match rank {
                2 => assert!(error.is_abort(), "{error}"),
                _ => assert_eq!(error.to_string(), "rank 2 failed: the work was aborted"),
            }
        }
    });
}

/// An abort at rank 0 ends its text; the other ranks end in good order with it.
#[test]
fn an_abort_of_rank_0_ends_the_group() {
    let launch = Launch::new(3);
    launch.run(
        || engine("tiny-llama"),
        |driver| {
            let abort = driver.abort_handle();
            let mut tokens = 0;
            let result = long_text(&driver, || {
                tokens += 1;
                if tokens == 5 {
                    abort.abort();
                }
            });
            assert!(result.is_err_and(|error| error.is_abort()), "the text is aborted after five tokens");
            assert!((5..400).contains(&tokens), "{tokens}");
        },
    );
}

#[test]
fn a_rank_that_cannot_open_its_links_is_named_by_all() {
    for failing in 0..3 {
        let launch = Launch::new(3);
        launch.network.fail_to_open(failing);
        thread::scope(|scope| {
            let stages: Vec<_> = (1..3)
                .map(|rank| {
                    let launch = &launch;
                    scope.spawn(move || launch.stage(rank, engine("tiny-llama"))?.run())
                })
                .collect();
            let first = launch.driver(engine("tiny-llama")).and_then(|driver| long_text(&driver, || ()));
            let others = stages.into_iter().map(|stage| stage.join().expect("no panic"));
            for (rank, result) in [first].into_iter().chain(others).enumerate() {
                let error = result.expect_err("no links, no text").to_string();
                match rank == failing {
                    true => assert_eq!(error, "NCCL cannot connect the ranks"),
                    false => assert!(error.starts_with(&format!("rank {failing} failed: NCCL cannot")), "{error}"),
                }
            }
        });
    }
}
