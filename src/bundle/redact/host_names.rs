//! Names of hosts that this machine knows, for redaction.

use std::fs;
use std::net::IpAddr;

/// Most names to replace: more would make the search slow.
const MOST_NAMES: usize = 1000;

/// Names of this machine, the longest first.
pub(in crate::bundle) fn names_of_this_machine() -> Vec<String> {
    let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let short = node.split('.').next().unwrap_or_default().to_owned();
    let mut names = if short == node { vec![node] } else { vec![node, short] };
    names.retain(|name| !name.is_empty());
    names
}

/// Names of this machine and of `/etc/hosts`, and domains, which begin with a dot, of this machine and of
/// `/etc/resolv.conf`.
pub(in crate::bundle) fn known_hosts() -> Vec<String> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let hosts = names_of_this_machine();
    names(hosts, &read("/etc/hosts"), &read("/etc/resolv.conf"))
}

fn names(mut names: Vec<String>, hosts: &str, resolv_conf: &str) -> Vec<String> {
    for line in hosts.lines() {
        let mut words = words_of(line);
        let address = words.next().and_then(|word| word.parse::<IpAddr>().ok());
        // Lists of names to block have these.
        let is_host = address.is_some_and(|address| {
            !address.is_unspecified()
                && address.to_string() != "127.0.0.1"
                && !address.is_multicast()
        });
        names.extend(words.filter(|name| is_host && !is_localhost(name)).map(str::to_owned));
    }
    let mut domains = Vec::new();
    for line in resolv_conf.lines() {
        let mut words = words_of(line);
        if words.next().is_some_and(|key| ["domain", "search"].contains(&key)) {
            domains.extend(words.map(str::to_owned));
        }
    }
    let of_names = names.iter().filter_map(|name| Some(name.split_once('.')?.1.to_owned()));
    domains.extend(of_names);
    // A top-level domain, such as of `search com`, is not ours.
    let is_ours = |domain: &String| domain.trim_matches('.').contains('.');
    let domains =
        domains.into_iter().filter(is_ours).map(|domain| format!(".{}", domain.trim_matches('.')));
    let mut all: Vec<String> = Vec::new();
    for name in domains.collect::<Vec<_>>().into_iter().chain(names) {
        if all.len() < MOST_NAMES && !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

fn words_of(line: &str) -> impl Iterator<Item = &str> {
    line.split(['#', ';']).next().unwrap_or_default().split_whitespace()
}

/// Names that every machine has.
fn is_localhost(name: &str) -> bool {
    name.starts_with("localhost") || name.starts_with("ip6-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_hosts_and_resolv_conf() {
        let hosts = "127.0.0.1 localhost blocked.example\n::1 localhost ip6-localhost\n\
                     127.0.1.1 gw7.dc1.example.org gw7\n0.0.0.0 ads.example.net\n\
                     198.18.0.3 peer3 # the other\nff02::1 ip6-allnodes\n# 198.18.0.4 no\n";
        let resolv_conf = "search example.net. com\nnameserver 198.18.0.53\n";
        let found = names(vec!["gw7".to_owned()], hosts, resolv_conf);
        assert_eq!(
            found,
            [".example.net", ".dc1.example.org", "gw7", "gw7.dc1.example.org", "peer3"]
        );
        let many = (0..3000).map(|n| format!("198.18.0.1 n{n}\n")).collect::<Vec<_>>().concat();
        assert_eq!(names(Vec::new(), &many, "").len(), MOST_NAMES);
    }

    #[test]
    fn as_many_names_as_are_replaced_make_a_pattern() {
        let long = (0..MOST_NAMES).map(|n| format!(".d{n}.of-a-long-domain-name.example.org"));
        let long = long.collect::<Vec<_>>();
        assert!(super::super::Redactor::new(&long).is_ok());
    }
}
