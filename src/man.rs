//! `pmdscope man`: man pages of all commands, for `make install`.

mod references;
mod sections;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};
use pmdscope_files::FileMode;
use pmdscope_tui::keys::{KeyContext, NamedAction, named_actions};

use self::sections::Section;

/// Where keys of `top` work, for those that do not work everywhere.
const CONTEXTS: [(KeyContext, &str); 5] = [
    (KeyContext::Page, "On pages"),
    (KeyContext::Filter, "While a filter is typed"),
    (KeyContext::Columns, "In the window of columns"),
    (KeyContext::Capture, "While the command line of a capture is typed"),
    (KeyContext::Question, "Where a capture is to be confirmed"),
];

/// Write man pages of all commands
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Directory, which must exist
    directory: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    for page in pages() {
        let written = page.text().and_then(|text| {
            let path = args.directory.join(page.man.get_filename());
            pmdscope_files::write(&path, text.as_bytes(), FileMode::PUBLIC)
        });
        written.with_context(|| format!("cannot write to {}", args.directory.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The page of one command.
struct Page {
    command: Command,
    man: Man,
}

/// The pages of all commands that people call.
fn pages() -> Vec<Page> {
    let mut cli = with_all_texts(crate::Cli::command().disable_help_subcommand(true));
    cli.build();
    let mut pages = Vec::new();
    collect(&cli, &mut pages);
    pages
}

/// A page has the texts of all options, also of those that `-h` leaves out.
fn with_all_texts(command: Command) -> Command {
    command.mut_args(|arg| arg.hide_short_help(false)).mut_subcommands(with_all_texts)
}

fn collect(command: &Command, pages: &mut Vec<Page>) {
    let source = format!("pmdscope {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).source(source).manual("pmdscope");
    pages.push(Page { command: command.clone(), man });
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        collect(inner, pages);
    }
}

impl Page {
    fn text(&self) -> io::Result<String> {
        let mut text = Roff::new().render();
        self.add_from_definition(&mut text)?;
        let after = self.command.get_after_long_help().or_else(|| self.command.get_after_help());
        let after = after.map(ToString::to_string).unwrap_or_default();
        let mut rest = Roff::new();
        let sections = sections::of(&after).into_iter();
        let (last, first): (Vec<Section<'_>>, Vec<_>) = sections.partition(Section::is_last);
        for section in first {
            section.render(&mut rest);
        }
        if self.command.get_name() == "top" {
            add_keys(&mut rest);
        }
        for section in last {
            section.render(&mut rest);
        }
        self.add_files(&mut rest);
        self.add_see_also(&mut rest);
        text += without_prologue(&rest.render());
        Ok(text)
    }

    /// Adds what clap knows of the command.
    fn add_from_definition(&self, text: &mut String) -> io::Result<()> {
        let has_options = self.command.get_arguments().any(|arg| !arg.is_hide_set());
        let has_commands = self.command.get_subcommands().any(|inner| !inner.is_hide_set());
        let mut add = |render: &dyn Fn(&mut Vec<u8>) -> io::Result<()>| {
            let mut bytes = Vec::new();
            render(&mut bytes)?;
            *text += without_prologue(&String::from_utf8_lossy(&bytes));
            Ok::<_, io::Error>(())
        };
        add(&|out| self.man.render_title(out))?;
        add(&|out| self.man.render_name_section(out))?;
        add(&|out| self.man.render_synopsis_section(out))?;
        add(&|out| self.man.render_description_section(out))?;
        if has_options {
            add(&|out| self.man.render_options_section(out))?;
        }
        if has_commands {
            add(&|out| self.man.render_subcommands_section(out))?;
        }
        Ok(())
    }

    /// The command without `pmdscope`.
    fn name(&self) -> String {
        self.man.get_filename().trim_start_matches("pmdscope-").trim_end_matches(".1").to_owned()
    }

    fn add_files(&self, out: &mut Roff) {
        let files = references::files(&self.name(), &self.command);
        if files.is_empty() {
            return;
        }
        out.control("SH", ["FILES"]);
        for (path, text) in files {
            out.control("TP", []).text([italic(path)]).text([roman(text)]);
        }
    }

    fn add_see_also(&self, out: &mut Roff) {
        out.control("SH", ["SEE ALSO"]);
        let pages = references::see_also(&self.name(), &self.command);
        let last = pages.len().saturating_sub(1);
        let mut line = Vec::new();
        for (number, (page, section)) in pages.into_iter().enumerate() {
            let comma = if number < last { ", " } else { "" };
            line.extend([bold(page), roman(format!("({section}){comma}"))]);
        }
        out.text(line);
    }
}

/// The lines that begin a document stand once in a page.
fn without_prologue(text: &str) -> &str {
    text.strip_prefix(&Roff::new().render()).unwrap_or(text)
}

/// The keys of `top`, unless the configuration changes them.
fn add_keys(out: &mut Roff) {
    out.control("SH", ["KEYS"]);
    out.text([roman("The configuration file may give actions other keys, in [top.keys].")]);
    let mut contexts: Vec<KeyContext> = Vec::new();
    for (context, _) in named_actions() {
        if !contexts.contains(&context) {
            contexts.push(context);
        }
    }
    for context in contexts {
        let title = CONTEXTS.iter().find(|(of, _)| *of == context);
        out.control("SS", [title.map_or("Everywhere", |(_, title)| title)]);
        for (_, action) in named_actions().filter(|(of, _)| *of == context) {
            out.control("TP", []).text([bold(keys_of(action))]).text([roman(action.meaning)]);
        }
    }
}

fn keys_of(action: &NamedAction) -> String {
    action.default_keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// All pages, by their file names.
#[cfg(test)]
fn texts() -> Vec<(String, String)> {
    pages().iter().map(|page| (page.man.get_filename(), page.text().unwrap())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(name: &str) -> String {
        texts().into_iter().find(|(file, _)| file == name).unwrap().1
    }

    #[test]
    fn every_command_has_a_page_with_its_options() {
        let directory = tempfile::tempdir().unwrap();
        run(&Args { directory: directory.path().to_owned() }).unwrap();
        for command in crate::Cli::command().get_subcommands() {
            let page = directory.path().join(format!("pmdscope-{}.1", command.get_name()));
            assert_eq!(page.exists(), !command.is_hide_set(), "{}", page.display());
        }
        let capture = std::fs::read_to_string(directory.path().join("pmdscope-capture.1")).unwrap();
        assert!(capture.contains(r"\-\-trigger"), "{capture}");
    }

    #[test]
    fn every_page_has_the_usual_sections() {
        for (file, text) in texts() {
            for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "SEE ALSO"] {
                let heading =
                    format!("\n.SH {section}\n").replace("EXIT STATUS", "\"EXIT STATUS\"");
                let heading = heading.replace("SEE ALSO", "\"SEE ALSO\"");
                assert_eq!(text.matches(&heading).count(), 1, "{file}: {section}\n{text}");
            }
            let is_of_apps = text.contains(r"\-\-app");
            assert!(!is_of_apps || text.contains("\n.SH FILES\n"), "{file}");
            let examples = text.matches("\n.SH EXAMPLES\n.EX\n").count();
            assert_eq!(examples, text.matches(".SH EXAMPLES").count(), "{file}");
            assert!(
                !text.contains("Examples:") && !text.contains("Exit status:"),
                "{file}\n{text}"
            );
        }
    }

    /// A heading, or an option, without a text would leave readers with nothing.
    #[test]
    fn no_text_is_empty() {
        for (file, text) in texts() {
            let lines: Vec<&str> = text.lines().collect();
            let is_text = |at: usize| {
                lines
                    .get(at)
                    .is_some_and(|line| !line.trim().is_empty() && !line.starts_with(".TP"))
            };
            for (at, line) in lines.iter().enumerate() {
                if line.starts_with(".SH") || line.starts_with(".SS") {
                    let next = lines.get(at + 1).copied().unwrap_or_default();
                    assert!(!next.is_empty() && !next.starts_with(".SH"), "{file}: {line}");
                } else if *line == ".TP" {
                    assert!(is_text(at + 1) && is_text(at + 2), "{file}: {:?}", lines.get(at + 1));
                    assert!(!lines[at + 2].starts_with(".SH"), "{file}: {}", lines[at + 1]);
                }
            }
        }
    }

    #[test]
    fn the_page_of_top_has_its_keys() {
        let text = page("pmdscope-top.1");
        let keys = text.split("\n.SH KEYS\n").nth(1).unwrap().split("\n.SH ").next().unwrap();
        for (_, action) in named_actions() {
            let key = action.default_keys[0].to_string().replace('\\', r"\\").replace('-', r"\-");
            assert!(keys.contains(&key.replace('\'', r"\*(Aq")), "{}: {keys}", action.name);
        }
    }
}
