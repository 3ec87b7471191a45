//! `serve`.

use std::net::SocketAddr;
use std::sync::Arc;

use super::policy_watch::PolicyWatch;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::exit;
use cofferdam_journal::{DataDir, Journal};
use cofferdam_server::{Server, ServerOptions, StopHandle};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use crate::arguments::view::ServeArguments;
use crate::context::Context;
use crate::failure::Ending;
use crate::render::{GOOD, PLACE, paint};

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
    let data = DataDir::open(context.data_dir()?).map_err(|error| error.to_problem())?;
    let journal: Arc<dyn Journal> = Arc::new(context.open_journal(&data)?);
    let mut options = ServerOptions::new(
        listen,
        data,
        Arc::clone(&journal),
        Arc::clone(&context.ambient),
    );
    options.token_file = arguments
        .token_file
        .as_ref()
        .map(|path| context.absolute(path))
        .transpose()?;
    let server = Server::bind(options).map_err(|error| error.to_problem())?;
    let signals = stop_on_signals(server.stop_handle())?;
    let watch = PolicyWatch::start(
        context.surroundings()?,
        journal,
        Arc::clone(&context.ambient),
    )?;
    let address = server.address();
    let token = server.token_path().to_owned();
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
    ended?;
    Ok(exit::SUCCESS)
}

fn stop_on_signals(stop: StopHandle) -> Result<Handle, Problem> {
    let failed = |error: std::io::Error| {
        Problem::new(ErrorCode::Io, format!("signals cannot be watched: {error}"))
    };
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let handle = signals.handle();
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for _ in signals.forever() {
                stop.stop();
            }
        })
        .map_err(failed)?;
    Ok(handle)
}
