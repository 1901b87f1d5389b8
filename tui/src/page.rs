//! The pages of the display.

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

    /// The tab `step` places further, round and round.
    #[must_use]
    pub fn step(self, step: usize) -> Self {
        Self::ALL[(self as usize + step) % Self::ALL.len()]
    }
}
