//! Field cases of sandboxes through the whole binary: what a person would run, and what must come
//! of it. Each test is named after its case.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::scene::{Finished, Scene, finish, has_walls, list, skipped, until};
use crate::terminal::Terminal;

/// A scene with a policy of the owner's.
fn ruled(policy: &str) -> Scene {
    let scene = Scene::new();
    let place = scene.path("home/.config/cofferdam");
    fs::create_dir_all(&place).expect("made");
    fs::write(place.join("policy.toml"), format!("schema = 1\n{policy}")).expect("written");
    scene
}

fn sh(scene: &Scene, script: &str) -> Value {
    run(scene, &["sh", "-c", script])
}

fn run(scene: &Scene, words: &[&str]) -> Value {
    let line: Vec<&str> = ["run", "--json", "--"]
        .iter()
        .chain(words)
        .copied()
        .collect();
    scene.run(&line).json()
}

/// Runs the binary behind another program; nothing may have run behind no walls.
fn behind(scene: &Scene, words: &[&str]) -> Option<Finished> {
    behind_with(scene, words, &[])
}

/// The same with flags of its own.
fn behind_with(scene: &Scene, words: &[&str], flags: &[&str]) -> Option<Finished> {
    let (program, rest) = words.split_first()?;
    let binary = env!("CARGO_BIN_EXE_cofferdam");
    let own = [&[binary, "run", "--json"], flags, &["--", "touch", "ran"]].concat();
    let all: Vec<&str> = rest.iter().chain(&own).copied().collect();
    let done = finish(scene.program(OsStr::new(program), &all));
    if done.stdout.is_empty() {
        skipped(&format!(
            "{program} does not work here: {}",
            done.stderr.trim()
        ));
        return None;
    }
    assert_eq!(scene.listing(), [""; 0], "nothing ran: {}", done.text());
    let said = done.json();
    assert_eq!(done.code, Some(125), "{said}");
    assert_eq!(said["status"], json!("error"));
    assert!(
        said["return_code"].is_null(),
        "no code of a command: {said}"
    );
    assert_eq!((&said["stdout"], &said["stderr"]), (&json!(""), &json!("")));
    assert!(said["error"]["hint"].is_string(), "a remedy: {said}");
    Some(done)
}

#[test]
fn fc_02_a_refused_proc_is_told_and_nothing_runs() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let outer = [
        "bwrap",
        "--unshare-user",
        "--unshare-pid",
        "--dev-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--ro-bind",
        "/dev/null",
        "/proc/cmdline",
        "--",
    ];
    let Some(done) = behind(&scene, &outer) else {
        return;
    };
    let code = &done.json()["error"]["code"];
    let codes = [
        "proc_mount_refused",
        "namespaces_filtered",
        "userns_no_caps",
    ];
    assert!(codes.iter().any(|one| code == *one), "{}", done.text());
}

#[test]
fn fc_04_root_without_setfcap_is_told_and_nothing_runs() {
    if !has_walls() || !rustix::process::geteuid().is_root() {
        return skipped("only root has a bounding set to lower");
    }
    let scene = Scene::new();
    let Some(done) = behind(&scene, &["setpriv", "--bounding-set", "-setfcap"]) else {
        return;
    };
    assert_eq!(done.json()["error"]["code"], "root_without_setfcap");
}

#[test]
fn fc_05_no_namespaces_left_is_a_failure_of_the_provider() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let script = "echo 0 >/proc/sys/user/max_user_namespaces && exec \"$@\"";
    let outer = ["unshare", "-U", "-r", "sh", "-c", script, "sh"];
    let Some(done) = behind(&scene, &outer) else {
        return;
    };
    assert_eq!(done.json()["error"]["code"], "userns_exhausted");
}

