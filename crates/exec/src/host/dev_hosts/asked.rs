//! What package clients say themselves about where they load from, where nothing is configured.
//!
//! A client is asked once, where the workspace shows that it is used, and its answer kept in the
//! data directory for as long as neither it nor its configuration changes: no task waits for it
//! twice. It is found outside of the workspace and runs in an empty directory.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::address::urls;
use super::clients::{cargo_indexes, go_setting};
use super::{Findings, Look};
use crate::tool::{self, Call, Input, find_program, safe_search_path};

/// How long a client may take to say where it loads from.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most bytes of an answer.
const MOST_BYTES: usize = 1 << 20;
/// Most directories below the top of the workspace that are looked into.
const MOST_DIRECTORIES: usize = 64;

/// Begins the name of a directory in which a client is asked; the process's number ends it.
const ASKING: &str = "ask-";

/// How a client is asked.
struct Client {
    name: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
    /// Files in the workspace that show that it is used.
    markers: &'static [&'static str],
    /// Its configuration below the home directory: an answer is good as long as that stays.
    configuration: &'static [&'static str],
    /// Variables that speak to it.
    variables: &'static [&'static str],
    /// Takes addresses out of what it wrote.
    take: fn(&str) -> Vec<String>,
}

const PYTHON: &[&str] = &[
    "pyproject.toml",
    "requirements.txt",
    "setup.py",
    "setup.cfg",
    "Pipfile",
    "uv.lock",
];

const CLIENTS: &[Client] = &[
    Client {
        name: "npm",
        program: "npm",
        arguments: &["config", "get", "registry"],
        markers: &["package.json"],
        configuration: &[".npmrc"],
        variables: &["npm_config_", "NPM_CONFIG_"],
        take: every,
    },
    Client {
        name: "yarn",
        program: "yarn",
        arguments: &["config", "get", "registry"],
        markers: &["yarn.lock"],
        configuration: &[".yarnrc", ".npmrc"],
        variables: &["YARN_"],
        take: every,
    },
    Client {
        // From 2 on it calls it otherwise; each form says nothing to the other's question.
        name: "yarn berry",
        program: "yarn",
        arguments: &["config", "get", "npmRegistryServer"],
        markers: &["yarn.lock", ".yarnrc.yml"],
        configuration: &[".yarnrc.yml"],
        variables: &["YARN_"],
        take: every,
    },
    Client {
        name: "pip",
        program: "python3",
        // The index and the host of its files, as pip itself has them.
        arguments: &[
            "-I",
            "-c",
            "from pip._internal.models.index import PyPI; \
             print(PyPI.simple_url, 'https://' + PyPI.file_storage_domain)",
        ],
        markers: PYTHON,
        configuration: &[],
        variables: &[],
        take: every,
    },
    Client {
        name: "uv",
        program: "uv",
        arguments: &["pip", "install", "--help"],
        markers: PYTHON,
        configuration: &[],
        variables: &[],
        take: after_default,
    },
    Client {
        name: "go",
        program: "go",
        arguments: &["env", "GOPROXY", "GOSUMDB"],
        markers: &["go.mod", "go.work"],
        configuration: &[".config/go/env"],
        variables: &["GOPROXY", "GOSUMDB", "GOENV"],
        take: lines,
    },
    Client {
        name: "maven",
        program: "mvn",
        // Offline and with an empty repository it says where it would have looked.
        arguments: &[
            "-B",
            "-q",
            "-o",
            "-Dmaven.repo.local=repository",
            "help:help",
        ],
        markers: &["pom.xml"],
        configuration: &[".m2/settings.xml"],
        variables: &["JAVA_HOME"],
        take: repositories,
    },
    Client {
        name: "cargo",
        program: "cargo",
        // Any request makes it load what the index says of itself.
        arguments: &["fetch"],
        markers: &["Cargo.toml"],
        configuration: &[".cargo/config.toml"],
        variables: &["CARGO_", "RUSTUP_", "HTTPS_PROXY", "https_proxy", "SSL_"],
        take: every,
    },
];

fn every(text: &str) -> Vec<String> {
    urls(text).map(str::to_owned).collect()
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// Takes what a help text calls the default.
fn after_default(text: &str) -> Vec<String> {
    text.split("default: ")
        .skip(1)
        .filter_map(|rest| urls(rest.get(..200).unwrap_or(rest)).next())
        .map(str::to_owned)
        .collect()
}

/// Takes the repositories that Maven names in its complaint.
fn repositories(text: &str) -> Vec<String> {
    text.split("from the repositories [")
        .skip(1)
        .filter_map(|rest| rest.split(']').next())
        .flat_map(urls)
        .map(str::to_owned)
        .collect()
}

/// An answer and what it holds for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    client: String,
    /// Program and configuration files with size and time of each.
    state: Vec<(String, u64, i64)>,
    addresses: Vec<String>,
}

