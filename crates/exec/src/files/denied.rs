//! What may not be read through the file door: what the policy denies and secrets by their names,
//! also where no walls could hide them.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::facts::{HostFacts, PathKind};
use cofferdam_core::policy::{EffectivePolicy, Layer};
use globset::GlobMatcher;

use crate::host::{index_holds, is_env_file, pattern_of};

/// The rule about `.env` files.
const ENV_FILES: &str = ".env files that are not in git's index";

/// Paths of a workspace on the host that may not be read. The default denies nothing.
#[derive(Debug, Clone, Default)]
pub struct DeniedReads {
    paths: Vec<(BytePath, String)>,
    /// Held against the path below the top of the workspace.
    patterns: Vec<(GlobMatcher, String)>,
    root: BytePath,
    /// `.env` files that the owner granted; `None` where nothing is denied by its name.
    granted: Option<Vec<BytePath>>,
    /// `.env` files that stay withheld whatever git's index holds by now.
    withheld: Vec<BytePath>,
    /// Index and top level of the repository.
    git: Option<(PathBuf, PathBuf)>,
}

impl DeniedReads {
    /// Collects what a policy denies in a workspace.
    pub fn of(policy: &EffectivePolicy, facts: &HostFacts) -> Self {
        let named = |written: &BytePath| {
            let facts = facts
                .paths
                .iter()
                .filter(move |fact| fact.written == *written);
            facts.cloned().collect::<Vec<_>>()
        };
        let mut paths = Vec::new();
        let mut patterns = Vec::new();
        for denied in &policy.deny_read {
            let rule = format!("deny_read ({})", denied.layer);
            for fact in named(&denied.value) {
                if let Some(real) = fact.real {
                    paths.push((real, rule.clone()));
                }
                paths.push((fact.path, rule.clone()));
            }
            if let Some(matcher) = pattern_of(&denied.value) {
                patterns.push((matcher, rule));
            }
        }
        let granted = policy
            .read
            .iter()
            .chain(&policy.write)
            .filter(|one| matches!(one.layer, Layer::User | Layer::CommandLine))
            .flat_map(|one| named(&one.value))
            .filter(|fact| fact.kind != PathKind::Absent)
            .map(|fact| fact.path)
            .collect();
        let git = facts.workspace.git.as_ref();
        Self {
            paths,
            patterns,
            root: facts.workspace.root.clone(),
            granted: Some(granted),
            withheld: facts.workspace.env_files.clone(),
            git: git.map(|git| {
                let index = git.git_dir.as_path().join("index");
                (index, git.top_level.as_path().to_owned())
            }),
        }
    }

    /// Names the rule by which a path on the host may not be read.
    pub(super) fn rule(&self, path: &BytePath) -> Option<&str> {
        let named = self.paths.iter().find(|(one, _)| path.is_within(one));
        let below = Path::new(std::ffi::OsStr::from_bytes(
            path.below(&self.root).unwrap_or_default(),
        ));
        let matched = || {
            let mut above = below.ancestors();
            above.find_map(|above| {
                let mut patterns = self.patterns.iter();
                patterns.find(|(matcher, _)| matcher.is_match(above))
            })
        };
        if let Some(rule) = named
            .map(|(_, rule)| rule)
            .or_else(|| matched().map(|(_, rule)| rule))
        {
            return Some(rule);
        }
        let granted = self.granted.as_ref()?;
        let is_secret = is_env_file(path.file_name())
            && !granted.contains(path)
            && (self.withheld.contains(path) || !self.is_tracked(path.as_path()));
        is_secret.then_some(ENV_FILES)
    }

    /// Names the rule that denies something below a directory of the host.
    pub(super) fn rule_below(&self, directory: &BytePath) -> Option<&str> {
        let mut paths = self.paths.iter();
        paths
            .find(|(one, _)| one.is_within(directory))
            .map(|(_, rule)| rule.as_str())
    }

    fn is_tracked(&self, path: &Path) -> bool {
        self.git.as_ref().is_some_and(|(index, top)| {
            path.strip_prefix(top)
                .is_ok_and(|name| index_holds(index, &[name.as_os_str().as_bytes()]) == [true])
        })
    }
}
