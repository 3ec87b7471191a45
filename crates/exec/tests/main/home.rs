//! Private homes: what is copied in, what comes back, what is only told.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::profile::{Profile, StateChange, StateChangeKind, StateContent, read_profile};
use cofferdam_core::spec::{Digest, Identity};
use cofferdam_exec::home::{
    ApplyState, HomeLayer, HomeReport, HomeRequest, Seeded, apply_state, homes_left,
};

const PROFILE: &str = r#"
schema = 1
name = "agent"
programs = ["agent"]
[home]
state = [".agent.json", ".agent", ".agent/projects/{workspace}*"]
never = [".agent/projects/**", ".agent/cache/**"]
transcripts = [".agent/projects/*/*.jsonl"]
rewritten = [".agent/todo/**"]
databases = [".agent/*.db"]
ignore = [".agent/cache/**", ".agent/**/*.lock"]
secret = [".agent/credentials.json", ".agent.json"]
[[home.moved]]
variable = "AGENT_HOME"
path = ".agent"
[[home.keys]]
file = ".agent/credentials.json"
keys = ["oauth.*"]
newer_by = "oauth.expires"
[[home.keys]]
file = ".agent.json"
keys = ["user"]
ignore = ["count"]
[[home.keys]]
file = ".agent/config.toml"
keys = ["seen.*"]
[[home.answers]]
file = ".agent/config.toml"
key = "projects.{tree}.trust_level"
value = "trusted"
[[home.answers]]
file = ".agent.json"
key = "projects.{tree}.trusted"
value = true
"#;

struct Stand {
    _top: tempfile::TempDir,
    top: PathBuf,
    real: PathBuf,
    profile: Profile,
    variables: Vec<(String, PathBuf)>,
    identity: Option<Identity>,
}

impl Stand {
    fn new() -> Self {
        let top = tempfile::tempdir().expect("a directory");
        let path = top.path().canonicalize().expect("there");
        let stand = Self {
            _top: top,
            real: path.join("real"),
            top: path,
            profile: read_profile(PROFILE, "test").expect("good"),
            variables: Vec::new(),
            identity: None,
        };
        fs::create_dir_all(stand.top.join("homes")).expect("made");
        fs::create_dir_all(&stand.real).expect("made");
        stand
    }

    fn real(&self, path: &str, text: &str) {
        write(&self.real.join(path), text);
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.real.join(path)).unwrap_or_default()
    }

    fn seed(&self, task: &str) -> (HomeLayer, Seeded) {
        HomeLayer::seed(&HomeRequest {
            rules: &self.profile.home,
            profile: "agent",
            task,
            directory: self.top.join("homes").join(task),
            real: self.real.clone(),
            workspace: &BytePath::from("/code/app"),
            variables: self.variables.clone(),
            identity: self.identity.clone(),
        })
        .expect("seeded")
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    fs::write(path, text).expect("written");
}

fn append(path: &Path, text: &str) {
    let mut file = fs::File::options().append(true).open(path).expect("there");
    file.write_all(text.as_bytes()).expect("written");
}

fn changes(report: &HomeReport) -> Vec<(String, StateChangeKind)> {
    let list = report.changes.iter();
    list.map(|one| (one.path.to_string(), one.what)).collect()
}

fn came_back(report: &HomeReport) -> Vec<String> {
    report.came_back.iter().map(ToString::to_string).collect()
}