#[test]
fn f4_without_a_network_of_its_own_nothing_runs_and_another_provider_only_where_it_was_named() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let script = "echo 0 >/proc/sys/user/max_net_namespaces && exec \"$@\"";
    let outer = ["unshare", "-U", "-r", "sh", "-c", script, "sh"];
    for net in ["none", "restricted"] {
        let flags = ["--net", net];
        let Some(done) = behind_with(&scene, &outer, &flags) else {
            return;
        };
        let error = done.json()["error"].clone();
        assert_eq!(error["code"], "userns_exhausted", "{net}: {error}");
        // Nothing says that it had walls.
        let isolation = &done.json()["isolation"];
        assert!(isolation["effective"]["provider"].is_null(), "{isolation}");
        assert_eq!(isolation["enforced_by"], json!([]), "{isolation}");
    }
    // Where the owner named another one, it is taken, and that is said; never one that holds less.
    scene.write("other.toml", "schema = 1\nfallback = [\"landlock\"]\n");
    let flags = ["--policy", "other.toml", "--net", "restricted"];
    let binary = env!("CARGO_BIN_EXE_cofferdam");
    let words = [
        &outer[1..],
        &[binary, "run", "--json"],
        &flags,
        &["--", "touch", "ran"],
    ]
    .concat();
    let done = finish(scene.program("unshare".as_ref(), &words));
    assert_eq!(done.code, Some(125), "{}", done.text());
    assert!(!scene.work().join("ran").exists());
    let flags = ["--policy", "other.toml"];
    let words = [
        &outer[1..],
        &[binary, "run", "--json"],
        &flags,
        &["--", "touch", "ran"],
    ]
    .concat();
    let done = finish(scene.program("unshare".as_ref(), &words));
    let said = done.json();
    if said["error"]["code"]
        .as_str()
        .is_some_and(|code| code.starts_with("landlock"))
    {
        return skipped("there is no Landlock here");
    }
    assert_eq!(done.code, Some(0), "{said}");
    let isolation = &said["isolation"];
    assert_eq!(
        isolation["effective"]["provider"], "landlock",
        "{isolation}"
    );
    let told = scene.run(&["events", "--type", "isolation.fallback", "--json"]);
    let events = told.json()["data"]["events"].clone();
    assert_eq!(events[0]["data"]["to"], "landlock", "{events}");
    assert!(events[0]["data"]["why"].is_object(), "{events}");
}

#[test]
fn fc_07_a_home_below_the_temporary_directory_and_an_old_bwrap_do_no_harm() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let old = scene.path("old");
    fs::create_dir(&old).expect("made");
    let bwrap = old.join("bwrap");
    // As old as it may be: it knows no --argv0, wherever that is said.
    let text = "#!/bin/sh\nfor one; do [ \"$one\" = --argv0 ] && { echo 'bwrap: Unknown option \
                --argv0' >&2; exit 1; }; done\nexec /usr/bin/bwrap \"$@\"\n";
    fs::write(&bwrap, text).expect("written");
    fs::set_permissions(&bwrap, fs::Permissions::from_mode(0o755)).expect("set");
    let mut command = scene.command(&["run", "--", "true"]);
    command
        .env("PATH", format!("{}:/usr/bin:/bin", old.display()))
        .env("TMPDIR", scene.path(""));
    finish(command).expect_code(0);
}

#[test]
fn fc_08_without_a_wall_nothing_runs_unless_it_was_asked_for_by_name() {
    let scene = Scene::new();
    let empty = scene.path("empty");
    fs::create_dir(&empty).expect("made");
    let without = |words: &[&str]| {
        let mut command = scene.command(words);
        command.env("PATH", &empty);
        finish(command)
    };
    for words in [
        ["run", "--", "/bin/touch", "ran"].as_slice(),
        &["run", "--provider", "bwrap", "--", "/bin/touch", "ran"],
        &[
            "task",
            "run",
            "--goal",
            "g",
            "--isolation",
            "none",
            "--",
            "/bin/touch",
            "ran",
        ],
    ] {
        let done = without(words);
        assert_eq!(done.code, Some(125), "{words:?}: {}", done.stderr);
        assert!(done.stderr.contains("bwrap_missing"), "{}", done.stderr);
        assert_eq!(scene.listing(), [""; 0], "{words:?}");
    }
    let direct = ["run", "--provider", "direct", "--", "/bin/touch", "ran"];
    without(&direct).expect_code(0);
    assert_eq!(scene.listing(), ["ran"]);
}

