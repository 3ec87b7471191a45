//! Opening a pull request of a task's branch, in the owner's name.
//!
//! Who opens it is the forge's own program, `gh` or `glab`, by the owner's own login, or a program
//! that the owner names in their configuration (`cofferdam.pullRequest`). What it is given is decided
//! when the pull request is proposed, and is the same word for word when it is released. It is opened
//! only when the remote has the branch at exactly the commit that was shown.

use std::time::Duration;

use cofferdam_core::limits::{PULL_REQUEST_BODY_BYTES, PULL_REQUEST_TITLE_CHARACTERS};
use cofferdam_core::outbox::{ProgramInput, PullRequestEffect, Sent, SentAs};
use serde_json::json;

use super::push::{cautions, check_remote, default_remote, own_branch, short, tail};
use super::record::WorktreeRecord;
use super::{WorkspaceError, Workspaces};
use crate::git::{Configuration, Input, OwnersCall, Repository, diff_trees};
use crate::tool::Answer;

/// Forges answer within seconds, or not at all.
const OPEN_TIME: Duration = Duration::from_mins(5);

/// The key of the owner's configuration that names who opens pull requests.
const PROGRAM_KEY: &str = "cofferdam.pullrequest";

/// What is to be opened.
#[derive(Debug, Clone, Default)]
pub struct PullRequestWish {
    /// Its title.
    pub title: String,
    /// Its text.
    pub body: String,
    /// The branch into which it is offered; that from which the task began when there is none.
    pub base: Option<String>,
    /// The remote; where git would push the base branch when there is none.
    pub remote: Option<String>,
}

impl Workspaces {
    /// Looks at everything that opening a pull request would do, and does nothing.
    ///
    /// Refused where nothing is known that opens one where the remote leads.
    pub fn plan_pull_request(
        &self,
        record: &WorktreeRecord,
        wish: &PullRequestWish,
    ) -> Result<PullRequestEffect, WorkspaceError> {
        self.acting(|| {
            let repository = &record.user_repository();
            let configuration = self.git.owner_configuration(repository)?;
            let (branch, commit) = own_branch(record)?;
            self.check_branch(repository, &branch, &commit)?;
            let remote = match &wish.remote {
                Some(name) => name.clone(),
                None => default_remote(&configuration, record, None)?,
            };
            check_remote(&configuration, &remote)?;
            let base = base_of(record, wish.base.as_deref())?;
            if base == short(&branch) {
                return Err(wrong("base", "a branch is not offered into itself"));
            }
            let mut effect = PullRequestEffect {
                repository: record.top.clone(),
                urls: self.push_urls(repository, &remote)?,
                branch,
                base,
                title: title_of(&wish.title)?,
                body: body_of(&wish.body)?,
                argv: Vec::new(),
                input: ProgramInput::Nothing,
                summary: diff_trees(&self.git, repository, &record.base.oid, &commit)?.summary,
                cautions: cautions(record, &commit, &commit),
                remote,
                commit,
            };
            let known = format!("refs/remotes/{}/{}", effect.remote, effect.base);
            if self.git.reference(repository, &known)?.is_none() {
                effect.cautions.push(format!(
                    "{} is not known to have a branch {}",
                    effect.remote, effect.base
                ));
            }
            (effect.argv, effect.input) = self.opener(&configuration, &effect)?;
            Ok(effect)
        })
    }

    /// Refuses what is not as it was when it was planned, and a branch that the remote does not have;
    /// does nothing else.
    pub fn check_pull_request(
        &self,
        record: &WorktreeRecord,
        planned: &PullRequestEffect,
    ) -> Result<(), WorkspaceError> {
        self.acting(|| {
            let repository = &record.user_repository();
            let configuration = self.git.owner_configuration(repository)?;
            check_remote(&configuration, &planned.remote)?;
            let urls = self.push_urls(repository, &planned.remote)?;
            let opener = self.opener(&configuration, planned)?;
            for (is_same, what) in [
                (urls == planned.urls, "where the remote leads"),
                (
                    opener == (planned.argv.clone(), planned.input),
                    "what opens the pull request",
                ),
            ] {
                if !is_same {
                    let what = what.to_owned();
                    return Err(WorkspaceError::PushChanged { what });
                }
            }
            self.check_pushed(repository, planned)
        })
    }

    /// Opens what was planned.
    pub fn open_pull_request(
        &self,
        record: &WorktreeRecord,
        planned: &PullRequestEffect,
    ) -> Result<Sent, WorkspaceError> {
        self.acting(|| {
            let repository = &record.user_repository();
            let first = planned.argv.first().map(String::as_str).unwrap_or_default();
            let program =
                self.git
                    .owners_program(first)
                    .ok_or_else(|| WorkspaceError::ProgramMissing {
                        name: first.to_owned(),
                    })?;
            let text = match planned.input {
                ProgramInput::Nothing => String::new(),
                ProgramInput::Body => planned.body.clone(),
                ProgramInput::Json => asked(planned),
            };
            let answer = self.git.run_owners(&OwnersCall {
                argv: &planned.argv,
                program: &program,
                directory: &repository.top,
                environment: &[("GH_PROMPT_DISABLED", b"1"), ("NO_COLOR", b"1")],
                input: Input::Bytes(text.as_bytes()),
                timeout: OPEN_TIME,
            });
            ended(first, answer, SentAs::Opened)
        })
    }

