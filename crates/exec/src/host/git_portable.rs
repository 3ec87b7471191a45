//! A git configuration for use inside the walls, made of the user's own.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::git_config::Setting;

/// What of the user's configuration means the same inside, and the keys of what does not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Portable {
    /// A configuration file.
    pub(super) text: String,
    /// Keys that were left out, sorted.
    pub(super) left_out: Vec<String>,
}

/// Whole sections without a path or a program in them.
const PLAIN_SECTIONS: &[&str] = &[
    "advice",
    "alias",
    "apply",
    "blame",
    "branch",
    "clean",
    "clone",
    "color",
    "column",
    "commit",
    "diff",
    "feature",
    "fetch",
    "format",
    "grep",
    "i18n",
    "index",
    "init",
    "interactive",
    "log",
    "merge",
    "notes",
    "pack",
    "protocol",
    "pull",
    "push",
    "rebase",
    "receive",
    "rerere",
    "safe",
    "showbranch",
    "stash",
    "status",
    "submodule",
    "tag",
    "transfer",
    "uploadarchive",
    "user",
    "versionsort",
];

/// Names in `core` that say how to treat files and text.
const PLAIN_CORE: &[&str] = &[
    "abbrev",
    "autocrlf",
    "bigfilethreshold",
    "checkstat",
    "commentchar",
    "commentstring",
    "compression",
    "eol",
    "filemode",
    "ignorecase",
    "logallrefupdates",
    "longpaths",
    "precomposeunicode",
    "quotepath",
    "safecrlf",
    "symlinks",
    "trustctime",
    "untrackedcache",
    "whitespace",
];

/// Names that hold a program, a path or a key in sections that are plain otherwise.
const HOST_NAMES: &[&str] = &[
    "command",
    "difffilter",
    "driver",
    "editor",
    "excludesfile",
    "external",
    "gpgsign",
    "program",
    "path",
    "signingkey",
    "template",
    "templatedir",
    "textconv",
    "tool",
    "guitool",
    "forcesignannotated",
    "gpgsigntag",
];

fn is_portable(setting: &Setting) -> bool {
    let name = setting.name.as_str();
    let value = setting.value.as_deref().unwrap_or_default();
    match setting.section.as_str() {
        "core" => PLAIN_CORE.contains(&name),
        // A user's own command, by whatever name they gave it.
        "alias" => true,
        "http" => matches!(
            name,
            "sslverify" | "version" | "postbuffer" | "lowspeedlimit"
        ),
        // An address may carry a password.
        "url" => {
            let address = setting.subsection.as_deref().unwrap_or_default();
            let has_password = |text: &str| {
                text.split_once("://")
                    .is_some_and(|(_, rest)| rest.split('/').next().unwrap_or("").contains('@'))
                    && !text.starts_with("ssh://")
            };
            !has_password(address) && !has_password(value)
        }
        // Filters such as git-lfs are named by program; one with a path belongs to the host.
        "filter" => !value
            .split_whitespace()
            .next()
            .unwrap_or_default()
            .contains('/'),
        section if PLAIN_SECTIONS.contains(&section) => !HOST_NAMES.contains(&name),
        _ => false,
    }
}

/// Makes a configuration that means the same inside the walls.
pub(super) fn portable(settings: &[Setting]) -> Portable {
    let mut text = String::new();
    let mut left_out = BTreeSet::new();
    let mut head = None;
    for setting in settings {
        if !is_portable(setting) {
            left_out.insert(setting.key());
            continue;
        }
        let own = (&setting.section, &setting.subsection);
        if head != Some(own) {
            match &setting.subsection {
                Some(subsection) => {
                    let subsection = subsection.replace('\\', "\\\\").replace('"', "\\\"");
                    let _ = writeln!(text, "[{} \"{subsection}\"]", setting.section);
                }
                None => {
                    let _ = writeln!(text, "[{}]", setting.section);
                }
            }
            head = Some(own);
        }
        match &setting.value {
            Some(value) => {
                let value = value
                    .replace('\\', "\\\\")
                    .replace('"', "\\\"")
                    .replace('\n', "\\n")
                    .replace('\t', "\\t");
                let _ = writeln!(text, "\t{} = \"{value}\"", setting.name);
            }
            None => {
                let _ = writeln!(text, "\t{}", setting.name);
            }
        }
    }
    // Inside, every tree that can be seen was shown on purpose, and nothing can sign.
    text.push_str(
        "[safe]\n\tdirectory = \"*\"\n[commit]\n\tgpgsign = \"false\"\n[tag]\n\tgpgsign = \"false\"\n",
    );
    Portable {
        text,
        left_out: left_out.into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::git_config::parse;

    #[test]
    fn identity_and_aliases_come_along_helpers_and_signing_do_not() {
        let text = b"[user]\n\tname = Test\n\tsigningkey = K\n[alias]\n\tci = commit\n[credential]\n\thelper = /x\n[commit]\n\tgpgsign = true\n[core]\n\thooksPath = /h\n\tautocrlf = input\n[url \"https://t:p@h/\"]\n\tinsteadOf = https://h/\n[filter \"lfs\"]\n\tclean = git-lfs clean -- %f\n\trequired = true\n";
        let made = portable(&parse(text));
        insta::assert_snapshot!(made.text, @r#"
        [user]
        	name = "Test"
        [alias]
        	ci = "commit"
        [core]
        	autocrlf = "input"
        [filter "lfs"]
        	clean = "git-lfs clean -- %f"
        	required = "true"
        [safe]
        	directory = "*"
        [commit]
        	gpgsign = "false"
        [tag]
        	gpgsign = "false"
        "#);
        assert_eq!(
            made.left_out,
            [
                "commit.gpgsign",
                "core.hookspath",
                "credential.helper",
                "url.https://t:p@h/.insteadof",
                "user.signingkey",
            ]
        );
    }
}
