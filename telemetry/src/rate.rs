//! Rates of counters.

/// Returns the growth per second; `None` when the counter went backwards, or no time has passed.
pub fn rate(now: u64, before: u64, seconds: f64) -> Option<f64> {
    let grown = now.checked_sub(before)?;
    (seconds > 0.0).then(|| grown as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_backwards_or_took_no_time_has_no_rate() {
        assert_eq!(rate(7, 3, 2.0), Some(2.0));
        assert_eq!(rate(3, 7, 2.0), None);
        assert_eq!(rate(7, 3, 0.0), None);
    }
}
