//! The web configuration of Prometheus exporters: TLS, passwords and headers.
//!
//! The format is that of the exporter toolkit, so one file may serve all exporters of a machine.
//! Keys that this exporter does not support are errors, because ignoring them might lower security.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_yaml_ng::Value;

/// The contents of the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct WebConfig {
    pub(super) tls_server_config: Option<TlsServerConfig>,
    pub(super) http_server_config: HttpServerConfig,
    #[serde(deserialize_with = "users")]
    pub(super) basic_auth_users: BTreeMap<String, String>,
}

/// Parses the users. A key without users is an error, because it would accept everyone.
fn users<'de, D: Deserializer<'de>>(source: D) -> Result<BTreeMap<String, String>, D::Error> {
    Option::deserialize(source)?.ok_or_else(|| {
        D::Error::custom("basic_auth_users: names no user; name some, or remove the key")
    })
}

/// Section `tls_server_config`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TlsServerConfig {
    pub(super) cert: Option<String>,
    pub(super) key: Option<String>,
    pub(super) client_ca: Option<String>,
    pub(super) cert_file: Option<PathBuf>,
    pub(super) key_file: Option<PathBuf>,
    pub(super) client_ca_file: Option<PathBuf>,
    pub(super) client_auth_type: ClientAuth,
    pub(super) client_allowed_sans: Vec<String>,
    pub(super) min_version: Option<TlsVersion>,
    pub(super) max_version: Option<TlsVersion>,
    cipher_suites: Option<Value>,
    curve_preferences: Option<Value>,
    prefer_server_cipher_suites: Option<Value>,
}

/// Section `http_server_config`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct HttpServerConfig {
    http2: Option<bool>,
    pub(super) headers: BTreeMap<String, String>,
}

/// Requirements for client certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ClientAuth {
    #[default]
    #[serde(alias = "")]
    NoClientCert,
    RequestClientCert,
    #[serde(alias = "RequireClientCert")]
    RequireAnyClientCert,
    VerifyClientCertIfGiven,
    RequireAndVerifyClientCert,
}

/// TLS version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum TlsVersion {
    #[serde(rename = "TLS10")]
    Tls10,
    #[serde(rename = "TLS11")]
    Tls11,
    #[serde(rename = "TLS12")]
    Tls12,
    #[serde(rename = "TLS13")]
    Tls13,
}

/// Headers that the format allows.
const ALLOWED_HEADERS: [&str; 5] = [
    "Content-Security-Policy",
    "Strict-Transport-Security",
    "X-Content-Type-Options",
    "X-Frame-Options",
    "X-XSS-Protection",
];

