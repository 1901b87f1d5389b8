//! Which theme `top` has: by options, configuration, environment and terminal.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use pmdscope_render::{Palette, Theme};

use super::settings::TopSettings;

/// Colours.
#[derive(clap::Args)]
pub(super) struct ThemeArg {
    /// Colors: ansi, truecolor, truecolor-light, colorblind, mono
    ///
    /// ansi uses the 16 colors of the terminal, truecolor 24-bit colors for a dark background,
    /// truecolor-light for a light one. colorblind needs neither red nor green; it is for a dark
    /// background. Default: theme in [top] of the configuration file, else ansi; mono if the
    /// environment variable `NO_COLOR` is not empty.
    #[arg(long, value_name = "NAME", value_parser = palette_parser(), hide_possible_values = true,
          hide_short_help = true, conflicts_with = "mono")]
    theme: Option<Palette>,

    #[arg(long, help = "No colors, like the environment variable NO_COLOR")]
    mono: bool,
}

fn palette_parser() -> impl TypedValueParser<Value = Palette> {
    PossibleValuesParser::new(Palette::ALL.map(Palette::name))
        .try_map(|name| Palette::named(&name).ok_or("no such theme"))
}

/// Looks up a variable of the environment; an empty one counts as unset.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The terminal cannot move the cursor, or it is unknown whether it can.
pub(crate) fn is_dumb(variable: impl Fn(&str) -> Option<String>) -> bool {
    variable("TERM").is_none_or(|term| term == "dumb")
}

impl ThemeArg {
    /// The theme of the command line.
    pub(super) fn given(&self) -> Option<Palette> {
        self.theme.or(self.mono.then_some(Palette::Mono))
    }

    /// The theme, and why it is not the one that was asked for.
    pub(super) fn choose(
        &self,
        top: &TopSettings,
        variable: impl Fn(&str) -> Option<String>,
    ) -> (Theme, Option<String>) {
        let wanted = match self.given() {
            Some(theme) => theme,
            None if variable("NO_COLOR").is_some() => Palette::Mono,
            None => top.theme,
        };
        let (palette, remark) = palette(wanted, &variable);
        let remark = remark.map(|why| format!("theme {palette} instead of {wanted}: {why}"));
        (Theme { palette, ascii: top.ascii.unwrap_or_else(|| !is_utf8(variable)) }, remark)
    }
}

/// What the terminal can show of a palette, and why it is not that one.
pub(crate) fn palette(
    wanted: Palette,
    variable: impl Fn(&str) -> Option<String>,
) -> (Palette, Option<&'static str>) {
    let term = variable("TERM").unwrap_or_default();
    let (palette, remark) = match wanted {
        Palette::Truecolor | Palette::TruecolorLight if !has_24_bits(&term, &variable) => {
            (Palette::Ansi, Some("COLORTERM is not truecolor"))
        }
        Palette::Colorblind if has_16_colors(&term) => {
            (Palette::Mono, Some("the terminal has less than 256 colors"))
        }
        _ => (wanted, None),
    };
    let console = palette == Palette::Ansi && term == "linux";
    (if console { Palette::Console } else { palette }, remark)
}

/// Terminals report this in a variable, because terminfo does not:
/// <https://github.com/termstandard/colors>.
fn has_24_bits(term: &str, variable: impl Fn(&str) -> Option<String>) -> bool {
    let said = variable("COLORTERM").is_some_and(|said| said == "truecolor" || said == "24bit");
    said || term.ends_with("-direct")
}

/// Terminals without the 256 colours of xterm, according to their entries in terminfo.
fn has_16_colors(term: &str) -> bool {
    let known = ["linux", "ansi", "cygwin", "cons25", "pcansi", "xterm-16color", "xterm-color"];
    known.contains(&term) || term.starts_with("vt")
}

