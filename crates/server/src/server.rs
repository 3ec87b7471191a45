use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::ambient::Ambient;
use cofferdam_core::announce::{ANNOUNCEMENT_FILE, Announcement, LOCK_FILE};
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_journal::{DataDir, Journal};
use tokio::sync::watch;

use crate::calls::Calls;
use crate::connection::GuardedListener;
use crate::error::ServerError;
use crate::operations::OperationHost;
use crate::projection::Projection;
use crate::routes::{App, router};
use crate::stream::Streams;
use crate::token::{Token, write_private};

/// How long requests may take to end after the stop; then they are cut.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Threads for what blocks: each call of an operation holds one until it is done.
const BLOCKING_THREADS: usize = 512;

/// How often, and how long apart, a lock is tried again: whoever looks whether a server lives holds
/// it for a moment.
const LOCK_TRIES: u32 = 3;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// What a server needs.
#[derive(Debug)]
pub struct ServerOptions {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The owner's own token; without one the data directory's is taken, and made where it is not.
    /// An address that is not loopback is only listened on with one.
    pub token_file: Option<PathBuf>,
    /// A token of whoever may only look: the views, and the operations that change nothing.
    pub read_token_file: Option<PathBuf>,
    /// A token of whoever works here, such as an agent: every operation but those in the owner's
    /// name, such as answering questions.
    pub work_token_file: Option<PathBuf>,
    /// Origins besides this server's own whose pages may ask, with a token as everybody:
    /// `https://HOST[:PORT]` as browsers name them. None as a rule.
    pub origins: Vec<String>,
    /// With what operations are carried out; or the problem that every call of one is answered.
    pub operations: Result<Arc<OperationHost>, Problem>,
    /// The data directory: one server each.
    pub data: DataDir,
    /// What is shown.
    pub journal: Arc<dyn Journal>,
    /// Randomness for a new token.
    pub ambient: Arc<dyn Ambient>,
    /// Time without an event after which a stream says that it lives.
    pub heartbeat: Duration,
    /// Time after which the stream of a reader that does not keep up is ended, with a last word.
    pub stall: Duration,
    /// Time without reading after which a connection is cut; longer than `stall`.
    pub cut: Duration,
}

impl ServerOptions {
    /// Takes no operations and the usual times: a heartbeat each 15 s, 10 s for a slow reader, 20 s for one that
    /// does not read at all.
    pub fn new(
        listen: SocketAddr,
        data: DataDir,
        journal: Arc<dyn Journal>,
        ambient: Arc<dyn Ambient>,
    ) -> Self {
        Self {
            listen,
            token_file: None,
            read_token_file: None,
            work_token_file: None,
            origins: Vec::new(),
            operations: Err(Problem::new(
                ErrorCode::OperationUnknown,
                "this server offers no operations",
            )),
            data,
            journal,
            ambient,
            heartbeat: Duration::from_secs(15),
            stall: Duration::from_secs(10),
            cut: Duration::from_secs(20),
        }
    }
}

/// A server that listens, and answers once it runs.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    app: Arc<App>,
    token_path: PathBuf,
    stop: watch::Sender<bool>,
    cut: Duration,
    // Taken away before the lock is let go.
    _announced: Announced,
    _lock: File,
}

/// The file that tells where a server listens; taken away with it.
#[derive(Debug)]
struct Announced(PathBuf);

