//! `serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use super::policy_watch::{PolicyWatch, following, telling};
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::exit;
use cofferdam_journal::DataDir;
use cofferdam_runtime::{PolicyRequest, Runtime};
use cofferdam_server::{OperationHost, Server, ServerOptions};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use crate::arguments::view::{ServeArguments, ServedWalls};
use crate::context::Context;
use crate::failure::Ending;
use crate::launch;
use crate::render::{GOOD, PLACE, paint};

/// Why what outlives a request has ended with its server.
pub(super) const SERVER_STOPPED: &str = "server_stopped";

/// Carries out `serve`: answers until somebody interrupts.
pub(crate) fn serve(context: &Context, arguments: &ServeArguments) -> Ending {
    let listen: SocketAddr = arguments.listen.parse().map_err(|_| {
        Problem::new(
            ErrorCode::InvalidRequest,
            format!("{:?} is no address with a port", arguments.listen),
        )
        .with_field("listen")
        .with_hint("write it like 127.0.0.1:7411 or [::1]:7411")
    })?;
    let policy = served_policy(context, &arguments.walls)?;
    let runtime = Arc::new(context.runtime()?);
    attend(&runtime, &policy, &arguments.walls)?;
    // Other processes may ask for the end of what runs here.
    runtime.attend();
    let journal = Arc::clone(runtime.journal());
    let data = DataDir::open(runtime.data_dir()).map_err(|error| error.to_problem())?;
    let mut options = ServerOptions::new(
        listen,
        data,
        Arc::clone(&journal),
        Arc::clone(&context.ambient),
    );
    let absolute = |path: &Option<PathBuf>| path.as_ref().map(|path| context.absolute(path));
    options.token_file = absolute(&arguments.token_file).transpose()?;
    options.read_token_file = absolute(&arguments.read_token_file).transpose()?;
    options.work_token_file = absolute(&arguments.work_token_file).transpose()?;
    options.origins.clone_from(&arguments.allow_origin);
    options.operations = OperationHost::open(Arc::clone(&runtime), policy).map(Arc::new);
    let operations = options.operations.clone();
    let server = Server::bind(options).map_err(|error| error.to_problem())?;
    let stop = server.stop_handle();
    let signals = end_on_signals(&runtime, move || stop.stop())?;
    let mut tell = telling(
        context.surroundings()?,
        journal,
        Arc::clone(&context.ambient),
    );
    let mut follow = operations
        .as_ref()
        .ok()
        .map(|host| following(Arc::clone(&runtime), host.context().policy()));
    let watch = PolicyWatch::start(move || {
        tell();
        if let Some(follow) = &mut follow {
            follow();
        }
    })?;
    let address = server.address();
    let token = server.token_path().to_owned();
    if let Err(problem) = &operations {
        // What happened can be looked at all the same.
        context.output.note(&format!(
            "no operations are offered here: {problem}; --workspace names another place"
        ));
    }
    if context.output.is_json() {
        context
            .output
            .line(&json!({"address": address, "token_file": token}))?;
    } else {
        context.output.text(&format!(
            "{} http://{address}, token in {}\n\n\
             next: curl -H \"Authorization: Bearer $(cat {})\" \\\n          \
             http://{address}/api/agents/visibility/runtime-summary",
            paint(GOOD, "listening on"),
            paint(PLACE, token.display()),
            token.display()
        ))?;
    }
    let ended = server.run_blocking().map_err(|error| error.to_problem());
    signals.close();
    drop(watch);
    runtime.end_lasting(SERVER_STOPPED);
    ended?;
    Ok(exit::SUCCESS)
}

/// Sees to it that questions wait for `cofferdam approvals`, that the reviewer can be asked, and that
/// files are kept after commands.
pub(super) fn attend(
    runtime: &Arc<Runtime>,
    policy: &PolicyRequest,
    served: &ServedWalls,
) -> Result<(), Problem> {
    runtime.attend_questions();
    runtime.on_review_by_url(Arc::new(crate::review_by_url::Http));
    if served.walls.ask || crate::ask::asks_about_hosts(policy) {
        runtime.ask_about_hosts();
    }
    if served.snapshots {
        runtime.keep_snapshots(policy)?;
    } else if !served.no_snapshots {
        runtime.keep_snapshots_where_cheap();
    }
    Ok(())
}

/// Gives what the flags fix for as long as it serves.
pub(super) fn served_policy(
    context: &Context,
    served: &ServedWalls,
) -> Result<PolicyRequest, Problem> {
    launch::task_policy(context, &served.walls)
}

/// Ends what outlives a request and then the server when somebody interrupts, so that whoever
/// follows a terminal sees its end; the second signal does not wait for that.
pub(super) fn end_on_signals(
    runtime: &Arc<Runtime>,
    stop: impl Fn() + Clone + Send + 'static,
) -> Result<Handle, Problem> {
    let failed = |error: std::io::Error| {
        Problem::new(ErrorCode::Io, format!("signals cannot be watched: {error}"))
    };
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let handle = signals.handle();
    let mut runtime = Some(Arc::clone(runtime));
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for _ in signals.forever() {
                let Some(runtime) = runtime.take() else {
                    stop();
                    continue;
                };
                let after = stop.clone();
                let ending =
                    std::thread::Builder::new()
                        .name("ending".to_owned())
                        .spawn(move || {
                            runtime.end_lasting(SERVER_STOPPED);
                            after();
                        });
                if ending.is_err() {
                    stop();
                }
            }
        })
        .map_err(failed)?;
    Ok(handle)
}
