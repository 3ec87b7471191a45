//! A server in a thread, and a small client for it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use cofferdam_core::ambient::Ambient;
use cofferdam_core::event::{NewEvent, Severity, Subject};
use cofferdam_core::id::{AgentId, ConversationId, EventId, TaskId, ThreadId};
use cofferdam_journal::{DataDir, Journal, SqliteJournal, SystemAmbient};
use cofferdam_server::{Server, ServerOptions, StopHandle};
use serde_json::Value;
use tempfile::TempDir;

/// A running server, stopped at the end of its test.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
    pub(crate) journal: Arc<SqliteJournal>,
    pub(crate) directory: TempDir,
    stop: StopHandle,
    thread: Option<JoinHandle<()>>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect(&self.body)
    }
}

/// Gives what a server needs, with times that suit a test.
pub(crate) fn options(directory: &TempDir) -> (ServerOptions, Arc<SqliteJournal>) {
    let data = DataDir::open(directory.path().join("data")).expect("a data directory");
    let ambient = Arc::new(SystemAmbient::new());
    let journal = Arc::new(SqliteJournal::open(&data, ambient.clone()).expect("a journal"));
    let listen = "127.0.0.1:0".parse().expect("an address");
    let mut options = ServerOptions::new(listen, data, journal.clone(), ambient);
    options.heartbeat = Duration::from_millis(100);
    options.stall = Duration::from_millis(300);
    (options, journal)
}

impl Running {
    pub(crate) fn start() -> Self {
        Self::start_with(Duration::from_millis(600))
    }

    pub(crate) fn start_with(cut: Duration) -> Self {
        Self::start_as(|options, _| options.cut = cut)
    }

    /// Starts one with other options; the place is that of the test.
    pub(crate) fn start_as(change: impl FnOnce(&mut ServerOptions, &Path)) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut options, journal) = options(&directory);
        change(&mut options, directory.path());
        Self::run(options, journal, directory)
    }

    /// Runs a server of any kind.
    pub(crate) fn run(
        options: ServerOptions,
        journal: Arc<SqliteJournal>,
        directory: TempDir,
    ) -> Self {
        let server = Server::bind(options).expect("bound");
        let token = std::fs::read_to_string(server.token_path()).expect("a token");
        Self {
            address: server.address(),
            token: token.trim().to_owned(),
            journal,
            directory,
            stop: server.stop_handle(),
            thread: Some(std::thread::spawn(move || {
                server.run_blocking().expect("served");
            })),
        }
    }

    /// Sends a request as it is.
    pub(crate) fn send(&self, request: &str) -> Answer {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        Answer {
            status: status.expect("a status"),
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("connected");
        stream
            .set_read_timeout(Some(Duration::from_mins(1)))
            .expect("set");
        stream
    }

    pub(crate) fn request(&self, verb: &str, target: &str, more: &str) -> String {
        format!(
            "{verb} {target} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n{more}\r\n",
            self.address, self.token
        )
    }

    pub(crate) fn get(&self, target: &str) -> Answer {
        self.send(&self.request("GET", target, ""))
    }

    /// Calls an operation.
    pub(crate) fn call(&self, operation: &str, request: &Value) -> Answer {
        let body = request.to_string();
        let more = format!(
            "Content-Type: application/json\r\nContent-Length: {}\r\n",
            body.len()
        );
        let target = format!("/api/v1/{operation}");
        self.send(&format!("{}{body}", self.request("POST", &target, &more)))
    }

    /// Asks for a view by the end of its address.
    pub(crate) fn view(&self, view: &str) -> Answer {
        self.get(&format!("/api/agents/visibility/{view}"))
    }

    pub(crate) fn stream(&self, query: &str, last: Option<&str>) -> Frames {
        self.stream_of(&format!("/api/agents/visibility/stream{query}"), last)
    }

    /// Opens the stream at an address.
    pub(crate) fn stream_of(&self, target: &str, last: Option<&str>) -> Frames {
        let last = last.map_or_else(String::new, |last| format!("Last-Event-ID: {last}\r\n"));
        let mut stream = self.connect();
        let request = self.request("GET", target, &last);
        stream.write_all(request.as_bytes()).expect("sent");
        let mut frames = Frames {
            reader: BufReader::new(stream),
            head: String::new(),
            piece: Vec::new(),
            read: 0,
        };
        loop {
            let mut line = String::new();
            frames.reader.read_line(&mut line).expect("a head");
            if line.trim().is_empty() {
                return frames;
            }
            frames.head.push_str(&line.to_ascii_lowercase());
        }
    }

    pub(crate) fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a server that ends well");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.thread.is_some() && !std::thread::panicking() {
            self.end();
        }
    }
}