#[test]
fn b148_only_the_state_of_the_profile_is_copied_in() {
    let stand = Stand::new();
    stand.real(".agent/settings.json", "{}");
    stand.real(".agent/credentials.json", "{\"oauth\":{}}");
    stand.real(".agent/cache/big", "x");
    stand.real(".agent/projects/-code-app/a.jsonl", "1\n");
    stand.real(".agent/projects/-other/b.jsonl", "2\n");
    stand.real(".ssh/id", "key");
    symlink(stand.real.join(".ssh/id"), stand.real.join(".agent/key")).expect("linked");
    symlink("settings.json", stand.real.join(".agent/other.json")).expect("linked");
    let (layer, seeded) = stand.seed("t");
    let home = layer.home();
    let has = |path: &str| home.join(path).exists();
    assert!(has(".agent/settings.json") && has(".agent/projects/-code-app/a.jsonl"));
    assert!(
        has(".agent/other.json"),
        "a link within the state is followed"
    );
    for path in [
        ".agent/cache",
        ".agent/projects/-other",
        ".ssh",
        ".agent/key",
    ] {
        assert!(!has(path), "{path}");
    }
    assert_eq!(
        seeded.credentials,
        [BytePath::from(".agent/credentials.json")]
    );
    assert!(
        seeded.notes[0].contains("~/.agent/key"),
        "{:?}",
        seeded.notes
    );
    let mode = fs::metadata(&home).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    layer.remove();
    assert!(!home.exists());
}

#[test]
fn b148_sessions_and_tokens_come_back_and_hooks_do_not() {
    let stand = Stand::new();
    stand.real(
        ".agent/credentials.json",
        "{\"oauth\":{\"token\":\"a\",\"expires\":1},\"x\":1}",
    );
    stand.real(".agent.json", "{\"user\":\"u\",\"count\":1}");
    stand.real(".agent/settings.json", "{\n  \"model\": \"a\"\n}\n");
    stand.real(".agent/projects/-code-app/old.jsonl", "1\n");
    let (layer, _) = stand.seed("t");
    let home = layer.home();
    append(&home.join(".agent/projects/-code-app/old.jsonl"), "2\n");
    write(&home.join(".agent/projects/-code-app/new.jsonl"), "n\n");
    write(
        &home.join(".agent/credentials.json"),
        "{\"oauth\":{\"token\":\"b\",\"expires\":2},\"x\":2}",
    );
    write(
        &home.join(".agent.json"),
        "{\"user\":\"u\",\"count\":2,\"mcpServers\":{\"evil\":{\"command\":\"sh\"}}}",
    );
    write(
        &home.join(".agent/settings.json"),
        "{\n  \"model\": \"a\",\n  \"hooks\": \"sh\",\n  \"api_key\": \"secret-value\"\n}\n",
    );
    write(&home.join(".agent/cache/c"), "noise");
    write(&home.join(".agent/x.lock"), "noise");
    write(&home.join(".bashrc"), "evil");
    let report = layer.collect().expect("collected");
    assert_eq!(
        came_back(&report),
        [
            ".agent/credentials.json",
            ".agent/projects/-code-app/new.jsonl",
            ".agent/projects/-code-app/old.jsonl"
        ]
    );
    assert_eq!(stand.read(".agent/projects/-code-app/old.jsonl"), "1\n2\n");
    let credentials: serde_json::Value =
        serde_json::from_str(&stand.read(".agent/credentials.json")).expect("JSON");
    assert_eq!(credentials["oauth"]["token"], "b");
    assert_eq!(credentials["x"], 1, "what is not listed does not come back");
    assert!(!stand.read(".agent/settings.json").contains("hooks"));
    assert!(!stand.read(".agent.json").contains("evil"));
    assert!(!stand.real.join(".bashrc").exists());
    assert_eq!(
        changes(&report),
        [
            (".agent.json".to_owned(), StateChangeKind::Modified),
            (
                ".agent/credentials.json".to_owned(),
                StateChangeKind::Modified
            ),
            (".agent/settings.json".to_owned(), StateChangeKind::Modified),
        ]
    );
    assert_eq!(
        report.changes[0].keys[0].key,
        ["mcpServers", "evil", "command"]
    );
    let diff = &report.changes[2].diff;
    assert!(diff.contains("+  \"hooks\": \"sh\","), "{diff}");
    assert!(!diff.contains("secret-value"), "{diff}");
    assert!(
        report.notes.iter().any(|note| note.contains("~/.bashrc")),
        "{:?}",
        report.notes
    );
    layer.remove();
}

