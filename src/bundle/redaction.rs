//! What redaction replaces and what it keeps, as listed in the index of a bundle.

/// What is replaced.
pub(super) const REPLACED: [&str; 5] = [
    "payloads of packets: cut behind the header of TCP, UDP, SCTP, ICMP, ARP or IP; inner packets of \
     tunnels are payload; frames of other types keep their MAC addresses only",
    "IPv4, IPv6 and MAC addresses: pseudonyms, the same address always by the same within this bundle, \
     in packets, JSON and text; two addresses of one subnet stay in one subnet",
    "the name of this machine, names of /etc/hosts, and names below the domains of this machine and of \
     /etc/resolv.conf: pseudonyms",
    "addresses in hexadecimal: IPv6 addresses of 32 digits; IPv4 and MAC addresses of which one of the same /16 \
     or vendor is somewhere in the usual notation; in decimal: IPv4 addresses that are somewhere in it, behind a \
     word such as addr, host or src, or with a port or prefix length; numbers that follow host, net, src_ip and \
     the like, or with which filters compare addresses",
    "checksums of TCP, UDP, SCTP and ICMP: set to 0",
];

/// What is not replaced.
pub(super) const KEPT: [&str; 4] = [
    "names of apps, threads, functions, files, devices and users, command lines, PCI addresses",
    "ports of TCP and UDP, VLAN ids, lengths and times of packets, all counters",
    "addresses that name no host: 0.0.0.0, ::, 127.0.0.0/8, ::1, netmasks, broadcast",
    "other names of machines, other addresses in hexadecimal and decimal, such as decimal numbers that nothing \
     marks as an address",
];