/// One frame of a stream.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Frame {
    pub(crate) id: Option<String>,
    pub(crate) event: String,
    pub(crate) data: Value,
    pub(crate) comment: Option<String>,
}

/// The frames of a stream, chunked transfer taken off.
pub(crate) struct Frames {
    reader: BufReader<TcpStream>,
    pub(crate) head: String,
    /// The current chunk, and how much of it was read.
    piece: Vec<u8>,
    read: usize,
}

impl Frames {
    fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        loop {
            if self.read == self.piece.len() {
                self.read = 0;
                self.piece = self.chunk()?;
            }
            let rest = &self.piece[self.read..];
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                line.extend_from_slice(&rest[..end]);
                self.read += end + 1;
                return String::from_utf8(line).ok();
            }
            line.extend_from_slice(rest);
            self.read = self.piece.len();
        }
    }

    /// Reads one chunk of the transfer; `None` at the end, and where it was cut.
    fn chunk(&mut self) -> Option<Vec<u8>> {
        let mut size = String::new();
        self.reader.read_line(&mut size).ok()?;
        let size = usize::from_str_radix(size.trim(), 16)
            .ok()
            .filter(|size| *size > 0)?;
        let mut chunk = vec![0; size + 2];
        self.reader.read_exact(&mut chunk).ok()?;
        chunk.truncate(size);
        Some(chunk)
    }

    /// Gives the next frame; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        let mut frame = Frame::default();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Some(frame);
            }
            match line.split_once(": ") {
                Some(("id", id)) => frame.id = Some(id.to_owned()),
                Some(("event", kind)) => kind.clone_into(&mut frame.event),
                Some(("data", data)) => frame.data = serde_json::from_str(data).expect("JSON"),
                Some(("", comment)) => frame.comment = Some(comment.to_owned()),
                Some(("retry", _)) => {}
                _ => panic!("a strange line: {line:?}"),
            }
        }
    }

    /// Gives the next frame with a name.
    pub(crate) fn named(&mut self) -> Option<Frame> {
        loop {
            let frame = self.next()?;
            if !frame.event.is_empty() {
                return Some(frame);
            }
        }
    }
}

/// Makes an event with a subject.
pub(crate) fn event(kind: &str, task: &str, data: Value) -> NewEvent {
    let ambient = SystemAmbient::new();
    let (milliseconds, random) = ambient.id_parts();
    NewEvent {
        id: EventId::new(milliseconds, random),
        time: ambient.now(),
        kind: kind.to_owned(),
        subject: Subject {
            conversation: ConversationId::parse("conv_1").ok(),
            thread: kind
                .starts_with("message")
                .then(|| ThreadId::parse("thread_1").expect("an id")),
            agent: AgentId::parse("agent_1").ok(),
            task: TaskId::parse(task).ok(),
            ..Subject::default()
        },
        causation: None,
        severity: Severity::Info,
        data,
        redactions: 0,
    }
}

/// Appends numbered lines.
pub(crate) fn fill(journal: &dyn Journal, events: usize) {
    let made: Vec<NewEvent> = (0..events)
        .map(|number| {
            event(
                "log.line",
                "task_1",
                serde_json::json!({"text": format!("line {number}")}),
            )
        })
        .collect();
    journal.append(&made).expect("room");
}
