//! Row 75: every published code, and through which doors it was really seen: the library, the command
//! line, HTTP and MCP say the same about the same request.

use std::io::{BufRead as _, Write as _};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use cofferdam_client::Client;
use cofferdam_core::error::ErrorCode;
use cofferdam_core::policy::{Permission, PolicyDocument, ProviderChoice};
use cofferdam_core::spec::Network;
use cofferdam_journal::SystemAmbient;
use cofferdam_runtime::{PolicyRequest, Runtime, RuntimeOptions, Surroundings};
use cofferdam_server::{Operation, OperationHost, OperationTable};
use serde_json::{Value, json};

use crate::scene::{Scene, Server, has_walls};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Library,
    CommandLine,
    Http,
    Mcp,
}

use Door::{CommandLine, Http, Library, Mcp};

const ALL: &[Door] = &[Library, CommandLine, Http, Mcp];
/// The owner at the keyboard is not asked.
const NOT_OWNER: &[Door] = &[Library, Http, Mcp];
/// An agent's own door has no way to speak for the owner.
const NOT_AGENT: &[Door] = &[Library, CommandLine, Http];

/// How a code is shown.
enum Shown {
    /// By this operation, in the walls of a group, through these doors.
    By {
        group: usize,
        before: Option<(&'static str, Value)>,
        operation: &'static str,
        request: Value,
        doors: &'static [Door],
    },
    /// By a test of its own: it takes more than one request, or has one door only.
    Test(&'static str),
    /// By none, and why.
    Never(&'static str),
}

/// Walls and what the owner's policy says.
struct Group {
    walls: &'static [&'static str],
    provider: ProviderChoice,
    permission: Option<Permission>,
    network: Option<Network>,
}

const DIRECT: usize = 0;
const READONLY: usize = 1;
const NO_NETWORK: usize = 2;
const MICROVM: usize = 3;

const GROUPS: [Group; 4] = [
    Group {
        walls: &["--provider", "direct"],
        provider: ProviderChoice::Direct,
        permission: Some(Permission::Unrestricted),
        network: None,
    },
    Group {
        walls: &["--permission", "readonly"],
        provider: ProviderChoice::Auto,
        permission: Some(Permission::Readonly),
        network: None,
    },
    Group {
        walls: &["--net", "none"],
        provider: ProviderChoice::Auto,
        permission: None,
        network: Some(Network::None),
    },
    Group {
        walls: &["--provider", "microvm"],
        provider: ProviderChoice::Microvm,
        permission: None,
        network: None,
    },
];

fn by(operation: &'static str, request: Value) -> Shown {
    through(ALL, operation, request)
}

fn through(doors: &'static [Door], operation: &'static str, request: Value) -> Shown {
    Shown::By {
        group: DIRECT,
        before: None,
        operation,
        request,
        doors,
    }
}

fn in_group(group: usize, operation: &'static str, request: Value) -> Shown {
    Shown::By {
        group,
        before: None,
        operation,
        request,
        doors: ALL,
    }
}

fn after(before: (&'static str, Value), operation: &'static str, request: Value) -> Shown {
    Shown::By {
        group: DIRECT,
        before: Some(before),
        operation,
        request,
        doors: ALL,
    }
}

const HOST: &str = "a state of the host, told by its probe and not by a request";
const MISHAP: &str = "a mishap and no refusal";

/// Every code has a row.
#[expect(clippy::too_many_lines, reason = "a row for each code")]
fn shown(code: ErrorCode) -> Shown {
    use ErrorCode as Code;
    use Shown::{Never, Test};
    let none = "cmd_0190000000007000800000000000";
    let digest = "0".repeat(64);
    match code {
        Code::InvalidRequest => by("run_command", json!({})),
        Code::InvalidTimeout => by("run_command", json!({"command": "true", "timeout": -1.0})),
        Code::PolicyUnreadable => {
            Test("exec::a_missing_file_is_no_layer_and_a_broken_one_an_error")
        }
        Code::PolicyUnknownKey
        | Code::PolicyInvalidValue
        | Code::PolicyContradiction
        | Code::UnsupportedField => Test("cofferdam::policy_files_are_refused_by_the_same_code"),
        Code::PolicyWidening => in_group(
            NO_NETWORK,
            "run_command",
            json!({"command": "true", "network": "full"}),
        ),
        Code::Unenforceable => by("run_command", json!({"command": "true", "network": "none"})),
        Code::ProviderUnavailable => in_group(MICROVM, "run_command", json!({"command": "true"})),
        Code::UsernsNoCaps
        | Code::NamespacesFiltered
        | Code::UsernsExhausted
        | Code::ProcMountRefused
        | Code::RootWithoutSetfcap
        | Code::BwrapMissing
        | Code::BwrapFailed
        | Code::BwrapHung
        | Code::EngineMissing
        | Code::EngineFailed
        | Code::LandlockUnavailable => Never(HOST),
        Code::PortTaken => {
            Test("exec::a_port_that_is_taken_outside_is_refused_before_anything_runs")
        }
        Code::WorkspaceRefused | Code::WorkspaceMissing => {
            Test("cofferdam::places_that_are_no_workspace")
        }
        Code::WorkspaceMismatch => by(
            "run_command",
            json!({"command": "true", "workspace": "/nowhere"}),
        ),
        Code::CwdOutside => by("run_command", json!({"command": "true", "cwd": "/"})),
        Code::CwdMissing => by("run_command", json!({"command": "true", "cwd": "none"})),
        Code::SocketRefused => by(
            "path_request",
            json!({"path": "{scene}/home/a.sock", "reason": "to see"}),
        ),
        Code::PathRefused => by("path_request", json!({"path": "/", "reason": "to see"})),
        Code::PathUnknown => through(NOT_AGENT, "path_revoke", json!({"rule_id": "rule_none"})),
        Code::PathOutside => by("read_file", json!({"path": "../outside"})),
        Code::FileMissing => by("read_file", json!({"path": "none"})),
        Code::FileExists => by("create_file", json!({"path": "a.txt"})),
        Code::NotAFile => by("read_file", json!({"path": "folder"})),
        Code::NotAFolder => by("list_folder", json!({"path": "a.txt"})),
        Code::FolderNotEmpty => by("delete_folder", json!({"path": "folder"})),
        Code::FileTooLarge => by("read_file", json!({"path": "large"})),
        Code::FileConflict => by(
            "write_file",
            json!({"path": "a.txt", "content": "x", "expected_digest": digest}),
        ),
        Code::FileUnread => through(
            NOT_OWNER,
            "edit_file",
            json!({"path": "b.txt", "replacements": [{"old_string": "two", "new_string": "three"}]}),
        ),
        Code::EditFailed => after(
            ("read_file", json!({"path": "a.txt"})),
            "edit_file",
            json!({"path": "a.txt", "replacements": [{"old_string": "nowhere", "new_string": "x"}]}),
        ),
        Code::ChangeUnknown => by("restore_file", json!({"change_id": "chg_none"})),
        Code::NotFound => by("run_command", json!({"argv": ["no-such-program-here"]})),
        Code::NotExecutable => by("run_command", json!({"argv": ["./a.txt"]})),
        Code::Denied => by("read_file", json!({"path": ".env"})),
        Code::ApprovalUnavailable => by("tool_run", json!({"name": "proposed"})),
        Code::ReadonlyDenied => in_group(
            READONLY,
            "write_file",
            json!({"path": "made", "content": "x"}),
        ),
        Code::ApprovalRejected => {
            Test("runtime::row_37_an_agent_asks_and_the_answer_is_the_authorisation")
        }
        Code::ApprovalClosed => {
            Test("runtime::row_70_whoever_stops_waiting_cancels_and_an_answer_is_a_conflict_then")
        }
        Code::ApprovalExpired => {
            Never("nobody waits an hour in a test; core holds it by the clock")
        }
        Code::ApprovalForbidden => {
            Never("no door lets anybody answer who may not: scope_missing comes before")
        }
        Code::GrantRefused => {
            Never("an answer is bound where it is asked: no request has room for another one")
        }
        Code::ApprovalUnknown => by("approval_get", json!({"approval_id": "appr_none"})),
        Code::NotARepository | Code::RepoUnborn | Code::RepoBare => {
            Test("exec::a5_unborn_bare_and_no_repository_are_told_apart")
        }
        Code::BranchTaken | Code::DirectoryTaken => {
            Test("exec::a12_nothing_is_deleted_to_make_room")
        }
        Code::SetupFailed => Test("runtime::a16_setup_that_fails_never_starts_the_command"),
        Code::ModeUnsupported => {
            Test("cofferdam::a_mode_that_an_agent_cannot_do_is_refused_by_name")
        }
        Code::TargetMoved => {
            Test("exec::a_change_is_applied_by_its_owner_and_only_where_nothing_moved")
        }
        Code::CheckoutDirty => {
            Test("exec::c3_c4_a_dirty_checkout_of_the_target_is_refused_and_untouched")
        }
        Code::MergeConflict => Test("runtime::c82_a_conflict_leaves_both_sides_as_they_are"),
        Code::OtherRepository => {
            Test("runtime::what_belongs_to_another_repository_is_not_merged_by_accident")
        }
        Code::SessionUnknown => by("session_get", json!({"session": "none"})),
        Code::SessionBusy => Test(
            "exec::commands_of_a_shell_session_wait_for_their_turn_and_say_when_it_does_not_come",
        ),
        Code::SessionTaken => after(
            ("session_open", json!({"name": "taken"})),
            "session_open",
            json!({"name": "taken"}),
        ),
        Code::SyntaxIncomplete => after(
            ("session_open", json!({"name": "open"})),
            "session_run",
            json!({"session": "open", "command": "cat <<EOF"}),
        ),
        Code::TaskUnknown => Test("cofferdam::what_names_none_or_several_is_refused"),
        Code::TaskState => Test("exec::d3_a_dropped_task_can_be_brought_back"),
        Code::CommandUnknown => by("command_get", json!({"command_id": none})),
        Code::TooManyCommands => Test("runtime::no_more_than_so_many_run_at_once"),
        Code::OffsetOutOfWindow => Test("runtime::row_17_c7_pages_rebuild_the_log_byte_for_byte"),
        Code::OutputExpired => {
            Test("runtime::row_21_after_its_time_the_output_is_gone_and_said_to_be")
        }
        Code::TerminalExists => after(
            ("terminal_open", json!({"name": "twice"})),
            "terminal_open",
            json!({"name": "twice"}),
        ),
        Code::TerminalUnknown => by("terminal_snapshot", json!({"name": "none"})),
        Code::TerminalLimit => Test("runtime::row_24_limits_name_what_is_there"),
        Code::DataDirRefused => Test("journal::the_data_directory_must_be_private"),
        Code::InvalidCursor | Code::InvalidTime => Test("server::c100_wrong_parameters_are_named"),
        Code::Unauthorized => Test("server::the_token_is_always_asked_for"),
        Code::OriginRefused => Test("server::f1_a_page_of_another_site_is_refused"),
        Code::ListenRefused => Test("server::f8_only_loopback_without_a_token_of_ones_own"),
        Code::MethodNotAllowed => Test("server::c105_no_verb_writes"),
        Code::UnsupportedMediaType => Test("server::f1_what_a_web_page_can_send_has_no_effect"),
        Code::OperationUnknown => Test("server::wrong_requests_have_the_status_that_says_so"),
        Code::ScopeMissing => Test("server::the_token_for_work_runs_commands_and_answers_nothing"),
        Code::NoSuchResource => Test("server::c104_each_view_answers"),
        Code::ServerRunning => Test("server::one_server_for_each_data_directory"),
        Code::QuotaExceeded => {
            Test("runtime::row_38_the_quota_of_the_policy_holds_also_after_a_restart")
        }
        Code::ProposalUnknown => Test("runtime::row_147_one_answer_releases_all_or_part"),
        Code::ProposalDecided | Code::RemoteUnknown => {
            Test("runtime::row_149_flags_addresses_and_foreign_names_are_no_remotes")
        }
        Code::PushFailed => {
            Test("runtime::nothing_is_forced_and_a_rejected_push_can_be_released_again")
        }
        Code::SecretUnavailable => {
            Test("exec::a_secret_that_cannot_be_had_keeps_everything_from_starting")
        }
        Code::ForgeUnknown => {
            Test("runtime::row_149_where_nothing_opens_pull_requests_it_is_refused_with_a_remedy")
        }
        Code::EffectFailed => Test(
            "runtime::row_147_a_command_that_fails_waits_again_and_one_that_was_cut_off_does_not",
        ),
        Code::SessionLimit => Never("too many places to open in a test that runs beside others"),
        Code::CommandState | Code::TerminalEnded => {
            Never("it takes a race with an end, and is a state more than a refusal")
        }
        Code::RequestTooLarge => Never("its body is more than a test should send"),
        Code::ContentExpired => Never("it takes the end of a retention"),
        Code::JournalLocked
        | Code::JournalNewer
        | Code::JournalCorrupt
        | Code::JournalNetworkFs => Never("the journal cannot be used: no request is looked at"),
        Code::HarvestRejected
        | Code::GitFailed
        | Code::GitUnavailable
        | Code::SpawnFailed
        | Code::EnclosureLost
        | Code::Cancelled
        | Code::FileTimeout
        | Code::StorageExhausted
        | Code::ServerUnreachable
        | Code::JournalIo
        | Code::Io
        | Code::Internal => Never(MISHAP),
        // A new code has no row yet, and the test says so.
        #[allow(
            unreachable_patterns,
            reason = "reachable as soon as there is a new code"
        )]
        _ => Never(""),
    }
}

#[test]
fn row_75_every_code_has_a_row() {
    let top = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let crates = top.parent().expect("the crates");
    for code in ErrorCode::ALL {
        match shown(*code) {
            Shown::By { operation, .. } => {
                assert!(OperationTable::new().find(operation).is_some(), "{code}");
            }
            Shown::Test(name) => {
                let (package, test) = name.split_once("::").expect("a package and a test");
                let wanted = format!("fn {test}(");
                assert!(holds(&crates.join(package), &wanted), "{code}: {name}");
            }
            Shown::Never(why) => assert!(!why.is_empty(), "{code} has no row"),
        }
    }
}

/// Looks for a text in the Rust files below a directory.
fn holds(directory: &std::path::Path, wanted: &str) -> bool {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return holds(&path, wanted);
        }
        path.extension().is_some_and(|end| end == "rs")
            && std::fs::read_to_string(&path).is_ok_and(|text| text.contains(wanted))
    })
}