#[test]
fn fc_11_not_even_for_a_moment_is_anything_made_in_the_workspace() {
    use rustix::fs::inotify;

    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    let before = (scene.listing(), list(&scene.work().join(".git")));
    let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
    let watch = inotify::init(flags).expect("inotify");
    let all = inotify::WatchFlags::CREATE
        | inotify::WatchFlags::DELETE
        | inotify::WatchFlags::MOVED_TO
        | inotify::WatchFlags::MOVED_FROM;
    for place in [scene.work(), scene.work().join(".git")] {
        inotify::add_watch(&watch, &place, all).expect("watched");
    }
    for provider in ["bwrap", "landlock"] {
        let done = scene.run(&["run", "--provider", provider, "--", "true"]);
        if done.code != Some(0) {
            skipped(&format!("{provider}: {}", done.stderr.trim()));
        }
    }
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let seen: Vec<_> = {
        let mut reader = inotify::Reader::new(&watch, &mut buffer);
        std::iter::from_fn(|| Some(format!("{:?}", reader.next().ok()?))).collect()
    };
    assert!(seen.is_empty(), "{seen:?}");
    assert_eq!((scene.listing(), list(&scene.work().join(".git"))), before);
    // The watch sees what there is to see.
    scene.run(&["run", "--", "touch", "made"]).expect_code(0);
    assert!(inotify::Reader::new(&watch, &mut buffer).next().is_ok());
}

#[test]
fn fc_13_the_repository_inside_is_that_outside() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let ask = ["git", "rev-parse", "--show-toplevel"];
    let none = run(&scene, &ask);
    assert_eq!(
        none["return_code"],
        json!(128),
        "no repository, none inside: {none}"
    );
    scene.repository();
    fs::create_dir_all(scene.work().join("packages/one")).expect("made");
    let outside = scene.git(&["rev-parse", "--show-toplevel"]);
    let sub = scene.work().join("packages/one");
    for words in [&[][..], &["--workspace", sub.to_str().expect("text")]] {
        let mut line = vec!["run", "--json"];
        line.extend(words);
        line.push("--");
        line.extend(ask);
        let mut command = scene.command(&line);
        command.current_dir(&sub);
        let said = finish(command).json();
        assert_eq!(
            said["stdout"],
            json!(format!("{outside}\n")),
            "{words:?}: {said}"
        );
    }
    assert_eq!(list(&sub), [""; 0]);
}

#[test]
fn fc_16_a_planted_settings_file_is_gone_before_anybody_can_use_it() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    let before = scene.listing();
    let script = "mkdir -p .claude && echo '{\"hooks\":{}}' >.claude/settings.json; echo done";
    for provider in ["bwrap", "landlock"] {
        let line = [
            "run",
            "--json",
            "--provider",
            provider,
            "--",
            "sh",
            "-c",
            script,
        ];
        let done = scene.run(&line);
        if done.code == Some(125) {
            skipped(&format!("{provider}: {}", done.text()));
            continue;
        }
        assert_eq!(scene.listing(), before, "{provider}: {}", done.text());
        let rules = done.json()["denials"].to_string();
        assert!(rules.contains(".claude"), "it is said: {}", done.text());
    }
    let events = scene
        .run(&["events", "--type", "file.undone", "--json"])
        .json();
    assert_ne!(
        events["data"]["events"],
        json!([]),
        "and written down: {events}"
    );
}

#[test]
fn fc_17_a_denied_name_that_is_not_there_yet_is_never_readable() {
    if !has_walls() {
        return;
    }
    let scene = ruled("deny_read = [\"nope/credentials\"]\n");
    // Whatever comes of the command, what it has made is not there for the next.
    sh(
        &scene,
        "cat nope/credentials; mkdir -p nope; echo x >nope/credentials",
    );
    assert!(!scene.work().join("nope/credentials").exists());
    let again = sh(&scene, "cat nope/credentials");
    assert_ne!(again["return_code"], json!(0), "{again}");
    assert_eq!(again["stdout"], json!(""));
}

#[test]
fn fc_19_fc_20_a_denied_file_in_an_open_directory_and_a_pattern_hold() {
    if !has_walls() {
        return;
    }
    let scene = ruled("deny_read = [\"secret.txt\", \"**/*.pem\", \"nothing-*\"]\n");
    scene.write("secret.txt", "s3cret");
    scene.write("key.pem", "s3cret");
    scene.write("open.txt", "open");
    fs::create_dir(scene.work().join("deep")).expect("made");
    scene.write("deep/other.pem", "s3cret");
    let said = sh(
        &scene,
        "cat secret.txt key.pem deep/other.pem; cat open.txt; mv key.pem x; cat x",
    );
    assert!(
        !said["stdout"].as_str().expect("text").contains("s3cret"),
        "{said}"
    );
    assert!(said["stdout"].as_str().expect("text").contains("open"));
    assert_eq!(
        fs::read_to_string(scene.work().join("key.pem")).expect("stays"),
        "s3cret"
    );
    // What names nothing is said.
    let gaps = said["isolation"]["gaps"].to_string();
    assert!(gaps.contains("nothing-*"), "{said}");
    // What no grammar knows is refused, not taken literally.
    let wrong = ruled("deny_read = [\"a[\"]\n");
    wrong.run(&["run", "--", "touch", "ran"]).expect_code(125);
    assert_eq!(wrong.listing(), [""; 0]);
}

