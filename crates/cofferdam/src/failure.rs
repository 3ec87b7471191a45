//! How a command of ours ends when it does not end well.

use std::io;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::exit;

/// Why a command stopped.
#[derive(Debug)]
pub(crate) enum Failure {
    /// There is something to be said about it.
    Problem(Box<Problem>),
    /// Whoever read our output has gone; there is nobody left to tell.
    OutputClosed,
}

/// What a command gives back: the exit code, or a failure.
pub(crate) type Ending = Result<u8, Failure>;

impl Failure {
    /// Gives the exit code that says it.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Problem(problem) => problem_exit_code(problem),
            // As a shell reports a program that SIGPIPE (13) ended.
            Self::OutputClosed => exit::signalled(13),
        }
    }
}

/// Gives the exit code for a problem before anything ran.
pub(crate) fn problem_exit_code(problem: &Problem) -> u8 {
    match problem.code {
        ErrorCode::Denied
        | ErrorCode::ReadonlyDenied
        | ErrorCode::ApprovalUnavailable
        | ErrorCode::ApprovalRejected
        | ErrorCode::ApprovalExpired
        | ErrorCode::ApprovalForbidden
        | ErrorCode::GrantRefused
        | ErrorCode::NotExecutable => exit::DENIED,
        ErrorCode::NotFound => exit::NOT_FOUND,
        _ => exit::OWN_FAILURE,
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::Problem(Box::new(problem))
    }
}

impl From<io::Error> for Failure {
    /// Takes a failure to write our own output.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::OutputClosed;
        }
        Problem::new(ErrorCode::Io, format!("cannot write the output: {error}")).into()
    }
}

impl From<serde_json::Error> for Failure {
    /// Takes a failure to write our own output as JSON.
    fn from(error: serde_json::Error) -> Self {
        if error.is_io() {
            return io::Error::from(error).into();
        }
        Problem::new(
            ErrorCode::Internal,
            format!("cannot express the result as JSON: {error}"),
        )
        .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_said_with_the_code_of_sigpipe() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(failure.exit_code(), 141);
    }

    #[test]
    fn problems_before_a_start_have_the_published_codes() {
        let code = |code| problem_exit_code(&Problem::new(code, "no"));
        assert_eq!(code(ErrorCode::NotFound), 127);
        assert_eq!(code(ErrorCode::Denied), 126);
        assert_eq!(code(ErrorCode::Unenforceable), 125);
    }
}