fn furnished() -> Scene {
    let scene = Scene::new();
    scene.repository();
    scene.write("b.txt", "two\n");
    scene.write(".env", "KEY=1\n");
    for name in ["folder", ".cofferdam/tools"] {
        std::fs::create_dir_all(scene.work().join(name)).expect("made");
    }
    scene.write("folder/file", "x\n");
    scene.write(
        ".cofferdam/tools/proposed.toml",
        "schema = 1\nname = \"proposed\"\ndescription = \"says one\"\nargv = [\"echo\", \"one\"]\n",
    );
    let large = std::fs::File::create(scene.work().join("large")).expect("made");
    large.set_len(300 << 20).expect("long");
    scene
}

/// The four doors of one scene and one group.
struct Doors<'s> {
    scene: &'s Scene,
    group: &'s Group,
    library: Result<Arc<OperationHost>, ErrorCode>,
    _server: Server,
    http: Client,
    agent: Agent,
}

impl<'s> Doors<'s> {
    fn open(scene: &'s Scene, group: &'s Group) -> Self {
        if group.permission == Some(Permission::Unrestricted) {
            scene.unasked();
        }
        let line = [&["serve", "--listen", "127.0.0.1:0", "--json"], group.walls].concat();
        let mut child = scene.command(&line).spawn().expect("the program starts");
        let mut said = String::new();
        let output = child.stdout.take().expect("a pipe");
        std::io::BufReader::new(output)
            .read_line(&mut said)
            .expect("a line");
        let server = Server(child);
        let told: Value = serde_json::from_str(&said).expect("JSON");
        let part = |name: &str| told[name].as_str().expect(name).to_owned();
        let address = format!("http://{}", part("address"));
        let token = PathBuf::from(part("token_file"));
        let http = Client::with_token_file(&address, &token).expect("a client");
        let variables = [
            ("HOME", scene.path("home").into_os_string()),
            ("PATH", "/usr/local/bin:/usr/bin:/bin".into()),
        ];
        let surroundings = Surroundings::new(variables, scene.work());
        let mut options = RuntimeOptions::new(surroundings, Arc::new(SystemAmbient::new()));
        options.data_dir = Some(scene.path("library"));
        let runtime = Arc::new(Runtime::open(options).expect("a runtime"));
        let policy = PolicyRequest {
            workspace: Some(scene.work()),
            owner: PolicyDocument {
                provider: Some(group.provider).filter(|one| *one != ProviderChoice::Auto),
                permission: group.permission,
                network: group.network,
                ..PolicyDocument::default()
            },
            ..PolicyRequest::default()
        };
        Self {
            library: OperationHost::open(runtime, policy)
                .map(Arc::new)
                .map_err(|problem| problem.code),
            scene,
            group,
            _server: server,
            http,
            agent: Agent::start(scene, group.walls),
        }
    }

