use clap::Args as _;
use insta::assert_snapshot;
use pmdscope_capture::layout::{RING_MAX_SIZE, RING_MIN_SIZE};
use pmdscope_packets::file::FileFormat::{Pcap, Pcapng};

use super::value::{parse_buffer_size, parse_file_size, parse_ring_size};
use super::*;
use crate::fixture::parse_args;
use crate::size::parse_bytes;

fn parse(words: &str) -> Result<Args, clap::Error> {
    parse_args("capture", words)
}

fn refusal(words: &str) -> String {
    let mut command = Args::augment_args(clap::Command::new("capture"));
    command.build();
    match parse(words) {
        Err(error) => {
            assert_eq!(error.exit_code(), 2, "{words}");
            explain(error, &mut command).to_string()
        }
        Ok(args) => args.check().unwrap_err().to_string(),
    }
}

#[test]
fn options_stand_before_between_and_behind_the_words_of_the_filter() {
    let lines = [
        "-i a:0 -i a:1:2 -w out -c 5 -s 96 -Q in -U udp port 53",
        "udp port 53 -ia:0 -ia:1:2 -wout -c5 -s96 -Qin -U",
        "udp -U port --interface a:0 -i a:1:2 53 --write=out -c5 --snapshot-length 96 --dir in",
        "-i a:0 -i a:1:2 -w out -c 5 -s 96 -Q in -U -- udp port 53",
    ];
    for line in lines {
        let args = parse(line).unwrap();
        assert_eq!(args.source.interfaces, ["a:0", "a:1:2"], "{line}");
        assert_eq!((args.count, args.snaplen(), args.direction.bits()), (Some(5), 96, DIR_RX));
        assert_eq!(args.expression().unwrap(), "udp port 53", "{line}");
        assert!(args.files.settings(false).unwrap().packet_buffered);
    }
}

#[test]
fn flags_are_glued_as_fingers_do_it() {
    let args = parse("-nnvvXei 0 -tttt -ddd tcp").unwrap();
    let view = args.view();
    assert_eq!((view.numeric, view.verbose, view.hex_ascii, view.time), (2, 2, 1, 4));
    assert!(view.link_header && args.listing() == Some(ProgramListing::Decimal));
    assert_eq!(args.source.interfaces, ["0"]);
}

#[test]
fn the_last_of_an_option_counts() {
    assert_eq!(parse("-c 1 -c 2 -U -U").unwrap().count, Some(2));
}

#[test]
fn tcpdump_and_its_precision_are_understood() {
    assert!(parse("--time-stamp-precision nano").unwrap().view().nano);
    assert!(parse("--time-stamp-precision=micro").unwrap().view().micro);
    let ring = |words| parse(words).unwrap().source.ring_size();
    assert_eq!([ring("-B 4096"), ring("--ring-size 2M")], [4 << 20, 2 << 20]);
    assert!(parse("-p --immediate-mode -j host -y en10mb -K -l").is_ok());
}

#[test]
fn files_get_what_is_asked_for() {
    let settings = |words: &str| parse(words).unwrap().files.settings(words.contains("--micro"));
    let made = settings("-w x -C 2 -G 60 -W 3 -z gzip --quota 1G --exact --aligned").unwrap();
    let rotation = &made.rotation;
    let sizes = (rotation.bytes, rotation.seconds, rotation.files, made.quota);
    assert_eq!(sizes, (Some(2_000_000), Some(60), Some(3), Some(1 << 30)));
    assert!(rotation.exact && rotation.aligned && !rotation.bounded);
    assert_eq!(made.command.as_deref(), Some("gzip".as_ref()));
    let format = |words: &str| settings(words).unwrap().format;
    for name in ["x", "-", "x.pcapng", "x.cap", "x.pcap.part", "x.pcapng.gz", "pcap", "x.pcap/y"] {
        assert_eq!(format(&format!("-w {name}")), Pcapng, "{name}");
    }
    for name in ["x.pcap", "x.PCAP", "x.pcap.gz", "d/x.pcap.zst", "%H.pcap"] {
        assert_eq!(format(&format!("-w {name}")), Pcap { nanos: true }, "{name}");
    }
    assert_eq!(format("-w x.pcap --pcapng"), Pcapng);
    assert!(parse("-w x --pcap --pcapng").is_err());
    assert_eq!(format("-w x --pcap"), Pcap { nanos: true });
    assert_eq!(format("-w x --pcap --micro"), Pcap { nanos: false });
    assert!(settings("-c 1").is_none());
    let says = |words: &str| parse(words).unwrap().files.announcement();
    assert_eq!(says("-w -").unwrap(), "pmdscope: writing pcapng to standard output");
    assert_eq!(says("-w x --pcap").unwrap(), "pmdscope: writing pcap to x");
    assert!(says("-w x.pcap").unwrap().contains("pcap to x.pcap, by its name; --pcapng keeps"));
    assert_eq!(says("-c 1"), None);
    let told = "pmdscope: writing pcapng to x.pcap, one file per lcore";
    assert_eq!(says("-w x.pcap --parallel 2").unwrap(), told);
    assert_eq!(format("-w x.pcap --parallel 2"), Pcapng);
}

