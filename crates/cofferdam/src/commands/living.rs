//! The server that a command talks to.

use cofferdam_client::{Client, find_server};
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::operation::{
    SessionReference, SessionView, TerminalList, TerminalListRequest, TerminalName,
};

use super::hook::HOSTS;
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

/// The same for one session: the server that was named, the one that holds the session, or the one of
/// this data directory, which says that there is no such one.
pub(super) fn client_of_session(
    context: &Context,
    named: &ServerArguments,
    session: &str,
    what: &str,
) -> Result<Client, Problem> {
    if named.server.is_none() {
        let reference = SessionReference {
            session: session.to_owned(),
        };
        let holds = |client: &Client| {
            let found: Result<SessionView, Problem> = client.call("session_get", &reference);
            found.is_ok()
        };
        if let Some(client) = servers(context).into_iter().find(holds) {
            return Ok(client);
        }
    }
    client(context, named, what)
}

/// The same for a terminal or a session of this name.
pub(super) fn client_of_lasting(
    context: &Context,
    named: &ServerArguments,
    name: &str,
    what: &str,
) -> Result<Client, Problem> {
    let found = match named.server {
        Some(_) => None,
        None => lasting(context, name),
    };
    match found {
        Some((client, _)) => Ok(client),
        None => client(context, named, what),
    }
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

/// Finds what a text names on the server of this data directory, where one lives.
pub(super) enum Lasting {
    Terminal(TerminalName),
    Session(String),
}

/// Finds every server whose sessions and terminals are the caller's: the one of this data directory,
/// then those that agents hold which were set up in the mode hook, the newest first. Of several things
/// of one name the first is meant.
pub(super) fn servers(context: &Context) -> Vec<Client> {
    let Ok(data_dir) = context.data_dir() else {
        return Vec::new();
    };
    let mut of_agents: Vec<_> = std::fs::read_dir(data_dir.join(HOSTS))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let begun = entry.metadata().and_then(|about| about.modified()).ok()?;
            Some((std::cmp::Reverse(begun), entry.path()))
        })
        .collect();
    of_agents.sort();
    let of_agents = of_agents.into_iter().map(|(_, place)| place);
    std::iter::once(data_dir)
        .chain(of_agents)
        .filter_map(|place| Client::of_data_dir(&place).ok().flatten())
        .collect()
}

/// Looks for a terminal, then for a session of this name.
pub(super) fn lasting(context: &Context, text: &str) -> Option<(Client, Lasting)> {
    servers(context)
        .into_iter()
        .find_map(|client| on(client, text))
}

fn on(client: Client, text: &str) -> Option<(Client, Lasting)> {
    let list: TerminalList = client.call("terminal_list", &TerminalListRequest {}).ok()?;
    if let Some(one) = list
        .terminals
        .iter()
        .find(|one| one.name.as_str() == text || one.terminal_id.as_str() == text)
    {
        let name = one.name.clone();
        return Some((client, Lasting::Terminal(name)));
    }
    let reference = SessionReference {
        session: text.to_owned(),
    };
    let found: SessionView = client.call("session_get", &reference).ok()?;
    Some((client, Lasting::Session(found.session_id.to_string())))
}
