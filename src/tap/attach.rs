//! Whether and how apps without libpmdscope are reached.

/// What may be done to an app that has no libpmdscope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Attach {
    /// Nothing.
    Never,
    /// `pmdscope-pdump` may become a secondary process of it where nothing speaks against that.
    #[default]
    Safe,
    /// The same where that may harm it.
    Forced,
}

/// Options of commands that look at packets.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct AttachArgs {
    /// Leave apps without libpmdscope alone, whose packets take a DPDK secondary process,
    /// pmdscope-pdump, that attaches to them
    #[arg(long)]
    no_pdump: bool,

    /// Attach even where that may harm the app: to NICs on `uio_pci_generic`, beside other secondary
    /// processes, across containers, and without lock-free memory pools. What cannot work stays
    /// refused
    #[arg(long, conflicts_with = "no_pdump")]
    force_pdump: bool,
}

impl AttachArgs {
    /// What that means.
    pub(crate) fn attach(self) -> Attach {
        match self {
            Self { no_pdump: true, .. } => Attach::Never,
            Self { force_pdump: true, .. } => Attach::Forced,
            Self { .. } => Attach::Safe,
        }
    }

    /// One of them was given.
    pub(crate) fn is_given(self) -> bool {
        self.no_pdump || self.force_pdump
    }
}
