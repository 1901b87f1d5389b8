//! Tests of the options of `pmdscope top`.

use clap::Parser;
use pmdscope_render::Palette;

use super::*;
use crate::fixture::parse_args;

#[test]
fn conversations_are_printed_only_of_what_runs() {
    let parse = |words: &[&str]| {
        let words = ["pmdscope", "top", "--flows"].iter().chain(words);
        crate::Cli::try_parse_from(words).is_ok()
    };
    assert!(parse(&["--once"]) && parse(&["--json", "-n", "2"]) && parse(&["-n", "2"]));
    assert!(!parse(&[]) && !parse(&["--once", "--replay", "x"]) && !parse(&["--csv", "apps"]));
}

#[test]
fn one_report_is_quick_and_without_rates_at_once() {
    let interval = |words: &[&str]| {
        let words = ["pmdscope", "top"].iter().chain(words);
        let crate::Cli { command: crate::Command::Top(args), .. } =
            crate::Cli::try_parse_from(words).unwrap()
        else {
            panic!("not top")
        };
        args.interval(&TopSettings::default()).ok()
    };
    for once in [&["--once"][..], &["--json"], &["--json", "-n", "1"], &["--csv", "pools"]] {
        assert_eq!(interval(once), Some(REPORT_INTERVAL), "{once:?}");
    }
    for several in
        [&[][..], &["--json", "-n", "2"], &["--once", "--flows"], &["--once", "--replay", "x"]]
    {
        assert_eq!(interval(several), Some(TopSettings::default().interval), "{several:?}");
    }
    assert_eq!(interval(&["--once", "-i", "3"]), Some(Duration::from_secs(3)));
    assert_eq!(interval(&["--once", "-i", "0"]), Some(Duration::ZERO));
    for wrong in [&["-i", "0"][..], &["-n", "2", "-i", "0"], &["--once", "--flows", "-i", "0"]] {
        assert_eq!(interval(wrong), None, "{wrong:?}");
    }
}

#[test]
fn options_come_before_the_configuration_and_nothing_else_does() {
    let configured = TopSettings {
        filter: "x".to_owned(),
        theme: Palette::Colorblind,
        ascii: Some(true),
        mouse: false,
        read_only: true,
        ..TopSettings::default()
    };
    let given = |words: &str| {
        let mut top = configured.clone();
        parse_args::<Args>("top", words).map(|args| args.set(&mut top)).unwrap();
        top
    };
    let top = given("");
    assert_eq!((top.ascii, top.mouse, top.read_only), (Some(true), false, true));
    assert_eq!((top.filter.as_str(), top.page), ("x", PageTab::Overview));
    assert_eq!([top.theme, given("--mono").theme], [Palette::Colorblind, Palette::Mono]);
    assert_eq!(given("--theme ansi").theme, Palette::Ansi);
    let top = given("--no-ascii --mouse --no-read-only --page raw --filter !y -i 5");
    assert_eq!((top.ascii, top.mouse, top.read_only), (Some(false), true, false));
    assert_eq!((top.filter.as_str(), top.page), ("!y", PageTab::Raw));
    assert_eq!(top.interval, Duration::from_secs(5));
    assert_eq!(given("--no-ascii --ascii --mouse --no-mouse").ascii, Some(true));
    for wrong in [
        "--page x",
        "--filter miss>x",
        "--filter nosuch>1",
        "--filter nosuch:x",
        "--page raw --once",
        "--print-config --json",
        "--once --filter x",
    ] {
        assert!(parse_args::<Args>("top", wrong).is_err(), "{wrong}");
    }
}

#[test]
fn intervals_are_bounded() {
    assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
    for wrong in ["0", "-1", "61", "NaN", "inf", "61s", ""] {
        assert!(interval(wrong).is_err(), "{wrong}");
    }
}
