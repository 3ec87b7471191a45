//! What the permission does to the rest of a policy, whatever its layers say.

use super::document::{Permission, ProviderChoice};
use super::effective::{EffectivePolicy, Sourced};
use crate::bytes::BytePath;
use crate::decide::{Ground, writes};
use crate::spec::{Access, ProviderKind};

impl EffectivePolicy {
    /// Puts walls up where the permission needs some: without walls nothing could be held back.
    ///
    /// What the layers say about the provider holds again as soon as the permission is
    /// `unrestricted`: nothing is stored.
    pub(super) fn lock_execution(&mut self) {
        if self.permission.value == Permission::Unrestricted {
            return;
        }
        let layer = self.permission.layer;
        if self.provider.value == ProviderChoice::Direct {
            self.provider = Sourced::new(ProviderChoice::Auto, layer);
        }
        if self.fallback.value.contains(&ProviderKind::Direct) {
            let mut without = self.fallback.value.clone();
            without.retain(|one| *one != ProviderKind::Direct);
            self.fallback = Sourced::new(without, layer);
        }
    }

    /// Takes the right to write away that the permission does not give before somebody was asked:
    /// the workspace and what may be written besides are read only then. `is_granted` says that
    /// writing the workspace was approved; nothing else is written by that.
    pub fn hold_writes(&mut self, ground: Ground, is_granted: bool) {
        if writes(self.permission.value, ground) == Access::Write {
            return;
        }
        let layer = self.permission.layer;
        if !is_granted && self.workspace.value == Access::Write {
            self.workspace = Sourced::new(Access::Read, layer);
        }
        let beside = std::mem::take(&mut self.write);
        self.read.extend(beside);
    }

    /// Takes the right to write everything but one folder away, while a plan is made in it.
    pub fn hold_plan(&mut self, folder: &BytePath) {
        let (own, beside): (Vec<_>, Vec<_>) = std::mem::take(&mut self.write)
            .into_iter()
            .partition(|one| one.value == *folder);
        self.write = own;
        self.read.extend(beside);
        self.workspace = Sourced::new(Access::Read, self.permission.layer);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Layer, LayerDocument, PolicyDocument, merge};
    use super::*;

    fn effective(permission: Option<Permission>) -> EffectivePolicy {
        let owner = PolicyDocument {
            provider: Some(ProviderChoice::Direct),
            write: Some(vec![BytePath::from("/data")]),
            ..PolicyDocument::default()
        };
        let request = PolicyDocument {
            permission,
            ..PolicyDocument::default()
        };
        merge(
            EffectivePolicy::built_in(),
            &[
                LayerDocument::new(Layer::CommandLine, owner),
                LayerDocument::new(Layer::Request, request),
            ],
        )
        .expect("a policy")
    }

    #[test]
    fn row_65_restricted_without_walls_is_impossible_and_restored_on_leave() {
        for permission in [
            Permission::Readonly,
            Permission::Approval,
            Permission::AutoApproval,
        ] {
            let locked = effective(Some(permission));
            assert_eq!(
                locked.provider.value,
                ProviderChoice::Auto,
                "{permission:?}"
            );
            assert_eq!(locked.provider.layer, Layer::Request);
            assert!(!locked.fallback.value.contains(&ProviderKind::Direct));
        }
        let left = effective(None);
        assert_eq!(left.provider.value, ProviderChoice::Direct);
        assert_eq!(left.provider.layer, Layer::CommandLine);
    }

    #[test]
    fn writing_is_held_back_until_it_is_granted_and_then_in_the_workspace_only() {
        let mut held = effective(Some(Permission::Approval));
        held.hold_writes(Ground::Checkout, false);
        assert_eq!(held.workspace.value, Access::Read);
        assert!(held.write.is_empty());
        assert_eq!(
            held.read.last().expect("a path").value,
            BytePath::from("/data")
        );

        let mut granted = effective(Some(Permission::Approval));
        granted.hold_writes(Ground::Checkout, true);
        assert_eq!(granted.workspace.value, Access::Write);
        assert!(granted.write.is_empty());

        let mut apart = effective(Some(Permission::Approval));
        let before = apart.clone();
        apart.hold_writes(Ground::Apart, false);
        assert_eq!(apart, before);
    }
}
