//! Questions that the client puts to its user: elicitation, where the client has it.

use std::fmt;
use std::time::Duration;

use cofferdam_core::approval::{ApprovalAnswer, ApprovalAsk, Remember};
use cofferdam_runtime::{AskOwner, OwnerAnswer};
use rmcp::model::{
    ClientResult, ElicitRequestParams, ElicitResult, ElicitationAction, Request, ServerRequest,
};
use rmcp::service::{Peer, RoleServer};
use serde_json::{Value, json};
use tokio::runtime::Handle;

/// How often is looked whether a question is still open.
const LOOK: Duration = Duration::from_millis(200);

const ONCE: &str = "approve once";
const TASK: &str = "approve as long as this server runs";
const NO: &str = "deny";

/// Asks the user of one client. What they say is the owner's word; for longer than this server runs
/// nothing is remembered by it.
pub(super) struct Elicit {
    peer: Peer<RoleServer>,
    handle: Handle,
}

impl fmt::Debug for Elicit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Elicit")
    }
}

impl Elicit {
    /// Takes a client that says that it can ask; `None` for others, whose questions wait in the
    /// inbox.
    pub(super) fn of(peer: &Peer<RoleServer>) -> Option<Self> {
        let info = peer.peer_info()?;
        let can = info.capabilities.elicitation.as_ref()?;
        // One that names neither form nor address means a form.
        if can.form.is_none() && can.url.is_some() {
            return None;
        }
        Some(Self {
            peer: peer.clone(),
            handle: Handle::current(),
        })
    }

    async fn elicit(&self, ask: &ApprovalAsk) -> Option<ElicitResult> {
        let params = params(ask)?;
        let request = ServerRequest::ElicitRequest(Request::new(params));
        match self.peer.send_request(request).await {
            Ok(ClientResult::ElicitResult(result)) => Some(result),
            // A client that fails to ask leaves it to the inbox.
            Ok(_) | Err(_) => None,
        }
    }
}

impl AskOwner for Elicit {
    fn ask(&self, ask: &ApprovalAsk, is_open: &dyn Fn() -> bool) -> Option<OwnerAnswer> {
        let result = self.handle.block_on(async {
            let elicited = self.elicit(ask);
            tokio::pin!(elicited);
            loop {
                tokio::select! {
                    result = &mut elicited => return result,
                    () = tokio::time::sleep(LOOK) => {
                        if !is_open() {
                            return None;
                        }
                    }
                }
            }
        })?;
        answer(&result)
    }

    fn door(&self) -> &'static str {
        "mcp_elicitation"
    }
}

fn params(ask: &ApprovalAsk) -> Option<ElicitRequestParams> {
    let mut choices = vec![ONCE];
    if ask.remember.is_some() {
        choices.push(TASK);
    }
    choices.push(NO);
    serde_json::from_value(json!({
        "mode": "form",
        "message": message(ask),
        "requestedSchema": {
            "type": "object",
            "properties": {
                "answer": {
                    "type": "string",
                    "title": "Answer",
                    "description": "Exactly this, and nothing like it",
                    "enum": choices,
                },
            },
            "required": ["answer"],
        },
    }))
    .ok()
}

fn answer(result: &ElicitResult) -> Option<OwnerAnswer> {
    let once = |answer| OwnerAnswer {
        answer,
        remember: Remember::Once,
    };
    match result.action {
        ElicitationAction::Decline => return Some(once(ApprovalAnswer::Reject)),
        ElicitationAction::Accept => {}
        _ => return None,
    }
    let said = result.content.as_ref().and_then(|one| one.get("answer"));
    match said.and_then(Value::as_str) {
        Some(ONCE) => Some(once(ApprovalAnswer::Approve)),
        Some(TASK) => Some(OwnerAnswer {
            answer: ApprovalAnswer::Approve,
            remember: Remember::Task,
        }),
        // Whatever else was sent is no yes.
        _ => Some(once(ApprovalAnswer::Reject)),
    }
}

/// Tells all that is needed to answer, in plain text.
fn message(ask: &ApprovalAsk) -> String {
    let preview = &ask.preview;
    let mut lines = vec![format!("Cofferdam asks: {}?", ask.summary)];
    lines.push(format!("Why: {}", ask.why));
    if let Some(command) = &preview.command {
        lines.push(format!("Command: {command}"));
    }
    if let Some(cwd) = &preview.cwd {
        lines.push(format!("In: {cwd}"));
    }
    lines.extend(preview.env.iter().map(|one| format!("With: {one}")));
    if let Some(network) = &preview.network {
        lines.push(format!("Network: {}", network.as_str()));
    }
    lines.extend(preview.reads.iter().map(|path| format!("Reads: {path}")));
    lines.extend(preview.writes.iter().map(|path| format!("Writes: {path}")));
    lines.extend(preview.hosts.iter().map(|host| format!("Host: {host}")));
    if let Some(bytes) = preview.bytes {
        lines.push(format!("Bytes: {bytes}"));
    }
    lines.extend(preview.diff.iter().map(|line| {
        let number = line.new.or(line.old).unwrap_or_default();
        format!("{number:>5} {}{}", line.sign.mark(), line.text)
    }));
    if preview.diff_cut {
        lines.push("… the change is longer than what is shown".to_owned());
    }
    if let Some(plan) = &preview.plan {
        lines.push(plan.clone());
    }
    lines.push(format!("({})", ask.approval_id));
    lines.join("\n")
}
