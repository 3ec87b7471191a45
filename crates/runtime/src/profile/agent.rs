//! One agent at work: its private home from the first copy to the last.

use std::path::PathBuf;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::operation::CommandForm;
use cofferdam_core::plan::{self, WorkspaceView, choose_provider, looks_secret};
use cofferdam_core::policy::{EffectivePolicy, Layer, Sourced};
use cofferdam_core::profile::{Profile, TerminalNeed};
use cofferdam_core::spec::{Access, EnclosureSpec, Identity, ProviderKind, Variable};
use cofferdam_exec::home::{HomeLayer, HomeReport, HomeRequest};
use serde::{Deserialize, Serialize};

use crate::host::Resolved;
use crate::runtime::Runtime;
use crate::scribe::to_value;

/// Where it is noted for whom private homes were made elsewhere.
const ELSEWHERE: &str = "homes-of-others";

/// Where private homes of agents lie that work as another user.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HomesOfAnother {
    pub(crate) homes: BytePath,
    pub(crate) owner: Identity,
}

/// One agent at work.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) profile: Profile,
    layer: Option<HomeLayer>,
    /// Whose home it is, where that is not the caller's.
    pub(crate) identity: Option<Identity>,
    /// The command with what the profile adds.
    pub(crate) command: CommandForm,
    /// Variables for the command alone.
    pub(crate) environment: Vec<Variable>,
    /// What the caller is told.
    pub(crate) said: Vec<String>,
    /// Credentials of its own that the agent can read: files and variables.
    pub(crate) credentials: Vec<String>,
    /// Files that were copied in, and their bytes.
    pub(crate) seeded: (u64, u64),
}

impl Agent {
    /// Copies the agent's state and completes its command line.
    pub(crate) fn begin(
        runtime: &Runtime,
        profile: Profile,
        resolved: &Resolved,
        task: &str,
        command: &CommandForm,
        has_terminal: bool,
    ) -> Result<Self, Problem> {
        let facts = &resolved.facts;
        let provider = choose_provider(&resolved.policy, facts)?.provider;
        let walled = !matches!(provider, ProviderKind::Direct | ProviderKind::Memory);
        let mut agent = Self {
            command: command.clone(),
            layer: None,
            identity: facts
                .acts_for_another()
                .then(|| facts.owner.identity.clone()),
            environment: Vec::new(),
            said: Vec::new(),
            credentials: Vec::new(),
            seeded: (0, 0),
            profile,
        };
        if let CommandForm::Argv(argv) = command {
            let adapted = agent.profile.adapt(argv, walled);
            agent.command = CommandForm::Argv(adapted.argv);
            let set = adapted.set.into_iter();
            agent.environment = set
                .map(|(name, value)| Variable {
                    name: BytePath::from(name),
                    value: BytePath::from(value),
                })
                .collect();
            agent.said = adapted.said;
        }
        if agent.profile.terminal == TerminalNeed::Required && !has_terminal {
            let text = format!("{} does nothing without a terminal", agent.profile.title);
            agent.said.push(text);
        }
        if !agent.profile.untried.is_empty() {
            agent.said.push(format!(
                "the profile of {} is untried; `cofferdam profile show {}` says what is not known",
                agent.profile.title, agent.profile.name
            ));
        }
        agent.find_variables(&resolved.policy, resolved);
        if !walled {
            agent.said.push(format!(
                "without walls {} works on its own home directory, as ever",
                agent.profile.title
            ));
            return Ok(agent);
        }
        if provider == ProviderKind::Landlock {
            agent.gaps_of_landlock(facts.owner.identity.uid);
        }
        let home = &facts.owner.home;
        if home.is_absolute() && home.depth() > 0 {
            agent.seed(runtime, resolved, task)?;
        }
        if !agent.credentials.is_empty() {
            agent.said.push(format!(
                "{} can read credentials of its own: {}",
                agent.profile.title,
                agent.credentials.join(", ")
            ));
        }
        Ok(agent)
    }

    fn find_variables(&mut self, policy: &EffectivePolicy, resolved: &Resolved) {
        for variable in &resolved.facts.environment {
            let name = variable.name.to_text();
            let is_passed = self.profile.environment.pass.iter().any(|one| *one == name);
            if is_passed && looks_secret(&name) && plan::is_inheritable(policy, &name) {
                self.credentials.push(format!("${name}"));
            }
        }
    }