/// The locale is UTF-8, or not set.
fn is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(variable);
    locale.is_none_or(|locale| {
        let locale = locale.to_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        theme: ThemeArg,
    }

    const TRUECOLOR: &[(&str, &str)] = &[("TERM", "xterm"), ("COLORTERM", "truecolor")];

    fn lookup(variables: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        |name| {
            let of = variables.iter().find(|(of, _)| *of == name);
            of.map(|(_, value)| (*value).to_owned()).filter(|value| !value.is_empty())
        }
    }

    fn choose(
        words: &[&str],
        configured: Palette,
        variables: &[(&str, &str)],
    ) -> (Palette, Option<String>) {
        let cli = Cli::try_parse_from(["top"].iter().chain(words)).ok().unwrap();
        let top = TopSettings { theme: configured, ..TopSettings::default() };
        let (theme, remark) = cli.theme.choose(&top, lookup(variables));
        (theme.palette, remark)
    }

    #[test]
    fn the_option_goes_before_the_environment_and_that_before_the_configuration() {
        let no_color = [("TERM", "xterm"), ("NO_COLOR", "1")];
        let empty = [("TERM", "xterm"), ("NO_COLOR", "")];
        let colorblind = ["--theme", "colorblind"];
        let cases = [
            (&[][..], Palette::Ansi, &[][..], Palette::Ansi),
            (&[], Palette::Colorblind, &[], Palette::Colorblind),
            (&[], Palette::Colorblind, &empty, Palette::Colorblind),
            (&[], Palette::Colorblind, &no_color, Palette::Mono),
            (&["--mono"], Palette::Colorblind, &[], Palette::Mono),
            (&colorblind, Palette::Mono, &no_color, Palette::Colorblind),
            (&["--theme", "ansi"], Palette::Mono, &[], Palette::Ansi),
        ];
        for (words, configured, variables, expected) in cases {
            let chosen = choose(words, configured, variables);
            assert_eq!(chosen, (expected, None), "{words:?} {configured} {variables:?}");
        }
        for wrong in [&["--theme", "red"][..], &["--theme", "ansi", "--mono"], &["--theme"]] {
            assert!(Cli::try_parse_from(["top"].iter().chain(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_terminal_without_the_colours_gets_others_and_is_told() {
        for name in ["truecolor", "truecolor-light"] {
            let words = ["--theme", name];
            for able in [TRUECOLOR, &[("COLORTERM", "24bit")], &[("TERM", "xterm-direct")]] {
                let (palette, remark) = choose(&words, Palette::Ansi, able);
                assert_eq!((palette.name(), remark), (name, None));
            }
            for unable in [&[("TERM", "xterm-256color")][..], &[("COLORTERM", "yes")]] {
                let (palette, remark) = choose(&words, Palette::Ansi, unable);
                let expected = format!("theme ansi instead of {name}: COLORTERM is not truecolor");
                assert_eq!((palette, remark), (Palette::Ansi, Some(expected)));
            }
        }
        for term in ["linux", "vt220"] {
            let (palette, remark) = choose(&[], Palette::Colorblind, &[("TERM", term)]);
            assert_eq!(palette, Palette::Mono);
            assert!(remark.unwrap().contains("256"), "{term}");
        }
        let console = [("TERM", "linux")];
        assert_eq!(choose(&["--theme", "truecolor"], Palette::Ansi, &console).0, Palette::Console);
        assert_eq!(choose(&[], Palette::Ansi, &console), (Palette::Console, None));
    }

    #[test]
    fn the_first_variable_of_the_locale_decides_on_the_characters() {
        let cases = [
            (&[][..], true),
            (&[("LANG", "en_US.UTF-8")], true),
            (&[("LANG", "de_DE.utf8@euro")], true),
            (&[("LANG", "C")], false),
            (&[("LANG", "de_DE")], false),
            (&[("LANG", "de_DE.ISO-8859-1")], false),
            (&[("LANG", "C"), ("LC_CTYPE", "C.UTF-8")], true),
            (&[("LANG", "C.UTF-8"), ("LC_CTYPE", "POSIX")], false),
            (&[("LANG", "C.UTF-8"), ("LC_CTYPE", "C.UTF-8"), ("LC_ALL", "C")], false),
            (&[("LANG", "C"), ("LC_CTYPE", "C"), ("LC_ALL", "C.UTF-8")], true),
            (&[("LANG", "C.UTF-8"), ("LC_ALL", "")], true),
        ];
        for (variables, utf8) in cases {
            assert_eq!(is_utf8(lookup(variables)), utf8, "{variables:?}");
        }
    }

    #[test]
    fn characters_are_those_of_the_configuration_before_those_of_the_locale() {
        let cli = Cli::try_parse_from(["top"]).ok().unwrap();
        for (configured, locale, ascii) in [
            (None, "C", true),
            (None, "C.UTF-8", false),
            (Some(false), "C", false),
            (Some(true), "C.UTF-8", true),
        ] {
            let top = TopSettings { ascii: configured, ..TopSettings::default() };
            let (theme, _) = cli.theme.choose(&top, lookup(&[("LANG", locale)]));
            assert_eq!(theme.ascii, ascii, "{configured:?} {locale}");
        }
    }

    #[test]
    fn a_terminal_that_nobody_named_is_dumb() {
        for (variables, dumb) in [
            (&[][..], true),
            (&[("TERM", "")], true),
            (&[("TERM", "dumb")], true),
            (TRUECOLOR, false),
        ] {
            assert_eq!(is_dumb(lookup(variables)), dumb, "{variables:?}");
        }
    }
}