    fn code(&mut self, door: Door, operation: &str, request: &Value) -> Option<String> {
        match door {
            Library => {
                let host = match &self.library {
                    Ok(host) => host,
                    Err(code) => return Some(code.to_string()),
                };
                let table = OperationTable::new();
                let operation = table.find(operation).expect("an operation");
                match operation.call_value(&host.context(), request.clone()) {
                    Ok(value) => code_in(&value),
                    Err(problem) => Some(problem.code.to_string()),
                }
            }
            CommandLine => {
                let text = request.to_string();
                let mut line = vec!["call"];
                let table = OperationTable::new();
                let outlives = table.find(operation).is_some_and(Operation::outlives_call);
                // A server's walls are its own.
                if !outlives {
                    line.extend(self.group.walls);
                }
                line.extend([operation, "--json", "--request", &text]);
                code_in(&self.scene.run(&line).json())
            }
            Http => match self.http.call(operation, request) {
                Ok(value) => code_in(&value),
                Err(problem) => Some(problem.code.to_string()),
            },
            Mcp => code_in(&self.agent.call(operation, request)),
        }
    }
}

/// Finds the code of a refusal in an answer.
fn code_in(value: &Value) -> Option<String> {
    let inner = value.get("result").filter(|one| one.is_object());
    let places = [Some(value), inner, value.get("error")];
    places.into_iter().flatten().find_map(|place| {
        let code = place
            .get("code")
            .or_else(|| place.get("error")?.get("code"));
        code.and_then(Value::as_str).map(str::to_owned)
    })
}