    fn gaps_of_landlock(&mut self, uid: u32) {
        let title = &self.profile.title;
        self.said.push(format!(
            "with landlock the home directory of {title} lies at another path: what names the real \
             one does not find it"
        ));
        if !self.profile.home.places.is_empty() {
            let places: Vec<String> = self
                .profile
                .home
                .places
                .iter()
                .map(|place| place.replace("{uid}", &uid.to_string()))
                .collect();
            self.said.push(format!(
                "with landlock {title} cannot write to {}",
                places.join(", ")
            ));
        }
    }

    fn seed(&mut self, runtime: &Runtime, resolved: &Resolved, task: &str) -> Result<(), Problem> {
        let facts = &resolved.facts;
        let is_own = self.identity.is_none();
        let homes = runtime.homes(resolved)?;
        let named = |name: &str| runtime.surroundings.path(name).map(PathBuf::from);
        let request = HomeRequest {
            rules: &self.profile.home,
            profile: &self.profile.name,
            task,
            directory: homes.join(task),
            real: facts.owner.home.as_path().to_owned(),
            workspace: &facts.workspace.root,
            variables: self
                .profile
                .home
                .moved
                .iter()
                .filter(|_| is_own)
                .filter_map(|moved| Some((moved.variable.clone(), named(&moved.variable)?)))
                .collect(),
            identity: self.identity.clone(),
        };
        let (layer, seeded) = HomeLayer::seed(&request)?;
        self.seeded = (seeded.files, seeded.bytes);
        let files = seeded.credentials.iter().map(|path| format!("~/{path}"));
        self.credentials.splice(0..0, files);
        self.said.extend(seeded.notes);
        self.layer = Some(layer);
        Ok(())
    }

    /// Plans an enclosure in which the private home stands in the place of the home directory.
    pub(crate) fn spec(
        &self,
        runtime: &Runtime,
        resolved: &Resolved,
        mut view: WorkspaceView,
    ) -> Result<EnclosureSpec, Problem> {
        let facts = &resolved.facts;
        let mut policy = resolved.policy.clone();
        if let Some(layer) = &self.layer {
            let home = BytePath::from(layer.home());
            view = view.with(home.clone(), facts.owner.home.clone(), Access::Write);
            if !choose_provider(&policy, facts)?.provider.has_view() {
                let home = Sourced::new(home.to_text().into_owned(), Layer::BuiltIn);
                policy.env.set.insert("HOME".to_owned(), home);
            }
        }
        plan::prepare(&policy, &view, facts, &runtime.scratch())
    }

    /// Brings back what may come back. Everything in the enclosure must have ended.
    pub(crate) fn collect(&self) -> Option<Result<HomeReport, Problem>> {
        self.layer.as_ref().map(HomeLayer::collect)
    }

    /// Gives where the private home lies.
    pub(crate) fn directory(&self) -> Option<BytePath> {
        let layer = self.layer.as_ref();
        layer.map(|layer| BytePath::from(layer.directory()))
    }

    /// Removes the private home.
    pub(crate) fn remove(self) {
        if let Some(layer) = self.layer {
            layer.remove();
        }
    }
}

impl Runtime {
    /// Gives the directory of private homes: where the workspace's owner can reach them.
    fn homes(&self, resolved: &Resolved) -> Result<PathBuf, Problem> {
        let facts = &resolved.facts;
        if !facts.acts_for_another() {
            return Ok(self.own_homes());
        }
        let place = HomesOfAnother {
            homes: facts.owner.home.join(b".local/share/cofferdam/homes"),
            owner: facts.owner.identity.clone(),
        };
        // The next start looks there, too, and is told by nobody but us as whom.
        let directory = self.data_dir.join(ELSEWHERE);
        let path = directory.join(format!("{}.json", place.owner.uid));
        let text = to_value(&place)?.to_string();
        std::fs::create_dir_all(&directory)
            .and_then(|()| std::fs::write(&path, text))
            .map_err(|error| {
                let what = format!("{} cannot be written: {error}", path.display());
                Problem::new(ErrorCode::Io, what)
            })?;
        Ok(place.homes.as_path().to_owned())
    }

    /// Lists the directories of private homes that were made for others.
    pub(crate) fn homes_of_others(&self) -> Vec<HomesOfAnother> {
        let entries = std::fs::read_dir(self.data_dir.join(ELSEWHERE));
        let texts = entries.into_iter().flatten().flatten();
        texts
            .filter_map(|entry| std::fs::read(entry.path()).ok())
            .filter_map(|text| serde_json::from_slice(&text).ok())
            .collect()
    }

    /// Gives the directory of private homes of the caller's own.
    pub(crate) fn own_homes(&self) -> PathBuf {
        self.data_dir.join("homes")
    }
}
