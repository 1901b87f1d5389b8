//! Colours of text on a terminal: whether there are any, and which, by the theme of `top`.

use clap::ValueEnum;
use pmdscope_render::{Palette, TextColor, Tone};

use crate::config::{ConfigArg, ConfigError};
use crate::output::StandardOutput;
use crate::terminal;
use crate::top::theme::{is_dumb, palette, variable};

/// What tones look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Color {
    /// As all other text: no escape sequences.
    Never,
    /// As in this palette.
    Of(Palette),
}

/// When text has colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ColorMode {
    #[default]
    Auto,
    Always,
    Never,
}

/// Colours of reports.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct ColorArg {
    /// Colors: auto, always or never [default: auto]
    ///
    /// auto colors a report on a terminal, unless the environment variable `NO_COLOR` is not empty. The
    /// colors are those of theme in [top] of the configuration file.
    #[arg(
        long,
        value_enum,
        value_name = "WHEN",
        default_value_t,
        hide_default_value = true,
        hide_possible_values = true,
        hide_short_help = true
    )]
    color: ColorMode,
}

impl ColorArg {
    /// What tones look like on standard output.
    ///
    /// # Errors
    ///
    /// When the configuration is wrong.
    pub(crate) fn color(self, config: &ConfigArg) -> Result<Color, ConfigError> {
        match self.color {
            ColorMode::Never => return Ok(Color::Never),
            ColorMode::Auto if !(StandardOutput::is_terminal() && allows(variable)) => {
                return Ok(Color::Never);
            }
            ColorMode::Auto | ColorMode::Always => {}
        }
        Ok(Color::Of(palette(config.load()?.top.theme, variable).0))
    }
}

impl Color {
    /// What tones look like on standard error.
    pub(crate) fn of_stderr() -> Self {
        let has_colors = terminal::is_on_stderr() && allows(variable);
        if has_colors { Self::Of(palette(Palette::default(), variable).0) } else { Self::Never }
    }

    /// A text of this tone. Only the escape sequences are ours: the text must be harmless.
    pub(crate) fn paint(self, text: &str, tone: Tone) -> String {
        match self {
            Self::Of(palette) if !text.is_empty() => match code(palette, tone) {
                Some(code) => format!("\x1b[{code}m{text}\x1b[0m"),
                None => text.to_owned(),
            },
            _ => text.to_owned(),
        }
    }
}

/// The environment allows colours.
fn allows(variable: impl Fn(&str) -> Option<String>) -> bool {
    variable("NO_COLOR").is_none() && !is_dumb(variable)
}

/// Parameters of the escape sequence of a tone, as `top` draws it, but names of columns bold; `None` for ordinary
/// text.
fn code(palette: Palette, tone: Tone) -> Option<String> {
    let color = palette.color(tone);
    let modifier = match (tone, color) {
        (Tone::Dim, None) => Some("2"),
        (Tone::Title | Tone::Label, _) | (Tone::Warn, None) | (Tone::Bad, Some(_)) => Some("1"),
        (Tone::Bad, None) => Some("1;4"),
        _ => None,
    };
    let color = color.map(|color| match color {
        TextColor::Green => "32".to_owned(),
        TextColor::Yellow => "33".to_owned(),
        TextColor::Cyan => "36".to_owned(),
        TextColor::LightRed => "91".to_owned(),
        TextColor::LightYellow => "93".to_owned(),
        TextColor::Indexed(index) => format!("38;5;{index}"),
        TextColor::Rgb([red, green, blue]) => format!("38;2;{red};{green};{blue}"),
    });
    let codes = modifier.map(str::to_owned).into_iter().chain(color).collect::<Vec<_>>();
    (!codes.is_empty()).then(|| codes.join(";"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        color: ColorArg,
        #[command(flatten)]
        config: ConfigArg,
    }

    fn color(words: &[&str]) -> Color {
        let words = ["check", "--config", "none"].iter().chain(words);
        let cli = Cli::try_parse_from(words).ok().unwrap();
        cli.color.color(&cli.config).unwrap()
    }

    #[test]
    fn the_option_decides_where_no_terminal_does() {
        // Standard output of tests is captured.
        assert_eq!(color(&["--color", "never"]), Color::Never);
        assert!(matches!(color(&["--color", "always"]), Color::Of(_)));
        assert!(Cli::try_parse_from(["check", "--color", "red"]).is_err());
    }

    #[test]
    fn the_environment_forbids_colours() {
        let allows = |variables: &[(&str, &str)]| {
            allows(|name| {
                let found = variables.iter().find(|(of, _)| *of == name);
                found.map(|(_, value)| (*value).to_owned()).filter(|value| !value.is_empty())
            })
        };
        assert!(allows(&[("TERM", "xterm")]) && allows(&[("TERM", "xterm"), ("NO_COLOR", "")]));
        assert!(!allows(&[("TERM", "xterm"), ("NO_COLOR", "1")]));
        assert!(!allows(&[("TERM", "dumb")]) && !allows(&[]));
    }

    #[test]
    fn tones_look_as_in_top() {
        let paint = |palette, tone| Color::Of(palette).paint("a", tone);
        assert_eq!(paint(Palette::Ansi, Tone::Bad), "\x1b[1;91ma\x1b[0m");
        assert_eq!(paint(Palette::Ansi, Tone::Warn), "\x1b[33ma\x1b[0m");
        assert_eq!(paint(Palette::Ansi, Tone::Dim), "\x1b[2ma\x1b[0m");
        assert_eq!(paint(Palette::Ansi, Tone::Label), "\x1b[1ma\x1b[0m");
        assert_eq!(paint(Palette::Console, Tone::Warn), "\x1b[93ma\x1b[0m");
        assert_eq!(paint(Palette::Colorblind, Tone::Warn), "\x1b[38;5;228ma\x1b[0m");
        assert_eq!(paint(Palette::Truecolor, Tone::Good), "\x1b[38;2;126;231;135ma\x1b[0m");
        assert_eq!(paint(Palette::Mono, Tone::Bad), "\x1b[1;4ma\x1b[0m");
        assert_eq!(paint(Palette::Ansi, Tone::Plain), "a");
        assert_eq!(Color::Of(Palette::Ansi).paint("", Tone::Bad), "");
        assert_eq!(Color::Never.paint("a", Tone::Bad), "a");
    }
}
