//! Marks at the moments in which findings began, with their names where there is room.

use std::cmp::Reverse;

use pmdscope_render::{Theme, Tone};
use pmdscope_telemetry::finding::{Finding, Lint, Severity};

use crate::style::severity_look;

/// A moment in which findings began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FindingMark {
    /// When, as [`super::TimelineFrame::at`].
    pub at: u64,
    /// What began.
    pub began: NewFindings,
}

/// Findings that began together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewFindings {
    /// The worst severity.
    pub severity: Severity,
    /// The first that is as bad.
    pub lint: Lint,
    /// How many more there are.
    pub others: u32,
}

impl NewFindings {
    /// That one.
    pub fn of(finding: &Finding) -> Self {
        Self { severity: finding.severity, lint: finding.lint, others: 0 }
    }

    /// Both.
    #[must_use]
    pub fn with(self, later: Self) -> Self {
        let worst = if later.severity > self.severity { later } else { self };
        Self { others: self.others.saturating_add(later.others).saturating_add(1), ..worst }
    }

    fn name(self) -> String {
        match self.others {
            0 => self.lint.name().to_owned(),
            others => format!("{} +{others}", self.lint),
        }
    }
}

/// Writes a sign for each mark into its cell, and beside it the name of what began, so far as all
/// cells that this needs are `free`. Of several marks the worst comes first, and then the newest.
pub(crate) fn write(
    cells: &mut [(char, Tone)],
    mut marks: Vec<(usize, FindingMark)>,
    theme: Theme,
    free: &[char],
) {
    marks.retain(|(cell, _)| *cell < cells.len());
    marks.sort_by_key(|(_, mark)| (Reverse(mark.began.severity), Reverse(mark.at)));
    for (cell, mark) in marks.iter().rev() {
        let (sign, tone) = severity_look(mark.began.severity, theme);
        cells[*cell] = (sign.chars().next().unwrap_or('!'), tone);
    }
    for (cell, mark) in &marks {
        let (_, tone) = severity_look(mark.began.severity, theme);
        write_name(cells, *cell, &mark.began.name(), tone, free);
    }
}

/// Behind the sign, or else before it, with a free cell at the other end.
fn write_name(cells: &mut [(char, Tone)], sign: usize, name: &str, tone: Tone, free: &[char]) {
    let length = name.chars().count();
    let is_free = |from: usize, cells: &[(char, Tone)]| {
        let room = cells.get(from..from + length + 1);
        room.is_some_and(|room| room.iter().all(|(letter, _)| free.contains(letter)))
    };
    let before = sign.checked_sub(length + 1);
    let at = if is_free(sign + 1, cells) {
        Some(sign + 1)
    } else {
        before.filter(|&before| is_free(before, cells)).map(|before| before + 1)
    };
    let Some(at) = at else { return };
    for (cell, letter) in cells[at..].iter_mut().zip(name.chars()) {
        *cell = (letter, tone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(width: usize, marks: &[(usize, Lint, Severity)]) -> String {
        let mut cells = vec![('-', Tone::Dim); width];
        let mark = |(at, &(cell, lint, severity)): (usize, &(usize, Lint, Severity))| {
            let began = NewFindings { severity, lint, others: 0 };
            (cell, FindingMark { at: at as u64, began })
        };
        let marks = marks.iter().enumerate().map(mark).collect();
        write(&mut cells, marks, Theme::ASCII, &['-']);
        cells.into_iter().map(|(letter, _)| letter).collect()
    }

    #[test]
    fn names_stand_beside_their_signs_where_there_is_room() {
        use Severity::{Critical, Info};
        assert_eq!(drawn(12, &[(2, Lint::Leak, Critical)]), "--!leak-----");
        assert_eq!(drawn(12, &[(11, Lint::Leak, Critical)]), "-------leak!");
        assert_eq!(drawn(7, &[(3, Lint::Leak, Critical)]), "---!---");
        assert_eq!(
            drawn(16, &[(1, Lint::Leak, Critical), (7, Lint::Stall, Info)]),
            "-!leak-istall---"
        );
        // The worst has its name, and its sign.
        assert_eq!(
            drawn(14, &[(3, Lint::Stall, Info), (5, Lint::Leak, Critical)]),
            "---i-!leak----"
        );
        assert_eq!(drawn(8, &[(1, Lint::Leak, Critical), (1, Lint::Leak, Info)]), "-!leak--");
        assert_eq!(drawn(0, &[(0, Lint::Leak, Critical)]), "");
    }

    #[test]
    fn several_have_the_name_of_the_worst() {
        let of = |lint, severity| NewFindings { severity, lint, others: 0 };
        let all = of(Lint::Stall, Severity::Warning)
            .with(of(Lint::Leak, Severity::Critical))
            .with(of(Lint::PoolExhausting, Severity::Critical));
        assert_eq!((all.name().as_str(), all.severity), ("leak +2", Severity::Critical));
    }
}
