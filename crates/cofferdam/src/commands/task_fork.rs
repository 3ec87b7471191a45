//! `task run --fork N`: the same request several times, side by side.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::id::TaskId;
use cofferdam_core::task::{TaskRequest, TaskResult};
use cofferdam_exec::{CommandIo, Control};
use cofferdam_runtime::{
    FrontDoor, PolicyRequest, Runtime, TaskProgress, TaskRunRequest, worker_name,
};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::context::Context;
use crate::failure::Ending;
use crate::render::tasks;

/// The most tasks that one call runs side by side.
const MOST: usize = 64;
/// Time between the first signal and the end of the commands.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked whether somebody wants one of the tasks to end.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// One of the tasks while it runs.
struct One {
    control: Control,
    id: std::sync::OnceLock<TaskId>,
}

/// Runs a request so often, and tells the results in one table.
pub(crate) fn run(
    context: &Context,
    count: usize,
    policy: &PolicyRequest,
    request: &TaskRequest,
    ask: bool,
) -> Ending {
    if !(1..=MOST).contains(&count) {
        return Err(Problem::new(
            ErrorCode::InvalidRequest,
            format!("--fork takes 1 to {MOST}, not {count}"),
        )
        .with_field("fork")
        .into());
    }
    let name = request
        .worker
        .clone()
        .unwrap_or_else(|| worker_name(&request.goal));
    let runtime = Arc::new(context.task_runtime()?);
    // None of them has the terminal as its input, so there is nothing to hold back.
    crate::ask::on_terminal(context, &runtime, &Control::new(), policy, ask);
    let ones: Vec<One> = (0..count)
        .map(|_| One {
            control: Control::new(),
            id: std::sync::OnceLock::new(),
        })
        .collect();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(|error| {
        Problem::new(ErrorCode::Io, format!("signals cannot be watched: {error}"))
    })?;
    let handle = signals.handle();
    let over = Arc::new(AtomicBool::new(false));
    let quiet = context.output.is_json();
    let results: Vec<Result<TaskResult, Problem>> = std::thread::scope(|scope| {
        let watch = scope.spawn(|| watch(&runtime, &ones, &mut signals, &over));
        let threads: Vec<_> = ones
            .iter()
            .enumerate()
            .map(|(index, one)| {
                let worker = format!("{name}-{}", index + 1);
                let (runtime, output) = (&runtime, context.output);
                scope.spawn(move || {
                    let mut progress = |step: TaskProgress| {
                        if let TaskProgress::Planned { task_id, .. } = &step {
                            let _ = one.id.set(task_id.clone());
                        }
                        if !quiet && let Some(lines) = tasks::progress(&step) {
                            for line in lines.lines() {
                                output.note(&format!("{worker}: {line}"));
                            }
                        }
                    };
                    runtime.run_task(TaskRunRequest {
                        policy: policy.clone(),
                        task: TaskRequest {
                            worker: Some(worker.clone()),
                            ..request.clone()
                        },
                        front_door: FrontDoor::CommandLine,
                        io: CommandIo::Capture { input: None },
                        progress: &mut progress,
                        control: one.control.clone(),
                    })
                })
            })
            .collect();
        let results = threads
            .into_iter()
            .map(|thread| {
                thread.join().unwrap_or_else(|_| {
                    let problem = Problem::new(ErrorCode::Internal, "a task's thread panicked");
                    Err(problem)
                })
            })
            .collect();
        over.store(true, Ordering::Relaxed);
        handle.close();
        let _ = watch.join();
        results
    });
    let mut done = Vec::with_capacity(count);
    for result in results {
        match result {
            Ok(result) => done.push(result),
            Err(problem) => {
                context.output.explain(&problem);
            }
        }
    }
    let failed = done.len() < count;
    done.sort_by_key(|result| result.number);
    let code = done.iter().map(TaskResult::exit_code).max();
    let code = match (failed, code) {
        (true, code) => code.unwrap_or(0).max(cofferdam_core::exit::OWN_FAILURE),
        (false, code) => code.unwrap_or(cofferdam_core::exit::SUCCESS),
    };
    context
        .output
        .result(&json!({"tasks": done, "exit_code": code}), |_| {
            tasks::side_by_side(&done)
        })?;
    Ok(code)
}

/// Passes signals on to all tasks, and ends those that somebody wants to end, until all are over.
fn watch(runtime: &Runtime, ones: &[One], signals: &mut Signals, over: &AtomicBool) {
    let mut ends: Vec<Option<Instant>> = vec![None; ones.len()];
    let mut after = runtime.journal().head().map_or(0, |head| head.pos);
    // The first wish goes to the command as a signal, the second, or some seconds, ends it.
    let ask = |one: &One, end: &mut Option<Instant>, signal: i32| {
        if end.is_some() {
            one.control.cancel();
        } else {
            *end = Some(Instant::now() + PATIENCE);
            one.control.signal(signal);
        }
    };
    while !over.load(Ordering::Relaxed) {
        for number in signals.pending() {
            for (one, end) in ones.iter().zip(&mut ends) {
                ask(one, end, number);
            }
        }
        for (one, end) in ones.iter().zip(&ends) {
            if end.is_some_and(|at| Instant::now() >= at) && !one.control.is_cancelled() {
                one.control.cancel();
            }
        }
        if let Ok((pos, tasks)) = runtime.stop_requests(after) {
            after = pos;
            for (one, end) in ones.iter().zip(&mut ends) {
                let is_meant = one.id.get().is_some_and(|id| tasks.contains(id));
                if is_meant && end.is_none() {
                    ask(one, end, SIGTERM);
                }
            }
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}
