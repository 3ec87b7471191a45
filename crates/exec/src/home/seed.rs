//! Making a layer: the agent's state is copied, within bounds, no link followed out of it.

use std::collections::BTreeMap;
use std::fs::{File, FileTimes};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::profile::dashed;
use cofferdam_core::spec::Identity;
use rustix::fs::{FileType, Gid, Mode, Uid};

use super::answers::answer;
use super::files::{Found, open_beneath, open_directory, problem, walk};
use super::record::{Copied, HOME, HomeRecord, SEED, Source, Stamp, hold};
use super::rules::{DATABASE_PARTS, Rules, glob_set};
use super::write;
use super::{HomeRequest, Seeded, secrets};

/// Entries of one source that are looked at.
const ENTRIES: usize = 50_000;
/// Bytes that are copied in altogether; what is oldest of the transcripts is left out first.
const BYTES: u64 = 2 << 30;
/// Bytes of a file that is copied in.
const FILE_BYTES: u64 = 1 << 30;
/// Bytes of settings that are looked into for credentials.
const SETTINGS_BYTES: u64 = 256 << 10;
/// Tries to get a database whole while somebody writes to it.
const TRIES: usize = 3;
/// Things left out that are named one by one.
const NAMED: usize = 5;

/// A file that is to be copied in.
struct Candidate {
    /// Its path below the home directory.
    path: PathBuf,
    top: usize,
    below: PathBuf,
    back: bool,
    size: u64,
    modified: i64,
}

pub(super) fn seed(request: &HomeRequest<'_>) -> Result<(HomeRecord, File, Seeded), Problem> {
    let identity = request.identity.as_ref();
    for place in [
        request.directory.clone(),
        request.directory.join(HOME),
        request.directory.join(SEED),
    ] {
        make_private(&place, identity)?;
    }
    let Some(alive) = hold(&request.directory)? else {
        return Err(Problem::new(
            ErrorCode::Internal,
            "a new home is in use already",
        ));
    };
    let workspace = dashed(&request.workspace.to_text());
    let mut record = HomeRecord {
        schema: 1,
        task: request.task.to_owned(),
        profile: request.profile.to_owned(),
        rules: request.rules.clone(),
        sources: sources(request, &workspace),
        workspace,
        real: BytePath::from(request.real.as_path()),
        identity: request.identity.clone(),
        seeded: BTreeMap::new(),
    };
    // From here on the next start finds it.
    record.write(&request.directory)?;
    let mut seeded = Seeded::default();
    let rules = Rules::new(request.rules, &record.workspace)?;
    let mut tops = Vec::new();
    let mut candidates = Vec::new();
    for source in &record.sources {
        look(source, &rules, &mut tops, &mut candidates, &mut seeded);
    }
    // What is more exact was added last and holds.
    let mut by_path: BTreeMap<PathBuf, Candidate> = BTreeMap::new();
    for candidate in candidates {
        by_path.insert(candidate.path.clone(), candidate);
    }
    let mut candidates: Vec<Candidate> = by_path.into_values().collect();
    candidates.sort_by_key(|one| (one.back, std::cmp::Reverse(one.modified)));
    let mut left = 0_u64;
    for candidate in &candidates {
        if candidate.size > FILE_BYTES || seeded.bytes.saturating_add(candidate.size) > BYTES {
            left += 1;
            continue;
        }
        let top: &OwnedFd = &tops[candidate.top];
        match copy(top, candidate, &request.directory, identity) {
            Ok(copied) => {
                seeded.files += 1;
                seeded.bytes += copied.layer.size;
                let path = BytePath::from(candidate.path.as_path());
                if rules.is_secret(&candidate.path)
                    || may_hold_secrets(candidate)
                        && secrets::has_any(&request.directory.join(HOME).join(&candidate.path))
                {
                    seeded.credentials.push(path.clone());
                }
                record.seeded.insert(path, copied);
            }
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                return Err(problem("copy", &candidate.path, &error));
            }
            // It has gone meanwhile, or is not for us.
            Err(_) => left += 1,
        }
    }
    if left > 0 {
        seeded.notes.push(format!(
            "{left} files of the agent's state were not copied in"
        ));
    }
    settle_databases(
        request,
        &candidates,
        &tops,
        &rules,
        &mut record,
        &mut seeded,
    );
    seeded.notes.extend(answer(request, &mut record)?);
    for rule in &request.rules.keys {
        let from = request.directory.join(HOME).join(&rule.file);
        let to = request.directory.join(SEED).join(&rule.file);
        if from.is_file() {
            to.parent()
                .map_or(Ok(()), std::fs::create_dir_all)
                .and_then(|()| std::fs::copy(&from, &to))
                .map_err(|error| problem("copy", &to, &error))?;
        }
    }
    record.write(&request.directory)?;
    seeded.credentials.sort();
    Ok((record, alive, seeded))
}