#[test]
fn keys_of_toml_come_back_and_the_owners_comments_stay() {
    let stand = Stand::new();
    stand.real(
        ".agent/config.toml",
        "# mine\nmodel = \"a\" # best\n\n[seen]\nold = 1\n",
    );
    let (layer, _) = stand.seed("t");
    let inside = layer.home().join(".agent/config.toml");
    let text = fs::read_to_string(&inside).expect("there");
    assert!(text.contains("[projects.\"/code/app\"]\ntrust_level = \"trusted\""));
    append(&inside, "\n[seen]\n");
    // Whoever writes what is no TOML gets nothing of it back.
    let report = layer.collect().expect("collected");
    assert!(
        report.notes[0].contains("is no TOML any more"),
        "{report:?}"
    );
    assert!(!stand.read(".agent/config.toml").contains("projects"));
    let text = text.replace("old = 1", "old = 1\nnew = 2") + "[mcp.evil]\ncommand = \"sh\"\n";
    write(&inside, &text);
    let report = layer.collect().expect("collected");
    assert_eq!(came_back(&report), [".agent/config.toml"]);
    assert_eq!(
        stand.read(".agent/config.toml"),
        "# mine\nmodel = \"a\" # best\n\n[seen]\nold = 1\nnew = 2\n"
    );
    let [change] = report.changes.as_slice() else {
        panic!("{report:?}");
    };
    let keys: Vec<String> = change.keys.iter().map(|one| one.key.join(" ")).collect();
    assert_eq!(keys, ["mcp evil command"]);
    // Applied by the owner, it stands there, and the rest is as it was.
    apply_state(&ApplyState {
        change: &StateChange {
            path: change.path.clone(),
            host: change.host.clone(),
            what: change.what,
            secret: false,
            keys: change.keys.clone(),
            before: None,
            after: None,
            diff: String::new(),
            masked: false,
        },
        after: None,
        identity: None,
    })
    .expect("applied");
    let text = stand.read(".agent/config.toml");
    assert!(text.starts_with("# mine\nmodel = \"a\" # best\n"), "{text}");
    assert!(text.ends_with("[mcp.evil]\ncommand = \"sh\"\n"), "{text}");
}

#[test]
fn a_secret_that_is_known_from_credentials_is_kept_nowhere_else() {
    let stand = Stand::new();
    let credentials = "{\"oauth\": {\"accessToken\": \"tok-12345678\"}}";
    stand.real(".agent/credentials.json", credentials);
    stand.real(".agent/settings.json", "{}");
    let (layer, _) = stand.seed("t");
    let text = "{\"header\": \"Bearer tok-12345678\"}";
    write(&layer.home().join(".agent/settings.json"), text);
    let report = layer.collect().expect("collected");
    let [change] = report.changes.as_slice() else {
        panic!("{report:?}");
    };
    let kept = String::from_utf8_lossy(change.after.as_deref().expect("kept"));
    assert_eq!(kept, "{\"header\": \"Bearer ************\"}");
    assert!(change.masked && !change.diff.contains("tok-"), "{change:?}");
}

#[test]
fn an_answer_stands_in_the_private_home_alone() {
    let stand = Stand::new();
    let asked = "{\"projects\": {\"/code/app\": {\"trusted\": false}, \"/x\": {}}}";
    stand.real(".agent.json", asked);
    stand.real(
        ".agent/config.toml",
        "[projects.\"/code/app\"]\ntrust_level = \"untrusted\"\n",
    );
    let (layer, _) = stand.seed("t");
    let inside = |path: &str| fs::read_to_string(layer.home().join(path)).expect("there");
    let value: serde_json::Value = serde_json::from_str(&inside(".agent.json")).expect("JSON");
    assert_eq!(
        value["projects"],
        serde_json::json!({"/code/app": {"trusted": true}, "/x": {}})
    );
    // What the owner said already holds.
    assert!(inside(".agent/config.toml").contains("\"untrusted\""));
    // The agent writes its file anew, as agents do.
    let text = inside(".agent.json").replace("\"/x\": {}", "\"/x\": {}, \"/y\": {}");
    write(&layer.home().join(".agent.json"), &text);
    let report = layer.collect().expect("collected");
    assert_eq!(changes(&report), []);
    assert_eq!(stand.read(".agent.json"), asked);
}

