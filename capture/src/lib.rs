//! Reads capture rings of DPDK apps and writes pcapng.
