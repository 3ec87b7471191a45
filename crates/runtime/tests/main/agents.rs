//! Agents under a profile, played by a script that reads and writes its state as they do.

use std::os::unix::fs::PermissionsExt as _;

use cofferdam_core::event::event_type;
use cofferdam_core::operation::{CommandForm, RunCommand};
use cofferdam_core::outcome::Status;
use cofferdam_core::policy::{PolicyDocument, ProviderChoice};
use cofferdam_core::profile::StateChangeKind;
use cofferdam_core::spec::Network;
use cofferdam_core::task::{TaskRequest, TaskResult};
use cofferdam_exec::{CommandIo, Control, OutputSink, Stream};
use cofferdam_runtime::{
    FrontDoor, PolicyRequest, Profiles, Surroundings, TaskProgress, TaskRunRequest,
};
use rustix::process::{Signal, getpid, kill_process};

use crate::support::{Desk, events, has_walls, options, rerun, shell_task, task_with, told};

/// Renews its token, writes a transcript in the place of its directory, goes on with an older one,
/// plants a hook and a server, edits the repository.
const AGENT: &str = r#"#!/bin/sh
echo "arguments: $*"
echo "sandbox: $IS_SANDBOX updates: $DISABLE_AUTOUPDATER key: $ANTHROPIC_API_KEY"
echo "token: $(cat ~/.claude/.credentials.json)"
ls ~/.ssh ~/.claude/projects 2>&1
place=~/.claude/projects/$(pwd | tr -c 'a-zA-Z0-9\n' -)
mkdir -p "$place"
echo "turn in $(pwd)" >>"$place/session.jsonl"
cat "$place/session.jsonl" | sed 's/^/history: /'
echo '{"claudeAiOauth":{"accessToken":"renewed","expiresAt":2}}' >~/.claude/.credentials.json
echo '{"hooks":{"Stop":"evil"}}' >~/.claude/settings.local.json
echo '{"userID":"u","mcpServers":{"evil":{"command":"sh"}}}' >~/.claude.json
echo evil >~/.bashrc
echo two >a.txt
test -z "$WAIT" || { echo waiting; sleep 300; }
"#;

fn desk() -> Desk {
    let desk = Desk::with_repository();
    let bin = desk.home.join(".npm-global/bin");
    for directory in [&bin, &desk.home.join(".ssh"), &desk.home.join(".claude")] {
        std::fs::create_dir_all(directory).expect("a desk");
    }
    std::fs::write(bin.join("claude"), AGENT).expect("a desk");
    std::fs::set_permissions(bin.join("claude"), std::fs::Permissions::from_mode(0o755))
        .expect("a desk");
    std::fs::write(desk.home.join(".ssh/id_test"), "planted").expect("a desk");
    let token = "{\"claudeAiOauth\":{\"accessToken\":\"old\",\"expiresAt\":1}}";
    std::fs::write(desk.home.join(".claude/.credentials.json"), token).expect("a desk");
    std::fs::write(desk.home.join(".claude.json"), "{\"userID\":\"u\"}").expect("a desk");
    desk
}

fn owner() -> PolicyRequest {
    PolicyRequest {
        owner: PolicyDocument {
            network: Some(Network::None),
            ..PolicyDocument::default()
        },
        ..PolicyRequest::default()
    }
}

fn asked(desk: &Desk, words: &[&str]) -> TaskRequest {
    let program = desk.home.join(".npm-global/bin/claude");
    let mut argv = vec![program.as_path().into()];
    argv.extend(words.iter().map(|word| (*word).into()));
    TaskRequest {
        command: CommandForm::Argv(argv),
        ..shell_task("")
    }
}

fn run(desk: &Desk, policy: PolicyRequest, words: &[&str]) -> (TaskResult, Vec<String>) {
    let mut said = Vec::new();
    let runtime = desk.runtime();
    let mut progress = |step| match step {
        TaskProgress::WorkspaceReady { notes, .. } => said.extend(notes),
        TaskProgress::Noted { text } => said.push(text),
        _ => {}
    };
    let result = task_with(
        &runtime,
        policy,
        asked(desk, words),
        &Control::new(),
        &mut progress,
    );
    (result, said)
}

fn output(result: &TaskResult) -> &str {
    &result.task_result.as_ref().expect("it ran").output
}

fn transcript(desk: &Desk) -> String {
    let name: String = desk
        .repo
        .to_str()
        .expect("a desk")
        .chars()
        .map(|one| {
            if one.is_ascii_alphanumeric() {
                one
            } else {
                '-'
            }
        })
        .collect();
    let path = desk.home.join(".claude/projects").join(name);
    std::fs::read_to_string(path.join("session.jsonl")).unwrap_or_default()
}

