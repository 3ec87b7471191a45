//! Hosts whose requests are seen, with real clients behind real walls: reading only, and secrets
//! that never come inside.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_core::event::{EventFilter, Subject, event_type};
use cofferdam_core::hosts::{HostName, HostPort};
use cofferdam_core::outcome::{CommandOutcome, DenialSource, IsolationLevel, Status};
use cofferdam_core::plan::{WorkspaceView, prepare};
use cofferdam_core::policy::{
    EffectivePolicy, Layer, LayerDocument, PolicyFormat, merge, read_policy,
};
use cofferdam_core::spec::{EnclosureSpec, Network};
use cofferdam_egress::Resolver;
use cofferdam_exec::{CommandIo, Control, Enclosure, NetworkOptions, Plane, Run, host};
use cofferdam_journal::Query;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::smoke::{command, plane};
use crate::worktree::bwrap_works;

/// What only the host is told.
const SECRET: &str = "n0body-inside-sees/this+value";

/// Leads every name to this machine.
struct Here;

impl Resolver for Here {
    fn resolve(&self, _name: &HostName) -> std::io::Result<Vec<IpAddr>> {
        Ok(vec![Ipv4Addr::LOCALHOST.into()])
    }
}

/// A registry with TLS: files below `files`, and for all else what it was asked for.
struct Registry {
    port: u16,
    roots: String,
    heard: Mutex<Receiver<String>>,
}

fn registry(files: PathBuf) -> Registry {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
        .distinguished_name
        .push(DnType::OrganizationName, "the world");
    let root = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"));
    let root = root.expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let leaf = CertificateParams::new(vec!["origin.test".to_owned(), "other.test".to_owned()])
        .expect("names")
        .signed_by(&key, &root)
        .expect("a leaf");
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(
            vec![leaf.der().clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        )
        .expect("a server");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let (sender, heard) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (config, files, sender) = (Arc::clone(&config), files.clone(), sender.clone());
            std::thread::spawn(move || {
                let connection = ServerConnection::new(config).expect("a connection");
                serve(StreamOwned::new(connection, stream), &files, &sender);
            });
        }
    });
    Registry {
        port,
        roots: root.pem(),
        heard: Mutex::new(heard),
    }
}

fn serve(
    mut stream: StreamOwned<ServerConnection, std::net::TcpStream>,
    files: &Path,
    heard: &Sender<String>,
) {
    loop {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read(&mut byte) {
                Ok(1) => head.push(byte[0]),
                _ => return,
            }
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let path = head.split_whitespace().nth(1).unwrap_or("/").to_owned();
        let name = path.split('?').next().unwrap_or_default();
        let _ = heard.send(head.clone());
        let body = std::fs::read(files.join(name.trim_start_matches('/')))
            .unwrap_or_else(|_| format!("you asked:\n{head}").into_bytes());
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        let whole = [answer.as_bytes(), &body].concat();
        if stream.write_all(&whole).is_err() {
            return;
        }
    }
}

struct Scene {
    place: tempfile::TempDir,
    plane: Plane,
    registry: Registry,
}

impl Scene {
    /// A plane for which `origin.test` and `other.test` are a registry of its own; `None` where there
    /// is no bubblewrap.
    fn new() -> Option<Self> {
        if !bwrap_works() {
            println!("skipped: bubblewrap does not work here");
            return None;
        }
        let place = tempfile::tempdir().expect("a directory");
        for name in ["work", "home", "files"] {
            std::fs::create_dir(place.path().join(name)).expect("made");
        }
        let registry = registry(place.path().join("files"));
        let plane = plane(place.path());
        let services = ["origin.test", "other.test"].map(|name| {
            let service = format!("{name}:{}", registry.port);
            HostPort::parse(service.as_bytes(), None).expect("a service")
        });
        plane.set_network(NetworkOptions {
            resolver: Some(Arc::new(Here)),
            own_services: services.into(),
            roots: Some(registry.roots.clone().into_bytes()),
            ..NetworkOptions::default()
        });
        Some(Self {
            place,
            plane,
            registry,
        })
    }

