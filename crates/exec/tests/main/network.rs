//! The restricted network: what is listed is reached through the proxy, all else is refused.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex};

use cofferdam_core::event::{EventFilter, Subject, event_type};
use cofferdam_core::hosts::{HostName, HostPort};
use cofferdam_core::outcome::{CommandOutcome, DenialSource, IsolationLevel};
use cofferdam_core::plan::{EGRESS_PORT, WorkspaceView, prepare};
use cofferdam_core::policy::{EffectivePolicy, Layer, LayerDocument, PolicyDocument, merge};
use cofferdam_core::spec::{EnclosureSpec, Network};
use cofferdam_egress::Resolver;
use cofferdam_exec::{
    AskHost, CommandIo, Control, Enclosure, HostAnswer, HostQuestion, NetworkOptions, Plane, Run,
    host,
};
use cofferdam_journal::Query;

use crate::smoke::{command, plane};
use crate::worktree::bwrap_works;

/// Leads every name to this machine, as a hostile or a test's name server does.
struct Here;

impl Resolver for Here {
    fn resolve(&self, _name: &HostName) -> std::io::Result<Vec<IpAddr>> {
        Ok(vec![Ipv4Addr::LOCALHOST.into()])
    }
}

/// A server on loopback that says what it was asked for.
fn origin() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut buffer = [0; 4096];
            let _ = stream.read(&mut buffer);
            let _ = stream.write_all(
                b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\norigin",
            );
        }
    });
    port
}

struct Scene {
    place: tempfile::TempDir,
    plane: Plane,
    port: u16,
}

impl Scene {
    /// A plane for which `origin.test` is a server of its own; `None` where there is no bubblewrap.
    fn new(ask: Option<Arc<dyn AskHost>>) -> Option<Self> {
        if !bwrap_works() {
            println!("skipped: bubblewrap does not work here");
            return None;
        }
        let place = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(place.path().join("work")).expect("made");
        let plane = plane(place.path());
        let port = origin();
        let service = format!("origin.test:{port}");
        plane.set_network(NetworkOptions {
            resolver: Some(Arc::new(Here)),
            own_services: vec![HostPort::parse(service.as_bytes(), None).expect("a service")],
            ask,
            ..NetworkOptions::default()
        });
        Some(Self { place, plane, port })
    }

    fn spec(&self, allow: &[&str], deny: &[&str]) -> EnclosureSpec {
        let workspace = self.place.path().join("work");
        let data = self.place.path().join("data");
        let surroundings = host::Surroundings::new(
            [("HOME", "/root"), ("PATH", "/usr/local/bin:/usr/bin:/bin")],
            &workspace,
        );
        let found = host::resolve_workspace(&surroundings, Some(&workspace), Some(&data));
        let text = |hosts: &[&str]| Some(hosts.iter().map(|one| (*one).to_owned()).collect());
        let document = PolicyDocument {
            network: Some(Network::Restricted),
            network_allow: text(allow),
            network_deny: text(deny),
            ..PolicyDocument::default()
        };
        let layers = [LayerDocument::new(Layer::CommandLine, document)];
        let policy = merge(EffectivePolicy::built_in(), &layers).expect("a policy");
        let facts = host::gather(&host::GatherRequest {
            surroundings: &surroundings,
            workspace: &found.expect("a workspace"),
            data_dir: &data,
            policy: &policy,
            tree: None,
        });
        let view = WorkspaceView::live(&facts.workspace);
        prepare(&policy, &view, &facts, &data.join("scratch/x").into()).expect("a plan")
    }

    fn enclose(&self, allow: &[&str], deny: &[&str]) -> Enclosure {
        let spec = self.spec(allow, deny);
        let level = IsolationLevel {
            provider: None,
            network: Network::Restricted,
        };
        self.plane
            .enclose(spec, level, &Subject::default())
            .expect("enclosed")
    }

    fn events(&self, kind: &str) -> Vec<serde_json::Value> {
        let filter = EventFilter {
            event_type: Some(kind.to_owned()),
            ..EventFilter::default()
        };
        let page = self.plane.journal().read(&Query {
            filter,
            ..Query::default()
        });
        let page = page.expect("read");
        page.events.into_iter().map(|event| event.data).collect()
    }
}

fn run(enclosure: &Enclosure, script: &str) -> CommandOutcome {
    enclosure.run(Run {
        command: command(
            enclosure.spec().workspace.as_path(),
            &["/bin/bash", "-c", script],
        ),
        subject: Subject::default(),
        io: CommandIo::Capture { input: None },
        control: Control::new(),
        timeout_clamped: false,
    })
}

/// A request through the proxy with nothing but the shell.
fn get(host: &str) -> String {
    format!(
        "exec 3<>/dev/tcp/127.0.0.1/{EGRESS_PORT}; \
         printf 'GET http://{host}/ HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n\\r\\n' >&3; \
         cat <&3; exec 3>&-"
    )
}

