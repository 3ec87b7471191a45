//! What an agent calls that was set up with `--mode hook`: its commands go through a session of a
//! server that the agent itself holds, and whose walls the owner fixed when setting it up.
//!
//! Whoever asks here is the agent: everything goes over the protocol of that server, so it may
//! narrow and never widen.

use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_client::{Client, find_server};
use cofferdam_core::announce::Announcement;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::exit;
use cofferdam_core::operation::{OpenSession, RunInSession, SessionResult, SessionView};
use cofferdam_journal::DataDir;
use cofferdam_server::{McpServer, OperationHost, Server, ServerOptions};
use serde_json::{Value, json};

use super::policy_watch::{PolicyWatch, following};
use super::serve::{SERVER_STOPPED, attend, end_on_signals, served_policy};
use super::session::show;
use crate::arguments::setup::{
    Agent, HookCommand, HookHostArguments, HookRewriteArguments, HookRunArguments,
};
use crate::context::Context;
use crate::failure::Ending;

/// Where servers that agents hold are found, below the data directory: each by its agent's process.
pub(super) const HOSTS: &str = "hooks";
/// The session of such a server.
const SESSION: &str = "agent";
/// How long is waited for a server that the agent is still starting.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Ancestors that are looked at.
const ANCESTORS: usize = 32;
/// The exit code by which a hook stops what it was asked about.
const STOP: u8 = 2;

/// Carries out `hook …`.
pub(crate) fn hook(context: &Context, command: &HookCommand) -> Ending {
    match command {
        HookCommand::Host(arguments) => host(context, arguments),
        HookCommand::Rewrite(arguments) => rewrite(context, arguments),
        HookCommand::Run(arguments) => run(context, arguments),
    }
}

/// Serves for as long as the agent keeps standard input open.
fn host(context: &Context, arguments: &HookHostArguments) -> Ending {
    let policy = served_policy(context, &arguments.walls)?;
    let runtime = Arc::new(context.runtime()?);
    // Other processes may ask for the end of what runs here.
    runtime.attend();
    let hosts = runtime.data_dir().join(HOSTS);
    sweep(&hosts);
    let place = hosts.join(std::os::unix::process::parent_id().to_string());
    DataDir::open(&hosts).map_err(|error| error.to_problem())?;
    let data = DataDir::open(&place).map_err(|error| error.to_problem())?;
    attend(&runtime, &policy, &arguments.walls)?;
    let operations = OperationHost::open(Arc::clone(&runtime), policy)?.for_hook();
    let operations = Arc::new(operations);
    let watch = PolicyWatch::start(following(
        Arc::clone(&runtime),
        operations.context().policy(),
    ))?;
    let mut options = ServerOptions::new(
        SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        data,
        Arc::clone(runtime.journal()),
        Arc::clone(&context.ambient),
    );
    options.operations = Ok(operations);
    let server = Server::bind(options).map_err(|error| error.to_problem())?;
    let held = McpServer::without_tools(
        "Commands of this agent go through a session of this server. It offers no tools.",
    );
    let (stop_server, stop_held) = (server.stop_handle(), held.stop_handle());
    let stop = {
        let stop_server = stop_server.clone();
        move || {
            stop_held.stop();
            stop_server.stop();
        }
    };
    let signals = end_on_signals(&runtime, stop)?;
    let serving = std::thread::Builder::new()
        .name("serving".to_owned())
        .spawn(move || server.run_blocking())
        .map_err(|error| Problem::new(ErrorCode::Io, format!("no thread: {error}")))?;
    let ended = held.run_blocking().map_err(|error| error.to_problem());
    // The session first: whoever waits for one of its commands is told.
    runtime.end_lasting(SERVER_STOPPED);
    stop_server.stop();
    let served = serving.join();
    signals.close();
    drop(watch);
    // Nobody finds it any more; a new one of the same agent makes it anew.
    let _ = std::fs::remove_dir_all(&place);
    ended?;
    if let Ok(served) = served {
        served.map_err(|error| error.to_problem())?;
    }
    Ok(exit::SUCCESS)
}

