//! Guesses about why a command failed, from what it wrote and from its walls. They are marked as
//! guesses, never change a status and are no denials: those come from evidence only.

use cofferdam_core::outcome::Hint;
use cofferdam_core::ports::ReachAddress;
use cofferdam_core::spec::{EnclosureSpec, Network, ProviderKind};

/// Most guesses that an outcome carries.
const MOST: usize = 3;

/// What programs write when something is missing, and what it points to.
enum Sign {
    Network,
    Service,
    Writing,
    Reading,
}

const SIGNS: &[(&str, Sign)] = &[
    ("could not resolve host", Sign::Network),
    ("temporary failure in name resolution", Sign::Network),
    ("name or service not known", Sign::Network),
    ("eai_again", Sign::Network),
    ("network is unreachable", Sign::Network),
    ("enetunreach", Sign::Network),
    ("failed to lookup address", Sign::Network),
    ("connection refused", Sign::Service),
    ("econnrefused", Sign::Service),
    ("couldn't connect to server", Sign::Service),
    ("read-only file system", Sign::Writing),
    ("erofs", Sign::Writing),
    ("permission denied", Sign::Reading),
    ("eacces", Sign::Reading),
];

/// Guesses from the tail of a failed command's output.
pub(crate) fn guess(output: &str, spec: &EnclosureSpec) -> Vec<Hint> {
    if spec.provider == ProviderKind::Direct {
        return Vec::new();
    }
    let mut hints: Vec<Hint> = Vec::new();
    for line in output.lines().rev().take(200) {
        let lower = line.to_lowercase();
        let Some((_, sign)) = SIGNS.iter().find(|(words, _)| lower.contains(words)) else {
            continue;
        };
        let hint = match sign {
            Sign::Network if spec.network == Network::None => match host_in(line) {
                Some(host) => Hint {
                    text: format!("there is no network inside, so {host} is not reached"),
                    allow: Some(allowance(host, spec)),
                },
                None => Hint {
                    text: "there is no network inside".to_owned(),
                    allow: Some("--net full".to_owned()),
                },
            },
            Sign::Network if spec.network == Network::Restricted => Hint {
                text: "names do not resolve inside, the proxy resolves them: the program has to \
                       use the proxy that HTTPS_PROXY names"
                    .to_owned(),
                allow: None,
            },
            Sign::Service => match service_in(line).filter(|one| is_apart(one, spec)) {
                Some(service) => Hint {
                    text: format!(
                        "{} inside is the command's own: a service of this machine is not there",
                        service.host()
                    ),
                    allow: Some(format!("--reach {service}")),
                },
                None => continue,
            },
            Sign::Writing => Hint {
                text: path_in(line).map_or_else(
                    || "only the workspace and temporary directories can be written".to_owned(),
                    |path| format!("{path} can be read and not written inside"),
                ),
                allow: Some(format!("--rw {}", path_in(line).unwrap_or("PATH"))),
            },
            Sign::Reading => match path_in(line) {
                Some(path) if !path.starts_with(&*spec.workspace.to_text()) => Hint {
                    text: format!("{path} may be closed inside"),
                    allow: Some(format!("--ro {path}")),
                },
                _ => continue,
            },
            Sign::Network => continue,
        };
        if !hints.contains(&hint) {
            hints.push(hint);
        }
        if hints.len() == MOST {
            break;
        }
    }
    hints
}

/// Tells whether a service of this machine is out of reach for its address alone.
fn is_apart(service: &ReachAddress, spec: &EnclosureSpec) -> bool {
    let sockets = service.sockets();
    let reached = |one: &ReachAddress| one.sockets().iter().any(|at| sockets.contains(at));
    spec.provider.has_view()
        && spec.network != Network::Full
        && !spec.ports.reach.iter().any(reached)
}

/// Finds an address of loopback with its port in a message.
fn service_in(line: &str) -> Option<ReachAddress> {
    let words: Vec<&str> = line
        .split(|character: char| character.is_whitespace() || "'\"`(),/".contains(character))
        .map(|word| word.trim_matches([';', '.', ':']))
        .filter(|word| !word.is_empty())
        .collect();
    let is_here = |found: &ReachAddress| !found.sockets().is_empty();
    if let Some(found) = words
        .iter()
        .filter_map(|word| word.parse().ok())
        .find(is_here)
    {
        return Some(found);
    }
    let is_loopback = |word: &&&str| matches!(**word, "localhost" | "127.0.0.1" | "::1");
    let host = words.iter().rfind(is_loopback)?;
    let at = words.iter().position(|word| *word == "port")?;
    let port = words.get(at + 1)?;
    let address = match *host {
        "::1" => format!("[::1]:{port}"),
        host => format!("{host}:{port}"),
    };
    address.parse().ok()
}

/// Gives the flag that lets one host through, where the provider can tell hosts apart.
fn allowance(host: &str, spec: &EnclosureSpec) -> String {
    match spec.provider {
        ProviderKind::Landlock => "--net full".to_owned(),
        _ => format!("--allow {host}"),
    }
}

/// Finds an absolute path in a message.
fn path_in(line: &str) -> Option<&str> {
    line.split(|character: char| character.is_whitespace() || "'\"`(),".contains(character))
        .map(|word| word.trim_end_matches([':', '.', ';']))
        .find(|word| word.len() > 1 && word.starts_with('/') && !word.starts_with("//"))
}

/// Finds a host's name in a message.
fn host_in(line: &str) -> Option<&str> {
    line.split(|character: char| character.is_whitespace() || "'\"`(),/".contains(character))
        .map(|word| word.trim_matches([':', '.', ';']))
        .find(|word| {
            let labels: Vec<_> = word.split('.').collect();
            labels.len() > 1
                && labels.iter().all(|label| {
                    !label.is_empty()
                        && label
                            .bytes()
                            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                })
                && labels
                    .last()
                    .is_some_and(|last| last.bytes().all(|b| b.is_ascii_alphabetic()))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_of_this_machine_are_found_in_messages() {
        for (line, found) in [
            (
                "Error: connect ECONNREFUSED 127.0.0.1:5432",
                Some("127.0.0.1:5432"),
            ),
            (
                "curl: (7) Failed to connect to 127.0.0.1 port 9 after 0 ms: Couldn't connect to server",
                Some("127.0.0.1:9"),
            ),
            (
                "connection to server at \"localhost\" (127.0.0.1), port 5432 failed: Connection refused",
                Some("127.0.0.1:5432"),
            ),
            (
                "Failed to connect to localhost port 80: Connection refused",
                Some("localhost:80"),
            ),
            (
                "connect ECONNREFUSED http://[::1]:3000/",
                Some("[::1]:3000"),
            ),
            ("connect ECONNREFUSED 10.0.0.1:80", None),
            ("Connection refused", None),
        ] {
            let seen = service_in(line).map(|one| one.to_string());
            assert_eq!(seen.as_deref(), found, "{line}");
        }
    }

    #[test]
    fn hosts_and_paths_are_found_in_messages() {
        assert_eq!(
            host_in("curl: (6) Could not resolve host: example.com"),
            Some("example.com")
        );
        assert_eq!(host_in("nothing here"), None);
        assert_eq!(
            path_in("touch: cannot touch '/usr/x': Read-only file system"),
            Some("/usr/x")
        );
        assert_eq!(path_in("no path"), None);
    }
}
