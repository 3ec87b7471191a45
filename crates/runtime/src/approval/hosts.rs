//! Hosts that no rule allows, among the questions of everybody: listed and answered like any other.

use std::sync::{Arc, Weak};
use std::time::Duration;

use cofferdam_core::approval::{Approval, ApprovalState};
use cofferdam_exec::{AskHost, HostAnswer, HostQuestion, NetworkOptions};

use crate::runtime::Runtime;

/// How long a look at the journal waits for an answer.
const LOOK: Duration = Duration::from_millis(100);

/// Waits for answers about hosts, each in a thread of its own: connections wait meanwhile.
struct Inbox(Weak<Runtime>);

impl Runtime {
    /// Sees to it that a host that no rule allows becomes a question, for as long as the connection
    /// waits and only while somebody is there: the owner at hand, or whoever watches
    /// ([`Self::watch_approvals`]). Only what is said before anything starts counts.
    pub fn ask_about_hosts(self: &Arc<Self>) {
        self.plane.set_network(NetworkOptions {
            ask: Some(Arc::new(Inbox(Arc::downgrade(self)))),
            ..NetworkOptions::default()
        });
    }

    fn answer_host(&self, question: HostQuestion) {
        let ask = question.approval().clone();
        let owner = self.owner_at_hand();
        if let Some(owner) = owner {
            let is_open = || question.is_open() && self.is_pending(&ask.approval_id);
            // What fails leaves it to whoever answers from elsewhere.
            let _ = self.put_while(owner.as_ref(), &ask, &is_open);
        }
        while question.is_open() {
            let head = self.journal().head().map_or(0, |head| head.pos);
            match self.approval(&ask.approval_id) {
                Ok(approval) if approval.state == ApprovalState::Pending => {}
                Ok(approval) => return settle(question, &approval),
                Err(_) => return,
            }
            if self.journal().wait_beyond(head, LOOK).is_err() {
                return;
            }
        }
    }
}

/// Puts what was said in force. Without an answer the question is dropped, which refuses it.
fn settle(question: HostQuestion, approval: &Approval) {
    if let Some(last) = approval.answers.last() {
        let answer = HostAnswer::of(last.answer, last.remember);
        question.settle(answer, last.remember_days);
    }
}

impl AskHost for Inbox {
    fn is_there(&self) -> bool {
        self.0.upgrade().is_some_and(|runtime| {
            let owner = runtime.owner_at_hand();
            owner.is_some_and(|owner| owner.is_there()) || runtime.watchers.anybody()
        })
    }

    fn ask(&self, question: HostQuestion) {
        let Some(runtime) = self.0.upgrade() else {
            return;
        };
        // Without a thread it is dropped, and refused.
        let _ = std::thread::Builder::new()
            .name("host question".to_owned())
            .spawn(move || runtime.answer_host(question));
    }
}
