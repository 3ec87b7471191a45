//! What is asked of an engine for one place, in the words of its interface.

use std::collections::BTreeMap;
use std::path::Path;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::spec::EnclosureSpec;
use cofferdam_sandbox::{CONTAINER_STAGING, ContainerMount, ContainerPlan};
use serde::Serialize;

/// Tasks of our own that live in a container: the keeper, supervisors, file workers.
const OWN_TASKS: u64 = 16;
/// Bytes of shared memory where the plan mounts none of its own.
const SHARED_MEMORY: u64 = 512 * 1024 * 1024;

/// Asks for a container.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct CreateRequest {
    image: String,
    entrypoint: Vec<String>,
    user: String,
    working_dir: String,
    env: Vec<String>,
    labels: BTreeMap<String, String>,
    host_config: HostConfig,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct HostConfig {
    auto_remove: bool,
    network_mode: &'static str,
    ipc_mode: &'static str,
    cap_drop: [&'static str; 1],
    security_opt: Vec<String>,
    readonly_rootfs: bool,
    mounts: Vec<BindMount>,
    tmpfs: BTreeMap<String, String>,
    masked_paths: Vec<String>,
    readonly_paths: Vec<String>,
    group_add: Vec<String>,
    shm_size: u64,
    log_config: LogConfig,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_swap: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pids_limit: Option<u64>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct LogConfig {
    r#type: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct BindMount {
    r#type: &'static str,
    source: String,
    target: String,
    read_only: bool,
    bind_options: BindOptions,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct BindOptions {
    propagation: &'static str,
    non_recursive: bool,
}

/// Puts together what is asked for. `staging` is the directory on the host with the keeper's program,
/// its socket and the contents that the plan names.
///
/// # Errors
///
/// `engine_failed` for a path that is no text: an engine's interface has no other.
pub(crate) fn create_request(
    spec: &EnclosureSpec,
    plan: &ContainerPlan,
    image: String,
    staging: &Path,
    labels: BTreeMap<String, String>,
) -> Result<CreateRequest, Problem> {
    let identity = &spec.identity;
    let mut mounts = vec![bind(staging, &CONTAINER_STAGING.into(), false)?];
    let mut tmpfs = BTreeMap::new();
    for mount in &plan.mounts {
        match mount {
            ContainerMount::Host {
                source, optional, ..
            } if *optional && !source.as_path().exists() => {}
            ContainerMount::Host {
                source,
                target,
                writable,
                ..
            } => mounts.push(bind(source.as_path(), target, *writable)?),
            ContainerMount::Content { index, target } => {
                mounts.push(bind(&staging.join(index.to_string()), target, false)?);
            }
            ContainerMount::Memory {
                target,
                mode,
                read_only,
            } => {
                let access = if *read_only { "ro" } else { "rw" };
                let options = format!(
                    "{access},exec,nosuid,nodev,mode={mode:o},uid={},gid={}",
                    identity.uid, identity.gid
                );
                tmpfs.insert(text(target)?, options);
            }
        }
    }
    let memory = spec.limits.memory_bytes;
    Ok(CreateRequest {
        image,
        entrypoint: ["keeper", "channel"]
            .map(|name| format!("{CONTAINER_STAGING}/{name}"))
            .to_vec(),
        user: format!("{}:{}", identity.uid, identity.gid),
        working_dir: "/".to_owned(),
        env: Vec::new(),
        labels,
        host_config: HostConfig {
            auto_remove: true,
            network_mode: if plan.shares_network { "host" } else { "none" },
            ipc_mode: "private",
            cap_drop: ["ALL"],
            security_opt: vec!["no-new-privileges".to_owned()],
            readonly_rootfs: true,
            mounts,
            tmpfs,
            masked_paths: plan.masked.clone(),
            readonly_paths: plan.read_only.clone(),
            group_add: identity.groups.iter().map(ToString::to_string).collect(),
            shm_size: SHARED_MEMORY,
            log_config: LogConfig { r#type: "none" },
            memory,
            // Without more, swap would be the same again.
            memory_swap: memory,
            pids_limit: spec
                .limits
                .tasks
                .map(|tasks| tasks.saturating_add(OWN_TASKS)),
        },
    })
}

fn bind(source: &Path, target: &BytePath, writable: bool) -> Result<BindMount, Problem> {
    Ok(BindMount {
        r#type: "bind",
        source: text(&BytePath::from(source))?,
        target: text(target)?,
        read_only: !writable,
        bind_options: BindOptions {
            propagation: "rprivate",
            // What is mounted below would not become read-only with it.
            non_recursive: !writable,
        },
    })
}

fn text(path: &BytePath) -> Result<String, Problem> {
    std::str::from_utf8(path.as_bytes())
        .map(str::to_owned)
        .map_err(|_| {
            let message = format!("a container engine takes no path that is no text: {path}");
            Problem::new(ErrorCode::EngineFailed, message).with_hint("choose --provider bwrap")
        })
}
