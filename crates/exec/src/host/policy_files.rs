//! Where the layers of a policy are kept, and reading them.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::policy::{Layer, LayerDocument, PolicyFormat, read_policy};

use super::surroundings::Surroundings;

/// The file of whoever manages the machine.
pub const MANAGED_POLICY: &str = "/etc/cofferdam/policy.toml";
/// Name of the file at the top of a workspace.
pub const PROJECT_POLICY: &str = ".cofferdam.toml";
/// Most bytes of one policy.
const POLICY_BYTES: u64 = 1 << 20;

/// A file that may hold a layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyFile {
    /// Which layer it is.
    pub layer: Layer,
    /// Where it is.
    pub path: PathBuf,
}

/// Lists the files that hold layers, whether they exist or not.
pub fn policy_files(surroundings: &Surroundings, workspace: Option<&Path>) -> Vec<PolicyFile> {
    let mut files = vec![PolicyFile {
        layer: Layer::Managed,
        path: PathBuf::from(MANAGED_POLICY),
    }];
    let config = surroundings
        .path("XDG_CONFIG_HOME")
        .map(Path::to_owned)
        .or_else(|| surroundings.path("HOME").map(|home| home.join(".config")));
    if let Some(config) = config {
        files.push(PolicyFile {
            layer: Layer::User,
            path: config.join("cofferdam/policy.toml"),
        });
    }
    if let Some(workspace) = workspace {
        files.push(PolicyFile {
            layer: Layer::Project,
            path: workspace.join(PROJECT_POLICY),
        });
    }
    files
}

/// Reads the layers that exist.
///
/// # Errors
///
/// `policy_unreadable` for a file that exists and cannot be read or is not text, and for a managed
/// file that does not belong to root alone; what [`read_policy`] says about its content.
pub fn read_policy_layers(
    surroundings: &Surroundings,
    workspace: Option<&Path>,
) -> Result<Vec<LayerDocument>, Problem> {
    let mut layers = Vec::new();
    for file in policy_files(surroundings, workspace) {
        if let Some(document) = read_layer(&file)? {
            layers.push(document);
        }
    }
    Ok(layers)
}

/// Reads one file as a layer; `None` when it does not exist.
///
/// # Errors
///
/// As [`read_policy_layers`].
pub fn read_layer(file: &PolicyFile) -> Result<Option<LayerDocument>, Problem> {
    let name = file.path.display().to_string();
    let unreadable = |why: String| {
        Problem::new(
            ErrorCode::PolicyUnreadable,
            format!("the {} policy {name} cannot be used: {why}", file.layer),
        )
    };
    let found = match std::fs::metadata(&file.path) {
        Ok(found) => found,
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            ) && std::fs::symlink_metadata(&file.path).is_err() =>
        {
            return Ok(None);
        }
        Err(error) => return Err(unreadable(error.to_string())),
    };
    if !found.is_file() {
        return Err(unreadable("it is no regular file".to_owned()));
    }
    if file.layer == Layer::Managed && (found.uid() != 0 || found.mode() & 0o022 != 0) {
        return Err(unreadable("others than root can write it".to_owned())
            .with_hint(format!("chown root {name} && chmod 644 {name}")));
    }
    if found.len() > POLICY_BYTES {
        return Err(unreadable(format!("it has more than {POLICY_BYTES} bytes")));
    }
    let text = std::fs::read(&file.path).map_err(|error| unreadable(error.to_string()))?;
    let text = String::from_utf8(text).map_err(|error| unreadable(error.to_string()))?;
    let format = PolicyFormat::of_name(file.path.as_os_str().as_encoded_bytes());
    let document = read_policy(&text, format, file.layer, &name)?;
    Ok(Some(LayerDocument::new(file.layer, document)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_no_layer_and_a_broken_one_an_error() {
        let place = tempfile::tempdir().expect("a directory");
        let file = PolicyFile {
            layer: Layer::Project,
            path: place.path().join(PROJECT_POLICY),
        };
        assert_eq!(read_layer(&file), Ok(None));
        std::fs::write(&file.path, "schema = 1\nnetwork = \"none\"\n").expect("written");
        assert!(read_layer(&file).expect("read").is_some());
        std::fs::write(&file.path, [0xff]).expect("written");
        let code = |file: &PolicyFile| read_layer(file).expect_err("refused").code;
        assert_eq!(code(&file), ErrorCode::PolicyUnreadable);
        std::fs::remove_file(&file.path).expect("removed");
        std::os::unix::fs::symlink("/nowhere", &file.path).expect("made");
        assert_eq!(code(&file), ErrorCode::PolicyUnreadable);
    }

    #[test]
    fn a_managed_file_that_others_can_write_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let place = tempfile::tempdir().expect("a directory");
        let file = PolicyFile {
            layer: Layer::Managed,
            path: place.path().join("policy.toml"),
        };
        std::fs::write(&file.path, "schema = 1\n").expect("written");
        std::fs::set_permissions(&file.path, std::fs::Permissions::from_mode(0o666)).expect("set");
        let refused = read_layer(&file).expect_err("refused");
        assert_eq!(refused.code, ErrorCode::PolicyUnreadable);
    }
}