/// Removes what servers left that were killed: the kernel has let go of their locks.
fn sweep(hosts: &std::path::Path) {
    let entries = std::fs::read_dir(hosts).into_iter().flatten().flatten();
    for entry in entries {
        let process = entry.file_name();
        let lives = std::path::Path::new("/proc").join(&process).exists();
        // Of a living agent it may be one that is just starting.
        if !lives && find_server(&entry.path()).is_none() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Answers what the agent is to run instead.
fn rewrite(context: &Context, arguments: &HookRewriteArguments) -> Ending {
    let mut text = String::new();
    let asked = std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| error.to_string())
        .and_then(|_| serde_json::from_str::<Value>(&text).map_err(|error| error.to_string()))
        .and_then(|asked| answer(context, arguments, &asked));
    match asked {
        Ok(answer) => {
            context.output.line(&answer)?;
            Ok(exit::SUCCESS)
        }
        Err(why) => {
            // The agent shows it to its model.
            context.output.explain(
                &Problem::new(
                    ErrorCode::InvalidRequest,
                    format!("the command was not run, the hook does not understand: {why}"),
                )
                .with_hint("the owner may run: cofferdam setup AGENT --undo"),
            );
            Ok(STOP)
        }
    }
}

fn answer(
    context: &Context,
    arguments: &HookRewriteArguments,
    asked: &Value,
) -> Result<Value, String> {
    let told = |problem: Problem| problem.message;
    let mut own = super::setup::own_word().map_err(told)?;
    // The shell of the agent may have other variables.
    if let Some(place) = context.other_data_dir().map_err(told)? {
        let place = super::setup::quoted(super::setup::plain_path(&place).map_err(told)?);
        own = format!("{own} --data-dir {place}");
    }
    let input = asked.get("tool_input").ok_or("there is no tool_input")?;
    let command = input
        .get("command")
        .and_then(Value::as_str)
        .ok_or("there is no command in tool_input")?;
    let is_codex = arguments.agent == Agent::Codex;
    // Codex goes on with others while one still runs, and keeps nothing from one to the next.
    let aside = is_codex
        || ["run_in_background", "is_background"]
            .iter()
            .any(|name| input.get(name) == Some(&Value::Bool(true)));
    let aside = if aside { " --aside" } else { "" };
    let host = if is_codex {
        // Where its own sandbox is on, the command does not see from whom it descends.
        let (place, _) = holder(context).map_err(told)?;
        let place = super::setup::plain_path(&place).map_err(told)?;
        format!(" --host {}", super::setup::quoted(place))
    } else {
        String::new()
    };
    let agent = arguments.agent.word();
    let command = super::setup::quoted(command);
    let command = format!("{own} hook run {agent}{aside}{host} -- {command}");
    let mut input = input.clone();
    input["command"] = json!(command);
    Ok(if arguments.agent == Agent::Gemini {
        json!({"hookSpecificOutput": {
            "hookEventName": "BeforeTool",
            "tool_input": {"command": command},
        }})
    } else {
        let mut said = json!({"hookEventName": "PreToolUse", "updatedInput": input});
        // Codex takes another command only from a hook that allows it, and asks by its own rules.
        if arguments.allow || is_codex {
            said["permissionDecision"] = json!("allow");
            said["permissionDecisionReason"] = json!("it runs behind the walls of Cofferdam");
        }
        json!({"hookSpecificOutput": said})
    })
}

/// Runs one command in the agent's session.
fn run(context: &Context, arguments: &HookRunArguments) -> Ending {
    let client = match &arguments.host {
        Some(place) => client_at(find_server(place).ok_or_else(no_holder)?)?,
        None => client_at(holder(context)?.1)?,
    };
    // Claude keeps a directory from command to command, which here the session does; to the others
    // each command begins where they say.
    let cwd = match arguments.agent {
        Agent::Claude => None,
        _ => Some(context.current_dir()?.display().to_string()),
    };
    let request = RunInSession {
        session: SESSION.to_owned(),
        command: Some(arguments.command.clone()),
        cwd,
        // The agent has a limit of its own, and ends this program by it; else the policy's holds.
        timeout: None,
        aside: arguments.aside,
        ..RunInSession::default()
    };
    let called: Result<SessionResult, Problem> = client.call("session_run", &request);
    let answer = match called {
        Err(problem) if problem.code == ErrorCode::SessionUnknown => {
            let open = OpenSession {
                name: Some(SESSION.to_owned()),
                ..OpenSession::default()
            };
            match client.call::<_, SessionView>("session_open", &open) {
                Ok(_) => {}
                // Another command of the agent was faster.
                Err(problem) if problem.code == ErrorCode::SessionTaken => {}
                Err(problem) => return Err(problem.into()),
            }
            client.call("session_run", &request)?
        }
        called => called?,
    };
    show(context, &answer)
}

/// Finds the server that the agent holds from which this process descends, and where it is found.
fn holder(context: &Context) -> Result<(PathBuf, Announcement), Problem> {
    let hosts = context.data_dir()?.join(HOSTS);
    let ancestors = ancestors();
    let until = Instant::now() + PATIENCE;
    loop {
        let found = ancestors
            .iter()
            .map(|process| hosts.join(process.to_string()))
            .find_map(|place| find_server(&place).map(|found| (place, found)));
        if let Some(found) = found {
            return Ok(found);
        }
        if Instant::now() >= until {
            return Err(no_holder());
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn no_holder() -> Problem {
    Problem::new(
        ErrorCode::ServerUnreachable,
        "the command was not run: the agent has not started the server that holds its session, or it \
         has ended",
    )
    .with_hint(
        "look at its MCP server cofferdam-session; the owner may run: cofferdam setup AGENT --undo",
    )
}

fn client_at(found: Announcement) -> Result<Client, Problem> {
    Client::with_token_file(&found.address, found.token_file.as_path())
}

/// Lists the processes from which this one descends, the nearest first.
fn ancestors() -> Vec<u32> {
    let parent = |process: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The name before it may hold anything.
        let (_, rest) = stat.rsplit_once(") ")?;
        rest.split(' ').nth(1)?.parse::<u32>().ok()
    };
    let first = Some(std::os::unix::process::parent_id());
    std::iter::successors(first, |process| parent(*process))
        .take_while(|process| *process > 1)
        .take(ANCESTORS)
        .collect()
}
