//! TLS: turns files into rustls configurations, with readable errors.
//!
//! The cryptography is ring's: it needs neither cmake nor a second C library to build, which
//! aws-lc-rs does.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
pub use rustls::{ClientConfig, ServerConfig};
use rustls::{RootCertStore, version};

use crate::access::NoAccess;

/// The TLS files of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// The only CA to trust; the system's CAs if missing.
    pub ca: Option<PathBuf>,
    /// The client's own certificate and key, for servers that require one.
    pub identity: Option<Identity>,
}

/// A certificate with its chain, and its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The certificate chain, in PEM.
    pub certificate: PathBuf,
    /// The private key, in PEM.
    pub key: PathBuf,
}

/// The TLS files of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// The server's certificate and key.
    pub identity: Identity,
    /// If given, only clients with a certificate of this CA are accepted.
    pub client_ca: Option<PathBuf>,
}

const VERSIONS: &[&rustls::SupportedProtocolVersion] = &[&version::TLS13, &version::TLS12];

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

impl ServerFiles {
    /// Reads them.
    ///
    /// # Errors
    /// If a file cannot be read or has the wrong contents, or the files do not match.
    pub fn read(&self) -> Result<Arc<ServerConfig>, NoAccess> {
        let Self { identity, client_ca } = self;
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(VERSIONS)
            .expect("ring knows these versions");
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(roots(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
                let verifier = verifier.build().map_err(|error| bad(path, &error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let (chain, key) = identity.read()?;
        let config = builder.with_single_cert(chain, key);
        let mut config = config.map_err(|error| identity.mismatch(&error))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

impl ClientFiles {
    /// Reads them.
    ///
    /// # Errors
    /// If a file cannot be read or has the wrong contents, or the files do not match.
    pub fn read(&self) -> Result<Arc<ClientConfig>, NoAccess> {
        let roots = match &self.ca {
            Some(path) => roots(path)?,
            None => system_roots(),
        };
        self.trusting(roots)
    }

    fn trusting(&self, roots: RootCertStore) -> Result<Arc<ClientConfig>, NoAccess> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(VERSIONS)
            .expect("ring knows these versions")
            .with_root_certificates(roots);
        let config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let (chain, key) = identity.read()?;
                let config = builder.with_client_auth_cert(chain, key);
                config.map_err(|error| identity.mismatch(&error))?
            }
        };
        Ok(Arc::new(config))
    }
}

/// A configuration that trusts no server, for connections without TLS.
#[must_use]
pub fn nobody() -> Arc<ClientConfig> {
    let nothing = ClientFiles::default().trusting(RootCertStore::empty());
    nothing.expect("without files nothing can be wrong with them")
}

impl Identity {
    fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), NoAccess> {
        let chain = certificates(&self.certificate)?;
        let shown = self.key.display();
        let cannot = |error: &dyn std::fmt::Display| {
            NoAccess(format!(
                "cannot read the key in {shown}: {error}\n  help: name a file that can be read and \
                 holds the certificate's key in PEM"
            ))
        };
        let mode =
            std::fs::metadata(&self.key).map_err(|error| cannot(&error))?.permissions().mode();
        // Group access is allowed: the server may run as that group.
        if mode & 0o007 != 0 {
            return Err(NoAccess(format!(
                "all users can read the key file {shown} (mode {:03o})\n  help: chmod 600 {shown}",
                mode & 0o777
            )));
        }
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| cannot(&error))?;
        Ok((chain, key))
    }

    fn mismatch(&self, error: &rustls::Error) -> NoAccess {
        NoAccess(format!(
            "the certificate in {} and the key in {} do not match: {error}\n  help: use the key that \
             belongs to the certificate",
            self.certificate.display(),
            self.key.display()
        ))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, NoAccess> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|error| bad(path, &error))?;
    if read.is_empty() {
        return Err(bad(path, &"no PEM certificate found"));
    }
    Ok(read)
}

fn roots(path: &Path) -> Result<RootCertStore, NoAccess> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| bad(path, &error))?;
    }
    Ok(roots)
}

/// The CAs that the system trusts. If there are none, no server is trusted, and connecting fails
/// with that reason.
fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

fn bad(path: &Path, why: &dyn std::fmt::Display) -> NoAccess {
    NoAccess(format!(
        "cannot use the certificates in {}: {why}\n  help: name a file that can be read and holds \
         certificates in PEM",
        path.display()
    ))
}

/// The TLS error, if this is one.
#[must_use]
pub fn distrust(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    // An I/O error may contain another error.
    match error.downcast_ref::<std::io::Error>() {
        Some(outer) => distrust(outer.get_ref()?),
        None => error.downcast_ref::<rustls::Error>().map(ToString::to_string),
    }
}