#[test]
fn an_answer_makes_a_file_that_is_not_there() {
    let stand = Stand::new();
    let (layer, _) = stand.seed("t");
    let text = fs::read_to_string(layer.home().join(".agent.json")).expect("made");
    assert!(text.contains("/code/app"), "{text}");
    let report = layer.collect().expect("collected");
    assert_eq!((changes(&report), came_back(&report)), (vec![], vec![]));
    assert_eq!(fs::read_dir(&stand.real).expect("there").count(), 0);
}

#[test]
fn a_link_in_the_private_home_leads_nowhere() {
    let stand = Stand::new();
    stand.real(".agent/settings.json", "{}");
    write(&stand.top.join("outside"), "outside");
    let (layer, _) = stand.seed("t");
    let sessions = layer.home().join(".agent/projects/-code-app");
    fs::create_dir_all(&sessions).expect("made");
    symlink(stand.top.join("outside"), sessions.join("a.jsonl")).expect("linked");
    symlink(&stand.top, layer.home().join(".agent/projects/-x")).expect("linked");
    let report = layer.collect().expect("collected");
    assert!(report.came_back.is_empty());
    assert!(
        changes(&report)
            .iter()
            .all(|(_, what)| *what == StateChangeKind::Special)
    );
    assert!(
        !stand
            .real
            .join(".agent/projects/-code-app/a.jsonl")
            .exists()
    );
    layer.remove();
}

