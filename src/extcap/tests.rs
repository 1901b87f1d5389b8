use super::*;

fn call(line: &str) -> Option<Call> {
    Call::parse(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
}

#[test]
fn only_wireshark_speaks_of_extcap_first() {
    assert!(call("--extcap-interfaces --extcap-version=4.0").is_some());
    assert!(call("--capture --extcap-interface x --fifo y").is_some());
    for people in ["capture -w x", "", "--help", "--version", "capture --extcap-interface x"] {
        assert_eq!(call(people), None, "{people}");
    }
}

#[test]
fn values_stand_alone_or_behind_a_sign() {
    let line = "--capture --extcap-interface=a --fifo /tmp/f --new 1 --flag --queue -1 stray \
         --extcap-capture-filter= --direction in";
    let call = call(line).unwrap();
    assert!(call.has("capture") && call.has("flag"));
    let names = ["extcap-interface", "fifo", "new", "queue", "direction"];
    let values = names.map(|name| call.value(name).unwrap());
    assert_eq!(values, ["a", "/tmp/f", "1", "-1", "in"]);
    assert_eq!(call.value("extcap-capture-filter"), None);
}

fn interface() -> Interface {
    Interface { id: id("rte", 1), app: "rte".into(), port: 1, device: "net_{x}\n0".into() }
}

#[test]
fn different_ports_have_different_names() {
    assert_eq!(id("reflector", 0), "pmdscope_reflector_0");
    let odd = ["a:b", "a/b", "a b", "a_b", "a+3ab", "ä", "a{b}"];
    let ids = odd.map(|app| id(app, 0));
    let different = ids.iter().collect::<std::collections::BTreeSet<_>>();
    assert_eq!(different.len(), ids.len());
    let plain = |id: &String| id.bytes().all(|b| b.is_ascii_alphanumeric() || b"_+".contains(&b));
    assert!(ids.iter().all(plain), "{ids:?}");
}

#[test]
fn a_port_is_one_sentence() {
    let expected = "interface {value=pmdscope_rte_1}{display=rte: port 1 (net__x__0)}\n";
    assert_eq!(sentence(&interface()), expected);
}

#[test]
fn the_options_are_sentences() {
    for line in CONFIG.lines() {
        let sentence = line.split(['{', '}']).next().unwrap();
        assert!(["arg ", "value "].contains(&sentence), "{line}");
        assert_eq!(line.matches('{').count(), line.matches('}').count(), "{line}");
    }
    assert_eq!(CONFIG.matches("{call=--").count(), 5);
}

#[test]
fn a_call_is_a_command_line() {
    let line = "--capture --extcap-interface x --fifo /tmp/f --queue 3 --direction in --snaplen 96 \
         --sample 10 --ring-size 4M --extcap-capture-filter udp";
    let words = words(&call(line).unwrap(), &interface(), "/tmp/f").join(" ");
    assert_eq!(
        words,
        "capture --quiet --exit-with-app -U --pcapng -w /tmp/f -a rte -i 1:3 -Q in --snapshot-length=96 \
         --sample=10 --ring-size=4M -- udp"
    );
}

#[test]
fn what_is_not_given_is_everything() {
    let call = call("--capture --extcap-interface x --queue -1 --snaplen 0 --sample 1").unwrap();
    let words = words(&call, &interface(), "/tmp/f");
    assert!(words.join(" ").ends_with("-i 1 -Q inout -- "), "{words:?}");
    assert!(Line::try_parse_from(words).is_ok());
}

#[test]
fn filters_are_judged_without_a_capture() {
    assert_eq!(judge_filter("udp port 53"), "");
    assert!(judge_filter("udp prot 53").contains("syntax error"));
    assert!(judge_filter("inbound").contains("-Q in"));
}
