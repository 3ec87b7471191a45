//! The engine's interface: the few requests that are made of Docker or Podman.

use std::ffi::OsStr;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_core::error::{ErrorCode, Problem};
use serde::{Deserialize, Serialize};
use ureq::Agent;
use ureq::http::{Method, StatusCode};

use super::unix::{NoNames, UnixConnector};

/// Where engines listen, for everybody and for one user.
const SOCKETS: &[&str] = &["/var/run/docker.sock", "/run/podman/podman.sock"];
/// How long an engine may take for one answer: it may be putting an image together meanwhile.
const ANSWER: Duration = Duration::from_mins(1);
/// Bytes of an answer that are read.
const ANSWER_BYTES: u64 = 16 * 1024 * 1024;

/// Finds the socket of an engine: the one that the environment names, else the usual places.
///
/// `None` where there is none; an engine of another machine is none either, since what is mounted
/// has to be on this one.
pub(crate) fn found_socket(named: Option<&OsStr>, uid: u32) -> Option<PathBuf> {
    let is_socket =
        |path: &Path| std::fs::metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        let path = named.to_str()?.strip_prefix("unix://")?;
        return Some(PathBuf::from(path)).filter(|path| is_socket(path));
    }
    let own = format!("/run/user/{uid}");
    SOCKETS
        .iter()
        .map(PathBuf::from)
        .chain(["docker.sock", "podman/podman.sock"].map(|name| Path::new(&own).join(name)))
        .find(|path| is_socket(path))
}

/// A connection to an engine; each request has one of its own.
#[derive(Debug)]
pub(crate) struct Engine {
    agent: Agent,
    socket: PathBuf,
}

/// A container as the engine knows it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Inspected {
    pub(crate) state: State,
}

/// How it stands with a container.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct State {
    /// Whether its first process runs.
    pub(crate) running: bool,
    /// That process as the host knows it; 0 where there is none.
    pub(crate) pid: i32,
    /// What it ended with.
    pub(crate) exit_code: i64,
    /// Why it did not start.
    #[serde(default)]
    pub(crate) error: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Created {
    id: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    id: String,
}

#[derive(Debug, Deserialize)]
struct Refusal {
    message: String,
}

impl Engine {
    pub(crate) fn new(socket: &Path) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(ANSWER))
            .max_idle_connections(0)
            .proxy(None)
            .build();
        Self {
            agent: Agent::with_parts(config, UnixConnector(socket.to_owned()), NoNames),
            socket: socket.to_owned(),
        }
    }

    /// Tells whether an image is there.
    pub(crate) fn has_image(&self, name: &str) -> Result<bool, Problem> {
        let path = format!("/images/{name}/json");
        match self.ask(&Method::GET, &path, &[], "") {
            Ok(_) => Ok(true),
            Err(Refused::Status(StatusCode::NOT_FOUND, _)) => Ok(false),
            Err(refused) => Err(refused.into()),
        }
    }

    /// Makes an image of an archive.
    pub(crate) fn import(
        &self,
        repository: &str,
        tag: &str,
        archive: &[u8],
    ) -> Result<(), Problem> {
        let path = format!("/images/create?fromSrc=-&repo={repository}&tag={tag}");
        self.ask(&Method::POST, &path, archive, "application/x-tar")?;
        Ok(())
    }

    /// Makes a container; gives its id.
    pub(crate) fn create(&self, request: &impl Serialize) -> Result<String, Problem> {
        let body = serde_json::to_vec(request).map_err(|error| {
            let message = format!("cannot say what is asked of the engine: {error}");
            Problem::new(ErrorCode::Internal, message)
        })?;
        let (_, text) = self.ask(
            &Method::POST,
            "/containers/create",
            &body,
            "application/json",
        )?;
        self.read::<Created>(&text).map(|created| created.id)
    }

    /// Starts it.
    pub(crate) fn start(&self, id: &str) -> Result<(), Problem> {
        self.ask(&Method::POST, &format!("/containers/{id}/start"), &[], "")?;
        Ok(())
    }

    /// Looks at it.
    pub(crate) fn inspect(&self, id: &str) -> Result<Inspected, Problem> {
        let (_, text) = self.ask(&Method::GET, &format!("/containers/{id}/json"), &[], "")?;
        self.read(&text)
    }

    /// Ends and removes it; one that is gone already is no error.
    pub(crate) fn remove(&self, id: &str) -> Result<(), Problem> {
        let path = format!("/containers/{id}?force=1&v=1");
        match self.ask(&Method::DELETE, &path, &[], "") {
            // 409: it is being removed.
            Ok(_) | Err(Refused::Status(StatusCode::NOT_FOUND | StatusCode::CONFLICT, _)) => Ok(()),
            Err(refused) => Err(refused.into()),
        }
    }

    /// Lists the ids of the containers that have all of some labels, also of those that ended.
    pub(crate) fn list(&self, labels: &[String]) -> Result<Vec<String>, Problem> {
        let filters = serde_json::json!({ "label": labels }).to_string();
        let filters = percent(&filters);
        let path = format!("/containers/json?all=1&filters={filters}");
        let (_, text) = self.ask(&Method::GET, &path, &[], "")?;
        let listed: Vec<Listed> = self.read(&text)?;
        Ok(listed.into_iter().map(|one| one.id).collect())
    }

    fn read<T: for<'de> Deserialize<'de>>(&self, text: &str) -> Result<T, Problem> {
        serde_json::from_str(text).map_err(|error| {
            let message = format!("{} answers what no engine does: {error}", self.named());
            Problem::new(ErrorCode::EngineFailed, message)
        })
    }

    fn named(&self) -> String {
        format!("the container engine at {}", self.socket.display())
    }

    fn ask(
        &self,
        method: &Method,
        path: &str,
        body: &[u8],
        kind: &str,
    ) -> Result<(StatusCode, String), Refused> {
        let unreachable = |error: ureq::Error| {
            let message = format!("{} does not answer: {error}", self.named());
            Refused::Problem(Problem::new(ErrorCode::EngineMissing, message).with_hint(
                "start it, see that you may use its socket, or name another with DOCKER_HOST",
            ))
        };
        let request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("http://engine{path}"))
            .header("content-type", kind)
            .body(body)
            .map_err(|error| unreachable(error.into()))?;
        let mut response = self.agent.run(request).map_err(unreachable)?;
        let status = response.status();
        let text = response
            .body_mut()
            .with_config()
            .limit(ANSWER_BYTES)
            .read_to_string()
            .map_err(unreachable)?;
        if status.is_success() {
            return Ok((status, text));
        }
        let said = serde_json::from_str::<Refusal>(&text).map_or(text, |refusal| refusal.message);
        let message = format!("{} refuses: {}", self.named(), said.trim());
        Err(Refused::Status(
            status,
            Problem::new(ErrorCode::EngineFailed, message),
        ))
    }
}

/// Why there is no good answer.
enum Refused {
    Status(StatusCode, Problem),
    Problem(Problem),
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Status(_, problem) | Refused::Problem(problem) => problem,
        }
    }
}

/// Writes what a query may not hold by its number.
fn percent(text: &str) -> String {
    use std::fmt::Write as _;
    let mut written = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            written.push(char::from(byte));
        } else {
            let _ = write!(written, "%{byte:02X}");
        }
    }
    written
}