#[test]
fn files_are_compressed_by_the_threads_that_are_asked_for() {
    let threads = |words: &str| {
        let args = parse(words).unwrap();
        args.check().unwrap();
        args.files.settings(false).unwrap().compression_threads
    };
    assert_eq!(threads("-w x.pcapng.zst"), 0);
    assert_eq!(threads("-w x.pcapng.zst --compress-threads 4"), 4);
    assert_eq!(threads("-w x --compress zstd --compress-threads 3 --parallel 2"), 3);
}

#[test]
fn filters_come_from_files_without_comments() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, "# all\nudp # and\n port 53\n").unwrap();
    let args = parse(&format!("-F {} tcp", file.path().display())).unwrap();
    let words = args.expression().unwrap();
    assert_eq!(words.split_whitespace().collect::<Vec<_>>(), ["udp", "port", "53"]);
    let missing = parse("-F /nowhere/f").unwrap().expression().unwrap_err();
    assert_eq!(missing.to_string(), "cannot read /nowhere/f");
}

#[test]
fn lists_of_files_have_one_per_line() {
    let list = tempfile::NamedTempFile::new().unwrap();
    fs::write(&list, "a b\n\nc\n").unwrap();
    let args = parse(&format!("-V {}", list.path().display())).unwrap();
    assert_eq!(args.inputs().unwrap(), [PathBuf::from("a b"), PathBuf::from("c")]);
    assert_eq!(parse("-r x").unwrap().inputs().unwrap(), [PathBuf::from("x")]);
    fs::write(&list, "\n").unwrap();
    assert!(args.inputs().is_err());
}

#[test]
fn what_is_wrong_is_told_with_what_to_do() {
    let wrong = [
        "-I",
        "-E x@y",
        "-f",
        "--print-sampling 3",
        "-P",
        "-Y",
        "--durtion 3",
        "-y RAW",
        "-j adapter",
        "-s 262145",
        "-c 0",
        "--sample 0",
        "--ring-size 100000",
        "--ring-size 128M",
        "-B 0",
        "--duration nan",
        "-Q up",
        "-C 5x",
        "-r a -V b",
        "-r a -i 0",
        "-r a -i 0 --sample 2",
        "-T foo",
        "-r a --before 1s",
        "--count -w x",
        "--json",
        "--exact",
        "-w - --print",
        "-w x --json --print",
        "-r x -w y --json",
        "--parallel 2",
        "--parallel 2 -w -",
        "--parallel 0 -w x",
        "--parallel 2 -w x --pcap",
        "--parallel 2 -w x -C 1",
        "--parallel 2 -w x --print",
        "--parallel 2 -w x -c 5",
        "--parallel 2 -w x --before 1s",
        "--parallel 2 -w x -r y",
        "--compress-threads 2",
        "--compress-threads 0 -w x.zst",
        "--compress-threads 2 -w x.gz",
        "--compress-threads 2 -w x.zst --compress none",
        "--micro --nano",
        "-c",
    ];
    let told = |words: &str| {
        let text = refusal(words);
        let cause = text.lines().filter(|line| !line.is_empty() && !line.starts_with("Usage"));
        let cause =
            cause.filter(|line| !line.starts_with("For more") && !line.starts_with("     "));
        format!("{words}\n    {}\n", cause.collect::<Vec<_>>().join("\n    "))
    };
    assert_snapshot!(wrong.map(told).concat());
}

#[test]
fn sizes_have_units() {
    assert_eq!(parse_ring_size("64K"), Ok(RING_MIN_SIZE));
    assert_eq!(parse_ring_size("2m"), Ok(2 << 20));
    assert!(parse_ring_size("4096M").is_err() && parse_ring_size("").is_err());
    assert_eq!(parse_buffer_size("1"), Ok(RING_MIN_SIZE));
    assert_eq!(parse_buffer_size("1500"), Ok(2 << 20));
    assert_eq!(parse_buffer_size("4294967295"), Ok(RING_MAX_SIZE));
    assert_eq!(parse_file_size("100"), Ok(100_000_000));
    assert_eq!(parse_file_size("3k"), Ok(3072));
    assert_eq!(parse_bytes("2T"), Ok(2 << 40));
    for bad in ["", "K", "-1", "+1", "1.5", "1Kb", "0", "é", "99999999999999999999"] {
        assert!(parse_file_size(bad).is_err() && parse_bytes(bad).is_err(), "{bad}");
        assert!(parse_ring_size(bad).is_err() && parse_buffer_size(bad).is_err(), "{bad}");
    }
}
