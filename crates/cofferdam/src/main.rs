//! The `cofferdam` program: the command line in front of the libraries.

mod arguments;
mod ask;
mod commands;
mod context;
mod demo;
mod failure;
mod launch;
mod output;
mod program;
mod render;
mod review_by_url;
mod shorthand;
mod streams;

use std::process::ExitCode;

fn main() -> ExitCode {
    program::main()
}