#[test]
fn fc_23_a_git_directory_behind_a_link_works_and_is_held() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    fs::rename(scene.work().join(".git"), scene.path("meta")).expect("moved");
    symlink("../meta", scene.work().join(".git")).expect("linked");
    let said = run(&scene, &["git", "status", "--porcelain"]);
    assert_eq!(said["status"], json!("completed"), "{said}");
    sh(
        &scene,
        "echo x >.git/hooks/pre-commit; rm .git; ln -s /tmp .git",
    );
    assert_eq!(
        fs::read_link(scene.work().join(".git")).expect("stays"),
        PathBuf::from("../meta")
    );
    assert!(!scene.path("meta/hooks/pre-commit").exists());
}

#[test]
fn fc_36_the_hooks_directory_in_the_tree_cannot_be_planted() {
    if !has_walls() {
        return;
    }
    for is_there in [false, true] {
        let scene = Scene::new();
        scene.repository();
        scene.git(&["config", "core.hooksPath", ".githooks"]);
        if is_there {
            fs::create_dir(scene.work().join(".githooks")).expect("made");
        }
        let script = "mkdir -p .githooks; printf '#!/bin/sh\\ntouch /tmp/x' >.githooks/pre-commit";
        sh(&scene, script);
        assert!(
            !scene.work().join(".githooks/pre-commit").exists(),
            "there before: {is_there}"
        );
        assert_eq!(scene.work().join(".githooks").exists(), is_there);
    }
}

#[test]
fn fc_38_a_filter_cannot_be_defined() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    let config = fs::read(scene.work().join(".git/config")).expect("read");
    sh(
        &scene,
        "mkdir -p .git/info; echo '* filter=x' >.git/info/attributes; \
         git config filter.x.clean 'touch /tmp/y'; printf '[filter \"x\"]\\n\\tclean = z' >.git/config.worktree",
    );
    assert!(!scene.work().join(".git/info/attributes").exists());
    assert!(!scene.work().join(".git/config.worktree").exists());
    assert_eq!(
        fs::read(scene.work().join(".git/config")).expect("read"),
        config
    );
}

#[test]
fn fc_53_no_key_is_typed_into_the_callers_terminal() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    // TIOCSTI, the same with a high bit set, and TIOCLINUX, at every descriptor there is.
    let attack = "import ctypes, os\n\
        c = ctypes.CDLL(None, use_errno=True); b = ctypes.create_string_buffer(b'x')\n\
        done = 0\n\
        for fd in (0, 1, 2):\n\
        \x20for n in (0x5412, 0x100005412, 0x541c):\n\
        \x20 done += c.syscall(16, fd, ctypes.c_ulong(n), b) == 0\n\
        print('typed', done)\n";
    scene.write("attack.py", attack);
    let mut terminal = Terminal::new(24, 80);
    let line = ["run", "--tty", "--", "/usr/bin/python3", "attack.py"];
    let mut child = terminal.start(&scene, &line);
    terminal.expect("typed 0");
    crate::scene::wait(&mut child);
}

#[test]
fn fc_54_another_spelling_of_a_path_is_the_same_file() {
    if !has_walls() {
        return;
    }
    let scene = ruled("deny_read = [\"secret\"]\n");
    scene.write("secret", "s3cret");
    let work = scene.work().display().to_string();
    let spelled = [
        format!("/proc/self/root{work}/secret"),
        format!("/proc/1/root{work}/secret"),
        "/proc/self/cwd/secret".to_owned(),
        format!("{work}/../work/./secret"),
        format!("//{work}//secret"),
    ];
    for path in spelled {
        let said = run(&scene, &["cat", &path]);
        assert_ne!(said["return_code"], json!(0), "{path}: {said}");
        assert_eq!(said["stdout"], json!(""), "{path}");
    }
    let said = sh(
        &scene,
        "ln secret other; ln -s secret link; cat other link; cp secret third",
    );
    assert!(
        !said["stdout"].as_str().expect("text").contains("s3cret"),
        "{said}"
    );
}