#[test]
fn a_program_that_comes_back_is_none() {
    let stand = Stand::new();
    stand.real(".agent/settings.json", "{}");
    let (layer, _) = stand.seed("t");
    let path = layer.home().join(".agent/todo/x");
    write(&path, "#!/bin/sh\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).expect("set");
    layer.collect().expect("collected");
    let mode = fs::metadata(stand.real.join(".agent/todo/x"))
        .expect("there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o644);
    layer.remove();
}

#[test]
fn two_runs_at_once_merge_one_after_the_other() {
    let stand = Stand::new();
    stand.real(".agent/projects/-code-app/s.jsonl", "1\n");
    stand.real(".agent/credentials.json", "{\"oauth\":{\"expires\":1}}");
    let (first, _) = stand.seed("first");
    let (second, _) = stand.seed("second");
    for (layer, name, expires) in [(&first, "a", 3), (&second, "b", 2)] {
        let home = layer.home();
        write(
            &home.join(format!(".agent/projects/-code-app/{name}.jsonl")),
            name,
        );
        append(&home.join(".agent/projects/-code-app/s.jsonl"), name);
        let text = format!("{{\"oauth\":{{\"expires\":{expires}}}}}");
        write(&home.join(".agent/credentials.json"), &text);
    }
    let (one, other) = std::thread::scope(|scope| {
        let one = scope.spawn(|| first.collect().expect("collected"));
        let other = scope.spawn(|| second.collect().expect("collected"));
        (one.join().expect("ended"), other.join().expect("ended"))
    });
    for name in ["a", "b"] {
        assert_eq!(
            stand.read(&format!(".agent/projects/-code-app/{name}.jsonl")),
            name
        );
    }
    assert!(
        stand.read(".agent/credentials.json").contains('3'),
        "the newer token stays"
    );
    // Both went on with one session: one of them is kept as a conflict, none is lost.
    let conflicts: Vec<_> = changes(&one).into_iter().chain(changes(&other)).collect();
    let expected = (
        ".agent/projects/-code-app/s.jsonl".to_owned(),
        StateChangeKind::Conflict,
    );
    assert_eq!(conflicts, [expected]);
    first.remove();
    second.remove();
}

#[test]
fn a_database_comes_back_with_its_log_unless_somebody_changed_it() {
    let stand = Stand::new();
    for (end, text) in [("", "db"), ("-wal", "log"), ("-shm", "index")] {
        stand.real(&format!(".agent/s.db{end}"), text);
    }
    let (first, _) = stand.seed("first");
    let (second, _) = stand.seed("second");
    write(&first.home().join(".agent/s.db-wal"), "longer log");
    let report = first.collect().expect("collected");
    assert_eq!(came_back(&report), [".agent/s.db", ".agent/s.db-wal"]);
    assert_eq!(stand.read(".agent/s.db-wal"), "longer log");
    assert!(!stand.real.join(".agent/s.db-shm").exists());
    // A merge that was cut off is done again.
    assert_eq!(first.collect().expect("collected").came_back.len(), 2);
    write(&second.home().join(".agent/s.db"), "another");
    let report = second.collect().expect("collected");
    assert_eq!(
        changes(&report),
        [(".agent/s.db".to_owned(), StateChangeKind::Conflict)]
    );
    assert_eq!(stand.read(".agent/s.db"), "db");
    let kept = fs::read_to_string(stand.top.join("kept-homes/second/.agent/s.db"));
    assert_eq!(kept.expect("kept"), "another");
    first.remove();
    second.remove();
}

#[test]
fn a_variable_that_moves_the_state_is_followed_both_ways() {
    let mut stand = Stand::new();
    let elsewhere = stand.top.join("elsewhere");
    write(&elsewhere.join("settings.json"), "{}");
    write(&elsewhere.join("projects/-code-app/a.jsonl"), "1");
    stand.variables = vec![("AGENT_HOME".to_owned(), elsewhere.clone())];
    let (layer, _) = stand.seed("t");
    let home = layer.home();
    assert!(home.join(".agent/settings.json").exists());
    append(&home.join(".agent/projects/-code-app/a.jsonl"), "2");
    layer.collect().expect("collected");
    let text = fs::read_to_string(elsewhere.join("projects/-code-app/a.jsonl")).expect("there");
    assert_eq!(text, "12");
    assert!(!stand.real.join(".agent").exists());
    layer.remove();
}

#[test]
fn what_a_dead_process_left_is_settled_and_what_is_in_use_is_not() {
    let stand = Stand::new();
    stand.real(".agent/settings.json", "{}");
    let (layer, _) = stand.seed("t");
    write(
        &layer.home().join(".agent/projects/-code-app/new.jsonl"),
        "n",
    );
    let homes = stand.top.join("homes");
    assert!(homes_left(&homes, None).is_empty(), "its process lives");
    // As a process that is killed leaves it: the lock goes, the directory stays.
    let directory = layer.directory().to_owned();
    drop(layer);
    let mut left = homes_left(&homes, None);
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].task, "t");
    assert_eq!(
        left[0].report.as_ref().expect("collected").came_back.len(),
        1
    );
    assert_eq!(stand.read(".agent/projects/-code-app/new.jsonl"), "n");
    left.remove(0).remove();
    assert!(!directory.exists());
}

fn kept(bytes: &[u8]) -> StateContent {
    StateContent {
        digest: Digest::of(bytes),
        bytes: bytes.len() as u64,
    }
}

#[test]
fn a_change_is_applied_by_its_owner_and_only_where_nothing_moved() {
    let stand = Stand::new();
    stand.real(".agent/settings.json", "old");
    let mut change = StateChange {
        path: BytePath::from(".agent/settings.json"),
        host: BytePath::from(stand.real.join(".agent/settings.json")),
        what: StateChangeKind::Modified,
        secret: false,
        keys: Vec::new(),
        before: Some(kept(b"old")),
        after: Some(kept(b"new")),
        diff: String::new(),
        masked: false,
    };
    let apply = |change: &StateChange| {
        apply_state(&ApplyState {
            change,
            after: Some(b"new"),
            identity: None,
        })
    };
    apply(&change).expect("applied");
    assert_eq!(stand.read(".agent/settings.json"), "new");
    let problem = apply(&change).expect_err("moved");
    assert_eq!(problem.code.as_str(), "target_moved");
    change.secret = true;
    assert_eq!(apply(&change).expect_err("secret").code.as_str(), "denied");
}

