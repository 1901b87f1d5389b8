//! Whether and how apps without libpmdscope are reached.

/// What may be done to an app that has no libpmdscope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AttachPolicy {
    /// Nothing.
    Never,
    /// `pmdscope-pdump` may become a secondary process of it where nothing speaks against that.
    #[default]
    Safe,
    /// The same where that may harm it.
    Forced,
    /// A sample of its packets may be read from its memory; nothing attaches to it.
    Peek,
}

/// Options of commands that look at packets.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct AttachArgs {
    /// Do not attach to apps without libpmdscope
    ///
    /// To capture from an app without libpmdscope, pmdscope starts pmdscope-pdump, a DPDK secondary
    /// process that attaches to the app.
    #[arg(long, hide_short_help = true)]
    no_pdump: bool,

    /// Attach even if this can harm the app
    ///
    /// Overrides these preflight checks: NICs bound to `uio_pci_generic`, other secondary processes,
    /// a DPDK release that is not tested. Checks without which a capture cannot
    /// work still apply.
    #[arg(long, hide_short_help = true, conflicts_with = "no_pdump")]
    force_pdump: bool,

    /// Sample packets from the memory of apps that cannot be captured
    ///
    /// For apps without libpmdscope that cannot be attached to, such as Open vSwitch: packets are read
    /// from mbufs that the app has freed. Most packets are missed; direction and queue are unknown. Uses
    /// up to 10 % of a CPU, and needs permission to read the memory of the app.
    #[arg(long, hide_short_help = true, conflicts_with_all = ["no_pdump", "force_pdump"])]
    peek: bool,
}

impl AttachArgs {
    /// The policy that follows from them.
    pub(crate) fn attach(self) -> AttachPolicy {
        match self {
            Self { no_pdump: true, .. } => AttachPolicy::Never,
            Self { force_pdump: true, .. } => AttachPolicy::Forced,
            Self { peek: true, .. } => AttachPolicy::Peek,
            Self { .. } => AttachPolicy::Safe,
        }
    }

    /// Whether one of them was given.
    pub(crate) fn is_given(self) -> bool {
        self.no_pdump || self.force_pdump || self.peek
    }
}