    fn check_pushed(
        &self,
        repository: &Repository,
        planned: &PullRequestEffect,
    ) -> Result<(), WorkspaceError> {
        let what = (
            planned.remote.as_str(),
            planned.branch.as_str(),
            planned.commit.as_str(),
        );
        if self.is_pushed(repository, what)? {
            return Ok(());
        }
        Err(WorkspaceError::NotPushed {
            remote: planned.remote.clone(),
            branch: short(&planned.branch).to_owned(),
            commit: planned.commit.clone(),
        })
    }

    /// Finds who opens it, and says how that is called.
    fn opener(
        &self,
        configuration: &Configuration,
        effect: &PullRequestEffect,
    ) -> Result<(Vec<String>, ProgramInput), WorkspaceError> {
        let place = effect.urls.first().and_then(|url| Place::of(url));
        let forge = match configuration.text(PROGRAM_KEY).as_deref() {
            Some("gh") => Forge::Gh,
            Some("glab") => Forge::Glab,
            Some(path) => {
                let is_named = path.starts_with('/') || path.starts_with("~/");
                let found = is_named.then(|| self.git.owners_program(path)).flatten();
                let program = found.and_then(|path| path.to_str().map(str::to_owned));
                let program = program.ok_or_else(|| WorkspaceError::ForgeUnknown {
                    why: format!("{path:?}, which cofferdam.pullRequest names, cannot be run"),
                    hint:
                        "name gh, glab, or a program by an absolute path outside of the workspace"
                            .to_owned(),
                })?;
                return Ok((vec![program], ProgramInput::Json));
            }
            None => place
                .as_ref()
                .and_then(Place::forge)
                .ok_or_else(|| unknown(effect))?,
        };
        let place = place.ok_or_else(|| unknown(effect))?;
        let name = forge.name();
        let program = self
            .git
            .owners_program(name)
            .and_then(|path| path.to_str().map(str::to_owned))
            .ok_or_else(|| WorkspaceError::ForgeUnknown {
                why: format!("{name}, which opens pull requests at {}, is not installed", place.host),
                hint: format!(
                    "install {name} and log in, or name a program of yours: git config cofferdam.pullRequest /path/to/program"
                ),
            })?;
        let head = short(&effect.branch);
        let mut argv = vec![program];
        let mut say = |words: &[&str]| argv.extend(words.iter().map(|word| (*word).to_owned()));
        let title = format!("--title={}", effect.title);
        Ok(match forge {
            Forge::Gh => {
                say(&["pr", "create"]);
                say(&[&format!("--repo={}/{}", place.host, place.path)]);
                say(&[
                    &format!("--head={head}"),
                    &format!("--base={}", effect.base),
                ]);
                say(&[&title, "--body-file=-"]);
                (argv, ProgramInput::Body)
            }
            Forge::Glab => {
                if effect.body == "-" {
                    return Err(wrong("body", "glab takes this for a wish for an editor"));
                }
                say(&["mr", "create"]);
                say(&[&format!("--repo=https://{}/{}", place.host, place.path)]);
                say(&[&format!("--source-branch={head}")]);
                say(&[&format!("--target-branch={}", effect.base), &title]);
                say(&[&format!("--description={}", effect.body), "--yes"]);
                (argv, ProgramInput::Nothing)
            }
        })
    }
}

