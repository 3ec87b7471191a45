//! Where the program stands: environment, current directory and data directory, read once.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cofferdam_core::ambient::Ambient;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_exec::Settled;
use cofferdam_journal::{DataDir, Journal, MemoryJournal, Patience, SqliteJournal, SystemAmbient};
use cofferdam_runtime::{Runtime, RuntimeOptions, Surroundings};

use crate::arguments::CommonArguments;
use crate::output::{Format, Output};

/// What every command is told.
#[derive(Debug)]
pub(crate) struct Context {
    /// Where results go.
    pub(crate) output: Output,
    /// The environment of this program.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// The clocks and the randomness of the machine.
    pub(crate) ambient: Arc<dyn Ambient>,
    data_dir: Option<PathBuf>,
}

impl Context {
    /// Reads the environment.
    #[expect(
        clippy::disallowed_methods,
        reason = "the environment is read once, here"
    )]
    pub(crate) fn new(common: &CommonArguments) -> Self {
        Self {
            output: Output::new(if common.json {
                Format::Json
            } else {
                Format::Text
            }),
            environment: std::env::vars_os().collect(),
            ambient: Arc::new(SystemAmbient::new()),
            data_dir: common.data_dir.clone(),
        }
    }

    /// Gives a variable that is set and not empty.
    pub(crate) fn variable(&self, name: &str) -> Option<&OsStr> {
        self.environment
            .iter()
            .find(|(key, value)| key == name && !value.is_empty())
            .map(|(_, value)| value.as_os_str())
    }

    /// Gives the home directory as the environment says it.
    pub(crate) fn home(&self) -> Option<PathBuf> {
        self.variable("HOME")
            .map(PathBuf::from)
            .filter(|home| home.is_absolute())
    }

    /// Gives the directory of the user's own configuration.
    pub(crate) fn config_dir(&self) -> Option<PathBuf> {
        let below = |base: PathBuf| base.join("cofferdam");
        self.variable("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(|| Some(self.home()?.join(".config")))
            .map(below)
    }

    /// Gives the data directory: the flag, `COFFERDAM_DATA_DIR`, the user's data directory.
    pub(crate) fn data_dir(&self) -> Result<PathBuf, Problem> {
        if let Some(path) = &self.data_dir {
            return self.absolute(path);
        }
        if let Some(path) = self.variable("COFFERDAM_DATA_DIR") {
            return self.absolute(Path::new(path));
        }
        if let Some(path) = self.variable("XDG_DATA_HOME").map(Path::new)
            && path.is_absolute()
        {
            return Ok(path.join("cofferdam"));
        }
        self.home()
            .map(|home| home.join(".local/share/cofferdam"))
            .ok_or_else(|| {
                Problem::new(
                    ErrorCode::DataDirRefused,
                    "there is no home directory to keep data in",
                )
                .with_hint("set COFFERDAM_DATA_DIR or give --data-dir")
            })
    }

    /// Gives where data is kept where that is not its place in the home directory.
    pub(crate) fn other_data_dir(&self) -> Result<Option<PathBuf>, Problem> {
        let place = self.data_dir()?;
        let usual = self.home().map(|home| home.join(".local/share/cofferdam"));
        Ok((usual.as_ref() != Some(&place)).then_some(place))
    }

    /// Gives environment and directory as the runtime takes them.
    pub(crate) fn surroundings(&self) -> Result<Surroundings, Problem> {
        Ok(Surroundings::new(
            self.environment.iter().cloned(),
            self.current_dir()?,
        ))
    }

    /// Opens data directory, journal and plane, and says what a run that died had left.
    pub(crate) fn runtime(&self) -> Result<Runtime, Problem> {
        let mut options = RuntimeOptions::new(self.surroundings()?, Arc::clone(&self.ambient));
        options.data_dir = Some(self.data_dir()?);
        options.patience = self.patience();
        let runtime = Runtime::open(options)?;
        let output = self.output;
        runtime
            .plane()
            .on_published_port(move |port| output.published(port));
        for settled in runtime.settled() {
            self.output.note(&settled_line(settled));
        }
        Ok(runtime)
    }

    /// Opens the same for what concerns tasks, and settles those whose process died.
    pub(crate) fn task_runtime(&self) -> Result<Runtime, Problem> {
        let runtime = self.runtime()?;
        let settled = runtime.reconcile()?;
        for line in runtime.take_notes() {
            self.output.note(&line);
        }
        for task in settled {
            self.output.note(&format!(
                "task {} was interrupted, its process died: {}",
                task.number, task.place
            ));
        }
        Ok(runtime)
    }

    /// Opens the journal for somebody who only looks; one that nobody has written is empty, and
    /// stays unmade.
    pub(crate) fn journal(&self) -> Result<Arc<dyn Journal>, Problem> {
        let path = self.data_dir()?;
        if !path.join("journal.db").exists() {
            return Ok(Arc::new(MemoryJournal::new(Arc::clone(&self.ambient))));
        }
        let data = DataDir::open(path).map_err(|error| error.to_problem())?;
        Ok(Arc::new(self.open_journal(&data)?))
    }

    /// Opens the journal of a data directory, and says so when it has to be waited for.
    pub(crate) fn open_journal(&self, data: &DataDir) -> Result<SqliteJournal, Problem> {
        SqliteJournal::open_with_patience(data, Arc::clone(&self.ambient), self.patience())
            .map_err(|error| error.to_problem())
    }

    /// Gives the patience of a program at whose end somebody may sit.
    fn patience(&self) -> Patience {
        let output = self.output;
        Patience::default().telling(move |path| {
            let path = path.display();
            output.note(&format!("waiting for {path}, which another program holds"));
        })
    }

    /// Gives the current directory.
    #[expect(clippy::unused_self, reason = "one door for what is read from outside")]
    pub(crate) fn current_dir(&self) -> Result<PathBuf, Problem> {
        std::env::current_dir().map_err(|error| {
            Problem::new(
                ErrorCode::WorkspaceMissing,
                format!("the current directory cannot be read: {error}"),
            )
            .with_hint("change to a directory that exists, or give --workspace")
        })
    }

    /// Makes a path absolute by the current directory, as it is written.
    pub(crate) fn absolute(&self, path: &Path) -> Result<PathBuf, Problem> {
        if path.is_absolute() {
            return Ok(path.to_owned());
        }
        Ok(self.current_dir()?.join(path))
    }
}

/// Says what a process that died had left, and what became of it.
fn settled_line(settled: &Settled) -> String {
    let undone: Vec<_> = settled.undone.iter().map(ToString::to_string).collect();
    let undone = if undone.is_empty() {
        String::new()
    } else {
        format!("; put back {}", undone.join(", "))
    };
    format!(
        "settled as interrupted: {} (process {}){undone}",
        settled.what, settled.pid
    )
}
