//! Content negotiation: format and compression by the headers of the request.

use crate::text::TextFormat;

/// Media types of the formats, with the versions that are written.
const OPEN_METRICS: (&str, &str) = ("application/openmetrics-text", "1.0.0");
const TEXT: (&str, &str) = ("text/plain", "0.0.4");

/// Returns the format that the client prefers; plain text if it names none, as command-line tools do.
pub(crate) fn format(accept: Option<&str>) -> TextFormat {
    let accept = accept.unwrap_or_default();
    let quality = |media| {
        let offers = elements(accept).filter(|element| element.covers(media));
        offers.map(|element| element.quality).fold(0.0, f64::max)
    };
    let asked = quality(OPEN_METRICS);
    if asked > 0.0 && asked >= quality(TEXT).max(wildcard(accept)) {
        TextFormat::OpenMetrics
    } else {
        TextFormat::Text
    }
}

fn wildcard(accept: &str) -> f64 {
    let any = |element: &AcceptElement<'_>| matches!(element.name, "*/*" | "text/*");
    elements(accept).filter(any).map(|element| element.quality).fold(0.0, f64::max)
}

/// Returns whether the client accepts gzip.
pub(crate) fn gzip(accept_encoding: Option<&str>) -> bool {
    let accept = accept_encoding.unwrap_or_default();
    let named = |name| elements(accept).find(|element| element.name.eq_ignore_ascii_case(name));
    named("gzip").or_else(|| named("*")).is_some_and(|element| element.quality > 0.0)
}

/// One element of an `Accept` header.
struct AcceptElement<'a> {
    name: &'a str,
    version: Option<&'a str>,
    /// Quality, 0 to 1.
    quality: f64,
}

impl AcceptElement<'_> {
    fn covers(&self, (name, version): (&str, &str)) -> bool {
        self.name.eq_ignore_ascii_case(name) && self.version.is_none_or(|asked| asked == version)
    }
}

fn elements(header: &str) -> impl Iterator<Item = AcceptElement<'_>> {
    header.split(',').map(|element| {
        let mut parts = element.split(';').map(str::trim);
        let mut element =
            AcceptElement { name: parts.next().unwrap_or_default(), version: None, quality: 1.0 };
        for (key, value) in parts.filter_map(|parameter| parameter.split_once('=')) {
            match key.trim_end() {
                "q" | "Q" => element.quality = quality(value.trim_start()),
                "version" => element.version = Some(value.trim_start().trim_matches('"')),
                _ => {}
            }
        }
        element
    })
}

/// Parses a quality; an invalid one counts as 0, which means refused.
fn quality(text: &str) -> f64 {
    text.parse().ok().filter(|q| (0.0..=1.0).contains(q)).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_format_with_the_highest_quality_is_chosen() {
        // The headers of Prometheus 2.42 and 3.x, and of other clients.
        let old = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;\
                   version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let new = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                   application/openmetrics-text;version=0.0.1;q=0.4,\
                   text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
                   text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for accept in [
            old,
            new,
            "application/openmetrics-text, */*",
            "application/openmetrics-text; version=\"1.0.0\"; q=0.1",
        ] {
            assert_eq!(format(Some(accept)), TextFormat::OpenMetrics, "{accept}");
        }
        for accept in [
            "",
            "*/*",
            "text/html,*/*;q=0.8",
            "text/plain, application/openmetrics-text;q=0.9",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=nan",
            "application/openmetrics-text;version=2.0.0",
            "application/openmetrics-text;q=0.1, */*",
            "application/vnd.google.protobuf;q=0.9",
        ] {
            assert_eq!(format(Some(accept)), TextFormat::Text, "{accept}");
        }
        assert_eq!(format(None), TextFormat::Text);
    }

    #[test]
    fn gzip_is_used_only_on_request() {
        for (accept, yes) in [
            ("gzip", true),
            ("deflate, GZIP;q=0.5", true),
            ("*", true),
            ("gzip;q=0, *", false),
            ("identity", false),
            ("", false),
        ] {
            assert_eq!(gzip(Some(accept)), yes, "{accept}");
        }
        assert!(!gzip(None));
    }

    proptest! {
        #[test]
        fn any_header_is_understood_or_ignored(header: String) {
            let _ = (format(Some(&header)), gzip(Some(&header)));
        }
    }
}