impl Announced {
    fn write(path: PathBuf, announcement: &Announcement) -> io::Result<Self> {
        let text = serde_json::to_vec(announcement)?;
        write_private(&path, &text)?;
        Ok(Self(path))
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        // Without the lock it says nothing.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Ends a server from anywhere.
#[derive(Debug, Clone)]
pub struct StopHandle(watch::Sender<bool>);

impl StopHandle {
    /// Lets running requests end, ends streams, and then the server.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Server {
    /// Takes the data directory, the token and the address; from here on connections are queued.
    pub fn bind(options: ServerOptions) -> Result<Self, ServerError> {
        if let Some(bad) = options
            .origins
            .iter()
            .find(|one| !crate::gate::is_origin(one))
        {
            return Err(ServerError::Origin { text: bad.clone() });
        }
        let refused = |why| ServerError::ListenRefused {
            address: options.listen,
            why,
        };
        if !options.listen.ip().is_loopback() && options.token_file.is_none() {
            return Err(refused(
                "others could reach it, and there is no token of your own",
            ));
        }
        let lock = take_lock(&options.data)?;
        // Of a server that was killed: it must not be taken for ours.
        let announcement = options.data.path().join(ANNOUNCEMENT_FILE);
        let _ = std::fs::remove_file(&announcement);
        let (token, token_path) = match &options.token_file {
            Some(path) => (Token::read(path)?, path.clone()),
            None => Token::of_data_directory(&options.data, options.ambient.as_ref())?,
        };
        let read_token = options
            .read_token_file
            .as_deref()
            .map(Token::read)
            .transpose()?;
        let work_token = options
            .work_token_file
            .as_deref()
            .map(Token::read)
            .transpose()?;
        let failed = |step, source| ServerError::Io {
            step,
            subject: options.listen.to_string(),
            source,
        };
        let listener =
            TcpListener::bind(options.listen).map_err(|source| failed("listen on", source))?;
        listener
            .set_nonblocking(true)
            .map_err(|source| failed("listen on", source))?;
        let address = listener
            .local_addr()
            .map_err(|source| failed("listen on", source))?;
        let workspace = options.operations.as_ref().ok();
        let announcement = Announced::write(
            announcement,
            &Announcement {
                pid: std::process::id(),
                address: address.to_string(),
                token_file: std::path::absolute(&token_path)
                    .unwrap_or_else(|_| token_path.clone())
                    .into(),
                workspace: workspace.map(|host| host.workspace().clone()),
            },
        )
        .map_err(|source| failed("announce", source))?;
        let (stop, stopped) = watch::channel(false);
        let app = Arc::new(App {
            address,
            origins: options.origins,
            token,
            read_token,
            work_token,
            calls: Calls::new(options.operations),
            projection: Projection::new(Arc::clone(&options.journal)),
            journal: options.journal,
            streams: Streams::new(stopped, options.heartbeat, options.stall),
        });
        Ok(Self {
            listener,
            app,
            token_path,
            stop,
            cut: options.cut,
            _announced: announcement,
            _lock: lock,
        })
    }

    /// Tells where it listens.
    pub fn address(&self) -> SocketAddr {
        self.app.address
    }

    /// Tells where the token lies.
    pub fn token_path(&self) -> &Path {
        &self.token_path
    }

    /// Gives a way to end it.
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle(self.stop.clone())
    }

    /// Answers until it is stopped, on a runtime of its own.
    pub fn run_blocking(self) -> Result<(), ServerError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_name("cofferdam-serve")
            .enable_all()
            .build()
            .map_err(|source| ServerError::Io {
                step: "start",
                subject: "the server's threads".to_owned(),
                source,
            })?;
        let result = runtime.block_on(self.run());
        runtime.shutdown_timeout(LAST_WORDS);
        result
    }

    /// Answers until it is stopped, on the caller's runtime.
    pub async fn run(self) -> Result<(), ServerError> {
        let failed = |source: io::Error| ServerError::Io {
            step: "serve on",
            subject: self.app.address.to_string(),
            source,
        };
        let listener = tokio::net::TcpListener::from_std(self.listener).map_err(failed)?;
        let listener = GuardedListener {
            listener,
            stall: self.cut,
        };
        let mut stop = self.stop.subscribe();
        let mut last_words = self.stop.subscribe();
        let stopped = async move {
            // An error says that nobody can stop it any more; it cannot be, the sender is here.
            let _ = stop.wait_for(|stop| *stop).await;
        };
        let too_late = async move {
            let _ = last_words.wait_for(|stop| *stop).await;
            tokio::time::sleep(LAST_WORDS).await;
        };
        let serve =
            axum::serve(listener, router(Arc::clone(&self.app))).with_graceful_shutdown(stopped);
        let look = self.app.streams.look(&self.app.journal);
        tokio::select! {
            served = async { tokio::join!(serve.into_future(), look).0 } => served.map_err(failed),
            () = too_late => Ok(()),
        }
    }
}

/// Holds the data directory against other servers; the kernel lets go of it when this process ends.
fn take_lock(data: &DataDir) -> Result<File, ServerError> {
    let path = data.path().join(LOCK_FILE);
    let failed = |source| ServerError::Io {
        step: "lock",
        subject: path.display().to_string(),
        source,
    };
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    let mut file = options.open(&path).map_err(failed)?;
    let mut taken = file.try_lock();
    for _ in 0..LOCK_TRIES {
        if !matches!(taken, Err(TryLockError::WouldBlock)) {
            break;
        }
        std::thread::sleep(LOCK_PAUSE);
        taken = file.try_lock();
    }
    match taken {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            // Who it is, is only for people; that somebody has it is certain.
            let _ = file.read_to_string(&mut text);
            return Err(ServerError::Running {
                pid: text.trim().parse().unwrap_or_default(),
            });
        }
        Err(TryLockError::Error(source)) => return Err(failed(source)),
    }
    file.set_len(0)
        .and_then(|()| file.seek(SeekFrom::Start(0)))
        .and_then(|_| writeln!(file, "{}", std::process::id()))
        .map_err(failed)?;
    Ok(file)
}
