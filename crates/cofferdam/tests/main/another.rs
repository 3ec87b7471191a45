//! Root at work in the repository of another user, with an agent under a profile.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::scene::{Finished, Scene, finish, has_walls, skipped};

/// An ordinary user with a home, as whom these tests may act.
const USER: &str = "cofferdam-test";

/// A directory in that user's home that goes with its test.
struct Place {
    directory: PathBuf,
    home: PathBuf,
    uid: u32,
    gid: u32,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Place {
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skipped("only root acts for others");
            return None;
        }
        let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let fields = accounts
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>())
            .find(|fields| fields[0] == USER);
        let Some(fields) = fields else {
            skipped(&format!("there is no user {USER}"));
            return None;
        };
        let home = PathBuf::from(fields[5]);
        let name = format!(".cofferdam-try-{}", std::process::id());
        let place = Self {
            directory: home.join(name),
            home,
            uid: fields[2].parse().expect("a number"),
            gid: fields[3].parse().expect("a number"),
        };
        place.make("app");
        Some(place)
    }

    fn own(&self, path: &Path) {
        chown(path, Some(self.uid), Some(self.gid)).expect("given");
    }

    fn make(&self, name: &str) {
        let mut path = self.directory.clone();
        for part in std::iter::once("").chain(name.split('/')) {
            path.push(part);
            if !path.exists() {
                fs::create_dir(&path).expect("made");
                self.own(&path);
            }
        }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.join(name);
        fs::write(&path, text).expect("written");
        self.own(&path);
        path
    }

    /// Gives what is not that user's own, of everything below.
    fn foreign(&self, place: &Path, into: &mut Vec<PathBuf>) {
        let metadata = place.symlink_metadata().expect("there");
        if metadata.uid() != self.uid {
            into.push(place.to_owned());
        }
        if metadata.is_dir() {
            for entry in fs::read_dir(place).expect("readable").flatten() {
                self.foreign(&entry.path(), into);
            }
        }
    }
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "git is driven as that user would"
)]
fn an_agent_works_as_the_owner_of_the_repository_and_nothing_is_left_to_root() {
    if !has_walls() {
        return;
    }
    let Some(place) = Place::new() else { return };
    let scene = Scene::new();
    let app = place.directory.join("app");
    let git = |words: &[&str]| {
        let mut command = Command::new("setpriv");
        command
            .arg(format!("--reuid={}", place.uid))
            .arg(format!("--regid={}", place.gid))
            .args(["--init-groups", "git", "-C"])
            .arg(&app)
            .args(["-c", "user.name=U", "-c", "user.email=u@localhost"])
            .args(words)
            .env("HOME", &place.home);
        let output = command.output().expect("git starts");
        assert!(output.status.success(), "git {words:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    git(&["init", "-q", "-b", "main"]);
    // State of its own, at a place that only this test knows.
    let below = place
        .directory
        .file_name()
        .expect("named")
        .to_string_lossy();
    let state = format!("{below}/state");
    place.make("state");
    place.write("state/token.json", "{\"token\": \"old\"}");
    let profile = scene.path("home/.config/cofferdam/profiles/tried.toml");
    fs::create_dir_all(profile.parent().expect("a parent")).expect("made");
    let text = format!(
        "schema = 1\nname = \"tried\"\nprograms = [\"tried\"]\n[home]\nstate = [\"{state}\"]\n\
         transcripts = [\"{state}/*.jsonl\"]\nsecret = [\"{state}/token.json\"]\n\
         [[home.keys]]\nfile = \"{state}/token.json\"\nkeys = [\"token\"]\n"
    );
    fs::write(&profile, text).expect("written");
    let agent = place.write(
        "app/tried",
        &format!(
            "#!/bin/sh\nid -u\ncd ~/{state}\necho turn >>s.jsonl\necho '{{\"token\": \"new\"}}' >token.json\n\
             echo evil >hook\ncd - >/dev/null\necho two >new.txt\n"
        ),
    );
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).expect("set");
    git(&["add", "-A"]);
    git(&["commit", "-q", "-m", "base"]);

    let run = |words: &[&str]| -> Finished {
        let mut command = scene.command(words);
        command.current_dir(&app);
        finish(command)
    };
    let done = run(&[
        "task",
        "run",
        "--net",
        "none",
        "--profile",
        "tried",
        "--json",
        "--",
        "./tried",
    ])
    .expect_code(0)
    .json();
    let said = done["task_result"]["stdout"].as_str().expect("text");
    assert_eq!(said.trim(), place.uid.to_string(), "{done}");
    assert_eq!(
        done["modified_files"][0]["path"],
        json!("new.txt"),
        "{done}"
    );
    // Its state came back as that user's, and the rest waits for the owner's word.
    let read = |name: &str| fs::read_to_string(place.directory.join(name)).unwrap_or_default();
    assert_eq!(read("state/s.jsonl"), "turn\n");
    assert!(read("state/token.json").contains("new"));
    assert!(!place.directory.join("state/hook").exists());
    let hook = format!("{state}/hook");
    let review = run(&["review", "1", "--json"]).expect_code(0).text();
    assert!(review.contains(&hook), "{review}");
    run(&["review", "1", "--apply-state", &hook]).expect_code(0);
    assert_eq!(read("state/hook"), "evil\n");
    run(&["merge", "1"]).expect_code(0);
    assert_eq!(read("app/new.txt"), "two\n");
    assert_eq!(git(&["status", "--porcelain"]), "");
    run(&["undo", "1"]).expect_code(0);
    assert_eq!(git(&["log", "--format=%s", "main"]), "base\n");

    // What is pushed is pushed by that user, with their hook and nothing of root's environment.
    let origin = place.directory.join("origin.git");
    let origin = origin.to_str().expect("text");
    git(&["init", "-q", "--bare", origin]);
    git(&["remote", "add", "origin", origin]);
    let hook = "#!/bin/sh\necho \"$(id -u) $COFFERDAM_DATA_DIR\" >../pushed\n";
    let hook = place.write("app/.git/hooks/pre-push", hook);
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("set");
    run(&["push", "1", "--release"]).expect_code(0);
    assert_eq!(read("pushed").trim(), place.uid.to_string());
    let pushed = git(&["ls-remote", "origin"]);
    assert!(pushed.contains("refs/heads/cofferdam/1-"), "{pushed}");

    let mut foreign = Vec::new();
    place.foreign(&place.directory, &mut foreign);
    assert!(foreign.is_empty(), "{foreign:?}");
    let homes = place.home.join(".local/share/cofferdam/homes");
    place.foreign(&homes, &mut foreign);
    assert!(foreign.is_empty(), "{foreign:?}");
}
