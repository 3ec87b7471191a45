//! What needs the plane: commands through the library, in this process.

use std::path::Path;

use super::{Subject, Yardstick, plain};

const PLAIN: &str = "plain bwrap";

/// Everything that is measured through `cofferdam-exec`.
pub(super) fn subjects(_scratch: &Path, workspace: &Path) -> Vec<Subject> {
    let unmeasured = |name, yardstick, bar| Subject {
        name,
        yardstick,
        bar: Some(bar),
        run: Err("the plane is not there yet".to_owned()),
    };
    vec![
        plain::bwrap(PLAIN, plain::arguments(workspace)),
        unmeasured("direct", Yardstick::Floor, 1.4),
        unmeasured("landlock", Yardstick::Floor, 1.5),
        unmeasured("bwrap, standing enclosure", Yardstick::Floor, 1.5),
        unmeasured("bwrap, cold", Yardstick::Plain(PLAIN), 1.25),
    ]
}
