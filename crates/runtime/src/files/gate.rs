//! Somebody in the file door: each change that the permission asks about becomes a question.

use cofferdam_core::approval::ApprovalPreview;
use cofferdam_core::decide::{Ground, Operation};
use cofferdam_core::error::Problem;
use cofferdam_core::event::Subject;
use cofferdam_core::spec::Digest;
use cofferdam_exec::{FileGate, FileIntent};
use serde_json::json;

use super::FileRequest;
use crate::approval::OperationQuestion;
use crate::known::Known;
use crate::runtime::Runtime;

/// Asks about changes, one by one.
#[derive(Debug)]
pub(super) struct Gate<'r> {
    pub(super) runtime: &'r Runtime,
    /// The plan with what the permission holds back.
    pub(super) known: &'r Known,
    pub(super) who: &'r FileRequest,
    pub(super) subject: &'r Subject,
}

impl FileGate for Gate<'_> {
    fn pass(&self, intent: FileIntent<'_>) -> Result<(), Problem> {
        let path = intent.paths.first().cloned().unwrap_or_default();
        let shown = ApprovalPreview {
            writes: intent.paths.iter().skip(1).cloned().collect(),
            ..ApprovalPreview::default()
        };
        let preview = match intent.bytes {
            Some((before, after)) => shown.with_change(path.clone(), before, after),
            None => ApprovalPreview {
                writes: intent.paths.to_vec(),
                ..shown
            },
        };
        // What will be done, to the byte.
        let exact = json!({
            "operation": intent.operation,
            "paths": intent.paths,
            "before": intent.bytes.map(|(before, _)| Digest::of(before)),
            "after": intent.bytes.map(|(_, after)| Digest::of(after)),
        });
        self.runtime
            .permit_operation(OperationQuestion {
                policy: &self.known.resolved.policy,
                authority: &super::reaching(self.who, self.known),
                ground: Ground::Checkout,
                operation: &Operation::ChangeFile { path: path.clone() },
                request: exact.to_string().as_bytes(),
                summary: &format!("{} {path}", intent.operation),
                preview,
                subject: self.subject.clone(),
                control: &self.who.control,
            })
            .map(drop)
    }
}