/// Says how a program that carried something out has ended.
pub(super) fn ended(
    program: &str,
    answer: Result<Answer, crate::tool::ToolError>,
    sent_as: SentAs,
) -> Result<Sent, WorkspaceError> {
    let failed = |why: String, unknown: bool| WorkspaceError::EffectFailed {
        program: program.to_owned(),
        why,
        unknown,
    };
    let answer = match answer {
        Ok(answer) => answer,
        Err(error @ crate::tool::ToolError::Start(_)) => {
            return Err(failed(error.to_string(), false));
        }
        Err(error) => {
            let why = format!("{error}, and was ended: whether it got through is not known");
            return Err(failed(why, true));
        }
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    let (out, err) = (text(&answer.stdout), text(&answer.stderr));
    let said = if err.is_empty() || out.is_empty() {
        tail(&(out + &err))
    } else {
        tail(&format!("{err}\n{out}"))
    };
    match answer.code() {
        Some(0) => Ok(Sent { sent_as, said }),
        Some(code) => Err(failed(format!("ended with {code}: {said}"), false)),
        None => {
            let why = format!("was ended by a signal: whether it got through is not known: {said}");
            Err(failed(why, true))
        }
    }
}

fn wrong(field: &'static str, why: impl Into<String>) -> WorkspaceError {
    WorkspaceError::Wrong {
        field,
        why: why.into(),
    }
}

fn unknown(effect: &PullRequestEffect) -> WorkspaceError {
    let url = effect.urls.first().map(String::as_str).unwrap_or_default();
    WorkspaceError::ForgeUnknown {
        why: format!("nothing is known that opens pull requests at {url:?}"),
        hint: "say what does: git config cofferdam.pullRequest gh, glab, or /path/to/program"
            .to_owned(),
    }
}

/// Gives what a program of the owner's reads.
fn asked(effect: &PullRequestEffect) -> String {
    json!({
        "remote": effect.remote,
        "url": effect.urls.first(),
        "head": short(&effect.branch),
        "commit": effect.commit,
        "base": effect.base,
        "title": effect.title,
        "body": effect.body,
    })
    .to_string()
}

fn base_of(record: &WorktreeRecord, wish: Option<&str>) -> Result<String, WorkspaceError> {
    let name = match (wish, &record.base.reference) {
        (Some(name), _) => name.to_owned(),
        (None, Some(reference)) => short(reference).to_owned(),
        (None, None) => {
            return Err(wrong(
                "base",
                "the task began at a commit that no branch was at: say into which branch",
            ));
        }
    };
    let is_plain = !name.is_empty()
        && !name.starts_with(['-', '/', '.'])
        && !name.ends_with(['/', '.'])
        && !name.contains("..")
        && !name.contains("//")
        && !name.contains(|one: char| {
            one.is_control() || one.is_whitespace() || "~^:?*[\\@".contains(one)
        });
    if is_plain {
        Ok(name)
    } else {
        Err(wrong("base", format!("{name:?} is no name of a branch")))
    }
}

fn title_of(text: &str) -> Result<String, WorkspaceError> {
    let text = text.trim();
    let most = PULL_REQUEST_TITLE_CHARACTERS;
    if text.is_empty() || text.chars().count() > most || text.contains(char::is_control) {
        let why = format!("a title is one line of 1 to {most} characters");
        return Err(wrong("title", why));
    }
    Ok(text.to_owned())
}

fn body_of(text: &str) -> Result<String, WorkspaceError> {
    let most = PULL_REQUEST_BODY_BYTES;
    if text.len() > most || text.contains('\0') {
        let why = format!("a text has at most {most} bytes, and no zero byte");
        return Err(wrong("body", why));
    }
    Ok(text.to_owned())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Forge {
    Gh,
    Glab,
}

impl Forge {
    const fn name(self) -> &'static str {
        match self {
            Self::Gh => "gh",
            Self::Glab => "glab",
        }
    }
}

/// Where a remote leads, as a forge names it.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    host: String,
    path: String,
}

impl Place {
    /// Reads an address; local ones lead to no forge.
    fn of(url: &str) -> Option<Self> {
        let (host, path) = match url.split_once("://") {
            Some(("https" | "http" | "ssh" | "git", rest)) => rest.split_once('/')?,
            Some(_) => return None,
            None => url
                .split_once(':')
                .filter(|(host, _)| !host.contains('/'))?,
        };
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        let host = host.split_once(':').map_or(host, |(host, _)| host);
        let path = path.trim_matches('/');
        let path = path.strip_suffix(".git").unwrap_or(path);
        let is_plain = |text: &str| {
            !text.is_empty()
                && !text.starts_with(['-', '.'])
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        let mut pieces = path.split('/');
        let is_whole = path.contains('/') && pieces.all(is_plain) && is_plain(host);
        is_whole.then(|| Self {
            host: host.to_ascii_lowercase(),
            path: path.to_owned(),
        })
    }

    fn forge(&self) -> Option<Forge> {
        let host = self.host.as_str();
        if host == "github.com" || host.ends_with(".ghe.com") {
            Some(Forge::Gh)
        } else if host == "gitlab.com" || host.starts_with("gitlab.") {
            Some(Forge::Glab)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_149_an_address_is_read_as_a_forge_names_it() {
        for (url, told) in [
            ("git@github.com:a/b.git", "github.com a/b Some(Gh)"),
            ("https://github.com/a/b", "github.com a/b Some(Gh)"),
            ("ssh://git@GitHub.com:22/a/b.git", "github.com a/b Some(Gh)"),
            (
                "https://gitlab.com/g/s/p.git",
                "gitlab.com g/s/p Some(Glab)",
            ),
            (
                "https://gitlab.corp.example/g/p",
                "gitlab.corp.example g/p Some(Glab)",
            ),
            ("https://code.example/a/b", "code.example a/b None"),
            (
                "https://github.com.evil.example/a/b",
                "github.com.evil.example a/b None",
            ),
        ] {
            let place = Place::of(url).unwrap();
            let found = format!("{} {} {:?}", place.host, place.path, place.forge());
            assert_eq!(found, told, "{url}");
        }
        for url in [
            "/srv/git/a.git",
            "file:///srv/a/b",
            "../a",
            "https://github.com/a",
            "https://github.com/--x/b",
            "https://github.com/a/b?c=d",
            "-oProxyCommand=x:a/b",
        ] {
            assert_eq!(Place::of(url), None, "{url}");
        }
    }
}
