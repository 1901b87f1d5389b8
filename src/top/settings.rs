//! What `[top]` of the configuration sets. Options of the command line come before it.

use std::time::Duration;

use pmdscope_render::Palette;
use pmdscope_tui::columns::check_filter;
use pmdscope_tui::keys::KeyMap;
use pmdscope_tui::state::{ColumnChoices, PageTab, ViewFilter};

/// Time between two samples.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);

/// How the display starts, and its keys.
#[derive(Clone, Debug)]
pub(crate) struct TopSettings {
    /// Time between two samples, except for a single report.
    pub(crate) interval: Duration,
    /// The page that is shown first.
    pub(crate) page: PageTab,
    /// The filter at first, and after a reset.
    pub(crate) filter: String,
    /// Colours.
    pub(crate) theme: Palette,
    /// ASCII characters only; `None`: by the locale.
    pub(crate) ascii: Option<bool>,
    /// The mouse is taken.
    pub(crate) mouse: bool,
    /// Keys change and write nothing.
    pub(crate) read_only: bool,
    /// Which keys do what.
    pub(crate) keys: KeyMap,
    /// Which columns tables show.
    pub(crate) columns: ColumnChoices,
}

impl Default for TopSettings {
    fn default() -> Self {
        Self {
            interval: DEFAULT_INTERVAL,
            page: PageTab::default(),
            filter: String::new(),
            theme: Palette::default(),
            ascii: None,
            mouse: true,
            read_only: false,
            keys: KeyMap::default(),
            columns: ColumnChoices::default(),
        }
    }
}

/// The page of that name.
///
/// # Errors
/// The names that there are.
pub(crate) fn page(text: &str) -> Result<PageTab, String> {
    let found = PageTab::ALL.into_iter().find(|tab| tab.name() == text);
    found.ok_or_else(|| {
        let names = PageTab::ALL.map(PageTab::name);
        format!("expected one of {}", names.join(", "))
    })
}

/// A filter, as it is typed.
///
/// # Errors
/// When it cannot be typed, or is not valid.
pub(crate) fn filter(text: &str) -> Result<String, String> {
    if text.chars().any(char::is_control) {
        return Err("it has control characters".to_owned());
    }
    let filter = ViewFilter::parse(text)?;
    check_filter(&filter).map(|()| text.to_owned()).map_err(|why| why.with_place())
}
