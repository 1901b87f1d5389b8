//! Names of link types.
#![allow(unsafe_code)] // Calls the C library libpcap.

use std::ffi::{CStr, c_char, c_int};

use crate::filter::dlt;

#[link(name = "pcap")]
unsafe extern "C" {
    fn pcap_datalink_val_to_name(dlt: c_int) -> *const c_char;
}

/// Returns the name of a link type of pcap files, as in libpcap and tcpdump, such as `IEEE802_11`; its
/// number if libpcap has no name for it.
pub fn link_type_name(link_type: u16) -> String {
    // SAFETY: takes a plain integer; returns NULL or a text that is never freed.
    let name = unsafe { pcap_datalink_val_to_name(dlt(link_type)) };
    if name.is_null() {
        return link_type.to_string();
    }
    // SAFETY: it is not NULL, and ends with NUL.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_types_have_the_names_of_libpcap() {
        assert_eq!([1, 101, 105].map(link_type_name), ["EN10MB", "RAW", "IEEE802_11"]);
        assert_eq!(link_type_name(0x7fff), "32767");
    }
}
