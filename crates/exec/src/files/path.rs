//! From a path as it is named to the place that it means: which root, and where beneath it, with
//! every symbolic link followed by the worker, so that what is changed is what was looked at.

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::operation::{PathAccess, PathValidate, PathVerdict};
use cofferdam_core::spec::{EnclosureSpec, Enforce, Protection};
use cofferdam_keeper::{FileReply, FileRequest};
use cofferdam_sandbox::Metadata;
use rustix::io::Errno;

use super::worker::{FileFault, odd};
use super::{FileDoor, WORKER_LIMIT, entry_kind};

/// A place beneath a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Located {
    root: BytePath,
    relative: Vec<u8>,
    shown: BytePath,
}

impl Located {
    /// Lends the root, as commands see it.
    pub(super) const fn root(&self) -> &BytePath {
        &self.root
    }

    /// Lends the place beneath it; the root itself is empty.
    pub(super) fn relative(&self) -> &[u8] {
        &self.relative
    }

    /// Lends the path as it was named.
    pub(super) const fn shown(&self) -> &BytePath {
        &self.shown
    }

    /// Gives the path as commands see it.
    pub(super) fn absolute(&self) -> BytePath {
        if self.relative.is_empty() {
            self.root.clone()
        } else {
            self.root.join(&self.relative)
        }
    }

    /// Gives the place of the directory above, `None` for the root.
    pub(super) fn parent(&self) -> Option<Self> {
        if self.relative.is_empty() {
            return None;
        }
        let cut = self.relative.iter().rposition(|byte| *byte == b'/');
        let relative = cut.map_or(&[][..], |cut| &self.relative[..cut]);
        Some(Self {
            relative: relative.to_vec(),
            ..self.clone()
        })
    }

    /// Gives where it really stands, under the name by which it was asked for.
    pub(super) fn really(&self, relative: Vec<u8>) -> Self {
        Self {
            relative,
            ..self.clone()
        }
    }

    /// Gives the place of a name in it.
    pub(super) fn child(&self, name: &[u8]) -> Self {
        let mut relative = self.relative.clone();
        if !relative.is_empty() {
            relative.push(b'/');
        }
        relative.extend_from_slice(name);
        Self {
            root: self.root.clone(),
            relative,
            shown: self.shown.join(name),
        }
    }
}

/// A place with every link on the way followed, and what stands there.
#[derive(Debug)]
pub(super) struct Real {
    pub(super) at: Located,
    /// `None` where nothing stands; then the folder above is there or is to be made.
    pub(super) metadata: Option<Metadata>,
}

impl FileDoor<'_> {
    fn spec(&self) -> &EnclosureSpec {
        self.standing.spec()
    }

    /// Reads a path as it is named: relative to the workspace, or within it.
    pub(super) fn locate(&self, path: &BytePath) -> Result<Located, Problem> {
        let mut root = &self.spec().workspace;
        let other;
        let tidied;
        let relative = if !path.is_absolute() {
            path.as_bytes()
        } else if let Some(below) = path.below(root) {
            below
        } else {
            // The deepest of those around it: of nested ones that is what holds.
            tidied = tidy(path.as_bytes())
                .map(|below| BytePath::from("/").join(&below))
                .ok_or_else(|| outside(path))?;
            let around = self
                .terms
                .opened
                .iter()
                .filter_map(|one| one.root_of(&tidied));
            other = around
                .max_by_key(BytePath::depth)
                .ok_or_else(|| outside(path))?;
            root = &other;
            tidied.below(root).ok_or_else(|| outside(path))?
        };
        if relative.contains(&0) {
            let message = "a path cannot hold a null byte";
            return Err(Problem::new(ErrorCode::InvalidRequest, message).with_field("path"));
        }
        Ok(Located {
            root: root.clone(),
            relative: tidy(relative).ok_or_else(|| outside(path))?,
            shown: path.clone(),
        })
    }

    /// Looks at what stands at a place, the last name not followed.
    pub(super) fn look(&self, at: &Located) -> Result<Option<Metadata>, Problem> {
        let request = FileRequest::Metadata {
            path: at.relative().to_vec(),
            follow: false,
        };
        match self.worker(at)?.call(&request, WORKER_LIMIT) {
            Ok((FileReply::Metadata(metadata), _)) => Ok(Some(metadata)),
            Ok((other, _)) => Err(odd(&other)),
            Err(fault) if fault.is(Errno::NOENT) => Ok(None),
            Err(fault) => Err(fault.to_problem(at.shown())),
        }
    }

    /// Follows every link on the way; the last name too where `follow_last` says so.
    pub(super) fn real(&self, named: &Located, follow_last: bool) -> Result<Real, Problem> {
        let request = FileRequest::Real {
            path: named.relative().to_vec(),
            follow: follow_last,
        };
        match self.ask(named, &request)?.0 {
            FileReply::Real { path, metadata } => Ok(Real {
                at: named.really(path),
                metadata,
            }),
            other => Err(odd(&other)),
        }
    }

    /// Gives the path on the host.
    pub(super) fn on_host(&self, at: &Located) -> BytePath {
        let source = if *at.root() == self.spec().workspace {
            &self.spec().workspace_source
        } else {
            at.root()
        };
        if at.relative().is_empty() {
            source.clone()
        } else {
            source.join(at.relative())
        }
    }

    /// Refuses what may not be read, whether walls hide it or not.
    ///
    /// # Errors
    ///
    /// `denied`, with the rule.
    pub(super) fn may_read(&self, at: &Located) -> Result<(), Problem> {
        match self.terms.denied.rule(&self.on_host(at)) {
            None => Ok(()),
            Some(rule) => Err(Problem::new(
                ErrorCode::Denied,
                format!("{} may not be read: {rule}", at.shown()),
            )
            .with_field("path")
            .with_hint("the owner grants it with `read` in the user's policy")),
        }
    }

    /// Refuses a place that holds a protected name, or lies at or below one, or that may not even be
    /// read.
    ///
    /// # Errors
    ///
    /// `denied`, with the rule.
    pub(super) fn may_change(&self, at: &Located) -> Result<(), Problem> {
        self.may_read(at)?;
        if let Some(rule) = self.terms.denied.rule_below(&self.on_host(at)) {
            return Err(Problem::new(
                ErrorCode::Denied,
                format!("{} holds what may not be read: {rule}", at.shown()),
            )
            .with_field("path"));
        }
        match self.protection(at) {
            None => Ok(()),
            Some(protection) => Err(Problem::new(
                ErrorCode::Denied,
                format!("{} is a protected name: {}", at.shown(), protection.rule),
            )
            .with_field("path")
            .with_hint("the owner changes it outside, or releases the name in the policy")),
        }
    }

    fn protection(&self, at: &Located) -> Option<&Protection> {
        let spec = self.spec();
        let wanted = at.absolute();
        spec.protections.iter().find(|protection| {
            let inside = protection.path.below(&spec.workspace_source).map_or_else(
                || protection.path.clone(),
                |below| spec.workspace.join(below),
            );
            protection.enforce != Enforce::Report
                && (wanted.is_within(&inside) || inside.is_within(&wanted))
        })
    }
}

