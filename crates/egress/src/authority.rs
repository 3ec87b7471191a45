//! The certificate authority of one place, and what the proxy trusts outside.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_core::hosts::Host;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::error::EgressError;

/// The most hosts whose certificates are kept; more are made anew.
const MOST_LEAVES: usize = 1024;
/// Days that certificates hold: longer than any place stands.
const DAYS: i64 = 365;
/// What is spoken within TLS, with clients and with hosts.
const PROTOCOL: &[u8] = b"http/1.1";

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn unmade(error: impl fmt::Display) -> EgressError {
    EgressError::Certificate {
        why: error.to_string(),
    }
}

/// A certificate authority whose key exists in this process's memory only, for as long as a place
/// stands. Whoever is to be told apart from the host trusts it; nobody else does.
pub struct RunAuthority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    from: (i32, u8, u8),
    until: (i32, u8, u8),
    leaves: Mutex<HashMap<Host, Arc<ServerConfig>>>,
}

impl fmt::Debug for RunAuthority {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RunAuthority")
            .finish_non_exhaustive()
    }
}

fn day(at: Timestamp, days: i64) -> Result<(i32, u8, u8), EgressError> {
    let day = at
        .checked_add(SignedDuration::from_hours(24 * days))
        .map_err(unmade)?;
    let day = TimeZone::UTC.to_datetime(day);
    let part = |value: i8| u8::try_from(value).unwrap_or(1);
    Ok((day.year().into(), part(day.month()), part(day.day())))
}

impl RunAuthority {
    /// Makes an authority with a key of its own.
    ///
    /// # Errors
    ///
    /// [`EgressError::Certificate`], where no key can be made.
    pub fn new(now: Timestamp) -> Result<Self, EgressError> {
        let (from, until) = (day(now, -1)?, day(now, DAYS)?);
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, "Cofferdam, this place only");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.not_before = date_time_ymd(from.0, from.1, from.2);
        params.not_after = date_time_ymd(until.0, until.1, until.2);
        let key = KeyPair::generate().map_err(unmade)?;
        Ok(Self {
            issuer: CertifiedIssuer::self_signed(params, key).map_err(unmade)?,
            from,
            until,
            leaves: Mutex::default(),
        })
    }

    /// Gives the certificate of the authority as PEM: this, and nothing else of it, goes inside.
    pub fn certificate(&self) -> String {
        self.issuer.pem()
    }

    /// Gives what serves a host; made once.
    pub(crate) fn server(&self, host: &Host) -> Result<Arc<ServerConfig>, EgressError> {
        let mut leaves = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = leaves.get(host) {
            return Ok(Arc::clone(known));
        }
        if leaves.len() >= MOST_LEAVES {
            leaves.clear();
        }
        let made = Arc::new(self.make(host)?);
        leaves.insert(host.clone(), Arc::clone(&made));
        Ok(made)
    }

    fn make(&self, host: &Host) -> Result<ServerConfig, EgressError> {
        let mut params = CertificateParams::default();
        let name = match host {
            Host::Name(name) => SanType::DnsName(name.as_str().try_into().map_err(unmade)?),
            Host::Address(address) => SanType::IpAddress(*address),
        };
        params.subject_alt_names = vec![name];
        // Some take a certificate with its issuer's name for its own issuer.
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, "Cofferdam, one host of this place");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        params.not_before = date_time_ymd(self.from.0, self.from.1, self.from.2);
        params.not_after = date_time_ymd(self.until.0, self.until.1, self.until.2);
        // A key for each, so that no two of them have the same number.
        let key = KeyPair::generate().map_err(unmade)?;
        let leaf = params.signed_by(&key, &self.issuer).map_err(unmade)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(unmade)?
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], key)
            .map_err(unmade)?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(config)
    }
}

/// What TLS ends with in the proxy: the authority towards clients, roots towards hosts.
#[derive(Debug, Clone)]
pub struct Termination {
    pub(crate) authority: Arc<RunAuthority>,
    pub(crate) client: Arc<ClientConfig>,
}

impl Termination {
    /// Joins an authority and the certificates by which hosts are verified, as PEM.
    ///
    /// # Errors
    ///
    /// [`EgressError::NoRoots`] where the text holds none.
    pub fn new(authority: Arc<RunAuthority>, roots: &[u8]) -> Result<Self, EgressError> {
        let mut store = RootCertStore::empty();
        let found = CertificateDer::pem_slice_iter(roots).filter_map(Result::ok);
        store.add_parsable_certificates(found);
        if store.is_empty() {
            return Err(EgressError::NoRoots);
        }
        let mut client = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(unmade)?
            .with_root_certificates(store)
            .with_no_client_auth();
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self {
            authority,
            client: Arc::new(client),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_is_made_once_for_each_host() {
        let authority = RunAuthority::new(Timestamp::UNIX_EPOCH).expect("an authority");
        let host = |text: &str| Host::parse(text.as_bytes()).expect("a host");
        let first = authority.server(&host("a.test")).expect("a leaf");
        let again = authority.server(&host("A.test.")).expect("a leaf");
        assert!(Arc::ptr_eq(&first, &again));
        authority
            .server(&host("[::1]"))
            .expect("a leaf of an address");
        assert!(
            authority
                .certificate()
                .starts_with("-----BEGIN CERTIFICATE-----")
        );
        assert!(!authority.certificate().contains("PRIVATE"));
        assert!(!format!("{authority:?}").contains("key"));
    }

    #[test]
    fn without_roots_nobody_is_verified() {
        let authority = Arc::new(RunAuthority::new(Timestamp::UNIX_EPOCH).expect("an authority"));
        assert!(matches!(
            Termination::new(Arc::clone(&authority), b"nothing"),
            Err(EgressError::NoRoots)
        ));
        let own = authority.certificate();
        assert!(Termination::new(authority, own.as_bytes()).is_ok());
    }
}