/// Gives everything below a place with its owner.
fn owners(place: &Path, into: &mut Vec<(PathBuf, u32)>) {
    let metadata = place.symlink_metadata().expect("there");
    into.push((place.to_owned(), metadata.uid()));
    if metadata.is_dir() {
        for entry in fs::read_dir(place).expect("readable").flatten() {
            owners(&entry.path(), into);
        }
    }
}

#[test]
fn where_root_works_for_another_user_it_reads_and_writes_as_that_user() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let mut stand = Stand::new();
    let owner = Identity {
        uid: 12345,
        gid: 12345,
        groups: vec![12345],
    };
    stand.identity = Some(owner.clone());
    stand.real(".agent/settings.json", "{}");
    stand.real(
        ".agent/credentials.json",
        "{\"oauth\": {\"token\": \"old\"}}",
    );
    // What root alone can read, and a link of that user's to it in the place of state.
    let roots = stand.top.join("roots");
    write(
        &roots.join("secret.json"),
        "{\"oauth\": {\"token\": \"of root\"}}",
    );
    fs::set_permissions(&roots, fs::Permissions::from_mode(0o700)).expect("set");
    symlink(&roots, stand.real.join(".agent/projects")).expect("linked");
    symlink(roots.join("secret.json"), stand.real.join(".agent.json")).expect("linked");
    let mut all = Vec::new();
    for place in [&stand.real, &stand.top.join("homes")] {
        owners(place, &mut all);
    }
    for (path, _) in all {
        std::os::unix::fs::lchown(path, Some(12345), Some(12345)).expect("given");
    }
    fs::set_permissions(&stand.top, fs::Permissions::from_mode(0o755)).expect("set");

    let (layer, _) = stand.seed("t");
    let home = layer.home();
    assert!(home.join(".agent/settings.json").exists());
    let stolen = fs::read_to_string(home.join(".agent.json")).unwrap_or_default();
    assert!(!stolen.contains("of root"), "{stolen}");
    assert!(!home.join(".agent/projects/secret.json").exists());

    write(
        &home.join(".agent/credentials.json"),
        "{\"oauth\": {\"token\": \"new\"}}",
    );
    write(&home.join(".agent/hook"), "evil");
    let directory = layer.directory().to_owned();
    drop(layer);
    // It died; and that user wrote into the record that everything belongs to root.
    let record = fs::read_to_string(directory.join("record.json")).expect("there");
    let record = record.replace("12345", "0");
    write(&directory.join("record.json"), &record);
    let mut left = homes_left(&stand.top.join("homes"), Some(&owner));
    let report = left[0].report.as_ref().expect("collected");
    assert_eq!(came_back(report), [".agent/credentials.json"]);
    assert!(stand.read(".agent/credentials.json").contains("new"));
    let hook = &report.changes[0];
    apply_state(&ApplyState {
        change: &StateChange {
            path: hook.path.clone(),
            host: hook.host.clone(),
            what: hook.what,
            secret: false,
            keys: Vec::new(),
            before: None,
            after: Some(kept(b"evil")),
            diff: String::new(),
            masked: false,
        },
        after: Some(b"evil"),
        identity: Some(&owner),
    })
    .expect("applied");
    left.remove(0).remove();
    let mut all = Vec::new();
    owners(&stand.real, &mut all);
    owners(&stand.top.join("homes"), &mut all);
    let foreign: Vec<_> = all.iter().filter(|(_, uid)| *uid != 12345).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    assert!(!directory.exists());
}

#[test]
fn a_key_in_plain_settings_is_a_credential_too() {
    let stand = Stand::new();
    let settings = "{\"env\": {\"MODEL_API_KEY\": \"sk-1234567890\"}}";
    stand.real(".agent/settings.json", settings);
    stand.real(
        ".agent/other.json",
        "{\"env\": {\"MODEL_URL\": \"http://127.0.0.1\"}}",
    );
    let (_layer, seeded) = stand.seed("t");
    let named: Vec<String> = seeded.credentials.iter().map(ToString::to_string).collect();
    assert_eq!(named, [".agent/settings.json"]);
}
