//! How the display was started, so far as tasks depend on it.

/// What tasks need to know of how the display was started.
#[derive(Clone, Debug, Default)]
pub struct TaskContext {
    /// Nothing is to be done.
    pub read_only: bool,
    /// The recording that is played.
    pub recording: Option<String>,
    /// The only app, as it was named.
    pub app: Option<String>,
    /// The configuration file, if one was named.
    pub config: Option<String>,
    /// The memory of apps is not to be read.
    pub no_xray: bool,
}

impl TaskContext {
    /// Why nothing may be done; `None` where it may.
    pub(crate) fn forbidden(&self) -> Option<&'static str> {
        self.read_only.then_some("read-only: top changes nothing and writes nothing")
    }

    /// The same for what needs the apps themselves.
    ///
    /// # Errors
    /// Why it may not be done.
    pub(crate) fn check_live(&self) -> Result<(), String> {
        if let Some(reason) = self.forbidden() {
            return Err(reason.to_owned());
        }
        match &self.recording {
            None => Ok(()),
            Some(_) => {
                Err("this is a recording: its apps cannot be captured from or armed".to_owned())
            }
        }
    }
}
