//! `cofferdam run` as a whole process, as someone types it.

use std::path::Path;
use std::process::Command;

use super::{PROGRAM, Subject, Yardstick, plain, target};

const PLAIN: &str = "plain bwrap, for run";

/// The run and its yardstick, bubblewrap with the same namespaces and binds.
pub(super) fn subjects(scratch: &Path, workspace: &Path) -> Vec<Subject> {
    let program = target().join("release/cofferdam");
    let data = scratch.join("whole");
    let workspace = workspace.to_path_buf();
    vec![
        plain::bwrap(PLAIN, plain::arguments(&workspace)),
        Subject {
            name: "cofferdam run --net none",
            yardstick: Yardstick::Plain(PLAIN),
            bar: Some(2.2),
            run: Ok(Box::new(move || {
                let mut command = Command::new(&program);
                command
                    .args(["run", "--provider", "bwrap", "--net", "none", "--", PROGRAM])
                    .env("COFFERDAM_DATA_DIR", &data)
                    .current_dir(&workspace);
                plain::once(command)
            })),
        },
    ]
}
