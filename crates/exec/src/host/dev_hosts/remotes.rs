//! The remotes of the repository.

use cofferdam_core::facts::SshRemote;

use super::super::git_config::{self, Conditions};
use super::Look;
use super::address::Address;

/// What the remotes say.
#[derive(Debug, Default)]
pub(super) struct Remotes {
    pub(super) hosts: Vec<(Address, String)>,
    pub(super) ssh: Vec<SshRemote>,
}

/// Reads the remotes out of the repository's own configuration.
pub(super) fn look(look: &Look<'_>) -> Remotes {
    let mut found = Remotes::default();
    let Some(repository) = look.repository else {
        return found;
    };
    let settings = git_config::read(
        &repository.common_dir.join("config"),
        &Conditions::default(),
    );
    for setting in &settings {
        let is_address =
            setting.section == "remote" && matches!(setting.name.as_str(), "url" | "pushurl");
        let (true, Some(name), Some(value)) = (is_address, &setting.subsection, &setting.value)
        else {
            continue;
        };
        let origin = format!("git remote {name}");
        match ssh(value) {
            Some(remote) => {
                found
                    .hosts
                    .extend(Address::by_https(&remote.host).map(|address| (address, origin)));
                if !found.ssh.contains(&remote) {
                    found.ssh.push(remote);
                }
            }
            None => found
                .hosts
                .extend(Address::parse(value).map(|address| (address, origin))),
        }
    }
    found
}

/// Reads an address by ssh, in either of git's forms.
fn ssh(value: &str) -> Option<SshRemote> {
    if let Some(rest) = value.strip_prefix("ssh://") {
        let authority = rest.split('/').next()?;
        return Some(SshRemote {
            host: Address::parse(value)?.host(),
            prefix: format!("ssh://{authority}/"),
        });
    }
    // `host:path`, unless a slash comes first or it is a URL of another kind.
    let (place, path) = value.split_once(':')?;
    if place.contains('/') || place.is_empty() || path.starts_with("//") {
        return None;
    }
    let host = place.rsplit_once('@').map_or(place, |(_, host)| host);
    Address::by_https(host)?.rule()?;
    Some(SshRemote {
        host: host.to_owned(),
        prefix: format!("{place}:"),
    })
}
