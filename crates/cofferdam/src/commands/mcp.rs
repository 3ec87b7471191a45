//! `mcp`: the operations as tools, over standard input and output.

use std::sync::Arc;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::exit;
use cofferdam_server::{McpServer, OperationHost};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::serve::served_policy;
use crate::arguments::call::McpArguments;
use crate::context::Context;
use crate::failure::Ending;

/// Carries out `mcp`: answers until the client closes the stream, or somebody interrupts.
pub(crate) fn mcp(context: &Context, arguments: &McpArguments) -> Ending {
    let policy = served_policy(context, &arguments.walls)?;
    let runtime = Arc::new(context.runtime()?);
    let server = McpServer::new(Arc::new(OperationHost::open(runtime, policy)?));
    let stop = server.stop_handle();
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
    let ended = server.run_blocking().map_err(|error| error.to_problem());
    handle.close();
    ended?;
    Ok(exit::SUCCESS)
}
