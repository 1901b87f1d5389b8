use std::num::NonZeroU32;

use super::*;
use crate::netstat::fixture::{args, parse};

#[test]
fn views_exclude_each_other() {
    for (words, view) in [
        ("", ReportView::Conversations),
        ("-i", ReportView::Interfaces),
        ("--interfaces", ReportView::Interfaces),
        ("-s", ReportView::Statistics),
        ("--queues", ReportView::Queues),
        ("-l", ReportView::Listen),
        ("--listen -n", ReportView::Listen),
    ] {
        assert_eq!(args(words).view(), view, "{words}");
    }
    assert!(parse("-i -s").is_err() && parse("--queues -l").is_err());
}

#[test]
fn times_have_units_or_are_seconds() {
    assert_eq!(args("--for 500ms").watch(false), Some(Duration::from_millis(500)));
    assert_eq!(args("--for 3").watch(true), Some(Duration::from_secs(3)));
    assert_eq!((args("").watch(false), args("").watch(true)), (Some(WATCH), None));
    assert_eq!((args("-c").watch(false), args("-c").interval()), (None, INTERVAL));
    assert_eq!(args("-c -I 5").interval(), Duration::from_secs(5));
}

#[test]
fn sampling_and_budget() {
    assert_eq!(args("").sample, SamplingMode::Auto);
    assert_eq!(args("--sample 64").sample, SamplingMode::Fixed(NonZeroU32::new(64).unwrap()));
    assert!((args("--cpu-budget 10%").cpu_budget() - 0.1).abs() < 1e-9);
    assert!((args("--cpu-budget 50").cpu_budget() - 0.5).abs() < 1e-9);
    let table = args("--flows 1000 --outer").table(None);
    assert_eq!((table.capacity, table.inner, table.idle), (1000, false, None));
}

#[test]
fn words_behind_the_options_are_the_filter() {
    assert_eq!(args("-c udp port 53").expression(), "udp port 53");
    assert_eq!(args("-r a.pcap -r b.pcap.gz tcp").read.len(), 2);
}

#[test]
fn filters_of_ss_are_about_conversations() {
    let asked = |words| args(words).asked().map(|asked| asked.map(|filter| filter.to_string()));
    assert_eq!(asked("udp port 53"), Ok(None));
    for words in ["--where sport=:7", "sport = :7", "-l sport :7 -N 5", "--where=sport=7 udp"] {
        assert_eq!(asked(words), Ok(Some("sport = :7".to_owned())), "{words}");
    }
    assert_eq!(args("state established dport 443").expression(), "");
    assert_eq!(args("--where vlan udp port 53").expression(), "udp port 53");
    let error = asked("udp and sport = :70000").unwrap_err();
    assert_eq!(error.to_string(), "at character 17: no port 70000: the last is 65535");
    let error = parse("--where state=open").err().unwrap().to_string();
    assert!(error.contains("at character 7: no state 'open': established, "), "{error}");
}

#[test]
fn the_former_name_of_port_works() {
    let queues = ["fwd:0", "fwd:1:2"];
    assert_eq!(args("--port fwd:0 --port fwd:1:2").interfaces, queues);
    assert_eq!(args("--on fwd:0 --on fwd:1:2").interfaces, queues);
}

#[test]
fn wrong_values_and_contradictions_are_refused() {
    for words in [
        "--for 0",
        "--for 10ms",
        "--for 8d",
        "-I 2s",
        "-c -I 500ms",
        "-c --for 5s",
        "--sample 0",
        "--sample often",
        "--cpu-budget 0",
        "--cpu-budget 101%",
        "--flows 10",
        "-N 0",
        "-N 5 --all",
        "--sort size",
        "-r x --replay y",
        "--replay x -c",
        "--at -5s",
        "-r x --cpu-budget 10%",
        "-r x --force-pdump",
        "-n --resolve",
        "-i --resolve",
        "-s --resolve",
        "-s -t",
        "-s --where tcp",
        "-i --where tcp",
        "--queues --where tcp",
        "--where nothing",
        "-s -6",
        "-s --sort rx",
        "-s --reverse",
        "--queues -N 5",
        "--queues --all",
        "--queues --sctp",
        "-l --sort rx",
        "-l --reverse",
        "-i -u",
        "-i --sort bytes",
        "-i --sample 1",
        "-i --cpu-budget 10%",
        "-i --for 5s",
        "-i --outer",
        "-i --flows 1000",
        "-i -Q in",
        "-i --no-pdump",
        "--queues --replay x --sample 4",
        "--queues --replay x --outer",
        "--queues --replay x --flows 1000",
    ] {
        assert!(parse(words).is_err(), "{words}");
    }
}

#[test]
fn what_a_view_cannot_show_is_refused_with_advice() {
    for (words, advice) in [
        ("-c 1", "-c -I TIME"),
        ("-i -r x", "leave out -r"),
        ("-i port 80", "-a names an app"),
        ("-s sport 80", "use one of tcpdump"),
        ("--queues state established", "use one of tcpdump"),
        ("--where tcp sport 80", "join them by 'and'"),
        ("-i --port fwd:0", "-a names an app"),
        ("--replay x", "give it captured packets"),
        ("-r x -a app", "leave out -a"),
        ("-r x --for 5s", "leave out -a"),
        ("-r x --sample 4", "leave out -a"),
        ("-r x --at -5s", "leave out --at"),
        ("-i --ipfix 127.0.0.1:4739", "leave out -i"),
        ("--queues --replay x --ipfix 127.0.0.1:4739", "leave out -i"),
        ("-c -r - -r x", "-c follows one pipe"),
        ("-c -r Cargo.toml", "-c follows one pipe"),
        ("--replay x -l", "give it captured packets"),
        ("--replay x --queues port 80", "leave out --port"),
        ("--sample 4 --cpu-budget 10%", "needs --sample auto"),
        ("--replay x --queues --force-pdump", "leave out --no-pdump"),
    ] {
        let error = args(words).check().unwrap_err();
        assert!(error.to_string().contains(advice), "{words}: {error}");
    }
    for words in [
        "--replay x --queues --for 5s -Q inout --at -5s",
        "-i --replay x --at -5s -a fwd -n --json",
        "-i -c -I 5 -n",
        "-l -t -4 -N 5 --outer --sample 1",
        "-s --outer --sample 16 --for 5s -Q in",
        "--queues -r x --outer --flows 100 -Q in",
        "-c -I 5 -r - -t",
        "-l --resolve",
        "--queues --resolve",
        "-c --resolve --json",
        "-r x -t -6 --sort rx --reverse --all",
    ] {
        assert!(args(words).check().is_ok(), "{words}");
    }
}

#[test]
fn a_file_is_read_as_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.jsonl.zst");
    std::fs::write(&path, "").unwrap();
    let recording = path.display();
    let replays = |words: &str| args(words).replays();
    assert!(replays(&format!("-i -r {recording}")) && replays(&format!("--replay {recording} -i")));
    assert!(replays(&format!("--queues -r {recording} -a fwd --at -5s")));
    assert!(!replays("-r Cargo.toml") && !replays(&format!("-r {recording} -r -")));
    for words in ["-c", "--sample 4", "--flows 1000", "--outer"] {
        let error = args(&format!("--queues -r {recording} {words}")).check().unwrap_err();
        assert!(error.to_string().contains("leave out -c"), "{words}: {error}");
    }
    assert!(args(&format!("--queues -r {recording} --for 5s")).check().is_ok());
}
