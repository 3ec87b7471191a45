//! The runtime over the double: no process, no disk but the journal's.

use cofferdam_core::event::EventFilter;
use cofferdam_core::operation::RunCommand;
use cofferdam_core::outcome::Status;
use cofferdam_core::policy::ProviderChoice;
use cofferdam_core::spec::ProviderKind;
use cofferdam_core::task::{IsolationMode, TaskRequest, VerificationStatus};
use cofferdam_exec::{Control, Script, ScriptedCommand};
use cofferdam_runtime::{Runtime, RuntimeOptions, project};

use crate::support::{Desk, has_walls, provider, run, shell_task, task, task_with};

fn scripted(desk: &Desk, script: Script) -> Runtime {
    Runtime::open(RuntimeOptions {
        script: Some(script),
        ..desk.options()
    })
    .expect("a desk")
}

#[test]
fn a_scripted_command_is_a_command() {
    let desk = Desk::new();
    let script = Script::everyday();
    let runtime = scripted(&desk, script.clone());
    let memory = || provider(ProviderChoice::Memory);
    let outcome = run(&runtime, memory(), RunCommand::argv(["echo", "hi"]));
    assert_eq!(
        (outcome.status, &*outcome.stdout),
        (Status::Completed, "hi\n")
    );
    assert_eq!(
        outcome.isolation.effective.provider,
        Some(ProviderKind::Memory)
    );
    assert_eq!(script.calls().len(), 1);
    let missing = run(&runtime, memory(), RunCommand::argv(["no-such"]));
    assert_eq!(missing.exit_code(), 127);
}

#[test]
fn a_scripted_task_is_set_up_run_and_verified_in_order() {
    let desk = Desk::new();
    let script = Script::new(|command| {
        let words: Vec<_> = command.argv.iter().map(|word| word.to_text()).collect();
        let said = words.last()?;
        (!said.contains("git")).then(|| ScriptedCommand {
            exit_code: i32::from(said.contains("bad")),
            ..ScriptedCommand::default()
        })
    });
    let runtime = scripted(&desk, script.clone());
    let asked = TaskRequest {
        isolation_mode: IsolationMode::None,
        setup: vec!["set up".to_owned()],
        verify: vec!["check".to_owned(), "bad check".to_owned()],
        ..shell_task("work")
    };
    let memory = provider(ProviderChoice::Memory);
    let result = task_with(&runtime, memory, asked, &Control::new(), &mut |_| {});
    assert_eq!(result.status, Status::Completed, "{result:#?}");
    assert_eq!(result.verification.status, VerificationStatus::Failed);
    let ran: Vec<_> = script
        .calls()
        .iter()
        .filter_map(|call| call.argv.get(2).map(ToString::to_string))
        .filter(|text| !text.contains("git"))
        .collect();
    assert_eq!(ran, ["set up", "work", "check", "bad check"]);
}

#[test]
fn c104_the_journal_is_shown_as_topology_threads_and_evidence() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let asked = TaskRequest {
        verify: vec!["grep -q two a.txt".to_owned()],
        ..shell_task("echo two >a.txt")
    };
    let result = task(&runtime, asked);
    let projected = project(runtime.journal().as_ref(), EventFilter::default()).unwrap();
    assert_eq!(projected.state.as_of(), projected.head.pos);
    let topology = serde_json::to_string(&projected.state.topology()).unwrap();
    assert!(topology.contains(result.task_id.as_str()), "{topology}");
    let filter = EventFilter {
        task: Some(result.task_id.clone()),
        ..EventFilter::default()
    };
    let own = project(runtime.journal().as_ref(), filter).unwrap();
    assert!(own.state.as_of() >= result.evidence.last().unwrap().pos.unwrap());
}

#[test]
fn c89_tasks_at_once_have_numbers_of_their_own() {
    if !has_walls() {
        return;
    }
    let desk = Desk::with_repository();
    let runtime = desk.runtime();
    let mut numbers: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6)
            .map(|number| {
                let runtime = &runtime;
                scope.spawn(move || {
                    let script = format!("echo {number} >file{number}");
                    let result = task(runtime, shell_task(&script));
                    assert_eq!(result.status, Status::Completed, "{result:#?}");
                    assert_eq!(result.modified_files.len(), 1);
                    result.number
                })
            })
            .collect();
        threads.into_iter().map(|one| one.join().unwrap()).collect()
    });
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    let told: Vec<u64> = runtime
        .tasks()
        .unwrap()
        .iter()
        .map(|one| one.number)
        .collect();
    assert_eq!(told, numbers);
    assert_eq!(runtime.journal().verify().unwrap().fault, None);
}
