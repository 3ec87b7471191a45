//! What a terminal writes, as it comes, over SSE: `GET /api/v1/terminals/{name}/stream`.
//!
//! The terminal keeps the end of what it wrote, and a reader is an offset into that: any number may
//! watch, one that is slow holds nobody up and costs no memory, and what it missed is told as a gap.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::operation::TerminalName;
use cofferdam_exec::TerminalSize;
use cofferdam_exec::terminal::Terminal;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

use crate::problem::Refusal;
use crate::routes::App;

/// Bytes of a terminal in one frame at most.
const PIECE_BYTES: usize = 32 * 1024;

pub(crate) async fn stream(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let from = from(query.as_deref()).map_err(Refusal::of)?;
    let name = TerminalName::parse(&name).map_err(|error| {
        Refusal::of(Problem::new(ErrorCode::TerminalUnknown, error.to_string()))
    })?;
    let terminal = app
        .calls
        .context()
        .and_then(|context| context.runtime().terminal(&name))
        .map_err(Refusal::of)?;
    let (frames, receiver) = mpsc::channel(1);
    let (heartbeat, stop) = app.streams.times();
    tokio::spawn(async move {
        let mut reader = Reader {
            terminal,
            offset: 0,
            size: None,
            frames,
            heartbeat,
            stop,
        };
        // Whoever reads has gone, or the terminal has ended.
        let _ = reader.run(from).await;
    });
    let mut response = Response::new(Body::from_stream(ReceiverStream::new(receiver)));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

/// Reads the only parameter: the offset to begin at; without it the stream begins with the screen.
fn from(query: Option<&str>) -> Result<Option<u64>, Problem> {
    let Some(query) = query.filter(|query| !query.is_empty()) else {
        return Ok(None);
    };
    query
        .strip_prefix("from=")
        .and_then(|text| text.parse().ok())
        .map(Some)
        .ok_or_else(|| {
            Problem::new(
                ErrorCode::InvalidRequest,
                "the only parameter is from, a number of bytes",
            )
            .with_field("from")
        })
}

/// Ends a stream.
struct Over;

struct Reader {
    terminal: Arc<Terminal>,
    offset: u64,
    size: Option<TerminalSize>,
    frames: mpsc::Sender<Result<Bytes, std::convert::Infallible>>,
    heartbeat: Duration,
    stop: watch::Receiver<bool>,
}

impl Reader {
    async fn run(&mut self, from: Option<u64>) -> Result<(), Over> {
        let (wake, mut woken) = watch::channel(());
        // Only marks: what changed is looked at by whoever was woken.
        let _watch = self.terminal.watch(move || {
            let _ = wake.send(());
        });
        match from {
            Some(from) => self.offset = from,
            None => self.screen().await?,
        }
        loop {
            woken.mark_unchanged();
            let size = self.terminal.size();
            if self.size.replace(size).is_some_and(|before| before != size) {
                let data = json!({"rows": size.rows, "columns": size.columns});
                self.frame("resized", &data).await?;
            }
            let ended = self.terminal.end();
            let chunk = self.terminal.read(self.offset, PIECE_BYTES);
            if chunk.gap > 0 {
                let data = json!({"from": self.offset, "to": chunk.from});
                self.offset = chunk.from;
                self.frame("gap", &data).await?;
            }
            if !chunk.bytes.is_empty() {
                self.offset = chunk.to();
                let data = json!({"offset": chunk.from, "bytes": STANDARD.encode(&chunk.bytes)});
                self.frame("output", &data).await?;
                continue;
            }
            if let Some(end) = ended {
                return self.frame("closed", &json!(end)).await;
            }
            if *self.stop.borrow() {
                return Err(Over);
            }
            tokio::select! {
                changed = woken.changed() => changed.map_err(|_| Over)?,
                () = tokio::time::sleep(self.heartbeat) => {
                    self.send(Bytes::from_static(b": heartbeat\n\n")).await?;
                }
                // What ended with the server is told before the stream is: one more look.
                stopped = self.stop.changed() => stopped.map_err(|_| Over)?,
                () = self.frames.closed() => return Err(Over),
            }
        }
    }

    /// Begins with what the terminal shows, so that whoever comes later sees the same.
    async fn screen(&mut self) -> Result<(), Over> {
        let (offset, bytes) = self.terminal.redraw();
        let size = self.terminal.size();
        self.offset = offset;
        self.size = Some(size);
        let data = json!({
            "offset": offset,
            "rows": size.rows,
            "columns": size.columns,
            "bytes": STANDARD.encode(bytes),
        });
        self.frame("screen", &data).await
    }

    async fn frame(&self, kind: &str, data: &Value) -> Result<(), Over> {
        let text = format!("id: {}\nevent: {kind}\ndata: {data}\n\n", self.offset);
        self.send(Bytes::from(text)).await
    }

    /// Waits until the reader takes it; the connection is cut when nobody does for too long.
    async fn send(&self, bytes: Bytes) -> Result<(), Over> {
        self.frames.send(Ok(bytes)).await.map_err(|_| Over)
    }
}
