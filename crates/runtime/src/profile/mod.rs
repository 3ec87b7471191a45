//! Profiles of agents, and what a run of one needs around it.

mod agent;
mod shipped;
mod state;

use std::path::PathBuf;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::policy::{EffectivePolicy, Layer, Sourced};
use cofferdam_core::profile::{NO_PROFILE, Profile, program_name, read_profile};
use cofferdam_exec::host::Surroundings;

use crate::host::PolicyRequest;
use crate::owned;
use crate::runtime::Runtime;

pub(crate) use agent::Agent;
pub use state::AppliedState;

/// Most bytes of one profile.
const PROFILE_BYTES: u64 = 1 << 20;

/// Where a profile comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProfileOrigin {
    /// It comes with the program.
    Shipped,
    /// A file of the user's own.
    User(PathBuf),
}

/// A profile that can be named.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfileEntry {
    /// Its name.
    pub name: String,
    /// Where it comes from; a user's own takes the place of a shipped one.
    pub origin: ProfileOrigin,
    /// What it says, or why it cannot be read.
    pub profile: Result<Profile, Problem>,
}

/// Every profile that can be named, by name.
#[derive(Debug, Clone, PartialEq)]
pub struct Profiles(Vec<ProfileEntry>);

impl Profiles {
    /// Reads those that come with the program and those in the user's `cofferdam/profiles`.
    pub fn read(surroundings: &Surroundings) -> Self {
        let mut list: Vec<ProfileEntry> = shipped::SHIPPED
            .iter()
            .map(|(name, text)| ProfileEntry {
                name: (*name).to_owned(),
                origin: ProfileOrigin::Shipped,
                profile: read_profile(text, name),
            })
            .collect();
        let own = owned::directory(surroundings, "profiles");
        for (name, path) in own.as_deref().map(owned::files).unwrap_or_default() {
            list.retain(|one| one.name != name);
            list.push(ProfileEntry {
                profile: read_file(&path, &name),
                name,
                origin: ProfileOrigin::User(path),
            });
        }
        list.sort_by(|left, right| left.name.cmp(&right.name));
        Self(list)
    }

    /// Lists them.
    pub fn entries(&self) -> &[ProfileEntry] {
        &self.0
    }

    /// Gives the one of a name.
    ///
    /// # Errors
    ///
    /// `invalid_request` for a name that nobody knows, and why a user's own cannot be read.
    pub fn find(&self, name: &str) -> Result<&ProfileEntry, Problem> {
        self.0.iter().find(|one| one.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.0.iter().map(|one| one.name.as_str()).collect();
            Problem::new(
                ErrorCode::InvalidRequest,
                format!("there is no profile {name:?}"),
            )
            .with_field("profile")
            .with_hint(format!("known are: {}", names.join(", ")))
        })
    }

    /// Gives the one whose program a command line starts.
    pub fn of_command(&self, argv: &[BytePath]) -> Option<&ProfileEntry> {
        let program = program_name(argv)?;
        self.0.iter().find(|one| match &one.profile {
            Ok(profile) => profile.is_program(&program),
            // A broken one of that name is to be heard of.
            Err(_) => one.name == program,
        })
    }
}

/// Reads a profile from a file; its name must be that of the file.
fn read_file(path: &std::path::Path, name: &str) -> Result<Profile, Problem> {
    let unreadable = |why: String| {
        Problem::new(
            ErrorCode::PolicyUnreadable,
            format!("the profile {} cannot be read: {why}", path.display()),
        )
    };
    let size = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
    if size.len() > PROFILE_BYTES {
        return Err(unreadable("it is too large".to_owned()));
    }
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    let profile = read_profile(&text, &path.display().to_string())?;
    if profile.name != name {
        return Err(Problem::new(
            ErrorCode::PolicyInvalidValue,
            format!(
                "{}: name is {:?}, and the file is that of {name:?}",
                path.display(),
                profile.name
            ),
        )
        .with_field("name"));
    }
    Ok(profile)
}

impl Runtime {
    /// Reads every profile that can be named.
    pub fn profiles(&self) -> Profiles {
        Profiles::read(&self.surroundings)
    }

    /// Gives the profile that a request names.
    pub(crate) fn profile_of(&self, policy: &PolicyRequest) -> Result<Option<Profile>, Problem> {
        match policy.owner.profile.as_deref() {
            None | Some(NO_PROFILE) => Ok(None),
            Some(name) => self.profiles().find(name)?.profile.clone().map(Some),
        }
    }

    /// Names the profile of an agent that a command line starts, where nobody named one.
    pub(crate) fn choose_profile(&self, policy: &mut PolicyRequest, argv: &[BytePath]) {
        if policy.owner.profile.is_none() {
            let profiles = self.profiles();
            let found = profiles.of_command(argv);
            policy.owner.profile = found.map(|entry| entry.name.clone());
        }
    }

    /// Lays what a profile wants below everything that an owner says.
    pub(crate) fn lay_profile(&self, profile: &Profile, base: &mut EffectivePolicy) {
        profile.lay_under(base);
        let Some(home) = self.surroundings.path("HOME") else {
            return;
        };
        for path in &profile.home.read {
            if home.join(path).is_dir() {
                let path = BytePath::from(format!("~/{path}"));
                base.read.push(Sourced::new(path, Layer::BuiltIn));
            }
        }
    }
}
