//! A task from request to result.

use cofferdam_core::task::TaskResult;

use super::request::TaskRunRequest;
use crate::runtime::Runtime;
use cofferdam_core::error::{ErrorCode, Problem};

impl Runtime {
    /// Runs a task to its end.
    ///
    /// Whatever happens is in the result, also what refused it before anything was made.
    ///
    /// # Errors
    ///
    /// Only when the journal cannot take the task: then there is none.
    pub fn run_task(&self, request: TaskRunRequest<'_>) -> Result<TaskResult, Problem> {
        let _ = request;
        Err(Problem::new(ErrorCode::Internal, "tasks are not wired yet"))
    }
}