pub(super) fn look(look: &Look<'_>, findings: &mut Findings) {
    if !look.is_own {
        // Programs of another person are not run with the rights of whoever calls.
        return;
    }
    let store = look.data_dir.join("clients.json");
    let mut answers: Vec<Answer> = std::fs::read(&store)
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default();
    let configured = |name: &str| {
        let is_of = |origin: &str| origin.starts_with(&format!("{name}: "));
        findings.dev.iter().any(|host| is_of(&host.origin))
    };
    let wanted: Vec<(&Client, CString)> = CLIENTS
        .iter()
        .filter(|client| !(configured(client.name) && client.name != "go"))
        .filter_map(|client| Some((client, program(look, client.program)?)))
        .collect();
    let mut unasked = Vec::new();
    let mut known = Vec::new();
    for (client, program) in wanted {
        let state = state(look, client, &program);
        match answers
            .iter()
            .find(|one| one.client == client.name && one.state == state)
        {
            Some(answer) => known.push((client.name, answer.addresses.clone())),
            None if is_used(look.root, client.markers) => unasked.push((client, program, state)),
            None => {}
        }
    }
    let fresh: Vec<Answer> = std::thread::scope(|scope| {
        let asking: Vec<_> = unasked
            .iter()
            .map(|(client, program, state)| {
                scope.spawn(move || {
                    let addresses = ask(look, client, program)?;
                    Some(Answer {
                        client: client.name.to_owned(),
                        state: state.clone(),
                        addresses,
                    })
                })
            })
            .collect();
        asking
            .into_iter()
            .filter_map(|one| one.join().ok().flatten())
            .collect()
    });
    for answer in &fresh {
        let name = CLIENTS.iter().find(|client| client.name == answer.client);
        known.extend(name.map(|client| (client.name, answer.addresses.clone())));
    }
    for (name, addresses) in known {
        let origin = format!("{name} itself");
        for (number, address) in addresses.iter().enumerate() {
            if name == "go" {
                let setting = if number == 0 { "GOPROXY" } else { "GOSUMDB" };
                go_setting(setting, address, &origin, findings);
            } else {
                findings.note(address, &origin);
            }
        }
    }
    if fresh.iter().any(|one| one.client == "cargo") {
        let home = look
            .surroundings
            .path("CARGO_HOME")
            .map_or_else(|| look.owner.home.as_path().join(".cargo"), Path::to_owned);
        cargo_indexes(look, &home, findings);
    }
    if !fresh.is_empty() {
        answers.retain(|one| !fresh.iter().any(|new| new.client == one.client));
        answers.extend(fresh);
        // Without a store it is asked again the next time, and nothing else.
        let _ = keep(&store, &answers);
    }
}

fn keep(store: &Path, answers: &[Answer]) -> std::io::Result<()> {
    let fresh = store.with_extension(format!("{}.new", std::process::id()));
    std::fs::write(&fresh, serde_json::to_vec_pretty(answers)?)?;
    std::fs::rename(fresh, store)
}

fn program(look: &Look<'_>, name: &str) -> Option<CString> {
    let search = look.surroundings.get("PATH")?;
    find_program(name, search.as_bytes(), &[look.root, look.data_dir])
}

/// Tells whether the workspace shows that a client is used, at its top or one directory below.
fn is_used(root: &Path, markers: &[&str]) -> bool {
    let holds = |directory: &Path| markers.iter().any(|name| directory.join(name).exists());
    if holds(root) {
        return true;
    }
    let Ok(entries) = std::fs::read_dir(root) else {
        return false;
    };
    entries
        .flatten()
        .take(MOST_DIRECTORIES)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .any(|entry| holds(&entry.path()))
}

fn state(look: &Look<'_>, client: &Client, program: &CString) -> Vec<(String, u64, i64)> {
    let home = look.owner.home.as_path();
    let program = PathBuf::from(std::ffi::OsStr::from_bytes(program.as_bytes()));
    std::iter::once(program)
        .chain(client.configuration.iter().map(|name| home.join(name)))
        .map(|path| {
            let found = std::fs::metadata(&path).ok();
            let size = found.as_ref().map_or(0, std::fs::Metadata::len);
            let time = found.map_or(0, |one| one.mtime());
            (path.display().to_string(), size, time)
        })
        .collect()
}

