//! Which files hold the certificates that this machine trusts.

use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;

use super::Surroundings;

/// Where systems keep all of their root certificates in one file.
const BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Variables by which clients are told of further certificates.
const VARIABLES: &[&str] = &[
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "PIP_CERT",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
    "DENO_CERT",
];

/// Gives the file of roots, and the files besides that the caller's clients trust.
pub(super) fn look(surroundings: &Surroundings) -> (Option<BytePath>, Vec<BytePath>) {
    let named = |name: &str| -> Option<PathBuf> {
        let path = surroundings.path(name)?;
        (path.is_absolute() && path.is_file()).then(|| path.to_owned())
    };
    let system = || {
        let mut bundles = BUNDLES.iter().map(Path::new);
        bundles.find(|path| path.is_file()).map(Path::to_owned)
    };
    // What the caller names holds, also where it leads to nothing: then nothing is trusted.
    let roots = match surroundings.path("SSL_CERT_FILE") {
        Some(path) if !path.as_os_str().is_empty() => Some(surroundings.directory().join(path)),
        _ => system(),
    };
    let mut more: Vec<PathBuf> = Vec::new();
    for path in VARIABLES.iter().filter_map(|name| named(name)) {
        if Some(&path) != roots.as_ref() && !more.contains(&path) {
            more.push(path);
        }
    }
    (
        roots.map(BytePath::from),
        more.into_iter().map(BytePath::from).collect(),
    )
}