/// Tells whether a file is settings in which keys may stand: neither a transcript nor large.
fn may_hold_secrets(candidate: &Candidate) -> bool {
    let end = candidate.path.extension();
    !candidate.back
        && candidate.size < SETTINGS_BYTES
        && end.is_some_and(|end| end == "json" || end == "jsonc" || end == "toml" || end == "env")
}

fn make_private(path: &Path, identity: Option<&Identity>) -> Result<(), Problem> {
    let failed = |error: io::Error| problem("make", path, &error);
    if let Some(parent) = path.parent().filter(|parent| !parent.exists()) {
        make_private(parent, identity)?;
    }
    rustix::fs::mkdir(path, Mode::RWXU).map_err(|errno| failed(errno.into()))?;
    own(path, identity).map_err(failed)
}

fn own(path: &Path, identity: Option<&Identity>) -> io::Result<()> {
    if let Some(identity) = identity {
        let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
        rustix::fs::chown(path, Some(uid), Some(gid))?;
    }
    Ok(())
}

/// Finds where the state lies, links to the whole of a source followed.
fn sources(request: &HomeRequest<'_>, workspace: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    for state in &request.rules.state {
        let state = state.replace("{workspace}", workspace);
        let (directory, last) = state.rsplit_once('/').unwrap_or(("", &state));
        if !last.contains(['*', '?', '[', '{']) {
            sources.push(source(request, PathBuf::from(&state)));
            continue;
        }
        let Ok(names) = glob_set([last], workspace) else {
            continue;
        };
        let entries = std::fs::read_dir(place(request, Path::new(directory)));
        let mut found: Vec<PathBuf> = entries
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| names.is_match(entry.file_name()))
            .map(|entry| Path::new(directory).join(entry.file_name()))
            .collect();
        found.sort();
        sources.extend(found.into_iter().map(|path| source(request, path)));
    }
    sources
}

fn source(request: &HomeRequest<'_>, inside: PathBuf) -> Source {
    let host = place(request, &inside);
    let host = host.canonicalize().unwrap_or(host);
    Source {
        file: host.is_file(),
        inside: BytePath::from(inside),
        host: BytePath::from(host),
    }
}

/// Gives where something of the home directory lies, where a variable may have put it elsewhere.
fn place(request: &HomeRequest<'_>, inside: &Path) -> PathBuf {
    for moved in &request.rules.moved {
        let value = request
            .variables
            .iter()
            .find(|(name, value)| *name == moved.variable && value.is_absolute());
        if let (Some((_, value)), Ok(rest)) = (value, inside.strip_prefix(&moved.path)) {
            let mut place = value.clone();
            if !moved.below.is_empty() {
                place.push(&moved.below);
            }
            if !rest.as_os_str().is_empty() {
                place.push(rest);
            }
            return place;
        }
    }
    request.real.join(inside)
}

fn look(
    source: &Source,
    rules: &Rules<'_>,
    tops: &mut Vec<OwnedFd>,
    candidates: &mut Vec<Candidate>,
    seeded: &mut Seeded,
) {
    let inside = source.inside.as_path();
    let host = source.host.as_path();
    // A pattern that would leave the whole of a source out is not meant for it.
    let never: Vec<_> = rules
        .never
        .iter()
        .filter(|one| !one.is_match(inside))
        .collect();
    if source.file {
        let (Some(parent), Some(name)) = (host.parent(), host.file_name()) else {
            return;
        };
        let found = Found {
            path: PathBuf::from(name),
            kind: FileType::RegularFile,
        };
        if let Ok(top) = open_directory(parent) {
            tops.push(top);
            let top = tops.len() - 1;
            add(
                &found,
                inside.to_owned(),
                top,
                &tops[top],
                rules,
                candidates,
            );
        }
        return;
    }
    let Ok(top) = open_directory(host) else {
        return;
    };
    let wanted = |path: &Path| {
        let full = inside.join(path);
        !never.iter().any(|one| one.is_match(&full))
    };
    let Ok((found, all)) = walk(&top, ENTRIES, &wanted) else {
        return;
    };
    if !all {
        seeded.notes.push(format!(
            "{} holds more than {ENTRIES} files; the rest was not copied in",
            source.inside
        ));
    }
    tops.push(top);
    let number = tops.len() - 1;
    let mut links = Vec::new();
    for one in found {
        let path = inside.join(&one.path);
        match one.kind {
            FileType::RegularFile => {
                add(&one, path, number, &tops[number], rules, candidates);
            }
            FileType::Symlink => match target(&host.join(&one.path), host) {
                Some(below) => {
                    let real = Found {
                        path: below,
                        kind: FileType::RegularFile,
                    };
                    add(&real, path, number, &tops[number], rules, candidates);
                }
                None => links.push(path),
            },
            // Sockets, pipes and devices are nothing that could be copied.
            _ => {}
        }
    }
    if !links.is_empty() {
        let names: Vec<String> = links
            .iter()
            .take(NAMED)
            .map(|path| format!("~/{}", path.display()))
            .collect();
        let more = links.len().saturating_sub(NAMED);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        seeded.notes.push(format!(
            "links that lead out of the agent's state were not followed: {}{more}",
            names.join(", ")
        ));
    }
}

