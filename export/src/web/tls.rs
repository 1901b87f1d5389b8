//! TLS as configured by the web configuration.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use webpki::EndEntityCert;

use super::config::{ClientAuth, PemSource, TlsServerConfig, TlsVersion};

/// Reads certificates and keys, and returns the acceptor of TLS connections.
///
/// # Errors
/// Returns a sentence that names the key and the file.
pub(super) fn acceptor(tls: &TlsServerConfig) -> Result<TlsAcceptor, String> {
    let chain = certificates("cert", &tls.certificate()?)?;
    let key = private_key(&tls.private_key()?)?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions(tls))
        .map_err(|error| error.to_string())?;
    let builder = match verifier(tls, provider)? {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| format!("cert_file and key_file cannot be used together: {error}"))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn versions(tls: &TlsServerConfig) -> Vec<&'static SupportedProtocolVersion> {
    let oldest = tls.min_version.unwrap_or(TlsVersion::Tls12);
    let newest = tls.max_version.unwrap_or(TlsVersion::Tls13);
    let both = [(TlsVersion::Tls12, &TLS12), (TlsVersion::Tls13, &TLS13)];
    both.into_iter().filter(|(v, _)| (oldest..=newest).contains(v)).map(|(_, tls)| tls).collect()
}

fn verifier(
    tls: &TlsServerConfig,
    provider: Arc<tokio_rustls::rustls::crypto::CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
    let Some(authority) = tls.client_authority()? else { return Ok(None) };
    let mut roots = RootCertStore::empty();
    for certificate in certificates("client_ca", &authority)? {
        roots.add(certificate).map_err(|error| format!("client_ca_file: {error}"))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let verifier = match tls.client_auth_type {
        ClientAuth::VerifyClientCertIfGiven => verifier.allow_unauthenticated(),
        _ => verifier,
    };
    Ok(Some(verifier.build().map_err(|error| format!("client_ca_file: {error}"))?))
}

fn certificates(key: &str, source: &PemSource<'_>) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = text(key, source)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match read {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) => Err(format!("{}: holds no certificate in PEM form", place(key, source))),
        Err(error) => Err(format!("{}: {error}", place(key, source))),
    }
}

fn private_key(source: &PemSource<'_>) -> Result<PrivateKeyDer<'static>, String> {
    let text = text("key", source)?;
    PrivateKeyDer::from_pem_slice(&text)
        .map_err(|error| format!("{}: {error}", place("key", source)))
}

fn text(key: &str, source: &PemSource<'_>) -> Result<Vec<u8>, String> {
    match source {
        PemSource::Text(text) => Ok(text.as_bytes().to_vec()),
        PemSource::File(path) => {
            std::fs::read(path).map_err(|error| format!("{}: {error}", place(key, source)))
        }
    }
}

fn place(key: &str, source: &PemSource<'_>) -> String {
    match source {
        PemSource::Text(_) => key.to_owned(),
        PemSource::File(path) => format!("{key}_file {}", Path::display(path)),
    }
}

/// Returns whether a verified certificate is for one of these names, addresses or URIs.
pub(super) fn is_for(certificate: &CertificateDer<'_>, allowed: &[String]) -> bool {
    let Ok(certificate) = EndEntityCert::try_from(certificate) else { return false };
    let address = |name: &str| match ServerName::try_from(name.to_owned()) {
        Ok(name @ ServerName::IpAddress(_)) => {
            certificate.verify_is_valid_for_subject_name(&name).is_ok()
        }
        _ => false,
    };
    // Exact comparison, as in the exporter toolkit: a wildcard in a client certificate allows nothing.
    allowed.iter().any(|name| {
        certificate.valid_dns_names().any(|dns| dns == name)
            || certificate.valid_uri_names().any(|uri| uri == name)
            || address(name)
    })
}
