//! What holds for any layers: a request never widens, deny wins, order and repetition do not matter.

use cofferdam_core::bytes::BytePath;
use cofferdam_core::policy::{
    AllowDocument, ByteSize, Caches, EffectivePolicy, EnvironmentDocument, Inherit, Layer,
    LayerDocument, LimitDocument, PolicyDocument, ProviderChoice, check_document, merge,
};
use cofferdam_core::spec::{Access, Network};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

fn network() -> impl Strategy<Value = Network> {
    select(vec![Network::None, Network::Restricted, Network::Full])
}

fn provider() -> impl Strategy<Value = ProviderChoice> {
    select(vec![
        ProviderChoice::Auto,
        ProviderChoice::Direct,
        ProviderChoice::Bwrap,
        ProviderChoice::Landlock,
    ])
}

fn paths() -> impl Strategy<Value = Vec<BytePath>> {
    let all: Vec<BytePath> = ["/a", "/a/b", "/ab", "/c", "~/d", "e"]
        .into_iter()
        .map(BytePath::from)
        .collect();
    subsequence(all, 0..4)
}

fn document() -> impl Strategy<Value = PolicyDocument> {
    let first = (
        of(provider()),
        of(network()),
        of(select(vec![Access::Read, Access::Write])),
        of(paths()),
        of(paths()),
        of(paths()),
    );
    let second = (
        of(select(vec![
            Caches::None,
            Caches::ReadOnly,
            Caches::Private,
        ])),
        of(select(vec![Inherit::None, Inherit::Listed, Inherit::All])),
        of(subsequence(
            vec!["A".to_owned(), "B".to_owned(), "C".to_owned()],
            0..3,
        )),
        of(0u64..4),
        of(any::<bool>()),
    );
    (first, second).prop_map(
        |(
            (provider, network, workspace, read, write, deny_read),
            (caches, inherit, allow, memory, ptrace),
        )| {
            // What contradicts itself is refused elsewhere.
            let denied = deny_read.clone().unwrap_or_default();
            let without = |list: Option<Vec<BytePath>>| {
                list.map(|list| {
                    list.into_iter()
                        .filter(|one| !denied.contains(one))
                        .collect()
                })
            };
            PolicyDocument {
                provider,
                network,
                workspace,
                read: without(read),
                write: without(write),
                deny_read,
                caches,
                env: Some(EnvironmentDocument {
                    inherit,
                    allow,
                    ..EnvironmentDocument::default()
                }),
                limits: Some(LimitDocument {
                    memory: memory.map(ByteSize),
                    ..LimitDocument::default()
                }),
                allow: Some(AllowDocument {
                    ptrace,
                    ..AllowDocument::default()
                }),
                ..PolicyDocument::default()
            }
        },
    )
}

fn lay(layers: &[(Layer, &PolicyDocument)]) -> Option<EffectivePolicy> {
    let documents: Vec<_> = layers
        .iter()
        .map(|(layer, document)| LayerDocument::new(*layer, (*document).clone()))
        .collect();
    merge(EffectivePolicy::built_in(), &documents).ok()
}

/// How much of the walls a provider gives.
fn strength(choice: ProviderChoice) -> u8 {
    match choice {
        ProviderChoice::Direct => 0,
        ProviderChoice::Landlock => 1,
        _ => 2,
    }
}

/// Tells whether one policy allows nothing that the other does not.
fn is_within(less: &EffectivePolicy, more: &EffectivePolicy) -> bool {
    let lies_in = |path: &BytePath, tops: &[&BytePath], workspace: bool| {
        let relative = !path.is_absolute() && !path.as_bytes().starts_with(b"~");
        tops.iter().any(|top| path.is_within(top)) || (workspace && relative)
    };
    let writes: Vec<&BytePath> = more.write.iter().map(|one| &one.value).collect();
    let mut reads: Vec<&BytePath> = more.read.iter().map(|one| &one.value).collect();
    reads.extend(&writes);
    let workspace = more.workspace.value == Access::Write;
    let memory =
        |policy: &EffectivePolicy| policy.limits.memory.map_or(u64::MAX, |one| one.value.0);
    strength(less.provider.value) >= strength(more.provider.value)
        && less.network.value <= more.network.value
        && less.workspace.value <= more.workspace.value
        && less.caches.value <= more.caches.value
        && less.env.inherit.value <= more.env.inherit.value
        && less.allow.ptrace.value <= more.allow.ptrace.value
        && memory(less) <= memory(more)
        && less
            .read
            .iter()
            .all(|one| lies_in(&one.value, &reads, true))
        && less
            .write
            .iter()
            .all(|one| lies_in(&one.value, &writes, workspace))
        && less
            .env
            .allow
            .iter()
            .all(|one| more.env.allow.iter().any(|two| two.value == one.value))
        && more
            .deny_read
            .iter()
            .all(|one| less.deny_read.iter().any(|two| two.value == one.value))
}

proptest! {
    #[test]
    fn what_narrows_never_widens(user in document(), layer in document()) {
        // What contradicts itself is refused before anything is laid.
        prop_assume!(check_document(&layer, Layer::Project).is_ok());
        let before = lay(&[(Layer::User, &user)]);
        let project = lay(&[(Layer::User, &user), (Layer::Project, &layer)]);
        let request = lay(&[(Layer::User, &user), (Layer::Request, &layer)]);
        if let Some(before) = before {
            let project = project.expect("a project is never refused for widening");
            prop_assert!(is_within(&project, &before));
            if let Some(request) = request {
                prop_assert!(is_within(&request, &before));
                prop_assert!(project.proposals.is_empty());
            } else {
                prop_assert!(!project.proposals.is_empty());
            }
        }
    }

    #[test]
    fn a_managed_ceiling_holds_for_owners(managed in document(), user in document(), line in document()) {
        let layers = [
            (Layer::Managed, &managed),
            (Layer::User, &user),
            (Layer::CommandLine, &line),
        ];
        if let Some(policy) = lay(&layers) {
            if let Some(most) = managed.network {
                prop_assert!(policy.network.value <= most);
            }
            if let Some(most) = managed.workspace {
                prop_assert!(policy.workspace.value <= most);
            }
            if let Some(most) = &managed.write {
                prop_assert!(policy.write.iter().all(|one| most.iter().any(|top| one.value.is_within(top))));
            }
            for denied in managed.deny_read.iter().flatten() {
                prop_assert!(policy.deny_read.iter().any(|one| one.value == *denied));
            }
        }
    }

    #[test]
    fn laying_is_independent_of_order_and_repetition(user in document(), line in document(), project in document()) {
        let (user, line, project) =
            ((Layer::User, &user), (Layer::CommandLine, &line), (Layer::Project, &project));
        let once = lay(&[user, line, project]);
        prop_assert_eq!(&lay(&[project, line, user]), &once);
        prop_assert_eq!(&lay(&[user, user, line, line, project]), &once);
    }

    #[test]
    fn deny_stays_whatever_is_granted_later(user in document(), line in document(), request in document()) {
        let layers = [(Layer::User, &user), (Layer::CommandLine, &line), (Layer::Request, &request)];
        if let Some(policy) = lay(&layers) {
            for denied in user.deny_read.iter().flatten() {
                prop_assert!(policy.deny_read.iter().any(|one| one.value == *denied));
            }
        }
    }

    #[test]
    fn a_document_reads_back_as_it_was_written(document in document()) {
        let text = serde_json::to_string(&document).expect("written");
        prop_assert_eq!(serde_json::from_str::<PolicyDocument>(&text).expect("read"), document);
    }
}
