//! Approvals: what is asked, what is shown, who may answer, and what became of it.
//!
//! A question is bound to the digest of the exact request, to who acts, for which task and call, and
//! on which root. It is decided once. Everything is a fold of events ([`Approvals`]): another
//! process, or the next start, sees the same. What was approved may be done once ([`Approval::may_use`]).

mod ask;
mod preview;
mod remember;
mod state;
#[cfg(test)]
mod tests;

pub use ask::{
    Answerer, ApprovalAnswer, ApprovalAnswered, ApprovalAsk, ApprovalKind, ApprovalResolved,
    ApprovalUsed, Binding, Entitled,
};
pub use preview::{ApprovalPreview, LineSign, PreviewLine, diff_lines};
pub use remember::{Remember, RememberedAnswer, RememberedWhat, recall};
pub use state::{Approval, ApprovalState, Approvals, GivenAnswer, Standing};
