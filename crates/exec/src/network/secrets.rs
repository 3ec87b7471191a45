//! The values of secrets that hosts are told: found outside, once, and kept in memory only.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::policy::SecretForm;
use cofferdam_core::spec::{EgressSecret, SecretSource};
use cofferdam_egress::{Broker, SecretPlace, SecretValue};

use super::lock;
use crate::host::Surroundings;
use crate::plane::Plane;
use crate::tool::{self, Call, Input, find_program};

/// Bytes that a secret may have; a file or a program that gives more gives something else.
const MOST_BYTES: usize = 16 * 1024;

/// What was found, and where to look.
#[derive(Debug, Default)]
pub(super) struct Secrets {
    surroundings: OnceLock<Surroundings>,
    found: Mutex<Vec<(SecretSource, SecretValue)>>,
}

impl Secrets {
    /// Says in whose surroundings secrets are found; what was said before stays.
    pub(super) fn set(&self, surroundings: Surroundings) {
        let _ = self.surroundings.set(surroundings);
    }

    /// Finds a secret's value and prepares it for the hosts that are told it. From then on it is
    /// masked in whatever the plane keeps or serves.
    ///
    /// A source is asked once; who comes meanwhile waits for the answer.
    pub(super) fn broker(&self, plane: &Plane, secret: &EgressSecret) -> Result<Broker, Problem> {
        let mut found = lock(&self.found);
        let known = found.iter().find(|(source, _)| *source == secret.source);
        let value = if let Some((_, value)) = known {
            value.clone()
        } else {
            let bytes = self
                .look(&secret.source)
                .map_err(|why| missing(secret, &why))?;
            let value =
                SecretValue::new(&bytes).map_err(|error| missing(secret, &error.to_string()))?;
            plane.mask_also(value.forms());
            found.push((secret.source.clone(), value.clone()));
            value
        };
        Ok(Broker {
            name: secret.name.clone(),
            hosts: secret
                .hosts
                .iter()
                .filter_map(|text| text.parse().ok())
                .collect(),
            place: place(secret),
            always: secret.always,
            value,
        })
    }

    fn look(&self, source: &SecretSource) -> Result<Vec<u8>, String> {
        match source {
            SecretSource::File(path) => read(path.as_path()),
            SecretSource::Env(name) => self
                .surroundings
                .get()
                .and_then(|surroundings| surroundings.get(name))
                .map(|value| value.as_bytes().to_vec())
                .ok_or_else(|| format!("there is no variable {name}")),
            SecretSource::Command { argv, timeout_ms } => {
                self.ask(argv, Duration::from_millis(*timeout_ms))
            }
        }
    }

    /// Runs a program as the owner and takes what it prints; that stands in no event.
    fn ask(&self, argv: &[String], limit: Duration) -> Result<Vec<u8>, String> {
        let surroundings = self
            .surroundings
            .get()
            .ok_or("nobody's programs are known")?;
        let (name, arguments) = argv.split_first().ok_or("it names no program")?;
        let search = surroundings.get("PATH").unwrap_or_default();
        let program = if name.starts_with('/') {
            std::ffi::CString::new(name.as_str()).ok()
        } else {
            find_program(name, search.as_bytes(), &[])
        };
        let program = program.ok_or_else(|| format!("there is no program {name}"))?;
        let environment: Vec<(Vec<u8>, Vec<u8>)> = surroundings
            .variables()
            .iter()
            .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
            .collect();
        let arguments: Vec<Vec<u8>> = arguments
            .iter()
            .map(|argument| argument.as_bytes().to_vec())
            .collect();
        let answer = tool::run(&Call {
            program: &program,
            arguments: &arguments,
            environment: &environment,
            // Not where a file of the workspace could tell it what to do.
            directory: Path::new("/"),
            input: Input::Empty,
            timeout: limit,
            bound: MOST_BYTES,
        })
        .map_err(|error| format!("{name} {error}"))?;
        match answer.code() {
            Some(0) => Ok(answer.stdout),
            // What it says beside may hold anything, and is not repeated.
            Some(code) => Err(format!("{name} ended with {code}")),
            None => Err(format!("{name} was ended by a signal")),
        }
    }
}

fn place(secret: &EgressSecret) -> SecretPlace {
    let name = secret.field.clone().unwrap_or_default();
    match secret.form {
        SecretForm::Bearer => SecretPlace::Bearer,
        SecretForm::Basic => SecretPlace::Basic {
            username: secret.username.clone().unwrap_or_default(),
        },
        SecretForm::Header => SecretPlace::Header { name },
        SecretForm::Query => SecretPlace::Query { name },
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let told = |error: std::io::Error| format!("{}: {error}", path.display());
    // Something that is no file must not keep anybody waiting.
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = File::options()
        .read(true)
        .custom_flags(nonblocking)
        .open(path)
        .map_err(told)?;
    if !file.metadata().map_err(told)?.is_file() {
        return Err(format!("{} is no file", path.display()));
    }
    let mut bytes = Vec::new();
    file.take(MOST_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(told)?;
    if bytes.len() > MOST_BYTES {
        return Err(format!(
            "{} has more than {MOST_BYTES} bytes",
            path.display()
        ));
    }
    Ok(bytes)
}

fn missing(secret: &EgressSecret, why: &str) -> Problem {
    let name = &secret.name;
    Problem::new(
        ErrorCode::SecretUnavailable,
        format!("the secret {name} cannot be had: {why}"),
    )
    .with_field("secrets")
    .with_hint("put right where it is found, or take it out of the policy")
}
