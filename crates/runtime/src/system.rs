//! The machine itself as the host that is looked at.

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::policy::{Layer, LayerDocument, PolicyDocument, merge};
use cofferdam_core::spec::Access;
use cofferdam_exec::host::{
    GatherRequest, PolicyFile, Surroundings, gather, policy_files, read_layer, resolve_workspace,
};

use crate::host::{Authorised, HostDoor, LookRequest, PolicyRequest, Resolved};

/// Looks with the plane's own eyes.
#[derive(Debug)]
pub(crate) struct SystemHost {
    pub(crate) surroundings: Surroundings,
}

impl HostDoor for SystemHost {
    fn look(&self, request: LookRequest<'_>) -> Result<Resolved, Problem> {
        let LookRequest {
            policy,
            base,
            data_dir,
            tree,
            authorised,
        } = request;
        let surroundings = &self.surroundings;
        let workspace =
            resolve_workspace(surroundings, policy.workspace.as_deref(), Some(data_dir))?;
        let mut layers = self.layers(policy, &workspace.root)?;
        layers.extend(authorised_layer(authorised, &workspace.root));
        let effective = merge(base, &layers)?;
        let facts = gather(&GatherRequest {
            surroundings,
            workspace: &workspace,
            data_dir,
            policy: &effective,
            tree,
        });
        let cwd = workspace.directory.unwrap_or(workspace.root);
        Ok(Resolved {
            policy: effective,
            facts,
            cwd: BytePath::from(cwd),
        })
    }

    fn workspace(&self, request: LookRequest<'_>) -> Result<BytePath, Problem> {
        let named = request.policy.workspace.as_deref();
        let found = resolve_workspace(&self.surroundings, named, Some(request.data_dir))?;
        Ok(found.root.into())
    }
}

/// Makes what the owner has authorised a part of the user's layer.
fn authorised_layer(
    authorised: &dyn Authorised,
    workspace: &std::path::Path,
) -> Option<LayerDocument> {
    let paths = authorised.paths(&workspace.into());
    if paths.is_empty() {
        return None;
    }
    let of = |wanted: Access| {
        let mut found = paths
            .iter()
            .filter(|(_, access)| *access == wanted)
            .peekable();
        found.peek()?;
        Some(found.map(|(path, _)| path.clone()).collect())
    };
    let document = PolicyDocument {
        read: of(Access::Read),
        write: of(Access::Write),
        ..PolicyDocument::default()
    };
    Some(LayerDocument::new(Layer::User, document))
}

impl SystemHost {
    fn layers(
        &self,
        policy: &PolicyRequest,
        workspace: &std::path::Path,
    ) -> Result<Vec<LayerDocument>, Problem> {
        let mut layers = Vec::new();
        for file in policy_files(&self.surroundings, Some(workspace)) {
            if file.layer == Layer::User && policy.policy_file.is_some() {
                continue;
            }
            layers.extend(read_layer(&file)?);
        }
        if let Some(path) = &policy.policy_file {
            let path = self.surroundings.directory().join(path);
            let file = PolicyFile {
                layer: Layer::User,
                path,
            };
            let Some(layer) = read_layer(&file)? else {
                return Err(Problem::new(
                    ErrorCode::PolicyUnreadable,
                    format!("the policy {} does not exist", file.path.display()),
                )
                .with_field("policy"));
            };
            layers.push(layer);
        }
        layers.push(LayerDocument::new(Layer::CommandLine, policy.owner.clone()));
        if let Some(request) = &policy.request {
            layers.push(LayerDocument::new(Layer::Request, request.clone()));
        }
        Ok(layers)
    }
}
