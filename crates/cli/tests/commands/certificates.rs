//! A CA for tests, and certificates signed by it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// A CA, and the directory of its certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: PathBuf,
    /// Its own certificate.
    pub(crate) certificate: PathBuf,
}

/// A certificate and its key.
pub(crate) struct Signed {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn new(folder: &Path, name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("there is randomness");
        let own = params.self_signed(&key).expect("it can be signed");
        let certificate = folder.join(format!("{name}.pem"));
        std::fs::write(&certificate, own.pem()).expect("a file can be written");
        let issuer = Issuer::new(params, key);
        Self { issuer, folder: folder.to_owned(), certificate }
    }

    /// A certificate for this machine.
    pub(crate) fn sign(&self, name: &str) -> Signed {
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let params = CertificateParams::new(names).expect("these are names");
        let key = KeyPair::generate().expect("there is randomness");
        let certificate = params.signed_by(&key, &self.issuer).expect("it can be signed");
        let path = |ending: &str| self.folder.join(format!("{name}.{ending}"));
        let signed = Signed { certificate: path("pem"), key: path("key") };
        std::fs::write(&signed.certificate, certificate.pem()).expect("a file can be written");
        std::fs::write(&signed.key, key.serialize_pem()).expect("a file can be written");
        std::fs::set_permissions(&signed.key, PermissionsExt::from_mode(0o600)).expect("ours");
        signed
    }
}
