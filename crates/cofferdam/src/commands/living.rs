//! The server that a command talks to.

use cofferdam_client::{Client, find_server};
use cofferdam_core::error::{ErrorCode, Problem};

use crate::arguments::terminal::ServerArguments;
use crate::context::Context;

/// Finds the server that was named, or the one of this data directory; `what` begins the sentence
/// that tells that there is none.
pub(super) fn client(
    context: &Context,
    named: &ServerArguments,
    what: &str,
) -> Result<Client, Problem> {
    if let (Some(server), Some(file)) = (&named.server, &named.token_file) {
        return Client::with_token_file(server, &context.absolute(file)?);
    }
    of_data_dir(context, what)
}

/// Finds the server of this data directory.
pub(super) fn of_data_dir(context: &Context, what: &str) -> Result<Client, Problem> {
    let data_dir = context.data_dir()?;
    let found = find_server(&data_dir).ok_or_else(|| {
        Problem::new(
            ErrorCode::ServerUnreachable,
            format!(
                "{what} outlives a call, and no server lives in {}",
                data_dir.display()
            ),
        )
        .with_hint("start one with `cofferdam serve` in another terminal")
    })?;
    Client::with_token_file(&found.address, found.token_file.as_path())
}