#[test]
fn what_is_listed_is_reached_and_what_is_not_is_refused_and_told() {
    let Some(scene) = Scene::new(None) else {
        return;
    };
    let listed = format!("origin.test:{}", scene.port);
    let enclosure = scene.enclose(&[&listed], &[]);
    let reached = run(&enclosure, &get(&listed));
    assert!(reached.stdout.ends_with("origin"), "{}", reached.output);
    assert!(reached.denials.is_empty());
    let refused = run(&enclosure, &get("other.test"));
    assert!(
        refused.stdout.starts_with("HTTP/1.1 403"),
        "{}",
        refused.output
    );
    let [denial] = refused.denials.as_slice() else {
        panic!("one denial: {:?}", refused.denials);
    };
    assert_eq!(denial.source, DenialSource::Proxy);
    assert_eq!(denial.subject, "other.test:80");
    assert!(denial.instead.contains("--allow other.test"));
    assert!(denial.askable && !denial.will_not_change);
    let three = format!("for i in 1 2 3; do ({}); done", get("third.test"));
    let certain = run(&enclosure, &three);
    assert!(certain.denials[0].will_not_change);
    enclosure.close();
    let decided = scene.events(event_type::NET_DECIDED);
    assert_eq!(decided.len(), 5);
    assert_eq!(decided[0]["verdict"], "allowed");
    assert_eq!(decided[0]["origin"], "command_line");
    assert_eq!(decided[0]["command_id"], reached.command_id.as_str());
    assert_eq!(decided[1]["reason"], "not_listed");
    assert_eq!(scene.events(event_type::NET_CLOSED).len(), 1);
}

#[test]
fn fc_47_an_empty_list_reaches_nothing() {
    let Some(scene) = Scene::new(None) else {
        return;
    };
    let enclosure = scene.enclose(&[], &[]);
    let listed = format!("origin.test:{}", scene.port);
    let refused = run(&enclosure, &get(&listed));
    assert!(
        refused.stdout.starts_with("HTTP/1.1 403"),
        "{}",
        refused.output
    );
}

#[test]
fn a_denial_wins() {
    let Some(scene) = Scene::new(None) else {
        return;
    };
    let listed = format!("origin.test:{}", scene.port);
    let enclosure = scene.enclose(&[&listed], &["**.test"]);
    let refused = run(&enclosure, &get(&listed));
    assert!(
        refused.stdout.starts_with("HTTP/1.1 403"),
        "{}",
        refused.output
    );
    assert!(refused.denials[0].rule.starts_with("network_deny"));
    assert!(!refused.denials[0].askable);
}

#[test]
fn fc_48_a_name_with_a_zero_byte_is_refused() {
    let Some(scene) = Scene::new(None) else {
        return;
    };
    let listed = format!("origin.test:{}", scene.port);
    let enclosure = scene.enclose(&[&listed, "**.good.test"], &[]);
    // SOCKS5: no authentication, CONNECT, a name of 14 bytes.
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{EGRESS_PORT}; printf '\\x05\\x01\\x00' >&3; head -c2 <&3 | od -An -tx1; \
         printf '\\x05\\x01\\x00\\x03\\x0eevil\\x00.good.test\\x00\\x50' >&3; head -c2 <&3 | od -An -tx1"
    );
    let refused = run(&enclosure, &script);
    let bytes: Vec<&str> = refused.stdout.split_whitespace().collect();
    assert_eq!(bytes[..3], ["05", "00", "05"], "{}", refused.output);
    assert_ne!(bytes[3], "00", "not granted");
    assert!(
        scene
            .events(event_type::NET_DECIDED)
            .iter()
            .all(|one| one["verdict"] == "refused")
    );
}

#[test]
fn fc_51_a_listed_name_that_leads_to_this_machine_is_refused() {
    let Some(scene) = Scene::new(None) else {
        return;
    };
    let named = format!("inward.test:{}", scene.port);
    let enclosure = scene.enclose(&[&named], &[]);
    let refused = run(&enclosure, &get(&named));
    assert!(
        refused.stdout.starts_with("HTTP/1.1 403"),
        "{}",
        refused.output
    );
    assert_eq!(refused.denials[0].rule, "address class");
}

#[test]
fn f3_services_of_this_machine_are_out_of_reach() {
    let Some(scene) = Scene::new(None) else {
        return;
    };
    let enclosure = scene.enclose(&["**.test"], &[]);
    let port = scene.port;
    let direct = run(
        &enclosure,
        &format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo in"),
    );
    assert!(!direct.success && !direct.stdout.contains("in"));
    for host in ["127.0.0.1", "localhost", "[::1]", "169.254.169.254"] {
        let by_proxy = run(&enclosure, &get(&format!("{host}:{port}")));
        assert!(
            by_proxy.stdout.starts_with("HTTP/1.1 403"),
            "{host}: {}",
            by_proxy.output
        );
        assert!(!by_proxy.denials[0].askable);
    }
}

