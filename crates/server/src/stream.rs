//! The events as they come, over SSE. The journal is the buffer: a reader that is slow is read for
//! later, and one that is too slow is sent away with the place where it can go on.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use cofferdam_core::event::EventFilter;
use cofferdam_journal::{Head, Journal, Page, Query};
use cofferdam_runtime::Watching;
use cofferdam_visibility::Cursor;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_stream::Stream;

use crate::problem::Refusal;
use crate::routes::{App, blocking, cursor, resume};

/// Events that are read at once, so that what is in flight stays small.
const PIECE_EVENTS: usize = 64;
/// Bytes of one piece that is handed on; a longer one is cut between events.
const PIECE_BYTES: usize = 64 * 1024;
/// How long one look for new events may take; then the stop is looked for.
const LOOK: Duration = Duration::from_millis(500);
/// Shortest time between two watermarks of a quiet stream.
const WATERMARK: Duration = Duration::from_secs(1);

/// What all streams share.
#[derive(Debug)]
pub(crate) struct Streams {
    /// The newest position that is known.
    newest: watch::Sender<u64>,
    /// Rung when a stream begins.
    wanted: Notify,
    stop: watch::Receiver<bool>,
    heartbeat: Duration,
    stall: Duration,
}

impl Streams {
    pub(crate) fn new(stop: watch::Receiver<bool>, heartbeat: Duration, stall: Duration) -> Self {
        Self {
            newest: watch::Sender::new(0),
            wanted: Notify::new(),
            stop,
            heartbeat,
            stall,
        }
    }

    /// Gives the time of a heartbeat, and what tells that the server stops.
    pub(crate) fn times(&self) -> (Duration, watch::Receiver<bool>) {
        (self.heartbeat, self.stop.clone())
    }

    /// Looks for new events as long as somebody streams; ends with the server.
    pub(crate) async fn look(&self, journal: &Arc<dyn Journal>) {
        let mut stop = self.stop.clone();
        while !*stop.borrow() {
            if self.newest.receiver_count() == 0 {
                tokio::select! {
                    () = self.wanted.notified() => {}
                    _ = stop.changed() => return,
                }
            }
            let known = *self.newest.borrow();
            let journal = Arc::clone(journal);
            let looked = blocking(move || Ok(journal.wait_beyond(known, LOOK)?)).await;
            match looked {
                Ok(head) if head.pos != known => {
                    self.newest.send_replace(head.pos);
                }
                Ok(_) => {}
                // Each stream meets the failure itself and ends.
                Err(_) => tokio::time::sleep(LOOK).await,
            }
        }
    }
}

