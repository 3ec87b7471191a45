//! What ending TLS in the proxy adds to a request on a kept connection.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use cofferdam_core::hosts::{HostPort, HostRules, Methods, RequestRule, RequestRules};
use cofferdam_egress::{EgressPolicy, Proxy, ProxyOptions, RunAuthority, Termination};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};

use super::{Run, Subject, Yardstick, told};

const DIRECT: &str = "TLS request, kept";
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

type Client = StreamOwned<ClientConnection, TcpStream>;

/// A request to a server with TLS, and the same where TLS ends in the proxy.
pub(super) fn subjects() -> [Subject; 2] {
    let (direct, through) = match told(both()) {
        Ok((direct, through)) => (Ok(direct), Ok(through)),
        Err(why) => (Err(why.clone()), Err(why)),
    };
    [
        Subject {
            name: DIRECT,
            yardstick: Yardstick::Itself,
            bar: None,
            run: direct,
        },
        Subject {
            name: "the same, TLS ended",
            yardstick: Yardstick::Over(DIRECT),
            bar: Some(1.0),
            run: through,
        },
    ]
}

fn both() -> anyhow::Result<(Run, Run)> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
        .distinguished_name
        .push(DnType::CommonName, "the world");
    let root = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let leaf = CertificateParams::new(vec!["localhost".to_owned()])?.signed_by(&key, &root)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key)?;
    let server = serve(Arc::new(config))?;

    let authority = Arc::new(RunAuthority::new(jiff::Timestamp::now())?);
    let own = CertificateDer::from_pem_slice(authority.certificate().as_bytes())?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let target = format!("localhost:{}", server.port());
    let rule = RequestRule {
        hosts: vec![target.parse()?],
        methods: Methods::Reading,
        paths: Some(vec!["/**".parse()?]),
        websocket: false,
        speaker: "bench".to_owned(),
    };
    let policy = EgressPolicy {
        reach: vec![HostPort::parse(target.as_bytes(), None)?],
        requests: RequestRules(vec![rule]),
        ..EgressPolicy::of_rules(HostRules::parse([target.as_str()], [""; 0])?)
    };
    let mut options = ProxyOptions::new(listener, policy);
    options.termination = Some(Termination::new(authority, root.pem().as_bytes())?);
    let proxy = Proxy::start(options)?;

    let config = |certificate: CertificateDer<'static>| -> anyhow::Result<Arc<ClientConfig>> {
        let mut store = RootCertStore::empty();
        store.add(certificate)?;
        Ok(Arc::new(
            ClientConfig::builder_with_provider(Arc::clone(&provider))
                .with_safe_default_protocol_versions()?
                .with_root_certificates(store)
                .with_no_client_auth(),
        ))
    };
    let mut direct = connect(TcpStream::connect(server)?, config(root.der().clone())?)?;
    let mut tunnel = TcpStream::connect(proxy.address())?;
    write!(tunnel, "CONNECT {target} HTTP/1.1\r\n\r\n")?;
    let mut head = [0; 39];
    tunnel.read_exact(&mut head)?;
    ensure!(head.starts_with(b"HTTP/1.1 200 "), "no tunnel");
    let mut through = connect(tunnel, config(own)?)?;
    let host = REQUEST.to_vec();
    let port = format!("localhost:{}", server.port());
    let seen = String::from_utf8(REQUEST.to_vec())?.replace("localhost", &port);
    Ok((
        Box::new(move || exchange(&mut direct, &host)),
        Box::new(move || {
            // Held as long as it is measured.
            let _ = &proxy;
            exchange(&mut through, seen.as_bytes())
        }),
    ))
}

fn connect(stream: TcpStream, config: Arc<ClientConfig>) -> anyhow::Result<Client> {
    stream.set_nodelay(true)?;
    let name = ServerName::try_from("localhost").context("a name")?;
    Ok(StreamOwned::new(
        ClientConnection::new(config, name)?,
        stream,
    ))
}

fn exchange(client: &mut Client, request: &[u8]) -> anyhow::Result<Duration> {
    let begin = Instant::now();
    client.write_all(request)?;
    let mut answer = [0; ANSWER.len()];
    client.read_exact(&mut answer)?;
    let time = begin.elapsed();
    ensure!(answer == ANSWER, "another answer");
    Ok(time)
}

fn serve(config: Arc<ServerConfig>) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let config = Arc::clone(&config);
            thread::spawn(move || answer_all(stream, config));
        }
    });
    Ok(address)
}

fn answer_all(stream: TcpStream, config: Arc<ServerConfig>) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let mut tls = StreamOwned::new(ServerConnection::new(config)?, stream);
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    loop {
        let count = tls.read(&mut piece)?;
        ensure!(count > 0, "the connection ended");
        head.extend_from_slice(&piece[..count]);
        if head.ends_with(b"\r\n\r\n") {
            head.clear();
            tls.write_all(ANSWER)?;
        }
    }
}