/// Source of a certificate or key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PemSource<'a> {
    Text(&'a str),
    File(&'a Path),
}

impl WebConfig {
    /// Parses the text of a file in the directory `dir`; paths in it are relative to `dir`.
    ///
    /// # Errors
    /// Returns a sentence that names the key.
    pub(crate) fn parse(text: &str, dir: &Path) -> Result<Self, String> {
        let read: Option<Self> =
            serde_yaml_ng::from_str(text).map_err(|error| error.to_string())?;
        let mut config = read.unwrap_or_default();
        config.check()?;
        if let Some(tls) = &mut config.tls_server_config {
            for path in [&mut tls.cert_file, &mut tls.key_file, &mut tls.client_ca_file] {
                *path = path.take().map(|path| dir.join(path));
            }
        }
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        if self.http_server_config.http2 == Some(true) {
            return Err(
                "http2: this exporter serves HTTP/1.1 alone; remove the key, clients need \
                        no HTTP/2"
                    .to_owned(),
            );
        }
        let headers = self.http_server_config.headers.keys();
        if let Some(odd) =
            headers.into_iter().find(|name| !ALLOWED_HEADERS.contains(&name.as_str()))
        {
            return Err(format!("headers: {odd:?} is none of {}", ALLOWED_HEADERS.join(", ")));
        }
        for (user, hash) in &self.basic_auth_users {
            // The value may be a secret, even if it is not a hash.
            if hash.parse::<bcrypt::HashParts>().is_err() {
                return Err(format!(
                    "basic_auth_users: the value of {user:?} is no bcrypt hash; make one with \
                     'htpasswd -nBC 10 \"\" | tr -d \":\\n\"'"
                ));
            }
        }
        self.tls_server_config.as_ref().map_or(Ok(()), TlsServerConfig::check)
    }
}

impl TlsServerConfig {
    fn check(&self) -> Result<(), String> {
        let unsupported = [
            ("cipher_suites", self.cipher_suites.is_some()),
            ("curve_preferences", self.curve_preferences.is_some()),
            ("prefer_server_cipher_suites", self.prefer_server_cipher_suites.is_some()),
        ];
        if let Some((key, _)) = unsupported.iter().find(|(_, present)| *present) {
            return Err(format!(
                "{key}: not supported; this exporter offers no weak ciphers or curves to choose \
                 from: remove the key"
            ));
        }
        self.check_versions()?;
        self.check_clients()?;
        self.certificate().and(self.private_key()).map(drop)
    }

    fn check_versions(&self) -> Result<(), String> {
        let oldest = self.min_version.unwrap_or(TlsVersion::Tls12);
        let newest = self.max_version.unwrap_or(TlsVersion::Tls13);
        if oldest < TlsVersion::Tls12 || newest < TlsVersion::Tls12 {
            return Err("min_version, max_version: TLS 1.0 and 1.1 are broken and not supported; \
                        use TLS12 or TLS13"
                .to_owned());
        }
        if oldest > newest {
            return Err("min_version is above max_version: no client could connect".to_owned());
        }
        Ok(())
    }

    fn check_clients(&self) -> Result<(), String> {
        use ClientAuth::{
            NoClientCert, RequestClientCert, RequireAndVerifyClientCert, RequireAnyClientCert,
            VerifyClientCertIfGiven,
        };
        let authority = self.client_authority()?.is_some();
        match self.client_auth_type {
            RequestClientCert | RequireAnyClientCert => {
                return Err("client_auth_type: client certificates without verification are not \
                            supported; use VerifyClientCertIfGiven or RequireAndVerifyClientCert"
                    .to_owned());
            }
            NoClientCert if authority => {
                return Err(
                    "client_ca_file without client_auth_type: no client would be asked for \
                            its certificate; use RequireAndVerifyClientCert"
                        .to_owned(),
                );
            }
            VerifyClientCertIfGiven | RequireAndVerifyClientCert if !authority => {
                return Err("client_auth_type needs client_ca_file".to_owned());
            }
            _ => {}
        }
        if !self.client_allowed_sans.is_empty()
            && self.client_auth_type != RequireAndVerifyClientCert
        {
            return Err(
                "client_allowed_sans needs client_auth_type: RequireAndVerifyClientCert".to_owned()
            );
        }
        match self.client_allowed_sans.iter().find(|name| name.contains('@')) {
            Some(mail) => Err(format!(
                "client_allowed_sans: {mail:?}: mail addresses are not supported; use names, \
                 addresses or URIs"
            )),
            None => Ok(()),
        }
    }

    pub(super) fn certificate(&self) -> Result<PemSource<'_>, String> {
        let source = either("cert", self.cert.as_ref(), self.cert_file.as_ref())?;
        source.ok_or_else(|| "tls_server_config needs cert_file and key_file".to_owned())
    }

    pub(super) fn private_key(&self) -> Result<PemSource<'_>, String> {
        let source = either("key", self.key.as_ref(), self.key_file.as_ref())?;
        source.ok_or_else(|| "tls_server_config needs cert_file and key_file".to_owned())
    }

    pub(super) fn client_authority(&self) -> Result<Option<PemSource<'_>>, String> {
        either("client_ca", self.client_ca.as_ref(), self.client_ca_file.as_ref())
    }

    /// Replaces files by what they contain.
    ///
    /// # Errors
    /// Returns a sentence that names the file that cannot be read.
    pub(super) fn inline(&mut self) -> Result<(), String> {
        for (text, path) in [
            (&mut self.cert, &mut self.cert_file),
            (&mut self.key, &mut self.key_file),
            (&mut self.client_ca, &mut self.client_ca_file),
        ] {
            if let Some(path) = path.take().filter(|path| !path.as_os_str().is_empty()) {
                let read = std::fs::read(&path).map(|bytes| String::from_utf8_lossy(&bytes).into());
                *text = Some(read.map_err(|error| format!("{}: {error}", path.display()))?);
            }
        }
        Ok(())
    }

    /// Returns the files that this section refers to.
    pub(super) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.cert_file, &self.key_file, &self.client_ca_file].into_iter().flatten()
    }
}

