//! Servers and clients with TLS, for hosts whose requests are seen.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, OnceLock};

use cofferdam_core::hosts::{HostRule, Methods, RequestRule, RequestRules};
use cofferdam_egress::{
    Broker, Brokers, EgressPolicy, RunAuthority, SecretPlace, SecretValue, Termination,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme, StreamOwned,
};

use crate::fixture::{PATIENCE, PUBLIC, Stage, locked, rules, server, stage_with};

pub(crate) type Tls = StreamOwned<ClientConnection, TcpStream>;
pub(crate) type Served = StreamOwned<ServerConnection, TcpStream>;

/// The value that only hosts are told.
pub(crate) const SECRET: &str = "the-real-s3cr3t/+value";

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The authority that stands for the machine's roots.
fn world() -> &'static CertifiedIssuer<'static, KeyPair> {
    static WORLD: OnceLock<CertifiedIssuer<'static, KeyPair>> = OnceLock::new();
    WORLD.get_or_init(|| {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        CertifiedIssuer::self_signed(params, key).expect("an authority")
    })
}

fn server_config(names: &[&str]) -> Arc<ServerConfig> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let key = KeyPair::generate().expect("a key");
    let leaf = CertificateParams::new(names)
        .expect("names")
        .signed_by(&key, world())
        .expect("a leaf");
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key)
        .expect("a server");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

/// A server with TLS that hands every connection to `answer`.
pub(crate) fn secure(
    names: &[&str],
    answer: impl Fn(Served) + Send + Sync + 'static,
) -> SocketAddr {
    let config = server_config(names);
    server(move |stream| {
        let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
        answer(StreamOwned::new(connection, stream));
    })
}

/// Reads one head byte by byte; nothing where the connection ended.
pub(crate) fn read_head(stream: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => bytes.push(byte[0]),
            _ => break,
        }
    }
    String::from_utf8(bytes).expect("text")
}

/// Gives the value of a field of a head.
pub(crate) fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (one, value) = line.split_once(": ")?;
        one.eq_ignore_ascii_case(name).then_some(value)
    })
}

/// Reads a head and the body that its length tells.
pub(crate) fn read_answer(stream: &mut impl Read) -> (String, String) {
    let head = read_head(stream);
    let length = field(&head, "content-length").map_or(0, |text| text.parse().expect("a length"));
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("a body");
    (head, String::from_utf8(body).expect("text"))
}

/// A server that answers each request with the request itself, and keeps the connection.
pub(crate) fn mirror(names: &[&str]) -> (SocketAddr, Receiver<String>) {
    let (sender, heard) = channel();
    let sender = Mutex::new(sender);
    let address = secure(names, move |mut stream| {
        loop {
            let (head, body) = read_answer(&mut stream);
            if head.is_empty() {
                return;
            }
            let whole = format!("{head}{body}");
            let first = head.lines().next().unwrap_or_default().to_owned();
            let shown = field(&head, "authorization").unwrap_or("none").to_owned();
            let _ = locked(&sender).send(whole.clone());
            let answer = format!(
                "HTTP/1.1 200 OK\r\nX-Echo: {shown}\r\nContent-Length: {}\r\n\r\n",
                whole.len()
            );
            let body = if first.starts_with("HEAD") {
                ""
            } else {
                &whole
            };
            if stream
                .write_all(format!("{answer}{body}").as_bytes())
                .is_err()
            {
                return;
            }
        }
    });
    (address, heard)
}

pub(crate) fn rule(hosts: &[&str], methods: Methods, paths: &[&str]) -> RequestRule {
    let hosts = hosts.iter().map(|text| text.parse().expect("a host"));
    let paths: Vec<_> = paths
        .iter()
        .map(|text| text.parse().expect("a path"))
        .collect();
    RequestRule {
        hosts: hosts.collect(),
        methods,
        paths: (!paths.is_empty()).then_some(paths),
        websocket: false,
        speaker: "user".to_owned(),
    }
}

pub(crate) fn broker(host: &str, place: SecretPlace, always: bool) -> Broker {
    Broker {
        name: "key".to_owned(),
        hosts: vec![host.parse::<HostRule>().expect("a host")],
        place,
        always,
        value: SecretValue::new(SECRET.as_bytes()).expect("a value"),
    }
}

/// A proxy that ends TLS, and what its clients trust.
pub(crate) struct SeenStage {
    pub(crate) stage: Stage,
    trusted: Arc<ClientConfig>,
}

/// Makes one for which `seen.test` and `other.test` on 443 are at `address`.
pub(crate) fn seen(
    address: SocketAddr,
    requests: Vec<RequestRule>,
    brokers: Vec<Broker>,
) -> SeenStage {
    let now = jiff::Timestamp::now();
    let authority = Arc::new(RunAuthority::new(now).expect("an authority"));
    let own = authority.certificate();
    let termination = Termination::new(authority, world().pem().as_bytes()).expect("a termination");
    let policy = EgressPolicy {
        requests: RequestRules(requests),
        brokers: Brokers::new(brokers),
        ..rules(&["seen.test", "other.test"], &[])
    };
    let stage = stage_with(policy, |options| options.termination = Some(termination));
    stage.world.name("seen.test", &[PUBLIC]);
    stage.world.name("other.test", &["93.184.215.15"]);
    stage.world.host(PUBLIC, 443, address);
    stage.world.host(PUBLIC, 80, address);
    stage.world.host("93.184.215.15", 443, address);
    let mut store = RootCertStore::empty();
    store
        .add(CertificateDer::from_pem_slice(own.as_bytes()).expect("a certificate"))
        .expect("a root");
    SeenStage {
        stage,
        trusted: client_config(store, &[b"h2", b"http/1.1"]),
    }
}

fn client_config(store: RootCertStore, protocols: &[&[u8]]) -> Arc<ClientConfig> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(store)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|one| one.to_vec()).collect();
    Arc::new(config)
}

/// Trusts what the machine trusts, and not the authority of a place.
pub(crate) fn trusts_the_world() -> Arc<ClientConfig> {
    let mut store = RootCertStore::empty();
    store.add(world().der().clone()).expect("a root");
    client_config(store, &[b"http/1.1"])
}

/// Trusts whoever comes, to see what a name alone does.
pub(crate) fn trusts_anything() -> Arc<ClientConfig> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Gullible))
        .with_no_client_auth();
    Arc::new(config)
}

#[derive(Debug)]
struct Gullible;

impl ServerCertVerifier for Gullible {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

impl SeenStage {
    pub(crate) fn tls(&self, target: &str, name: &str) -> Tls {
        self.tls_with(target, name, &self.trusted)
    }

    pub(crate) fn tls_with(&self, target: &str, name: &str, config: &Arc<ClientConfig>) -> Tls {
        let (stream, head) = self.stage.connect(target);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let connection = ClientConnection::new(Arc::clone(config), name).expect("a client");
        StreamOwned::new(connection, stream)
    }

    pub(crate) fn open(&self) -> Tls {
        self.tls("seen.test:443", "seen.test")
    }

    /// Sends one request on a fresh connection; gives the answer.
    pub(crate) fn ask(&self, request: &str) -> (String, String) {
        let mut tls = self.open();
        tls.write_all(request.as_bytes()).expect("sent");
        read_answer(&mut tls)
    }
}

/// Writes a request without a body.
pub(crate) fn request(method: &str, target: &str, fields: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: seen.test\r\n{fields}\r\n")
}