/// Asks one client; `None` where it says nothing.
fn ask(look: &Look<'_>, client: &Client, program: &CString) -> Option<Vec<String>> {
    let scratch = look.data_dir.join("scratch");
    sweep(&scratch);
    let directory = scratch.join(format!("{ASKING}{}-{}", client.name, std::process::id()));
    std::fs::create_dir_all(&directory).ok()?;
    let answer = ask_in(look, client, program, &directory);
    // What a process that was killed has left is swept by the next one that asks.
    let _ = std::fs::remove_dir_all(&directory);
    answer
}

/// Removes the directories of processes that are gone.
fn sweep(scratch: &Path) {
    for entry in std::fs::read_dir(scratch).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name
            .strip_prefix(ASKING)
            .and_then(|rest| rest.rsplit_once('-'))
            .and_then(|(_, pid)| pid.parse::<u32>().ok());
        if let Some(pid) = owner
            && !Path::new("/proc").join(pid.to_string()).exists()
        {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn ask_in(
    look: &Look<'_>,
    client: &Client,
    program: &CString,
    directory: &Path,
) -> Option<Vec<String>> {
    if client.name == "cargo" {
        std::fs::create_dir(directory.join("src")).ok()?;
        std::fs::write(directory.join("src/lib.rs"), "").ok()?;
        // Nothing of this name has to exist: the index is asked, and that is what counts.
        let manifest = "[package]\nname = \"asks\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\
                        [dependencies]\nasks-where-crates-come-from = \"*\"\n[workspace]\n";
        std::fs::write(directory.join("Cargo.toml"), manifest).ok()?;
    }
    let search = look.surroundings.get("PATH").unwrap_or_default();
    let path = safe_search_path(search.as_bytes(), &[look.root, look.data_dir]);
    let mut environment: Vec<(Vec<u8>, Vec<u8>)> = vec![
        (b"PATH".to_vec(), path),
        (b"HOME".to_vec(), look.owner.home.as_bytes().to_vec()),
        (b"LC_ALL".to_vec(), b"C.UTF-8".to_vec()),
    ];
    for (name, value) in look.surroundings.variables() {
        let text = name.to_string_lossy();
        if client.variables.iter().any(|one| text.starts_with(one)) {
            environment.push((name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        }
    }
    let arguments: Vec<Vec<u8>> = client
        .arguments
        .iter()
        .map(|word| word.as_bytes().to_vec())
        .collect();
    let answer = tool::run(&Call {
        program,
        arguments: &arguments,
        environment: &environment,
        directory,
        input: Input::Empty,
        timeout: PATIENCE,
        bound: MOST_BYTES,
    })
    .ok()?;
    let mut text = String::from_utf8_lossy(&answer.stdout).into_owned();
    // Those that are asked by a request that fails complain there.
    if matches!(client.name, "cargo" | "maven") {
        text.push_str(&String::from_utf8_lossy(&answer.stderr));
    } else if answer.code() != Some(0) {
        return None;
    }
    Some((client.take)(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_out_of_what_clients_write() {
        let maven = "[ERROR] No plugin found for prefix 'help' available from the repositories \
                     [local (/x), central (https://mvn.test/maven2)] -> [Help 1] http://help.test/";
        assert_eq!(repositories(maven), ["https://mvn.test/maven2"]);
        let uv = "The URL of the default package index (by default: <https://uv.test/simple>).";
        assert_eq!(after_default(uv), ["https://uv.test/simple"]);
        assert_eq!(every("https://npm.test/\n"), ["https://npm.test/"]);
    }

    #[test]
    fn what_a_killed_process_left_is_swept() {
        let place = tempfile::tempdir().expect("a directory");
        let own = place.path().join(format!("ask-npm-{}", std::process::id()));
        // No process has this number: it is above what the kernel gives.
        let gone = place.path().join("ask-npm-4194999");
        for path in [&own, &gone] {
            std::fs::create_dir(path).expect("made");
        }
        sweep(place.path());
        assert!(own.exists() && !gone.exists());
    }

    #[test]
    fn a_client_is_used_where_its_files_are() {
        let place = tempfile::tempdir().expect("a directory");
        assert!(!is_used(place.path(), &["package.json"]));
        std::fs::create_dir(place.path().join("web")).expect("made");
        std::fs::write(place.path().join("web/package.json"), "{}").expect("written");
        assert!(is_used(place.path(), &["package.json"]));
    }
}
