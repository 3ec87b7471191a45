//! What files of the workspace name. They are whoever's who wrote the project: they only propose.

use std::path::Path;

use cofferdam_core::facts::FoundHost;

use super::add;
use super::address::{Address, urls};
use crate::host::files::read_small;

/// Most bytes of one file that are read.
const MOST_BYTES: u64 = 4 << 20;
/// Most hosts that are proposed.
const MOST: usize = 20;

/// Files whose addresses say where packages come from.
const FILES: &[&str] = &[
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".cargo/config.toml",
    ".cargo/config",
    "pip.conf",
    "uv.toml",
    "requirements.txt",
    "gradle/wrapper/gradle-wrapper.properties",
    "package-lock.json",
    "npm-shrinkwrap.json",
    "yarn.lock",
    "Cargo.lock",
    "uv.lock",
    "poetry.lock",
    "Pipfile.lock",
    "go.env",
];

pub(super) fn look(root: &Path) -> Vec<FoundHost> {
    let mut found = Vec::new();
    for name in FILES {
        let Some(text) = read_small(&root.join(name), MOST_BYTES) else {
            continue;
        };
        let text = String::from_utf8_lossy(&text);
        // Properties files write a colon with a backslash before it.
        let text = text.replace("\\:", ":");
        let mut last = "";
        for url in urls(&text) {
            let end = url
                .match_indices('/')
                .nth(2)
                .map_or(url.len(), |(at, _)| at);
            let top = &url[..end];
            // A lock file names one host thousands of times.
            if top == last || found.len() >= MOST {
                continue;
            }
            last = top;
            if let Some(address) = Address::parse(url) {
                add(&mut found, &address, name);
            }
        }
    }
    found
}
