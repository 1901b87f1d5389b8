//! Why there are no packets of an app.

use pmdscope_capture::pdump::PdumpProgramError;

/// Why packets cannot be had, in a word or two and in full.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(crate) struct CaptureUnavailable {
    pub(crate) word: &'static str,
    pub(crate) text: String,
}

impl CaptureUnavailable {
    /// An error of [`super::transport::Preflight::of`]; what is wrong with the helper is the same for all apps.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        if let Some(known) = error.downcast_ref::<Self>() {
            return known.clone();
        }
        let helper = error.chain().find_map(|cause| cause.downcast_ref::<PdumpProgramError>());
        match helper {
            Some(error @ PdumpProgramError::Missing(_)) => {
                Self { word: "not installed", text: error.to_string() }
            }
            Some(error @ PdumpProgramError::Broken(..)) => {
                Self { word: "broken helper", text: error.to_string() }
            }
            None => Self { word: "see below", text: format!("{error:#}") },
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn every_reason_has_a_short_form() {
        let missing = || PdumpProgramError::Missing(vec!["/nowhere".into()]);
        let error = anyhow::Error::from(missing()).context("rte runs without libpmdscope");
        let reason = CaptureUnavailable::of(&error);
        assert_eq!((reason.word, reason.text), ("not installed", missing().to_string()));
        let reason = CaptureUnavailable {
            word: "in-memory",
            text: "rte was started with --in-memory".into(),
        };
        assert_eq!(CaptureUnavailable::of(&reason.clone().into()), reason);
        assert_eq!(CaptureUnavailable::of(&anyhow!("rte is odd")).text, "rte is odd");
    }
}
