//! `--sample`: which packets of an app are captured.

use std::num::NonZeroU32;
use std::str::FromStr;

/// Which packets are captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SamplingMode {
    /// As many as can be.
    Auto,
    /// One in so many.
    Fixed(NonZeroU32),
}

impl FromStr for SamplingMode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        text.parse().map(Self::Fixed).map_err(|_| "expected auto or a whole number of at least 1")
    }
}

/// A note on apps whose share of kept packets cannot be changed.
pub(crate) fn fixed(apps: &[String]) -> Option<String> {
    let apps = (!apps.is_empty()).then(|| apps.join(", "))?;
    Some(format!(
        "{apps}: libpmdscope is too old to change the sampling rate of a running capture; set it with \
         --sample N"
    ))
}
