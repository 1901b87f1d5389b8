//! Texts of the help that no table of the program has.

/// What is explained, and how.
pub(super) type Entry = (&'static str, &'static str);

/// Terms of a filter.
pub(super) const TERMS: [Entry; 7] = [
    ("word", "the word in any column, in upper or lower case"),
    ("/regex/", "a regular expression, which may have spaces"),
    ("column:word", "the word in one column, whose name may be shortened"),
    ("column>number", "also >= < <= =; a row without a number does not match"),
    ("not, !", "rows that do not match the term behind it"),
    ("and, or, ( )", "both; at least one; first what is within"),
    ("dport :443", "conversations, by all tests of pmdscope netstat"),
];

/// Numbers of a filter.
pub(super) const NUMBERS: [Entry; 3] = [
    ("1k 2.5M 1G 64KiB", "counts and rates"),
    ("90% or 90", "shares"),
    ("50us 3ms 10s 2m 1h 1d", "times"),
];

/// Filters, and what they find.
pub(super) const EXAMPLES: [Entry; 5] = [
    ("miss>0", "apps or ports that miss packets"),
    ("used>90% !pool:rx", "pools that are nearly empty, without those named rx"),
    ("gap>50us !lcore=1", "lcores with long gaps between polls, without lcore 1"),
    ("empty<10m", "pools that are empty within 10 minutes"),
    ("dport :443 or dport :80", "web conversations"),
];

/// Values that are no numbers, or marked.
pub(super) const VALUES: [Entry; 3] = [
    ("!value", "unhealthy"),
    ("-", "unknown, for example a rate before the second sample"),
    ("n/a", "not provided by the driver, or needs libpmdscope"),
];

/// Columns whose titles say too little.
pub(super) const COLUMNS: [Entry; 5] = [
    ("Win max", "maximum in the last complete window; Max: since the start"),
    ("Gap", "longest time between two polls of a poll loop in that window"),
    ("Split", "objects in use, in lcore caches, and free in the common pool"),
    ("Since", "since when a finding is there; >: at least so long"),
    ("Empty in", "time until the pool is empty, if it goes on so"),
];