pub(super) fn validate(
    door: &FileDoor<'_>,
    request: &PathValidate,
) -> Result<PathVerdict, Problem> {
    let refused = |rule: String| PathVerdict {
        path: request.path.clone(),
        allowed: false,
        rule,
        real_path: None,
        relative_path: None,
        kind: None,
    };
    let real = door
        .locate(&request.path)
        .and_then(|named| door.real(&named, true));
    let real = match real {
        Ok(real) => real,
        Err(problem) if problem.code == ErrorCode::FileTimeout => return Err(problem),
        Err(problem) => return Ok(refused(problem.message)),
    };
    let place = PathVerdict {
        path: request.path.clone(),
        allowed: true,
        rule: if *real.at.root() == door.spec().workspace {
            format!("within the workspace {}", door.spec().workspace)
        } else {
            format!("opened by the policy: {}", real.at.root())
        },
        real_path: Some(real.at.absolute()),
        relative_path: Some(BytePath::from_bytes(real.at.relative())),
        kind: real.metadata.map(|metadata| entry_kind(metadata.kind)),
    };
    let denied = |rule: String| PathVerdict {
        allowed: false,
        rule,
        ..place.clone()
    };
    if place.kind == Some(cofferdam_core::operation::EntryKind::Other) {
        return Ok(denied("neither a file nor a folder".to_owned()));
    }
    let access = match request.access {
        PathAccess::Read => {
            if let Err(problem) = door.may_read(&real.at) {
                return Ok(denied(problem.message));
            }
            rustix::fs::Access::READ_OK
        }
        PathAccess::Write => {
            if let Err(problem) = door.may_change(&real.at) {
                return Ok(denied(problem.message));
            }
            rustix::fs::Access::WRITE_OK
        }
    };
    // What does not exist is made in the nearest folder that does.
    let mut nearest = real.at.clone();
    while door.look(&nearest)?.is_none() {
        match nearest.parent() {
            Some(above) => nearest = above,
            None => break,
        }
    }
    if real.metadata.is_none() && request.access == PathAccess::Read {
        return Ok(denied("nothing stands there".to_owned()));
    }
    let request = FileRequest::Access {
        path: nearest.relative().to_vec(),
        write: access == rustix::fs::Access::WRITE_OK,
    };
    match door.worker(&nearest)?.call(&request, WORKER_LIMIT) {
        Ok(_) => Ok(place),
        Err(FileFault::Refused(error)) => {
            let said = std::io::Error::from_raw_os_error(error.errno);
            Ok(denied(format!("the walls do not allow it: {said}")))
        }
        Err(fault) => Err(fault.to_problem(real.at.shown())),
    }
}

fn outside(path: &BytePath) -> Problem {
    Problem::new(
        ErrorCode::PathOutside,
        format!("{path} lies outside the workspace"),
    )
    .with_field("path")
}

/// Takes `.`, empty pieces and `..` out of a relative path, by its words; `None` where it would
/// climb above its beginning.
fn tidy(path: &[u8]) -> Option<Vec<u8>> {
    let mut kept: Vec<&[u8]> = Vec::new();
    for piece in path.split(|byte| *byte == b'/') {
        match piece {
            b"" | b"." => {}
            b".." => {
                kept.pop()?;
            }
            name => kept.push(name),
        }
    }
    Some(kept.join(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_tidied_by_its_words() {
        let tidied =
            |path: &str| tidy(path.as_bytes()).map(|bytes| String::from_utf8(bytes).expect("text"));
        assert_eq!(tidied("a//./b/../c/"), Some("a/c".to_owned()));
        assert_eq!(tidied("."), Some(String::new()));
        assert_eq!(tidied("a/../.."), None);
        assert_eq!(tidied(".."), None);
    }
}