/// A client of the MCP door.
struct Agent {
    child: std::process::Child,
    input: std::process::ChildStdin,
    output: std::io::Lines<std::io::BufReader<std::process::ChildStdout>>,
}

impl Agent {
    fn start(scene: &Scene, walls: &[&str]) -> Self {
        let line: Vec<&str> = ["mcp"].iter().chain(walls).copied().collect();
        let mut command = scene.command(&line);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let input = child.stdin.take().expect("a pipe");
        let output = child.stdout.take().expect("a pipe");
        let mut agent = Self {
            child,
            input,
            output: std::io::BufReader::new(output).lines(),
        };
        agent.say(
            &json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "0"},
            }}),
        );
        agent.hear(0);
        agent.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        agent
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.input, "{message}").expect("sent");
    }

    fn hear(&mut self, id: u64) -> Value {
        loop {
            let line = self.output.next().expect("an answer").expect("text");
            let told: Value = serde_json::from_str(&line).expect("JSON");
            if told["id"] == json!(id) && told.get("method").is_none() {
                return told;
            }
        }
    }

    fn call(&mut self, operation: &str, request: &Value) -> Value {
        let params = json!({"name": operation, "arguments": request});
        self.say(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}));
        self.hear(1)["result"]["structuredContent"].clone()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn check_group(number: usize) {
    let scene = furnished();
    let socket = scene.path("home/a.sock");
    let _listener = std::os::unix::net::UnixListener::bind(socket).expect("bound");
    let mut doors = Doors::open(&scene, &GROUPS[number]);
    let mut wrong = Vec::new();
    for code in ErrorCode::ALL {
        let Shown::By {
            group,
            before,
            operation,
            request,
            doors: through,
        } = shown(*code)
        else {
            continue;
        };
        if group != number {
            continue;
        }
        let top = scene.path("");
        let top = top
            .to_str()
            .expect("a path of letters")
            .trim_end_matches('/');
        let request = request.to_string().replace("{scene}", top);
        let request: Value = serde_json::from_str(&request).expect("JSON");
        for door in through {
            if let Some((operation, request)) = &before {
                // It may be there already: doors share a server.
                let _ = doors.code(*door, operation, request);
            }
            let said = doors.code(*door, operation, &request);
            if said.as_deref() != Some(code.as_str()) {
                wrong.push(format!("{code} through {door:?}: {said:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn row_75_the_same_code_at_every_door() {
    check_group(DIRECT);
}

#[test]
fn row_75_the_same_code_at_every_door_behind_walls() {
    if !has_walls() {
        return;
    }
    for group in [READONLY, NO_NETWORK, MICROVM] {
        check_group(group);
    }
}

#[test]
fn policy_files_are_refused_by_the_same_code() {
    for (text, code) in [
        (
            "schema = 1\nnetwrok = \"none\"\n",
            ErrorCode::PolicyUnknownKey,
        ),
        (
            "schema = 1\nnetwork = \"some\"\n",
            ErrorCode::PolicyInvalidValue,
        ),
        (
            "schema = 1\nprovider = \"direct\"\npermission = \"readonly\"\n",
            ErrorCode::PolicyContradiction,
        ),
        (
            "schema = 1\n[limits]\ndisk = \"1GiB\"\n",
            ErrorCode::UnsupportedField,
        ),
        ("schema =\n", ErrorCode::PolicyUnreadable),
    ] {
        let scene = Scene::new();
        let place = scene.path("home/.config/cofferdam");
        std::fs::create_dir_all(&place).expect("made");
        std::fs::write(place.join("policy.toml"), text).expect("written");
        let said = scene.run(&["run", "--json", "--", "true"]).json();
        assert_eq!(code_in(&said).as_deref(), Some(code.as_str()), "{said}");
        let request = r#"{"command": "true"}"#;
        let said = scene
            .run(&["call", "run_command", "--json", "--request", request])
            .json();
        assert_eq!(code_in(&said).as_deref(), Some(code.as_str()), "{said}");
    }
}