    fn surroundings(&self) -> host::Surroundings {
        let home = self.place.path().join("home");
        host::Surroundings::new(
            [
                ("HOME", home.to_str().expect("text")),
                ("PATH", "/usr/local/bin:/usr/bin:/bin"),
                ("MY_TOKEN", SECRET),
            ],
            self.place.path().join("work"),
        )
    }

    /// Plans by a policy of the user's own, in which PORT is the registry's.
    fn spec(&self, policy: &str) -> EnclosureSpec {
        let surroundings = self.surroundings();
        let workspace = self.place.path().join("work");
        let data = self.place.path().join("data");
        let found = host::resolve_workspace(&surroundings, Some(&workspace), Some(&data));
        let port = self.registry.port;
        let text = format!(
            "schema = 1\nnetwork = \"restricted\"\n\
             network_allow = [\"origin.test:{port}\", \"other.test:{port}\"]\n{policy}"
        );
        let document = read_policy(&text, PolicyFormat::Toml, Layer::User, "the policy");
        let layers = [LayerDocument::new(Layer::User, document.expect("a policy"))];
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

    fn enclose(&self, policy: &str) -> Enclosure {
        self.plane.set_caller(self.surroundings());
        let level = IsolationLevel {
            provider: None,
            network: Network::Restricted,
        };
        self.plane
            .enclose(self.spec(policy), level, &Subject::default())
            .expect("enclosed")
    }

    fn at(&self, host: &str, path: &str) -> String {
        format!("https://{host}:{}{path}", self.registry.port)
    }

    fn heard(&self) -> Vec<String> {
        let heard = self.registry.heard.lock();
        heard
            .unwrap_or_else(PoisonError::into_inner)
            .try_iter()
            .collect()
    }

    fn events(&self, kind: Option<&str>) -> Vec<serde_json::Value> {
        let filter = EventFilter {
            event_type: kind.map(str::to_owned),
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

const READING: &str = "[[network_rules]]\nhosts = [\"origin.test\"]\naccess = \"read\"\n";

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

/// Tells whether a client is there inside.
fn has(enclosure: &Enclosure, client: &str) -> bool {
    let there = run(
        enclosure,
        &format!("{client} --version || {client} -version"),
    );
    if there.status != Status::Completed {
        println!("skipped: there is no {client} inside");
        return false;
    }
    true
}

#[test]
fn curl_reads_and_does_not_publish() {
    let Some(scene) = Scene::new() else { return };
    let enclosure = scene.enclose(READING);
    if !has(&enclosure, "curl") {
        return;
    }
    let url = scene.at("origin.test", "/left-pad?version=1");
    let read = run(&enclosure, &format!("curl -sS {url}"));
    assert!(
        read.stdout.contains("GET /left-pad?version=1 HTTP/1.1"),
        "{}",
        read.output
    );
    assert!(read.denials.is_empty(), "{:?}", read.denials);
    assert_eq!(scene.heard().len(), 1);
    let put = run(
        &enclosure,
        &format!("echo evil > package; curl -sS --upload-file package {url}"),
    );
    assert!(put.stdout.contains("request_refused"), "{}", put.output);
    assert!(scene.heard().is_empty(), "nothing went on");
    let [denial] = put.denials.as_slice() else {
        panic!("one denial: {:?}", put.denials);
    };
    assert_eq!(denial.source, DenialSource::Proxy);
    let port = scene.registry.port;
    assert_eq!(denial.subject, format!("PUT origin.test:{port}/left-pad"));
    assert!(
        denial.instead.contains("network_rules = ["),
        "{}",
        denial.instead
    );
    assert!(denial.askable);
    enclosure.close();
    let decided = scene.events(Some(event_type::NET_DECIDED));
    let refused = decided.iter().find(|one| one["verdict"] == "refused");
    let refused = refused.expect("an event");
    assert_eq!(refused["method"], "PUT");
    assert_eq!(refused["path"], "/left-pad");
    assert_eq!(refused["command_id"], put.command_id.as_str());
    let requested = scene.events(Some(event_type::NET_REQUESTED));
    assert_eq!(requested.len(), 1);
    assert_eq!(requested[0]["status"], 200);
}

#[test]
fn a_host_without_rules_is_carried_blindly_and_known_by_its_own_certificate() {
    let Some(scene) = Scene::new() else { return };
    let enclosure = scene.enclose(READING);
    if !has(&enclosure, "curl") {
        return;
    }
    let url = scene.at("other.test", "/");
    let issuer = "curl -sSv --upload-file /etc/hostname";
    let put = run(&enclosure, &format!("{issuer} {url} 2>&1"));
    // The test's own authority is in the bundle, as the machine's would be.
    assert!(
        put.stdout.contains("PUT /hostname HTTP/1.1"),
        "{}",
        put.output
    );
    assert!(
        !put.output.contains("Cofferdam, this place only"),
        "{}",
        put.output
    );
}

#[test]
fn git_clones_and_cannot_push() {
    let Some(scene) = Scene::new() else { return };
    let enclosure = scene.enclose(READING);
    if !has(&enclosure, "git") {
        return;
    }
    let made = run(
        &enclosure,
        "git init -q src && cd src && git -c user.name=a -c user.email=a@b commit -q --allow-empty \
         -m one && git clone -q --bare . ../app.git && cd ../app.git && git update-server-info",
    );
    assert_eq!(made.status, Status::Completed, "{}", made.output);
    let work = scene.place.path().join("work/app.git");
    let files = scene.place.path().join("files/app.git");
    std::fs::rename(work, &files).expect("served");
    let url = scene.at("origin.test", "/app.git");
    let cloned = run(
        &enclosure,
        &format!("git clone -q {url} there && git -C there log --format=%s"),
    );
    assert_eq!(cloned.stdout, "one\n", "{}", cloned.output);
    let pushed = run(
        &enclosure,
        "cd there && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m two && \
         git push origin HEAD",
    );
    assert_ne!(pushed.status, Status::Completed, "{}", pushed.output);
    assert!(scene.heard().iter().all(|head| head.starts_with("GET ")));
}

#[test]
fn npm_reads_and_cannot_publish() {
    let Some(scene) = Scene::new() else { return };
    let enclosure = scene.enclose(READING);
    if !has(&enclosure, "npm") {
        return;
    }
    let registry = scene.at("origin.test", "/");
    let ping = run(
        &enclosure,
        &format!("timeout 10 npm ping --loglevel silly --registry {registry} 2>&1"),
    );
    assert!(
        scene
            .heard()
            .iter()
            .any(|head| head.starts_with("GET /-/ping")),
        "{}",
        ping.output
    );
    let published = run(
        &enclosure,
        &format!(
            "mkdir p && cd p && echo '{{\"name\":\"x\",\"version\":\"1.0.0\"}}' > package.json && \
             npm publish --registry {registry} --//origin.test:{}/:_authToken=x",
            scene.registry.port
        ),
    );
    assert_ne!(published.status, Status::Completed, "{}", published.output);
    assert!(
        published
            .denials
            .iter()
            .any(|one| one.subject.starts_with("PUT ")),
        "{:?} {}",
        published.denials,
        published.output
    );
    assert!(scene.heard().iter().all(|head| head.starts_with("GET ")));
}

#[test]
fn node_python_and_pip_trust_the_authority_of_the_place() {
    let Some(scene) = Scene::new() else { return };
    let enclosure = scene.enclose(READING);
    let url = scene.at("origin.test", "/hello");
    let mut tried = 0;
    if has(&enclosure, "node") {
        let script = format!(
            "const http=require('http'),tls=require('tls');\
             http.request({{host:'127.0.0.1',port:+process.env.HTTPS_PROXY.split(':')[2],\
             method:'CONNECT',path:'origin.test:{0}',headers:{{Host:'origin.test:{0}'}}}}).on('connect',(r,s)=>{{\
             const t=tls.connect({{socket:s,servername:'origin.test'}},()=>{{\
             t.write('GET /node HTTP/1.1\\r\\nHost: origin.test:{0}\\r\\nConnection: close\\r\\n\\r\\n');}});\
             t.pipe(process.stdout);}}).end()",
            scene.registry.port
        );
        let told = run(&enclosure, &format!("node -e \"{script}\""));
        assert!(
            told.stdout.contains("GET /node HTTP/1.1"),
            "{}",
            told.output
        );
        tried += 1;
    }
    for python in ["python3", "/usr/bin/python3"] {
        if has(&enclosure, python) {
            let script = format!(
                "import urllib.request; print(urllib.request.urlopen('{url}').read().decode())"
            );
            let told = run(&enclosure, &format!("{python} -c \"{script}\""));
            assert!(
                told.stdout.contains("GET /hello HTTP/1.1"),
                "{}",
                told.output
            );
            tried += 1;
        }
    }
    if has(&enclosure, "pip") {
        let index = scene.at("origin.test", "/simple");
        run(
            &enclosure,
            &format!("pip download --no-deps --index-url {index} left-pad"),
        );
        assert!(
            scene
                .heard()
                .iter()
                .any(|head| head.starts_with("GET /simple/left-pad/"))
        );
        tried += 1;
    }
    println!("tried: {tried}");
}

#[test]
fn a_client_with_certificates_of_its_own_is_refused_and_told_why() {
    let Some(scene) = Scene::new() else { return };
    let enclosure = scene.enclose(READING);
    if !has(&enclosure, "curl") {
        return;
    }
    let url = scene.at("origin.test", "/");
    let script = format!("env -u SSL_CERT_FILE -u CURL_CA_BUNDLE curl -sS {url}");
    let refused = run(&enclosure, &script);
    assert_ne!(refused.status, Status::Completed);
    // The client may be gone before the proxy has told why.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let told = || {
        let decided = scene.events(Some(event_type::NET_DECIDED));
        decided
            .into_iter()
            .find(|one| one["reason"] == "client_tls")
    };
    let told = loop {
        if let Some(told) = told() {
            break told;
        }
        assert!(std::time::Instant::now() < until, "nothing is told");
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    let why = told["detail"].as_str().unwrap_or_default();
    assert!(why.contains("SSL_CERT_FILE"), "{why}");
}

/// Everything that a command can look at, for a value that must not be there.
const SEARCH: &str = "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; \
    grep -rlF \"$NEEDLE\" /etc /run /tmp /var /dev/shm \"$HOME\" \"$PWD\" 2>/dev/null | sed s/^/FOUND/";

#[test]
fn row_134_the_secret_is_in_no_environ_file_or_event_inside() {
    let Some(scene) = Scene::new() else { return };
    let file = scene.place.path().join("home/token");
    std::fs::write(&file, format!("{SECRET}\n")).expect("written");
    let counter = scene.place.path().join("count");
    let policy = format!(
        "[secrets.from-env]\nenv = \"MY_TOKEN\"\nhosts = [\"origin.test\"]\n\
         [secrets.from-file]\nfile = \"~/token\"\nhosts = [\"origin.test\"]\n\
         as = \"header\"\nfield = \"X-Api-Key\"\n\
         [secrets.from-command]\ncommand = [\"sh\", \"-c\", \"echo x >> {}; cat {}\"]\n\
         hosts = [\"origin.test\"]\nas = \"query\"\nfield = \"key\"\n\
         [env]\nallow = [\"MY_TOKEN\"]\nsecrets = {{ MY_KEY = \"from-file\", MY_QUERY = \"from-command\" }}\n",
        counter.display(),
        file.display(),
    );
    let enclosure = scene.enclose(&policy);
    if !has(&enclosure, "curl") {
        return;
    }
    let url = scene.at("origin.test", "/me");
    let told = run(
        &enclosure,
        &format!(
            "echo $MY_TOKEN $MY_KEY $MY_QUERY; curl -sSi -H \"Authorization: Bearer $MY_TOKEN\" \
             -H \"X-Api-Key: $MY_KEY\" \"{url}?key=$MY_QUERY\""
        ),
    );
    let placeholders =
        "cofferdam-secret-from-env cofferdam-secret-from-file cofferdam-secret-from-command\n";
    assert!(told.stdout.starts_with(placeholders), "{}", told.output);
    let heard = scene.heard();
    let [head] = heard.as_slice() else {
        panic!("one request: {heard:?}");
    };
    assert!(
        head.contains(&format!("Authorization: Bearer {SECRET}\r\n")),
        "{head}"
    );
    assert!(head.contains(&format!("X-Api-Key: {SECRET}\r\n")), "{head}");
    assert!(
        head.starts_with("GET /me?key=n0body-inside-sees%2Fthis%2Bvalue HTTP/1.1"),
        "{head}"
    );
    // The host says it all back.
    assert!(
        told.stdout.contains("you asked:") && !told.stdout.contains(SECRET),
        "{}",
        told.stdout
    );
    assert!(!told.stdout.contains("n0body"), "{}", told.stdout);
    let half = SECRET.split_at(10).0;
    let found = run(
        &enclosure,
        &format!("NEEDLE=n0bo; NEEDLE=${{NEEDLE}}dy-ins; {SEARCH}"),
    );
    assert_eq!(found.status, Status::Completed, "{}", found.output);
    let shown: Vec<&str> = found
        .stdout
        .lines()
        .filter(|line| line.contains(half) || line.starts_with("FOUND"))
        .collect();
    assert!(shown.is_empty(), "{shown:?}");
    // Elsewhere the placeholder is refused, where it can be seen.
    let refused = run(
        &enclosure,
        "curl -sS -H \"X-Api-Key: $MY_KEY\" http://other.test:1/",
    );
    assert!(
        refused
            .denials
            .iter()
            .any(|one| one.source == DenialSource::Proxy)
    );
    // A program is asked once, however many places there are.
    let second = scene.enclose(&policy);
    run(&second, "true");
    second.close();
    enclosure.close();
    assert_eq!(std::fs::read_to_string(&counter).expect("asked"), "x\n");
    for event in scene.events(None) {
        let text = event.to_string();
        assert!(!text.contains(SECRET) && !text.contains(half), "{text}");
    }
    let requested = scene.events(Some(event_type::NET_REQUESTED));
    assert_eq!(
        requested[0]["secrets"],
        serde_json::json!(["from-command", "from-env", "from-file"])
    );
    for left in walk(&scene.place.path().join("data")) {
        let bytes = std::fs::read(&left).unwrap_or_default();
        let at = bytes
            .windows(half.len())
            .any(|part| part == half.as_bytes());
        assert!(!at, "{}", left.display());
    }
}

fn walk(top: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(top).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(walk(&path));
        } else {
            found.push(path);
        }
    }
    found
}

#[test]
fn a_secret_that_cannot_be_had_keeps_everything_from_starting() {
    let Some(scene) = Scene::new() else { return };
    scene.plane.set_caller(scene.surroundings());
    let level = IsolationLevel {
        provider: None,
        network: Network::Restricted,
    };
    for source in [
        "env = \"NOT_THERE\"",
        "file = \"~/not-there\"",
        "command = [\"not-there-either\"]",
        "command = [\"sh\", \"-c\", \"echo leak >&2; exit 3\"]",
        "command = [\"sleep\", \"60\"]\ntimeout = 0.2",
        "command = [\"echo\", \"short\"]",
    ] {
        let spec = scene.spec(&format!(
            "[secrets.x]\n{source}\nhosts = [\"origin.test\"]\n"
        ));
        let problem = scene
            .plane
            .enclose(spec, level, &Subject::default())
            .expect_err(source);
        assert_eq!(problem.code.as_str(), "secret_unavailable", "{source}");
        assert!(!problem.message.contains("leak"), "{}", problem.message);
    }
}

#[test]
fn a_secret_file_in_the_workspace_is_closed_inside() {
    let Some(scene) = Scene::new() else { return };
    let file = scene.place.path().join("work/token");
    std::fs::write(&file, SECRET).expect("written");
    let policy = format!(
        "[secrets.x]\nfile = \"{}\"\nhosts = [\"origin.test\"]\n",
        file.display()
    );
    let enclosure = scene.enclose(&policy);
    let read = run(&enclosure, "cat token");
    assert!(
        !read.output.contains(SECRET) && read.status != Status::Completed,
        "{}",
        read.output
    );
}
