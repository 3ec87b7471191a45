//! `mcp`: the operations as tools, over standard input and output.

use std::sync::Arc;

use cofferdam_core::exit;
use cofferdam_server::{McpServer, OperationHost};

use super::policy_watch::{PolicyWatch, following};
use super::serve::{SERVER_STOPPED, attend, end_on_signals, served_policy};
use crate::arguments::call::McpArguments;
use crate::context::Context;
use crate::failure::Ending;

/// Carries out `mcp`: answers until the client closes the stream, or somebody interrupts.
pub(crate) fn mcp(context: &Context, arguments: &McpArguments) -> Ending {
    let policy = served_policy(context, &arguments.walls)?;
    let runtime = Arc::new(context.runtime()?);
    attend(&runtime, &policy, &arguments.walls)?;
    // Other processes may ask for the end of what runs here.
    runtime.attend();
    let host = Arc::new(OperationHost::open(Arc::clone(&runtime), policy)?);
    let watch = PolicyWatch::start(following(Arc::clone(&runtime), host.context().policy()))?;
    let server = McpServer::new(host);
    let stop = server.stop_handle();
    let signals = end_on_signals(&runtime, move || stop.stop())?;
    let ended = server.run_blocking().map_err(|error| error.to_problem());
    signals.close();
    drop(watch);
    runtime.end_lasting(SERVER_STOPPED);
    ended?;
    Ok(exit::SUCCESS)
}