#[test]
fn the_environment_leads_clients_to_the_proxy() {
    let Some(scene) = Scene::new(None) else {
        return;
    };
    let enclosure = scene.enclose(&["origin.test"], &[]);
    let shown = run(&enclosure, "env | grep -i _proxy | sort");
    let proxy = format!("http://127.0.0.1:{EGRESS_PORT}");
    for name in [
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
    ] {
        assert!(
            shown.stdout.contains(&format!("{name}={proxy}\n")),
            "{name}"
        );
    }
    assert!(shown.stdout.contains("no_proxy=127.0.0.1,localhost,::1"));
    // Clients that look at nothing of that have their own.
    let own = run(&enclosure, "env | sort");
    let java = format!(
        "-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort={EGRESS_PORT} -Dhttps.proxyHost=127.0.0.1 \
         -Dhttps.proxyPort={EGRESS_PORT} -Dhttp.nonProxyHosts=127.0.0.1|localhost"
    );
    for line in [
        format!("MAVEN_OPTS={java}\n"),
        format!("GRADLE_OPTS={java}\n"),
        format!("YARN_HTTPS_PROXY={proxy}\n"),
        "NODE_USE_ENV_PROXY=1\n".to_owned(),
    ] {
        assert!(own.stdout.contains(&line), "{line}: {}", own.stdout);
    }
    let git = run(&enclosure, "git config --global --list | grep insteadof");
    assert!(
        git.stdout
            .contains("url.https://origin.test/.insteadof=git@origin.test:"),
        "{}",
        git.output
    );
}

#[test]
fn where_two_commands_run_nothing_is_said_of_which_it_was() {
    let Some(scene) = Scene::new(None) else {
        return;
    };
    let enclosure = scene.enclose(&["origin.test"], &[]);
    let begun = scene.place.path().join("work/begun");
    let (waiting, asking) = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| run(&enclosure, "mkfifo go && touch begun && cat go"));
        while !begun.exists() {
            std::thread::park_timeout(std::time::Duration::from_millis(5));
        }
        let asking = run(&enclosure, &format!("{}; echo >go", get("other.test")));
        (waiting.join().expect("an outcome"), asking)
    });
    // Both are told: one of them it was.
    assert_eq!(waiting.denials, asking.denials);
    assert_eq!(asking.denials[0].subject, "other.test:80");
    let decided = scene.events(event_type::NET_DECIDED);
    assert_eq!(decided.len(), 1, "{decided:?}");
    assert!(decided[0]["command_id"].is_null(), "{decided:?}");
}

/// Answers every question alike, from another thread.
struct Always(HostAnswer, Mutex<Vec<String>>);

impl AskHost for Always {
    fn ask(&self, question: HostQuestion) {
        let asked = format!("{} {:?}", question.target, question.program);
        self.1.lock().expect("whole").push(asked);
        let answer = self.0;
        std::thread::spawn(move || question.answer(answer));
    }
}

fn files_below(directory: &Path) -> usize {
    std::fs::read_dir(directory).map_or(0, Iterator::count)
}

#[test]
fn a_miss_is_held_and_the_answer_lasts_as_long_as_it_says() {
    let answered = |answer| {
        let owner = Arc::new(Always(answer, Mutex::default()));
        let scene = Scene::new(Some(owner.clone() as Arc<dyn AskHost>))?;
        let enclosure = scene.enclose(&[&format!("other.test:{}", scene.port)], &[]);
        // What is asked about leads to this machine, so even an answer does not open it.
        let twice = format!("({0}); ({0})", get("asked.test"));
        let outcome = run(&enclosure, &twice);
        let asked = owner.1.lock().expect("whole").clone();
        let in_workspace = files_below(&scene.place.path().join("work"));
        assert_eq!(in_workspace, 0, "nothing of it lies in the workspace");
        let again = scene.spec(&[], &[]).egress.expect("a way out");
        let remembered = (again.allow.len(), again.deny.len());
        Some((asked, outcome.denials[0].rule.clone(), remembered))
    };
    let Some((asked, rule, remembered)) = answered(HostAnswer::Once) else {
        return;
    };
    assert_eq!(asked.len(), 2);
    assert!(asked[0].starts_with("asked.test:80 "), "{asked:?}");
    assert_eq!(rule, "address class");
    assert_eq!(remembered, (0, 0));
    let (asked, _, remembered) = answered(HostAnswer::Repository).expect("as before");
    assert_eq!((asked.len(), remembered), (1, (1, 0)));
    let (asked, rule, remembered) = answered(HostAnswer::Never).expect("as before");
    assert_eq!((asked.len(), remembered), (1, (0, 1)));
    assert_eq!(rule, "network_allow");
    let (asked, _, remembered) = answered(HostAnswer::No).expect("as before");
    assert_eq!((asked.len(), remembered), (1, (0, 0)));
}

#[test]
fn deny_rules_and_metadata_never_ask() {
    let owner = Arc::new(Always(HostAnswer::Once, Mutex::default()));
    let Some(scene) = Scene::new(Some(owner.clone() as Arc<dyn AskHost>)) else {
        return;
    };
    let enclosure = scene.enclose(&[], &["denied.test"]);
    for host in ["denied.test", "169.254.169.254", "10.0.0.1", "localhost"] {
        let refused = run(&enclosure, &get(host));
        assert!(
            refused.stdout.starts_with("HTTP/1.1 403"),
            "{}",
            refused.output
        );
    }
    assert!(owner.1.lock().expect("whole").is_empty());
}
