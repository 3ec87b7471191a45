//! The program inside an enclosure; started by the plane with its channel as descriptor 3, or the
//! one that its first argument names. A second argument is the number of the memory file that says
//! what to put back, or has it guard a terminal instead.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let number = arguments
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(3);
    match arguments.next().as_deref() {
        Some("terminal") => cofferdam_keeper::guard_terminal(number),
        undo => cofferdam_keeper::run(number, undo.and_then(|text| text.parse().ok())),
    }
}
