//! URLs that things are fetched from.

use std::net::IpAddr;

use http::Uri;

/// The longest URL that is taken.
const LONGEST: usize = 512;

/// True for a URL that lists and responses can be fetched from. They are signed, so TLS would only bring more
/// certificates to check.
pub(crate) fn is_http_url(url: &str) -> bool {
    let scheme = url.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://"));
    scheme && url.bytes().all(|c| c.is_ascii_graphic()) && (8..=LONGEST).contains(&url.len())
}

/// True for the beginning of such URLs that a hash is appended to (RFC 7296 §3.6).
pub(crate) fn is_uri_base(base: &str) -> bool {
    is_http_url(&format!("{base}{:040}", 0))
}

/// The parts of an `http` URL, as a client sees them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlParts {
    /// Lower case.
    host: String,
    port: u16,
    /// Path and query.
    path: String,
}

impl UrlParts {
    /// Takes `url` apart; `None` if it is no `http` URL.
    pub fn parse(url: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let authority = uri.authority().filter(|_| uri.scheme_str() == Some("http"))?;
        let after = authority.as_str().rsplit('@').next()?.strip_prefix(authority.host())?;
        let port = if after.is_empty() { 80 } else { authority.port_u16()? };
        if authority.host().is_empty() {
            return None;
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Some(Self { host: authority.host().to_ascii_lowercase(), port, path })
    }
}

/// An entry of `hash_and_url_from`: the beginning of URLs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlPrefix(UrlParts);

impl UrlPrefix {
    /// Reads `http://HOST[:PORT]/[PATH]`. Host and port are whole, so that nobody can append to them.
    pub fn parse(text: &str) -> Option<Self> {
        let after = text.get(7..).filter(|_| is_http_url(text))?;
        let plain = !text.contains(['@', '#', '?']) && after.contains('/');
        UrlParts::parse(text).filter(|_| plain).map(Self)
    }

    /// True for URLs that begin with it. A URL that goes up again from its folder does not.
    pub fn covers(&self, url: &UrlParts) -> bool {
        let Some(rest) = url.path.strip_prefix(&self.0.path) else { return false };
        let rest = rest.to_ascii_lowercase();
        let stays = !["..", "%2e", "\\", "%5c"].iter().any(|up| rest.contains(up));
        let same_host = self.0.host == url.host && self.0.port == url.port;
        same_host && (stays || self.0.path == "/")
    }

    /// The host, if it is an address.
    pub fn address(&self) -> Option<IpAddr> {
        self.0.host.trim_start_matches('[').trim_end_matches(']').parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_has_a_whole_host_and_port() {
        for bad in [
            "http://certs.example.org",
            "http://certs.example.org:80",
            "https://certs.example.org/",
            "ftp://certs.example.org/",
            "http:///certs/",
            "http://user@certs.example.org/",
            "http://certs.example.org/a?b",
            "http://certs.example.org:port/",
            "http://certs.example.org:99999/",
            "certs.example.org/",
            "http://certs example.org/",
            "",
        ] {
            assert_eq!(UrlPrefix::parse(bad), None, "{bad}");
        }
        for good in ["http://certs.example.org/", "HTTP://[2001:db8::1]:8080/certs/"] {
            assert!(UrlPrefix::parse(good).is_some(), "{good}");
        }
    }
}
