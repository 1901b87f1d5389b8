//! Times in evidence, in units that people read.

use std::time::Duration;

/// Returns a time as text: `512 us`, `5.1 ms`, `2.0 s`, `4m20s`, `4h32m`.
pub(crate) fn duration(us: f64) -> String {
    let seconds = us / 1e6;
    match us {
        us if us < 1e3 => format!("{us:.0} us"),
        us if us < 1e6 => format!("{:.1} ms", us / 1e3),
        _ if seconds < 60.0 => format!("{seconds:.1} s"),
        _ => long(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX).as_secs()),
    }
}

fn long(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes}m{:02}s", seconds % 60),
        (0, hours) => format!("{hours}h{minutes:02}m"),
        (days, hours) => format!("{days}d{hours:02}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_unit_that_fits() {
        let text = |seconds: f64| duration(seconds * 1e6);
        assert_eq!(text(0.000_512), "512 us");
        assert_eq!(text(0.005_123), "5.1 ms");
        assert_eq!(text(59.94), "59.9 s");
        assert_eq!(text(260.4), "4m20s");
        assert_eq!(text(16_320.0), "4h32m");
        assert_eq!(text(200_000.0), "2d07h");
        assert_eq!(text(f64::MAX), duration(f64::INFINITY), "no panic");
    }
}
