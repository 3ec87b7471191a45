//! The one thread that starts keepers and bubblewraps.
//!
//! The kernel ties `PR_SET_PDEATHSIG`, and with it bubblewrap's `--die-with-parent`, to the thread
//! that made the child. A thread of a pool that ends after idling would take enclosures down at
//! random; this one lasts exactly as long as the plane, so nothing outlives either.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use cofferdam_core::error::{ErrorCode, Problem};

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs one after the other on its thread.
#[derive(Debug)]
pub(crate) struct Spawner {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Spawner {
    pub(crate) fn new() -> Result<Self, Problem> {
        let (jobs, queue): (Sender<Job>, Receiver<Job>) = channel();
        let thread = std::thread::Builder::new()
            .name("cofferdam-spawner".to_owned())
            .spawn(move || {
                for job in queue {
                    job();
                }
            })
            .map_err(|error| {
                Problem::new(
                    ErrorCode::Io,
                    format!("cannot start the spawner thread: {error}"),
                )
            })?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// Lets the thread run a job before those that come later.
    pub(crate) fn begin(&self, job: impl FnOnce() + Send + 'static) {
        if let Some(jobs) = &self.jobs {
            // A thread that has ended is told of by the next call.
            let _ = jobs.send(Box::new(job));
        }
    }

    /// Runs a job on the thread and waits for what it gives.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let lost = || Problem::new(ErrorCode::Internal, "the spawner thread has ended");
        let (answer, wait) = channel();
        let jobs = self.jobs.as_ref().ok_or_else(lost)?;
        jobs.send(Box::new(move || {
            let _ = answer.send(job());
        }))
        .map_err(|_| lost())?;
        wait.recv().map_err(|_| lost())
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A job that panicked has nothing to tell any more.
            let _ = thread.join();
        }
    }
}
