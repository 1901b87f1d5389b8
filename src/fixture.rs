//! Arguments of commands for tests.

use clap::Parser;

#[derive(Parser)]
struct CommandLine<T: clap::Args> {
    #[command(flatten)]
    args: T,
}

/// The arguments that a command takes from these words, which blanks separate.
pub(crate) fn parse_args<T: clap::Args>(command: &str, words: &str) -> Result<T, clap::Error> {
    let words = [command].into_iter().chain(words.split_ascii_whitespace());
    CommandLine::try_parse_from(words).map(|line| line.args)
}