#[test]
fn fc_56_fc_61_no_capability_a_proc_of_its_own_and_no_helper_to_look_into() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let said = sh(
        &scene,
        "grep -E '^Cap(Prm|Eff|Bnd|Amb)' /proc/self/status | grep -vc ' *0000000000000000$'; \
         read p rest </proc/self/stat; [ $p = $$ ] || echo differs; \
         ls -d /proc/[0-9]* | wc -l; cat /proc/1/environ /proc/1/mem /proc/1/maps | wc -c; \
         ls -l /proc/1/exe /proc/1/cwd /proc/1/fd /proc/1/root 2>&1 | grep -c '>'",
    );
    let text = said["stdout"].as_str().expect("text").to_owned();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    assert_eq!(lines[0], "0", "capabilities: {said}");
    let numbers: Vec<u32> = lines[1..]
        .iter()
        .filter_map(|line| line.parse().ok())
        .collect();
    let [processes, bytes, links] = numbers.as_slice() else {
        panic!("{said}");
    };
    assert!(*processes < 10, "the host's are not there: {said}");
    assert_eq!((bytes, links), (&0, &0), "{said}");
}

#[test]
fn fc_62_fc_64_secrets_of_the_caller_are_not_there_and_not_written_down() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let mut command = scene.command(&["run", "--json", "--", "env"]);
    for name in [
        "MY_API_KEY",
        "PGPASSWORD",
        "DATABASE_URL",
        "AWS_SECRET_ACCESS_KEY",
    ] {
        command.env(name, "pl4nted-value");
    }
    let said = finish(command).expect_code(0);
    assert!(!said.text().contains("pl4nted-value"), "{}", said.text());
    let events = scene.run(&["events", "--json"]);
    assert!(!events.text().contains("pl4nted-value"));
}

#[test]
fn fc_71_a_pager_an_editor_and_a_password_prompt_hold_nobody_up() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    scene.git(&["config", "core.pager", "less"]);
    for number in 0..60 {
        scene.git(&[
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            &format!("commit {number}"),
        ]);
    }
    for words in [
        ["git", "log"].as_slice(),
        &["git", "-c", "pager.log=true", "log"],
        &["sh", "-c", "read -p 'Password: ' x </dev/tty; cat"],
        &["sh", "-c", "git fetch https://user@127.0.0.1:9/x; true"],
    ] {
        let line: Vec<&str> = ["run", "--timeout", "20", "--json", "--"]
            .iter()
            .chain(words)
            .copied()
            .collect();
        let said = scene.run(&line).json();
        assert_ne!(said["status"], json!("timeout"), "{words:?}: {said}");
    }
    let mut terminal = Terminal::new(24, 80);
    let mut child = terminal.start(&scene, &["run", "--tty", "--", "git", "--no-pager", "log"]);
    terminal.expect("commit 0");
    crate::scene::wait(&mut child);
}

#[test]
fn fc_78_a_word_in_the_output_is_no_denial() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    fs::create_dir_all(scene.work().join("sandbox/Operation not permitted")).expect("made");
    let said = sh(&scene, "find .; echo 'sandbox: Permission denied'; exit 1");
    assert_eq!(said["status"], json!("failed"), "{said}");
    assert_eq!(said["denials"], json!([]), "{said}");
    let text = said["stdout"].as_str().expect("text");
    assert!(
        text.contains("./sandbox/Operation") && text.contains("Permission denied"),
        "{said}"
    );
}

#[test]
fn fc_85_a_temporary_directory_of_its_own_whatever_the_callers_is() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let script = "set -e; for t in \"$TMPDIR\" \"$TMP\" \"$TEMP\"; do stat -c '%a %u' \"$t\"; done; \
                  echo \"$TMPPREFIX\" | grep -c \"^$TMPDIR\"; f=$(mktemp); echo x >\"$f\"; \
                  cat <<EOF\n$(printf '%4096s' y)\nEOF\n";
    for bad in ["/nonexistent/place", "/proc", "/root/private"] {
        for provider in ["bwrap", "landlock", "direct"] {
            let mut line = vec!["run", "--json", "--provider", provider];
            line.extend(["--", "bash", "-c", script]);
            let mut command = scene.command(&line);
            command
                .env("TMPDIR", bad)
                .env("TMPPREFIX", format!("{bad}/zsh"));
            let said = finish(command).json();
            if said["status"] == json!("error") || provider == "direct" {
                // Without walls the caller's own is passed on.
                continue;
            }
            assert_eq!(
                said["status"],
                json!("completed"),
                "{provider} {bad}: {said}"
            );
            let text = said["stdout"].as_str().expect("text");
            let own = rustix::process::geteuid().as_raw();
            assert!(
                text.starts_with(&format!("700 {own}\n").repeat(3)),
                "{provider}: {said}"
            );
        }
    }
    assert_eq!(list(&scene.path("tmp")), [""; 0], "nothing is left behind");
}

