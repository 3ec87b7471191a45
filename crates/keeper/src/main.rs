//! The program inside an enclosure; started by the plane with its channel as descriptor 3, or the
//! one that its first argument names.

use std::process::ExitCode;

fn main() -> ExitCode {
    let number = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(3);
    cofferdam_keeper::run(number)
}