/// Follows a link to a file within the same directory of state.
fn target(link: &Path, host: &Path) -> Option<PathBuf> {
    let real = link.canonicalize().ok()?;
    let below = real.strip_prefix(host).ok()?;
    real.is_file().then(|| below.to_owned())
}

fn add(
    found: &Found,
    path: PathBuf,
    top: usize,
    at: &OwnedFd,
    rules: &Rules<'_>,
    candidates: &mut Vec<Candidate>,
) {
    let Ok((_, metadata)) = open_beneath(at.as_fd(), &found.path) else {
        return;
    };
    candidates.push(Candidate {
        back: rules.is_back(&path),
        path,
        top,
        below: found.path.clone(),
        size: metadata.len(),
        modified: metadata.mtime(),
    });
}

fn copy(
    top: &OwnedFd,
    candidate: &Candidate,
    directory: &Path,
    identity: Option<&Identity>,
) -> io::Result<Copied> {
    let (source, before) = open_beneath(top.as_fd(), &candidate.below)?;
    let home = directory.join(HOME);
    let target = home.join(&candidate.path);
    make_parents(&home, &candidate.path, identity)?;
    match std::fs::remove_file(&target) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::options().write(true).create_new(true).open(&target)?;
    write::copy(&source, &mut file)?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(before.mode() & 0o777))?;
    if let Some(identity) = identity {
        let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
        rustix::fs::fchown(&file, Some(uid), Some(gid))?;
    }
    file.set_times(FileTimes::new().set_modified(before.modified()?))?;
    Ok(Copied {
        real: Stamp::of(&before),
        layer: Stamp::of(&file.metadata()?),
    })
}

pub(super) fn make_parents(
    home: &Path,
    path: &Path,
    identity: Option<&Identity>,
) -> io::Result<()> {
    let mut here = home.to_owned();
    for part in path.parent().into_iter().flat_map(Path::components) {
        here.push(part);
        match rustix::fs::mkdir(&here, Mode::RWXU) {
            Ok(()) => own(&here, identity)?,
            Err(rustix::io::Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Copies databases again that somebody wrote to meanwhile, so that their parts fit together.
fn settle_databases(
    request: &HomeRequest<'_>,
    candidates: &[Candidate],
    tops: &[OwnedFd],
    rules: &Rules<'_>,
    record: &mut HomeRecord,
    seeded: &mut Seeded,
) {
    let identity = request.identity.as_ref();
    let mains: Vec<&Candidate> = candidates
        .iter()
        .filter(|one| {
            let text = one.path.to_str();
            text.is_some_and(|text| rules.database(text).as_deref() == Some(text))
        })
        .collect();
    for main in mains {
        let parts: Vec<Candidate> = DATABASE_PARTS
            .iter()
            .map(|end| {
                let grown = |path: &Path| {
                    let mut name = path.as_os_str().to_owned();
                    name.push(end);
                    PathBuf::from(name)
                };
                Candidate {
                    path: grown(&main.path),
                    top: main.top,
                    below: grown(&main.below),
                    back: main.back,
                    size: 0,
                    modified: 0,
                }
            })
            .collect();
        let fits = |record: &HomeRecord| {
            parts.iter().all(|part| {
                let now = open_beneath(tops[part.top].as_fd(), &part.below).ok();
                let now = now.map(|(_, metadata)| Stamp::of(&metadata));
                let path = BytePath::from(part.path.as_path());
                now == record.seeded.get(&path).map(|one| one.real)
            })
        };
        for _ in 0..TRIES {
            if fits(record) {
                break;
            }
            for part in &parts {
                let path = BytePath::from(part.path.as_path());
                record.seeded.remove(&path);
                if let Ok(copied) = copy(&tops[part.top], part, &request.directory, identity) {
                    record.seeded.insert(path, copied);
                } else {
                    let _ = std::fs::remove_file(request.directory.join(HOME).join(&part.path));
                }
            }
        }
        if !fits(record) {
            seeded.notes.push(format!(
                "~/{} is being written to; its copy may lack what came last",
                main.path.display()
            ));
        }
    }
}
