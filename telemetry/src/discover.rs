//! Finds running DPDK apps.
