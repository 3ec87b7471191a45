//! What an operation is carried out with: nothing of it comes from a request.

use std::sync::Arc;

use cofferdam_core::authority::{Actor, Authority};
use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::policy::{Permission, ProviderChoice};
use cofferdam_exec::Control;
use cofferdam_runtime::{FileRequest, FrontDoor, PolicyRequest, Runtime};

/// What all operations of one server have in common: the runtime, and what the owner's command
/// line fixed.
#[derive(Debug)]
pub struct OperationHost {
    runtime: Arc<Runtime>,
    policy: PolicyRequest,
    authority: Authority,
    session_door: FrontDoor,
}

impl OperationHost {
    /// Fixes workspace and ceiling: requests may only narrow what `policy` says.
    ///
    /// # Errors
    ///
    /// `workspace_refused`, `workspace_missing`.
    pub fn open(runtime: Arc<Runtime>, mut policy: PolicyRequest) -> Result<Self, Problem> {
        let root = runtime.workspace(&policy)?;
        policy.workspace = Some(root.as_path().to_owned());
        Ok(Self {
            runtime,
            policy,
            authority: Authority::new(Actor::Protocol, root),
            session_door: FrontDoor::Protocol,
        })
    }

    /// Lends the workspace.
    pub fn workspace(&self) -> &BytePath {
        self.authority.root()
    }

    /// Says that the calls are the owner's own, made at the keyboard.
    #[must_use]
    pub fn for_owner(mut self) -> Self {
        // Whoever asks for no walls on the command line has answered what would be asked without.
        let owner = &mut self.policy.owner;
        if owner.provider == Some(ProviderChoice::Direct) {
            owner.permission.get_or_insert(Permission::Unrestricted);
        }
        self.authority = Authority::new(Actor::Owner, self.authority.root().clone());
        self
    }

    /// Says that sessions are for an agent's own tool for commands: the agent ends what takes too long,
    /// and only the policy does besides.
    #[must_use]
    pub const fn for_hook(mut self) -> Self {
        self.session_door = FrontDoor::Hook;
        self
    }

    /// Gives what one call is carried out with.
    pub fn context(self: &Arc<Self>) -> OperationContext {
        OperationContext {
            host: Arc::clone(self),
            control: Control::new(),
        }
    }
}

/// What one call of an operation is carried out with.
#[derive(Debug, Clone)]
pub struct OperationContext {
    host: Arc<OperationHost>,
    control: Control,
}

impl OperationContext {
    /// Lends the runtime.
    pub fn runtime(&self) -> &Arc<Runtime> {
        &self.host.runtime
    }

    /// Gives workspace and walls as the owner's command line fixed them. What a request narrows
    /// goes into its `request` layer.
    pub fn policy(&self) -> PolicyRequest {
        self.host.policy.clone()
    }

    /// Lends whose word this is: a protocol's, on the workspace of this server.
    pub fn authority(&self) -> &Authority {
        &self.host.authority
    }

    /// Gives the door by which commands of sessions come.
    pub fn session_door(&self) -> FrontDoor {
        self.host.session_door
    }

    /// Gives whose word a file operation is.
    pub fn files(&self) -> FileRequest {
        FileRequest {
            policy: self.policy(),
            authority: self.host.authority.clone(),
            front_door: self.front_door(),
            control: self.control.clone(),
        }
    }

    /// Tells by which door this call came.
    pub fn front_door(&self) -> FrontDoor {
        match self.host.authority.actor() {
            Actor::Owner => FrontDoor::CommandLine,
            Actor::Protocol | Actor::System => FrontDoor::Protocol,
        }
    }

    /// Lends the workspace.
    pub fn workspace(&self) -> &BytePath {
        self.host.authority.root()
    }

    /// Lends the handle by which this call is cancelled: by its caller, or because the caller went
    /// away. An operation that outlives its call does not listen to it.
    pub const fn control(&self) -> &Control {
        &self.control
    }

    /// Refuses a request that means another workspace than this server's.
    ///
    /// # Errors
    ///
    /// `workspace_mismatch`.
    pub fn check_workspace(&self, named: Option<&str>) -> Result<(), Problem> {
        let own = self.workspace();
        let Some(named) = named.filter(|named| named.as_bytes() != own.as_bytes()) else {
            return Ok(());
        };
        // Another spelling of the same place is no other place.
        let is_same = std::fs::canonicalize(named).is_ok_and(|real| real == own.as_path());
        if is_same {
            return Ok(());
        }
        Err(Problem::new(
            ErrorCode::WorkspaceMismatch,
            format!("{named} is not the workspace of this server"),
        )
        .with_field("workspace")
        .with_hint(format!("leave it out, or name {own}")))
    }
}
