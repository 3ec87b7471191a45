//! The `cofferdam` program: the command line in front of the libraries.

mod arguments;
mod commands;
mod context;
mod failure;
mod output;
mod program;
mod render;
mod streams;

use std::process::ExitCode;

fn main() -> ExitCode {
    program::main()
}
