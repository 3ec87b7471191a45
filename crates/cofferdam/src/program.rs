//! From the command line to the exit code.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser as _;
use serde_json::json;
use signal_hook::consts::SIGXFSZ;

use crate::arguments::{CommandLine, TopCommand};
use crate::commands;
use crate::context::Context;
use crate::failure::Failure;
use crate::shorthand;

/// Parses, carries out, and tells how it ended.
pub(crate) fn main() -> ExitCode {
    // Where the size of files is limited (`ulimit -f`) a write fails and is told, instead of ending
    // the program. A handler and not "ignore", which commands would inherit; without one it is as
    // it was.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    let words = std::env::args_os().collect();
    let line = match CommandLine::try_parse_from(shorthand::expand(words)) {
        Ok(line) => line,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    let context = Context::new(&line.common);
    let has_status = matches!(line.command, TopCommand::Run(_));
    match commands::dispatch(&context, line.command) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            let code = failure.exit_code();
            if let Failure::Problem(problem) = failure {
                let status = if code == cofferdam_core::exit::DENIED {
                    "denied"
                } else {
                    "error"
                };
                let fields = [("success", json!(false)), ("status", json!(status))];
                context
                    .output
                    .problem(&problem, if has_status { &fields } else { &[] });
            }
            ExitCode::from(code)
        }
    }
}