#[test]
fn fc_87_a_debugger_works_where_it_is_allowed_and_never_on_the_keeper() {
    if !has_walls() {
        return;
    }
    if !std::path::Path::new("/usr/bin/strace").exists() {
        return skipped("strace is not installed");
    }
    let trace = "strace -o trace true && grep -c execve trace; strace -p 1 -o one & p=$!; \
                 sleep 0.3; kill $p 2>/dev/null; wait; cat one 2>/dev/null | wc -c";
    let allowed = ruled("[allow]\nptrace = true\n");
    let said = sh(&allowed, trace);
    assert_eq!(said["stdout"], json!("1\n0\n"), "{said}");
    let plain = Scene::new();
    let said = sh(&plain, "strace true");
    assert_ne!(
        said["return_code"],
        json!(0),
        "refused unless allowed: {said}"
    );
}

#[test]
fn fc_89_a_large_tree_costs_no_watches() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    for number in 0..3000 {
        let place = format!("tree/{}/{number}", number / 100);
        fs::create_dir_all(scene.work().join(place)).expect("made");
    }
    let mut child = scene
        .command(&[
            "run",
            "--",
            "sh",
            "-c",
            "touch begun; while [ ! -e go ]; do sleep 0.05; done",
        ])
        .spawn()
        .expect("starts");
    assert!(until(|| scene.work().join("begun").exists()));
    let watches = || -> usize {
        let entries = fs::read_dir(format!("/proc/{}/fdinfo", child.id())).expect("there");
        let text = entries
            .flatten()
            .filter_map(|one| fs::read_to_string(one.path()).ok());
        text.map(|one| one.matches("inotify wd").count()).sum()
    };
    // They are taken once a command runs for longer than a moment.
    std::thread::park_timeout(std::time::Duration::from_millis(300));
    let seen = watches();
    scene.write("go", "");
    crate::scene::wait(&mut child);
    assert!(seen < 64, "{seen} watches");
}

