//! Where Esc leads back to.

use pmdscope_render::Subject;

use crate::page::PageTab;

/// Where the user was before following a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrillOrigin {
    pub(crate) tab: PageTab,
    pub(crate) selected: Option<Subject>,
    pub(crate) filter: String,
}
