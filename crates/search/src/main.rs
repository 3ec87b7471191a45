//! The search inside an enclosure: an order on standard input, a report on standard output.

use std::process::ExitCode;

fn main() -> ExitCode {
    cofferdam_search::run()
}
