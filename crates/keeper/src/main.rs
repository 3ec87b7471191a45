//! The program inside an enclosure; started by the plane with its channel as descriptor 3, or the
//! one that its first argument names; in a container, where nothing is inherited, that is the path of
//! the socket on which the plane waits for it. A second argument is the number of the memory file that says
//! what to put back, or has it guard a terminal instead.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let number = match arguments.next() {
        Some(path) if path.starts_with('/') => match cofferdam_keeper::connect(&path) {
            Ok(number) => number,
            Err(_) => return ExitCode::from(124),
        },
        Some(text) => text.parse().unwrap_or(3),
        None => 3,
    };
    match arguments.next().as_deref() {
        Some("terminal") => cofferdam_keeper::guard_terminal(number),
        undo => cofferdam_keeper::run(number, undo.and_then(|text| text.parse().ok())),
    }
}
