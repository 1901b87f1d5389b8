//! The pages of the display and of its help.

/// The pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PageTab {
    /// Apps and findings.
    #[default]
    Overview,
    /// Ports and queues.
    Ports,
    /// Mempools and leaks.
    Pools,
    /// Poll loops.
    Lcores,
    /// Conversations.
    Flows,
    /// Software rings.
    Rings,
    /// Capture sessions.
    Captures,
    /// Findings with their evidence and history.
    Findings,
    /// Interfaces of the kernel.
    Kernel,
    /// What apps replied.
    Raw,
}

impl PageTab {
    /// All, in the order of their keys.
    pub const ALL: [Self; 10] = [
        Self::Overview,
        Self::Ports,
        Self::Pools,
        Self::Lcores,
        Self::Flows,
        Self::Rings,
        Self::Captures,
        Self::Findings,
        Self::Kernel,
        Self::Raw,
    ];

    /// Heading. All of them, with their keys, fit into 80 columns.
    pub fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Ports => "Ports",
            Self::Pools => "Pools",
            Self::Lcores => "Lcores",
            Self::Flows => "Flows",
            Self::Rings => "Rings",
            Self::Captures => "Captures",
            Self::Findings => "Findings",
            Self::Kernel => "Kernel",
            Self::Raw => "Raw",
        }
    }

    /// Its first table is that of the findings.
    pub(crate) fn lists_findings(self) -> bool {
        matches!(self, Self::Overview | Self::Findings)
    }

    /// Its name in the configuration and where it is typed.
    pub fn name(self) -> String {
        self.title().to_lowercase()
    }

    /// The tab `step` places further, round and round.
    #[must_use]
    pub fn step(self, step: usize) -> Self {
        Self::ALL[(self as usize + step) % Self::ALL.len()]
    }
}

/// The pages of the help.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HelpPage {
    /// Keys, first those that matter where the help was asked for.
    #[default]
    Keys,
    /// Filters, and the columns that they may name.
    Filters,
    /// What can be typed on the command line.
    Commands,
    /// What signs and words in tables and graphs mean.
    Signs,
}

impl HelpPage {
    /// All, in their order.
    pub const ALL: [Self; 4] = [Self::Keys, Self::Filters, Self::Commands, Self::Signs];

    /// Heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Keys => "Keys",
            Self::Filters => "Filters",
            Self::Commands => "Commands",
            Self::Signs => "Signs",
        }
    }

    /// The page `step` places further, round and round.
    #[must_use]
    pub(crate) fn step(self, step: usize) -> Self {
        Self::ALL[(self as usize + step) % Self::ALL.len()]
    }
}