#[test]
fn b148_tokens_and_sessions_survive_and_a_planted_hook_or_server_is_shown_and_not_applied() {
    if !has_walls() {
        return;
    }
    let desk = desk();
    let (result, said) = run(&desk, owner(), &["-p", "edit"]);
    assert_eq!(result.status, Status::Completed, "{result:#?}");
    let out = output(&result);
    assert!(
        out.contains("--dangerously-skip-permissions -p edit"),
        "{out}"
    );
    assert!(out.contains("sandbox: 1 updates: 1"), "{out}");
    assert!(out.contains("\"accessToken\":\"old\""), "{out}");
    assert!(!out.contains("id_test"), "{out}");
    assert!(transcript(&desk).contains(desk.repo.to_str().unwrap()));
    let read = |path: &str| std::fs::read_to_string(desk.home.join(path)).unwrap_or_default();
    assert!(read(".claude/.credentials.json").contains("renewed"));
    assert!(!desk.home.join(".claude/settings.local.json").exists());
    assert!(!desk.home.join(".bashrc").exists());
    assert!(!read(".claude.json").contains("evil"));
    let text = said.join("\n");
    for part in [
        "the agent's own sandbox is off: ours holds",
        "~/.claude/.credentials.json",
        "the agent changed its own configuration, which is not applied",
        "~/.bashrc",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let kinds: Vec<&str> = result
        .evidence
        .iter()
        .map(|one| one.kind.as_str())
        .collect();
    assert!(
        kinds.contains(&"credentials") && kinds.contains(&"agent_state"),
        "{kinds:?}"
    );
    let runtime = desk.runtime();
    let written = serde_json::to_string(&events(&runtime)).unwrap();
    assert!(
        !written.contains("accessToken\\\\\\\":\\\\\\\"renewed"),
        "a token in the journal"
    );
    let state = runtime.agent_state("1").unwrap();
    let shown: Vec<_> = state
        .iter()
        .map(|one| (one.path.to_string(), one.what))
        .collect();
    assert_eq!(
        shown,
        [
            (".claude.json".to_owned(), StateChangeKind::Modified),
            (
                ".claude/settings.local.json".to_owned(),
                StateChangeKind::Added
            ),
        ]
    );
    assert!(state[1].diff.contains("evil"));
    assert!(
        std::fs::read_dir(desk.data.join("homes"))
            .unwrap()
            .flatten()
            .all(|one| one.path().is_file())
    );

    // The second run goes on with the session of the first.
    let (result, _) = run(&desk, owner(), &["--continue"]);
    assert_eq!(output(&result).matches("history: ").count(), 2);

    // The owner alone applies.
    runtime.apply_state("1", "~/.claude.json").unwrap();
    runtime
        .apply_state("1", ".claude/settings.local.json")
        .unwrap();
    assert!(read(".claude.json").contains("evil"));
    assert!(read(".claude/settings.local.json").contains("evil"));
    let unknown = runtime.apply_state("1", ".ssh/id_test").unwrap_err();
    assert_eq!(unknown.code.as_str(), "invalid_request");
}

#[test]
fn without_a_profile_the_home_is_empty() {
    if !has_walls() {
        return;
    }
    let desk = desk();
    let mut policy = owner();
    policy.owner.profile = Some("none".to_owned());
    let (result, _) = run(&desk, policy, &[]);
    let out = output(&result);
    assert!(!out.contains("old"), "{out}");
    assert!(out.contains("arguments: \n"), "{out}");
    assert_eq!(transcript(&desk), "");
}

#[test]
fn without_walls_nothing_of_the_agent_is_switched_off() {
    let desk = desk();
    let mut policy = owner();
    policy.owner.network = Some(Network::Full);
    policy.owner.provider = Some(ProviderChoice::Direct);
    let (result, said) = run(&desk, policy, &["x"]);
    let out = output(&result);
    assert!(out.contains("arguments: x\n"), "{out}");
    assert!(out.contains("sandbox:  updates: 1"), "{out}");
    assert!(
        said.iter().any(|one| one.contains("without walls")),
        "{said:?}"
    );
}

#[test]
fn landlock_gives_the_private_home_another_path() {
    let desk = desk();
    let mut policy = owner();
    policy.owner.provider = Some(ProviderChoice::Landlock);
    let (result, said) = run(&desk, policy, &["x"]);
    if result
        .error
        .as_ref()
        .is_some_and(|one| one.code.as_str() == "landlock_unavailable")
    {
        crate::support::skipped("landlock does not work here");
        return;
    }
    assert_eq!(result.status, Status::Completed, "{result:#?}");
    assert!(output(&result).contains("\"accessToken\":\"old\""));
    let token = std::fs::read_to_string(desk.home.join(".claude/.credentials.json")).unwrap();
    assert!(token.contains("renewed"));
    assert!(
        said.iter().any(|one| one.contains("another path")),
        "{said:?}"
    );
}

/// Dies when the agent says that it waits.
struct Deadly;

impl OutputSink for Deadly {
    fn write(&mut self, _stream: Stream, bytes: &[u8]) -> std::io::Result<()> {
        if bytes.windows(7).any(|part| part == b"waiting") {
            kill_process(getpid(), Signal::KILL)?;
        }
        Ok(())
    }
}

/// Runs in a process of its own and dies while the agent works.
#[test]
#[ignore = "the child of another test"]
fn child() {
    let Some(top) = told("COFFERDAM_TEST_DESK").map(std::path::PathBuf::from) else {
        return;
    };
    let options = options(&top.join("home"), &top.join("data"), &top.join("repo"));
    let runtime = cofferdam_runtime::Runtime::open(options).unwrap();
    let mut policy = owner();
    let set = [("WAIT".to_owned(), "1".to_owned())].into();
    policy.owner.env.get_or_insert_default().set = Some(set);
    let program = top.join("home/.npm-global/bin/claude");
    let _ = runtime.run_task(TaskRunRequest {
        policy,
        task: TaskRequest {
            command: CommandForm::Argv(vec![program.as_path().into()]),
            ..shell_task("")
        },
        front_door: FrontDoor::Embedded,
        io: CommandIo::Stream {
            input: None,
            sink: &mut Deadly,
        },
        progress: &mut |_| {},
        control: Control::new(),
    });
}

#[test]
fn after_a_kill_the_next_start_brings_transcripts_back_and_removes_the_home() {
    if !has_walls() {
        return;
    }
    let desk = desk();
    rerun(&desk, "agents::child", "command");
    let left = || {
        let entries = std::fs::read_dir(desk.data.join("homes")).unwrap();
        entries.flatten().filter(|one| one.path().is_dir()).count()
    };
    assert_eq!((left(), transcript(&desk).as_str()), (1, ""));
    let runtime = desk.runtime();
    let settled = runtime.reconcile().unwrap();
    assert_eq!(settled.len(), 1);
    assert_eq!(left(), 0);
    assert!(transcript(&desk).starts_with("turn in "));
    assert!(!desk.home.join(".claude/settings.local.json").exists());
    let events = events(&runtime);
    let home = events
        .iter()
        .rfind(|event| event.kind == event_type::AGENT_HOME)
        .expect("told");
    assert_eq!(home.data["step"], "settled");
    assert!(home.task.is_some());
    assert_eq!(runtime.agent_state("1").unwrap().len(), 2);
}

#[test]
fn profiles_of_the_user_take_the_place_of_shipped_ones() {
    let desk = Desk::new();
    let place = desk.home.join(".config/cofferdam/profiles");
    std::fs::create_dir_all(&place).unwrap();
    let text = "schema = 1\nname = \"claude\"\nprograms = [\"mine\"]\n";
    std::fs::write(place.join("claude.toml"), text).unwrap();
    std::fs::write(place.join("broken.toml"), "schema = 1\ntitel = \"x\"\n").unwrap();
    let surroundings = Surroundings::new([("HOME", &desk.home)], &desk.repo);
    let profiles = Profiles::read(&surroundings);
    let names: Vec<&str> = profiles
        .entries()
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(
        names,
        ["broken", "claude", "codex", "cursor", "gemini", "opencode"]
    );
    let mine = profiles.find("claude").unwrap().profile.as_ref().unwrap();
    assert_eq!(mine.programs, ["mine"]);
    let broken = profiles
        .find("broken")
        .unwrap()
        .profile
        .as_ref()
        .unwrap_err();
    assert_eq!(broken.hint.as_deref(), Some("did you mean \"title\"?"));
    assert!(profiles.find("nobody").is_err());
}

#[test]
fn a_single_command_has_a_private_home_where_a_profile_is_named() {
    if !has_walls() {
        return;
    }
    let desk = desk();
    let runtime = desk.runtime();
    let mut policy = owner();
    policy.owner.profile = Some("claude".to_owned());
    let command = RunCommand {
        cwd: Some(desk.repo.as_path().into()),
        ..RunCommand::new(asked(&desk, &["x"]).command)
    };
    let outcome = crate::support::run(&runtime, policy, command);
    assert_eq!(outcome.status, Status::Completed, "{outcome:#?}");
    assert!(outcome.output.contains("\"accessToken\":\"old\""));
    assert!(transcript(&desk).starts_with("turn in "));
    assert!(!desk.home.join(".claude/settings.local.json").exists());
    let notes = runtime.take_notes().join("\n");
    assert!(notes.contains("credentials of its own"), "{notes}");
    assert!(notes.contains("which is not applied"), "{notes}");
    let homes = std::fs::read_dir(desk.data.join("homes")).unwrap();
    assert!(homes.flatten().all(|one| one.path().is_file()));
}