fn either<'a>(
    key: &str,
    text: Option<&'a String>,
    file: Option<&'a PathBuf>,
) -> Result<Option<PemSource<'a>>, String> {
    // As in the exporter toolkit, an empty value is the same as none.
    let text = text.filter(|text| !text.is_empty());
    match (text, file.filter(|path| !path.as_os_str().is_empty())) {
        (Some(_), Some(_)) => Err(format!("{key} and {key}_file are both given; choose one")),
        (Some(text), None) => Ok(Some(PemSource::Text(text))),
        (None, file) => Ok(file.map(|path| PemSource::File(path))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HASH: &str = "$2y$04$uc3dnRVvjGzmqYj4VTwjb.dJ5GhE7wGbK3y8Gw7nR.0d3aSmsfzFC";

    fn parse(text: &str) -> Result<WebConfig, String> {
        WebConfig::parse(text, Path::new("/etc/exporter"))
    }

    #[test]
    fn paths_are_relative_to_the_file() {
        let config =
            parse("tls_server_config: {cert_file: a.pem, key_file: /b.pem, min_version: TLS13}")
                .unwrap();
        let tls = config.tls_server_config.unwrap();
        assert_eq!(tls.certificate().unwrap(), PemSource::File(Path::new("/etc/exporter/a.pem")));
        assert_eq!(tls.private_key().unwrap(), PemSource::File(Path::new("/b.pem")));
        assert_eq!(tls.min_version, Some(TlsVersion::Tls13));
    }

    #[test]
    fn an_empty_file_enables_nothing() {
        for text in ["", "# nothing\n", "{}", "basic_auth_users: {}"] {
            assert_eq!(parse(text).unwrap(), WebConfig::default(), "{text}");
        }
    }

    #[test]
    fn users_have_hashes_and_errors_do_not_repeat_them() {
        let config = parse(&format!("basic_auth_users: {{ann: {HASH}}}")).unwrap();
        assert_eq!(config.basic_auth_users["ann"], HASH);
        let error = parse("basic_auth_users: {ann: secret}").unwrap_err();
        assert!(error.contains("ann") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn unsupported_settings_are_errors_that_name_the_key() {
        let tls = |more: &str| format!("tls_server_config: {{cert_file: a, key_file: b, {more}}}");
        for (text, key) in [
            ("colour: red".to_owned(), "colour"),
            ("http_server_config: {http2: true}".to_owned(), "http2"),
            ("http_server_config: {headers: {Server: x}}".to_owned(), "Server"),
            ("rate_limit: {burst: 1}".to_owned(), "rate_limit"),
            ("tls_server_config: {cert_file: a}".to_owned(), "key_file"),
            (tls("cert: x"), "cert"),
            (tls("cipher_suites: []"), "cipher_suites"),
            (tls("curve_preferences: [X25519]"), "curve_preferences"),
            (tls("prefer_server_cipher_suites: true"), "prefer_server_cipher_suites"),
            (tls("min_version: TLS10"), "min_version"),
            (tls("min_version: TLS13, max_version: TLS12"), "max_version"),
            (tls("min_version: SSL3"), "SSL3"),
            (tls("client_auth_type: RequestClientCert"), "client_auth_type"),
            (tls("client_auth_type: RequireClientCert"), "client_auth_type"),
            (tls("client_auth_type: RequireAndVerifyClientCert"), "client_ca_file"),
            (tls("client_ca_file: c"), "client_auth_type"),
            (tls("client_allowed_sans: [x]"), "client_allowed_sans"),
            (
                tls("client_ca_file: c, client_auth_type: RequireAndVerifyClientCert, \
                     client_allowed_sans: [a@b]"),
                "a@b",
            ),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(key), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_parses_or_fails(text: String) {
            let _ = parse(&text);
        }

        #[test]
        fn any_yaml_with_our_keys_parses_or_fails(
            section in "(tls_server_config|http_server_config|basic_auth_users|x)",
            key in "(cert|key_file|client_auth_type|client_allowed_sans|min_version|headers|http2|a)",
            value in "(TLS1[0-4]|NoClientCert|true|null|\\[a, \"b@c\"\\]|\\{a: b\\}|[^\n]{0,12})",
        ) {
            let _ = parse(&format!("{section}:\n  {key}: {value}\n  cert_file: a\n  key_file: b\n"));
        }
    }
}
