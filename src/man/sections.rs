//! The text behind the options of `--help`, as sections of a man page.

use clap_mangen::roff::{Roff, bold, roman};

/// Titles that may stand before a text, on the same line.
const BEFORE_TEXT: [&str; 6] = ["Examples", "Exit status", "JSON", "Pages", "SIGHUP", "Signals"];
/// Sections at the end of a page, in that order.
const LAST: [&str; 2] = ["Examples", "Exit status"];
/// Of paragraphs without a title.
const NOTES: &str = "Notes";
/// Longest line that is a title.
const LONGEST_TITLE: usize = 24;

/// A part of the text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Section<'a> {
    title: &'a str,
    lines: Vec<&'a str>,
}

/// The sections, those of the end of a page last.
pub(super) fn of(text: &str) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    // A paragraph that begins ends a section.
    let mut begins = true;
    for line in text.lines() {
        let goes_on =
            |last: &&mut Section<'_>| !begins || line.starts_with(' ') || last.title == NOTES;
        if let Some((title, rest)) = title(line, begins) {
            let lines = Some(rest).filter(|rest| !rest.is_empty()).into_iter().collect();
            sections.push(Section { title, lines });
        } else if let Some(last) = sections.last_mut().filter(goes_on) {
            last.lines.push(line);
        } else if !line.is_empty() {
            sections.push(Section { title: NOTES, lines: vec![line] });
        }
        begins = line.is_empty();
    }
    for section in &mut sections {
        while section.lines.last().is_some_and(|line| line.is_empty()) {
            section.lines.pop();
        }
    }
    let mut sections = with_one_of_notes(sections);
    sections.sort_by_key(|section| LAST.iter().position(|title| *title == section.title));
    sections
}

/// The same, with all paragraphs without a title in one section, where the first one is.
fn with_one_of_notes(sections: Vec<Section<'_>>) -> Vec<Section<'_>> {
    let mut merged: Vec<Section<'_>> = Vec::new();
    for section in sections {
        let notes = merged.iter_mut().find(|known| known.title == NOTES && section.title == NOTES);
        match notes {
            Some(notes) => notes.lines.extend([""].into_iter().chain(section.lines)),
            None => merged.push(section),
        }
    }
    merged
}

/// The title that a line begins with, and the text behind it.
fn title(line: &str, begins: bool) -> Option<(&str, &str)> {
    let before_text = BEFORE_TEXT.iter().find_map(|title| {
        let rest = line.strip_prefix(title)?.strip_prefix(':')?;
        Some((*title, rest.trim_start()))
    });
    let is_alone = begins && line.len() <= LONGEST_TITLE && !line.starts_with(' ');
    before_text.or_else(|| line.strip_suffix(':').filter(|_| is_alone).map(|title| (title, "")))
}

impl Section<'_> {
    /// Stands at the end of a page.
    pub(super) fn is_last(&self) -> bool {
        LAST.contains(&self.title)
    }

    pub(super) fn render(&self, out: &mut Roff) {
        out.control("SH", [self.title.to_uppercase().as_str()]);
        if self.title == "Examples" {
            return literal(&self.lines, out);
        }
        let is_indented = |line: &&str| line.starts_with(' ');
        // A text that begins behind the title has indented lines only for looks.
        let is_text =
            self.lines.first().is_some_and(|line| !is_indented(line)) && self.title != NOTES;
        let mut lines = self.lines.as_slice();
        while let Some(first) = lines.first() {
            let of_list = is_indented(first) && !is_text;
            let count =
                lines.iter().take_while(|line| is_text || is_indented(line) == of_list).count();
            let (these, others) = lines.split_at(count);
            if of_list {
                list(these, out);
            } else {
                paragraphs(these, out);
            }
            // What follows a list does not belong to its last item.
            if of_list && others.first().is_some_and(|line| !line.is_empty()) {
                out.control("PP", []);
            }
            lines = others;
        }
    }
}

/// Lines as they are, such as commands.
fn literal(lines: &[&str], out: &mut Roff) {
    out.control("EX", []);
    for line in unindented(lines) {
        out.text([roman(line)]);
    }
    out.control("EE", []);
}

fn paragraphs(lines: &[&str], out: &mut Roff) {
    for line in lines {
        match line.trim() {
            "" => out.control("PP", []),
            line => out.text([roman(line)]),
        };
    }
}

/// Terms, each with a text behind at least two blanks, which goes on in lines that are indented further.
fn list(lines: &[&str], out: &mut Roff) {
    let mut items: Vec<(&str, String)> = Vec::new();
    for line in unindented(lines) {
        if let Some((_, text)) = items.last_mut().filter(|_| line.starts_with(' ')) {
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(line.trim());
        } else {
            let (term, text) = line.split_once("  ").unwrap_or((line, ""));
            items.push((term, text.trim().to_owned()));
        }
    }
    if items.iter().any(|(_, text)| text.is_empty()) {
        return literal(lines, out);
    }
    for (term, text) in items {
        out.control("TP", []).text([bold(term)]).text([roman(text)]);
    }
}

/// The lines without the blanks that all of them begin with.
fn unindented<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    let blanks = |line: &&&str| line.len() - line.trim_start().len();
    let least = lines.iter().filter(|line| !line.is_empty()).map(|line| blanks(&line)).min();
    lines.iter().map(|line| line.get(least.unwrap_or(0)..).unwrap_or_default()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(text: &str) -> String {
        let mut out = Roff::new();
        for section in of(text) {
            section.render(&mut out);
        }
        out.to_roff()
    }

    #[test]
    fn a_text_is_split_at_its_titles() {
        let text = "\
Columns:
  Level    0: stock
           1: linked
  Name
           of the app

Examples:
  pmdscope x   one
      Longer.

A note of
two lines.

Another:
  a  b
Exit status: 0 ok,
1 failed.";
        insta::assert_snapshot!(rendered(text), @r#"
        .SH COLUMNS
        .TP
        \fBLevel\fR
        0: stock 1: linked
        .TP
        \fBName\fR
        of the app
        .SH NOTES
        A note of
        two lines.
        .SH ANOTHER
        .TP
        \fBa\fR
        b
        .SH EXAMPLES
        .EX
        pmdscope x   one
            Longer.
        .EE
        .SH "EXIT STATUS"
        0 ok,
        1 failed.
        "#);
    }

    #[test]
    fn a_list_within_a_paragraph_stays_there() {
        let text = "First.\nEach counts as one of:\n  passed  ok\n  not_ip  else\nThe end.\n\nExit status:\n  0  ok";
        insta::assert_snapshot!(rendered(text), @r#"
        .SH NOTES
        First.
        Each counts as one of:
        .TP
        \fBpassed\fR
        ok
        .TP
        \fBnot_ip\fR
        else
        .PP
        The end.
        .SH "EXIT STATUS"
        .TP
        \fB0\fR
        ok
        "#);
    }
}
