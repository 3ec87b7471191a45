//! The environment of what git does in the owner's name.

use cofferdam_core::bytes::BytePath;

use super::settings;

/// Settings that hold in the owner's name too. Hooks and signing are theirs.
const OWNERS: &[&str] = &[
    "core.fsmonitor=false",
    "core.alternateRefsCommand=/bin/true",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.ext.allow=never",
    "core.pager=cat",
];

/// Variables of git's own that say how a connection is made and who somebody is. All others would
/// lead it to another repository, index or configuration.
const OF_GIT: &[&str] = &[
    "GIT_ASKPASS",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_SSH_VARIANT",
    "GIT_PROXY_COMMAND",
    "GIT_PROXY_SSL_CERT",
    "GIT_PROXY_SSL_KEY",
    "GIT_PROXY_SSL_CAINFO",
    "GIT_SSL_NO_VERIFY",
    "GIT_SSL_CERT",
    "GIT_SSL_KEY",
    "GIT_SSL_CAINFO",
    "GIT_SSL_CAPATH",
    "GIT_SSL_VERSION",
    "GIT_SSL_CIPHER_LIST",
    "GIT_HTTP_USER_AGENT",
    "GIT_HTTP_LOW_SPEED_LIMIT",
    "GIT_HTTP_LOW_SPEED_TIME",
    "GIT_HTTP_PROXY_AUTHMETHOD",
    "GIT_ALLOW_PROTOCOL",
    "GIT_PROTOCOL",
    "GIT_PROTOCOL_FROM_USER",
    "GIT_AUTHOR_NAME",
    "GIT_AUTHOR_EMAIL",
    "GIT_COMMITTER_NAME",
    "GIT_COMMITTER_EMAIL",
];

/// Makes it of the owner's variables and of what every call has: search path, home and the places of
/// the configuration are those of the hardened calls.
pub(super) fn environment(
    owner: &[(BytePath, BytePath)],
    hardened: &[(Vec<u8>, Vec<u8>)],
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let fixed = [
        "PATH",
        "HOME",
        "XDG_CONFIG_HOME",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_SYSTEM",
    ];
    let is_fixed = |name: &[u8]| fixed.iter().any(|one| one.as_bytes() == name);
    let mut environment: Vec<_> = owner
        .iter()
        .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
        .filter(|(name, _)| {
            let is_gits = name.starts_with(b"GIT_");
            !is_fixed(name) && (!is_gits || OF_GIT.iter().any(|one| one.as_bytes() == name))
        })
        .collect();
    environment.extend(hardened.iter().filter(|(name, _)| is_fixed(name)).cloned());
    // Nobody is there who could type.
    environment.push((b"GIT_TERMINAL_PROMPT".to_vec(), b"0".to_vec()));
    environment.extend(settings(OWNERS));
    environment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_git_elsewhere_does_not_come_along() {
        let owner = [
            ("SSH_AUTH_SOCK", "/run/agent"),
            ("GIT_SSH_COMMAND", "ssh -i k"),
            ("GIT_DIR", "/elsewhere"),
            ("GIT_CONFIG_PARAMETERS", "'core.hooksPath=/x'"),
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_EXEC_PATH", "/x"),
            ("PATH", "/workspace/bin"),
        ]
        .map(|(name, value)| (BytePath::from(name), BytePath::from(value)));
        let hardened = [
            (b"PATH".to_vec(), b"/usr/bin".to_vec()),
            (b"GIT_DIR".to_vec(), b"/x".to_vec()),
        ];
        let made: Vec<String> = environment(&owner, &hardened)
            .iter()
            .map(|(name, value)| {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                format!("{}={}", text(name), text(value))
            })
            .filter(|one| !one.contains("_KEY_") && !one.contains("_VALUE_"))
            .collect();
        insta::assert_debug_snapshot!(made, @r#"
        [
            "SSH_AUTH_SOCK=/run/agent",
            "GIT_SSH_COMMAND=ssh -i k",
            "PATH=/usr/bin",
            "GIT_TERMINAL_PROMPT=0",
            "GIT_CONFIG_COUNT=6",
        ]
        "#);
    }
}
