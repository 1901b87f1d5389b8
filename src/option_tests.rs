//! Options that several commands have are the same in all of them, and documented in docs/configuration.md.

use std::fs;
use std::path::Path;

use clap::error::ErrorKind;
use clap::{Arg, Command, CommandFactory};

use crate::Cli;

/// `--at` names a moment.
#[test]
fn times_are_written_alike_in_all_options() {
    let cli = Cli::command();
    let mut options = 0;
    for command in cli.get_subcommands() {
        for option in command.get_arguments().filter(|option| option.get_id() != "at") {
            let name = option.get_value_names().and_then(<[_]>::first).map_or("", |name| name);
            assert!(!["SECONDS", "DURATION"].contains(&name), "{command}: {option}");
            let (true, Some(long)) = (name == "TIME", option.get_long()) else { continue };
            let is_refused = |time: &str| {
                let words = ["pmdscope", command.get_name(), &format!("--{long}={time}")];
                let parsed = cli.clone().try_get_matches_from(words);
                parsed.is_err_and(|error| error.kind() == ErrorKind::ValueValidation)
            };
            let forms = ["2", "2s", "2000ms", "2000000us", "0.5", "0.5s", "500ms", "60", "1m"];
            let refused = forms.map(is_refused);
            assert_eq!(refused[..4], [refused[0]; 4], "{command}: --{long}");
            assert_eq!(refused[4..7], [refused[4]; 3], "{command}: --{long}");
            assert_eq!(refused[7], refused[8], "{command}: --{long}");
            assert!(!refused.iter().all(|refused| *refused), "{command}: --{long}");
            assert!(["", "x", "-1s", "1 s", "1S"].into_iter().all(is_refused), "{long}");
            options += 1;
        }
    }
    assert!(options > 20, "{options}");
}

/// The options that mean the same in every command, with the long name that goes with the letter.
const SHARED: [(char, &str); 3] = [('a', "app"), ('w', "write"), ('r', "read")];

/// A command that people call, by its words behind `pmdscope`.
fn commands() -> Vec<(String, Command)> {
    let mut cli = Cli::command();
    cli.build();
    let mut found = Vec::new();
    for command in cli.get_subcommands().filter(|command| is_for_people(command)) {
        found.push((command.get_name().to_owned(), command.clone()));
        for inner in command.get_subcommands().filter(|inner| is_for_people(inner)) {
            found.push((format!("{} {}", command.get_name(), inner.get_name()), inner.clone()));
        }
    }
    found
}

fn is_for_people(command: &Command) -> bool {
    command.get_name() != "help" && !command.is_hide_set()
}

fn shared(command: &Command, letter: char) -> Option<&Arg> {
    command.get_arguments().find(|option| option.get_short() == Some(letter))
}

fn is_time(option: &Arg) -> bool {
    let names = option.get_value_names().filter(|_| option.get_action().takes_values());
    names.is_some_and(|names| names.iter().any(|name| name == "TIME"))
}

#[test]
fn letters_mean_the_same_in_all_commands() {
    for (name, command) in commands() {
        for (letter, long) in SHARED {
            if let Some(option) = shared(&command, letter) {
                assert_eq!(option.get_long(), Some(long), "{name} -{letter}");
            }
            let long_alone = command.get_arguments().find(|option| option.get_long() == Some(long));
            let short = long_alone.map(Arg::get_short);
            assert!(short.is_none_or(|short| short == Some(letter)), "{name} --{long}");
        }
        let former = ["replay", "output", "recording", "root"];
        let shown = |option: &&Arg| {
            !option.is_hide_set() && option.get_long().is_some_and(|long| former.contains(&long))
        };
        assert!(!command.get_arguments().any(|option| shown(&option)), "{name}");
    }
}

#[test]
fn every_command_about_apps_takes_one() {
    let without = ["completions", "capture trigger", "bypass", "xdp"];
    for (name, command) in commands() {
        let other = without.iter().any(|other| name.starts_with(other));
        assert!(other || shared(&command, 'a').is_some(), "{name}");
    }
}

#[test]
fn former_names_still_work() {
    for line in [
        "top --replay x --once",
        "check --replay x",
        "leaks --replay x --at -5s",
        "netstat -i --replay x --at -5s",
        "leaks --write x",
        "doctor --root x",
        "bundle -o x",
        "bundle --output x --recording y",
    ] {
        let words = ["pmdscope"].into_iter().chain(line.split_whitespace());
        let parsed = Cli::command().try_get_matches_from(words);
        assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
    }
}

/// What a command does with a file: the first line of the help of its option.
fn told(command: &Command, letter: char) -> String {
    let option = shared(command, letter).filter(|option| !option.is_hide_set());
    let value =
        |option: &Arg| option.get_value_names().map_or(String::new(), |names| names.join(" "));
    let help = |option: &Arg| option.get_help().map_or(String::new(), ToString::to_string);
    let text = |option: &Arg| format!("`{}`: {}", value(option).replace('|', "\\|"), help(option));
    option.map_or(String::new(), text)
}

fn table() -> String {
    let mut lines =
        "| command | `-a` | `-w` writes | `-r` reads | times |\n|---|---|---|---|---|\n".to_owned();
    for (name, command) in commands() {
        let app = if shared(&command, 'a').is_some() { "yes" } else { "" };
        let times =
            command.get_arguments().filter(|option| is_time(option) && !option.is_hide_set());
        // A letter is shown only where it has no word.
        let word = |option: &Arg| match (option.get_long(), option.get_short()) {
            (Some(long), _) => format!("`--{long}`"),
            (None, short) => format!("`-{}`", short.unwrap_or_default()),
        };
        let times = times.map(word).collect::<Vec<_>>().join(", ");
        let cells = [app, &told(&command, 'w'), &told(&command, 'r'), &times].map(str::to_owned);
        if cells.iter().any(|cell| !cell.is_empty()) {
            lines += &["| `", &name, "` | ", &cells.join(" | "), " |\n"].concat();
        }
    }
    lines
}

#[test]
fn the_documented_table_is_that_of_the_commands() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md");
    let document = fs::read_to_string(&file).unwrap();
    let begin =
        document.find("| command | `-a` |").expect("the table is not in docs/configuration.md");
    let end = document[begin..].find("\n\n").map_or(document.len(), |length| begin + length + 1);
    let table = table();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&file, [&document[..begin], &table, &document[end..]].concat()).unwrap();
        return;
    }
    assert!(
        document[begin..end] == table,
        "docs/configuration.md is stale: run UPDATE_DOCS=1 cargo test -p pmdscope option_tests\n{table}"
    );
}
