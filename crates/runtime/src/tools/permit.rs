//! Whether somebody is asked before a tool runs, by what is said of it.

use cofferdam_core::approval::ApprovalPreview;
use cofferdam_core::authority::Actor;
use cofferdam_core::decide::{Ground, Operation, ToolPlace, Verdict, decide};
use cofferdam_core::error::Problem;
use cofferdam_core::operation::ToolRun;
use cofferdam_core::tool::{Tool, fill_tool};
use serde_json::json;

use crate::approval::OperationQuestion;
use crate::files::FileRequest;
use crate::participants::Participants;
use crate::runtime::Runtime;

impl Runtime {
    /// Decides about a tool of the owner's own before it runs, and asks where that is needed. The
    /// owner at the keyboard is not asked. That it may run gives it no rights: it does so as any
    /// command.
    ///
    /// # Errors
    ///
    /// `invalid_request` for arguments that are none; `readonly_denied`; `approval_unavailable`,
    /// `approval_rejected`, `approval_expired`, `cancelled`; those of laying the policy.
    pub fn permit_tool(
        &self,
        who: &FileRequest,
        tool: &Tool,
        request: &ToolRun,
    ) -> Result<(), Problem> {
        let words = fill_tool(tool, &request.arguments)?;
        let known = self
            .known_plan(&who.policy)
            .map_err(|(problem, _)| problem)?;
        let policy = &known.resolved.policy;
        let operation = Operation::UseTool {
            name: tool.name.clone(),
            hints: tool.hints,
            place: ToolPlace::Walls,
        };
        let decision = decide(policy, &who.authority, Ground::Checkout, &operation);
        let is_owner = who.authority.actor() == Actor::Owner;
        match decision.verdict {
            Verdict::Allow => return Ok(()),
            Verdict::Ask if is_owner => return Ok(()),
            // Without anybody who looks at questions it is refused.
            Verdict::Ask if self.answers_questions() => {}
            Verdict::Ask | Verdict::Deny => return decision.problem().map_or(Ok(()), Err),
        }
        let line: Vec<String> = words.iter().map(ToString::to_string).collect();
        // What the tool is belongs to what is asked: another one of its name is asked about anew.
        let exact = json!({"tool": tool, "arguments": request.arguments, "cwd": request.cwd});
        self.permit_operation(OperationQuestion {
            policy,
            authority: &who.authority,
            ground: Ground::Checkout,
            operation: &operation,
            request: exact.to_string().as_bytes(),
            summary: &format!("use the tool {}", tool.name),
            preview: ApprovalPreview {
                command: Some(line.join(" ")),
                cwd: request.cwd.as_deref().map(Into::into),
                network: Some(policy.network.value),
                ..ApprovalPreview::default()
            },
            subject: Participants::new(self.plane.ambient()).subject(),
            control: &who.control,
        })
        .map(drop)
    }
}
