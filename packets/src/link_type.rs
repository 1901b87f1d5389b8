//! Names of link types.
#![allow(unsafe_code)] // Calls the C library libpcap.

use std::ffi::{CStr, c_char, c_int};

use crate::filter::dlt;

#[link(name = "pcap")]
unsafe extern "C" {
    fn pcap_datalink_val_to_name(dlt: c_int) -> *const c_char;
    fn pcap_datalink_val_to_description(dlt: c_int) -> *const c_char;
}

/// Returns the name of a link type of pcap files, as in libpcap and tcpdump, such as `IEEE802_11`; its
/// number if libpcap has no name for it.
pub fn link_type_name(link_type: u16) -> String {
    // SAFETY: takes a plain integer; returns NULL or a text that is never freed.
    text(unsafe { pcap_datalink_val_to_name(dlt(link_type)) })
        .unwrap_or_else(|| link_type.to_string())
}

/// Returns the name of a link type with its description, as tcpdump prints it, such as
/// `EN10MB (Ethernet)`.
pub fn link_type_description(link_type: u16) -> String {
    let name = link_type_name(link_type);
    // SAFETY: takes a plain integer; returns NULL or a text that is never freed.
    match text(unsafe { pcap_datalink_val_to_description(dlt(link_type)) }) {
        Some(description) => format!("{name} ({description})"),
        None => name,
    }
}

/// Returns a text of libpcap, which is never freed; `None` for NULL.
fn text(text: *const c_char) -> Option<String> {
    // SAFETY: if it is not NULL, it ends with NUL and stays.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_types_have_the_names_of_libpcap() {
        assert_eq!([1, 101, 105].map(link_type_name), ["EN10MB", "RAW", "IEEE802_11"]);
        assert_eq!(link_type_name(0x7fff), "32767");
        let described = [1, 0, 113, 0x7fff].map(link_type_description);
        let expected =
            ["EN10MB (Ethernet)", "NULL (BSD loopback)", "LINUX_SLL (Linux cooked v1)", "32767"];
        assert_eq!(described, expected);
    }
}
