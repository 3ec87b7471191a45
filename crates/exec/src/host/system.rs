//! System directories and what must not be read in them.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::facts::{Listing, SystemPath, SystemSecret};
use cofferdam_core::spec::Identity;

/// What is shown of the system where it exists.
const SHOWN: &[&str] = &[
    "/bin",
    "/etc",
    "/gnu/store",
    "/home/linuxbrew/.linuxbrew",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/opt",
    "/sbin",
    "/sys/devices/system/cpu",
    "/usr",
];

/// What holds passwords, keys and rights, where it exists.
const SECRETS: &[&str] = &[
    "/etc/NetworkManager/system-connections",
    "/etc/cups/ssl",
    "/etc/docker/key.json",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/ipsec.secrets",
    "/etc/kubernetes",
    "/etc/krb5.keytab",
    "/etc/letsencrypt",
    "/etc/openvpn",
    "/etc/pki/tls/private",
    "/etc/ppp/chap-secrets",
    "/etc/ppp/pap-secrets",
    "/etc/rancher",
    "/etc/security/opasswd",
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/ssl/private",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/wireguard",
    "/etc/wpa_supplicant",
];

/// The kernel's memory and switches that root could open by its uid alone, without a capability.
const KERNEL_SECRETS: &[&str] = &[
    "/proc/acpi",
    "/proc/dynamic_debug",
    "/proc/fs/nfsd",
    "/proc/kcore",
    "/proc/kpagecgroup",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/mtrr",
    "/proc/scsi",
    "/proc/sysrq-trigger",
    "/proc/timer_list",
    "/proc/vmcore",
];

/// Gives the system paths that exist.
pub(super) fn system_paths() -> Vec<SystemPath> {
    let mut paths: Vec<SystemPath> = SHOWN
        .iter()
        .filter_map(|path| {
            let found = std::fs::symlink_metadata(path).ok()?;
            let link = found
                .is_symlink()
                .then(|| std::fs::read_link(path).ok().map(BytePath::from))
                .flatten();
            Some(SystemPath {
                path: BytePath::from(*path),
                link,
            })
        })
        .collect();
    // Names of hosts are often looked up by a file that is kept elsewhere.
    let resolver = Path::new("/etc/resolv.conf");
    if let Ok(real) = resolver.canonicalize()
        && !real.starts_with("/etc")
    {
        paths.push(SystemPath {
            path: BytePath::from(real),
            link: None,
        });
    }
    paths
}

/// Gives what must not be read, as far as the identity could read it at all, and what stands in the
/// directories above it.
pub(super) fn system_secrets(identity: &Identity) -> (Vec<SystemSecret>, Vec<Listing>) {
    let mut secrets: Vec<SystemSecret> = Vec::new();
    let mut add = |path: &Path| {
        if let Ok(found) = std::fs::metadata(path)
            && can_read(identity, &found)
        {
            secrets.push(SystemSecret {
                path: BytePath::from(path),
                directory: found.is_dir(),
            });
        }
    };
    for path in SECRETS {
        add(Path::new(path));
    }
    for entry in std::fs::read_dir("/etc/ssh")
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("ssh_host_") && name.ends_with("_key") {
            add(&entry.path());
        }
    }
    if identity.uid == 0 {
        for path in KERNEL_SECRETS {
            add(Path::new(path));
        }
    }
    let mut above: Vec<PathBuf> = secrets
        .iter()
        .filter_map(|one| one.path.as_path().parent())
        .filter(|parent| parent.starts_with("/etc"))
        .flat_map(|parent| {
            parent
                .ancestors()
                .take_while(|one| one.starts_with("/etc"))
                .map(Path::to_owned)
                .collect::<Vec<_>>()
        })
        .collect();
    above.sort();
    above.dedup();
    let listings = above.into_iter().map(|path| listing(&path)).collect();
    (secrets, listings)
}

fn listing(path: &Path) -> Listing {
    let mut entries: Vec<BytePath> = std::fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| BytePath::from(entry.path()))
        .collect();
    entries.sort();
    Listing {
        path: BytePath::from(path),
        entries,
    }
}

/// Tells whether an identity may read by the plain permission bits. Capabilities do not count: a
/// command has none.
fn can_read(identity: &Identity, found: &std::fs::Metadata) -> bool {
    let mode = found.mode();
    if found.uid() == identity.uid {
        // An owner may give themselves the right.
        return true;
    }
    let is_member = found.gid() == identity.gid || identity.groups.contains(&found.gid());
    if is_member {
        mode & 0o040 != 0
    } else {
        mode & 0o004 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_user_needs_no_mask_for_what_they_cannot_read() {
        let identity = |uid| Identity {
            uid,
            gid: uid,
            groups: Vec::new(),
        };
        let shadow = BytePath::from("/etc/shadow");
        let (ordinary, _) = system_secrets(&identity(54_321));
        assert!(ordinary.iter().all(|one| one.path != shadow));
        if !Path::new("/etc/shadow").exists() {
            eprintln!("skipped: there is no /etc/shadow");
            return;
        }
        let (root, listings) = system_secrets(&identity(0));
        assert!(root.iter().any(|one| one.path == shadow));
        let etc = listings
            .iter()
            .find(|one| one.path == BytePath::from("/etc"));
        assert!(etc.is_some_and(|etc| etc.entries.contains(&shadow)));
    }
}