/// Begins a stream.
pub(crate) async fn open(
    app: &Arc<App>,
    filter: EventFilter,
    from: Option<Cursor>,
    watching: Option<Watching>,
) -> Result<Response, Refusal> {
    let journal = Arc::clone(&app.journal);
    let (head, window) = blocking(move || Ok((journal.head()?, journal.window()?))).await?;
    let mut first = Piece::default();
    first.text.push_str("retry: 1000\n\n");
    let after = match &from {
        // Of another log: everything is told again, after saying so.
        Some(from) if from.epoch != head.epoch => {
            let start = window.first_pos - 1;
            first.frame(
                "reset",
                &cursor(&head, start),
                &serde_json::json!({
                    "epoch": head.epoch,
                    "window_start": window.first_pos,
                    "head": head.pos,
                }),
            );
            start
        }
        from => resume(from.as_ref(), &head)?,
    };
    let (pieces, receiver) = mpsc::channel(1);
    let last = Arc::new(Mutex::new(None));
    let mut pump = Pump {
        app: Arc::clone(app),
        filter,
        after,
        delivered: after,
        pieces,
        last: Arc::clone(&last),
        newest: app.streams.newest.subscribe(),
        told: Instant::now(),
    };
    app.streams.wanted.notify_one();
    let task = tokio::spawn(async move {
        let _ = pump.run(first).await;
    });
    let body = EventBody {
        receiver,
        last,
        task,
        _watching: watching,
    };
    let mut response = Response::new(Body::from_stream(body));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

/// Frames that go out together.
#[derive(Debug, Default)]
struct Piece {
    text: String,
}

impl Piece {
    fn frame(&mut self, kind: &str, id: &str, data: &impl serde::Serialize) {
        // JSON of serde_json has no line break, so that one data line is enough.
        let data = serde_json::to_string(data).unwrap_or_default();
        self.text.push_str("id: ");
        self.text.push_str(id);
        self.text.push_str("\nevent: ");
        // A type from a journal may be anything; a line break in it must not become a field.
        self.text
            .extend(kind.chars().filter(|sign| !sign.is_control()));
        self.text.push_str("\ndata: ");
        self.text.push_str(&data);
        self.text.push_str("\n\n");
    }
}

/// Ends a stream.
struct Over;

/// Reads events for one stream, a piece at a time, as fast as the other side takes them.
struct Pump {
    app: Arc<App>,
    filter: EventFilter,
    /// Up to where events were looked at.
    after: u64,
    /// Up to where what was looked at was handed on.
    delivered: u64,
    pieces: mpsc::Sender<Bytes>,
    last: Arc<Mutex<Option<Bytes>>>,
    newest: watch::Receiver<u64>,
    /// When the other side last got something.
    told: Instant,
}

impl Pump {
    async fn run(&mut self, first: Piece) -> Result<(), Over> {
        self.hand_on(first).await?;
        loop {
            let journal = Arc::clone(&self.app.journal);
            let query = Query::of(self.filter.clone())
                .after(self.after)
                .limit(PIECE_EVENTS);
            let page = blocking(move || Ok(journal.read(&query)?))
                .await
                .map_err(|_| Over)?;
            self.tell(&page).await?;
            if !page.more {
                self.wait(&page.head).await?;
            }
        }
    }

    /// Hands the events of a page on.
    async fn tell(&mut self, page: &Page) -> Result<(), Over> {
        let mut piece = Piece::default();
        if self.after + 1 < page.window.first_pos {
            let start = page.window.first_pos - 1;
            piece.frame(
                "gap",
                &cursor(&page.head, start),
                &serde_json::json!({"from": self.after + 1, "to": start}),
            );
            self.after = start;
        }
        for event in &page.events {
            piece.frame(&event.kind, &cursor(&page.head, event.pos), event);
            self.after = event.pos;
            if piece.text.len() >= PIECE_BYTES {
                self.hand_on(std::mem::take(&mut piece)).await?;
            }
        }
        if !piece.text.is_empty() {
            self.hand_on(piece).await?;
        }
        Ok(())
    }

    /// Waits for more; meanwhile says that everything up to here was looked at, and that it lives.
    async fn wait(&mut self, head: &Head) -> Result<(), Over> {
        let watermark = self.after < head.pos;
        // `newest` may lag behind what the page saw: then it tells again, and one look is lost.
        self.newest.mark_unchanged();
        if *self.newest.borrow() > head.pos {
            return Ok(());
        }
        let quiet = if watermark {
            WATERMARK
        } else {
            self.app.streams.heartbeat
        };
        let until = self.told + quiet;
        let mut stop = self.app.streams.stop.clone();
        if *stop.borrow() {
            return Err(Over);
        }
        tokio::select! {
            changed = self.newest.changed() => changed.map_err(|_| Over),
            () = tokio::time::sleep_until(until) => {
                let mut piece = Piece::default();
                if watermark {
                    let id = cursor(head, head.pos);
                    piece.frame("watermark", &id, &serde_json::json!({"as_of": id, "head": head.pos}));
                    self.after = head.pos;
                } else {
                    piece.text.push_str(": heartbeat\n\n");
                }
                self.hand_on(piece).await
            }
            _ = stop.changed() => Err(Over),
            () = self.pieces.closed() => Err(Over),
        }
    }

    async fn hand_on(&mut self, piece: Piece) -> Result<(), Over> {
        match timeout(self.app.streams.stall, self.pieces.reserve()).await {
            Ok(Ok(permit)) => {
                permit.send(Bytes::from(piece.text));
                self.told = Instant::now();
                self.delivered = self.after;
                Ok(())
            }
            Ok(Err(_)) => Err(Over),
            Err(_) => {
                // Too slow. The piece is dropped; should the other side come back to read, it is
                // told so, and where it stood is the id of the last frame that it got.
                let head = *self.newest.borrow();
                let lagged = format!(
                    "event: lagged\ndata: {}\n\n",
                    serde_json::json!({"read_up_to": self.delivered, "head": head})
                );
                *self.last.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some(Bytes::from(lagged));
                Err(Over)
            }
        }
    }
}

/// The body of a stream: what the pump hands on, and a last word.
struct EventBody {
    receiver: mpsc::Receiver<Bytes>,
    last: Arc<Mutex<Option<Bytes>>>,
    task: JoinHandle<()>,
    /// Whoever may answer and looks on is somebody who can be asked.
    _watching: Option<Watching>,
}

impl Stream for EventBody {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.receiver.poll_recv(context) {
            Poll::Ready(Some(piece)) => Poll::Ready(Some(Ok(piece))),
            Poll::Ready(None) => {
                let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
                Poll::Ready(last.take().map(Ok))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for EventBody {
    fn drop(&mut self) {
        self.task.abort();
    }
}
