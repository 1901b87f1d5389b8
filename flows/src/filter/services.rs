//! Numbers of ports by the names of services.

use std::fs::File;
use std::io::Read;
use std::sync::OnceLock;

/// Where the names are, see services(5).
pub(super) const FILE: &str = "/etc/services";
/// As much of it as is read, bytes: the file of Debian has 13 KB.
const FILE_MAX: u64 = 1 << 20;

/// The port of a service, by its name or one of its aliases.
pub(super) fn port(name: &str) -> Option<u16> {
    static TEXT: OnceLock<String> = OnceLock::new();
    port_in(TEXT.get_or_init(read), name)
}

/// Empty where there is no such file.
fn read() -> String {
    let mut bytes = Vec::new();
    // What could be read before an error is as good as the file.
    let _ = File::open(FILE).and_then(|file| file.take(FILE_MAX).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The first line with the name decides, as a service may be there for several protocols.
fn port_in(text: &str, name: &str) -> Option<u16> {
    text.lines().find_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let (service, port) = (words.next()?, words.next()?);
        let is_it = service == name || words.any(|alias| alias == name);
        is_it.then(|| port.split('/').next()?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_have_names_and_aliases() {
        let text = "# comment\n\
                    tcpmux\t1/tcp\t\t# one\n\
                    domain  53/tcp\n\
                    domain  53/udp\n\
                    syslog  514/udp\n\
                    shell   514/tcp cmd syslogd # syslog-like\n\
                    broken\n\
                    large   65536/tcp\n";
        for (name, port) in [
            ("tcpmux", Some(1)),
            ("domain", Some(53)),
            ("cmd", Some(514)),
            ("syslogd", Some(514)),
            ("syslog-like", None),
            ("one", None),
            ("broken", None),
            ("large", None),
            ("53/tcp", None),
            ("", None),
        ] {
            assert_eq!(port_in(text, name), port, "{name}");
        }
    }
}