#[test]
fn fc_92_a_policy_file_keeps_what_others_wrote_in_it() {
    let scene = ruled("# mine\nnetwork = \"none\" # stays\n\n[limits]\nopen_files = 512\n");
    let file = scene.path("home/.config/cofferdam/policy.toml");
    let children: Vec<_> = (0..6)
        .map(|_| {
            let mut command = scene.command(&["doctor", "--accept", "landlock"]);
            command.spawn().expect("starts")
        })
        .collect();
    let accepted = children
        .into_iter()
        .map(|mut child| crate::scene::wait(&mut child).success())
        .filter(|success| *success)
        .count();
    let text = fs::read_to_string(&file).expect("read");
    for line in ["# mine", "network = \"none\" # stays", "open_files = 512"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    if accepted > 0 {
        assert_eq!(text.matches("landlock").count(), 1, "{text}");
    }
    assert_eq!(list(file.parent().expect("a directory")), ["policy.toml"]);
}

#[test]
fn fc_93_what_is_not_there_is_said_alike_by_every_provider() {
    let scene = Scene::new();
    for provider in ["direct", "bwrap", "landlock"] {
        let line = [
            "run",
            "--json",
            "--provider",
            provider,
            "--",
            "/no/such/bin",
        ];
        let done = scene.run(&line);
        if done.code == Some(125) {
            skipped(&format!("{provider}: {}", done.text()));
            continue;
        }
        let said = done.json();
        assert_eq!(done.code, Some(127), "{provider}: {said}");
        assert_eq!(said["error"]["code"], "not_found", "{provider}: {said}");
        assert!(said["return_code"].is_null() && !done.stderr.contains("panicked"));
    }
}

#[test]
fn fc_16_after_sigkill_the_keeper_puts_back_what_was_planted_and_the_next_start_says_so() {
    use rustix::process::{Pid, Signal, kill_process};

    let scene = Scene::new();
    scene.repository();
    let config = fs::read(scene.work().join(".git/config")).expect("read");
    let script = "mkdir .claude; echo '{}' >.claude/settings.json; rm .git/config; \
                      echo '[core]' >.git/config; echo x >.git/hooks/pre-commit; touch begun; \
                      sleep 300";
    let line = ["run", "--provider", "landlock", "--", "sh", "-c", script];
    let mut child = scene.command(&line).spawn().expect("starts");
    if !until(|| {
        scene.work().join("begun").exists() || child.try_wait().is_ok_and(|end| end.is_some())
    }) || !scene.work().join("begun").exists()
    {
        return skipped("landlock does not work here");
    }
    assert!(scene.work().join(".claude/settings.json").exists());
    kill_process(Pid::from_child(&child), Signal::KILL).expect("it is there");
    child.wait().expect("ended");
    // Nobody has started anything yet.
    assert!(
        until(|| !scene.work().join(".claude").exists()),
        "still planted"
    );
    let is_back = || fs::read(scene.work().join(".git/config")).is_ok_and(|now| now == config);
    assert!(until(is_back));
    assert!(until(|| !scene
        .work()
        .join(".git/hooks/pre-commit")
        .exists()));
    // Whoever only looks settles nothing; the next command does.
    scene
        .run(&["run", "--provider", "direct", "--", "true"])
        .expect_code(0);
    let events = scene
        .run(&["events", "--type", "file.undone", "--json"])
        .json()
        .to_string();
    for name in [".claude", "config", "hooks"] {
        assert!(events.contains(name), "{name}: {events}");
    }
    assert!(!events.contains("\"undone\":false"), "{events}");
    assert_eq!(scene.git(&["status", "--porcelain"]), "?? begun");
}

/// Runs a Python program inside with each network and provider; gives what it printed.
fn python(scene: &Scene, walls: &[&str], program: &str) -> Option<String> {
    let line = [&["run"], walls, &["--", "python3", "-c", program]].concat();
    let done = scene.run(&line);
    if done.code == Some(127) {
        skipped("there is no python3");
        return None;
    }
    Some(done.expect_code(0).text())
}

#[test]
fn fc_42_a_socket_of_the_host_is_not_reached() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let path = scene.path("outer.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("listens");
    listener.set_nonblocking(true).expect("set");
    let program = format!(
        "import socket\ns = socket.socket(socket.AF_UNIX)\ntry:\n  s.connect({:?}); print('reached')\n\
         except OSError: print('refused')",
        path.to_str().expect("a path of letters")
    );
    for network in ["none", "restricted", "full"] {
        let Some(said) = python(&scene, &["--net", network], &program) else {
            return;
        };
        assert_eq!(said.trim(), "refused", "{network}");
    }
    assert!(listener.accept().is_err(), "nobody came");
}

#[test]
fn fc_44_an_abstract_socket_of_the_host_is_not_reached_with_its_network() {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixListener};

    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let name = format!("cofferdam-case-44-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let listener = UnixListener::bind_addr(&address).expect("listens");
    listener.set_nonblocking(true).expect("set");
    let program = format!(
        "import socket\ns = socket.socket(socket.AF_UNIX)\ntry:\n  s.connect('\\0{name}'); \
         print('reached')\nexcept OSError: print('refused')"
    );
    for network in ["none", "full"] {
        let Some(said) = python(&scene, &["--net", network], &program) else {
            return;
        };
        assert_eq!(said.trim(), "refused", "{network}");
    }
    assert!(listener.accept().is_err(), "nobody came");
}

#[test]
fn fc_45_sockets_of_its_own_work() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let program = "import os, socket, tempfile\n\
                   a, b = socket.socketpair(); a.send(b'x'); assert b.recv(1) == b'x'\n\
                   for place in ['.', tempfile.gettempdir()]:\n  \
                     path = os.path.join(place, 'own.sock')\n  \
                     s = socket.socket(socket.AF_UNIX); s.bind(path); s.listen(1)\n  \
                     c = socket.socket(socket.AF_UNIX); c.connect(path)\n  \
                     os.unlink(path)\n\
                   print('works')";
    if let Some(said) = python(&scene, &[], program) {
        assert_eq!(said.trim(), "works");
    }
}
