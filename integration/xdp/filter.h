/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */

#ifndef FILTER_H
#define FILTER_H

/* Verdicts, settings and tables of the XDP filter, as xdp/src/tables.rs reads and writes them. */

#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* The fate of a packet, in the order of `REASONS` in xdp/src/verdict.rs. */
enum reason {
	PASSED,
	MALFORMED,
	NOT_IP,
	FRAGMENT,
	DENIED,
	RATE_LIMIT,
	SYN_FLOOD,
	REASONS,
};

/* Entry of `counters` behind the reasons: dropped packets that have a source address. */
#define WITH_SOURCE REASONS

/* Result of a parser: no verdict yet. */
#define UNDECIDED (-1)

/* Action for a source in `prefixes4` and `prefixes6`; the longest prefix decides. */
enum prefix_action {
	PREFIX_DENY = 1,
	PREFIX_ALLOW = 2,
};

#define SOURCES 8192
/*
 * New sources that a CPU lists per kernel tick, which limits the cost of a flood with forged
 * sources.
 */
#define NEW_SOURCES 512
#define RATES 65536
#define SERVERS 16384
#define PREFIXES 65536

#define MAX_VLAN_TAGS 2
#define MAX_EXTENSION_HEADERS 8
/* Extension headers end before this offset, or the packet is malformed. */
#define MAX_HEADERS 1024
#define MAX_IP_OPTION_WORDS 20
#define MAX_DATAGRAM 65535
/* How often to retry when other CPUs change the same bucket. */
#define BUCKET_TRIES 8

#define IP_RESERVED_FLAG 0x8000
#define IP_MORE_FRAGMENTS 0x2000
#define IP_OFFSET_MASK 0x1fff
#define IP6_MORE_FRAGMENTS 0x0001
#define IP6_OFFSET_MASK 0xfff8
#define ND_ROUTER_SOLICITATION 133
#define ND_REDIRECT 137
#define ND_HOP_LIMIT 255
#define ICMP_HEADER 8
#define DHCP_SERVER_PORT 67
#define MAPPED_IPV4 bpf_htonl(0xffff)

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10
#define TCP_FLAGS 0x3f

struct counter {
	__u64 packets;
	__u64 bytes;
};

/* Limits are token buckets with the packets of one second: burst / interval is the rate. */
struct settings {
	__u64 rate_interval_ns; /* per source; 0: no limit */
	__u64 rate_burst_ns;
	__u64 syn_interval_ns; /* per destination address and port; 0: no limit */
	__u64 syn_burst_ns;
	__u32 pass_non_ip;
	__u32 drop_fragments;
};

/* IPv4 addresses are mapped (::ffff:a.b.c.d), in network byte order. */
struct address {
	__be32 word[4];
};

struct server {
	struct address address;
	__be16 port;
	__u16 padding;
};

struct prefix4 {
	__u32 length;
	__be32 address;
};

struct prefix6 {
	__u32 length;
	struct address address;
};

struct vlan_tag {
	__be16 tci;
	__be16 ethertype;
};

struct extension_header {
	__u8 next;
	__u8 length; /* in units of 8 bytes, the first one not counted */
	__u8 routing_type;
	__u8 segments_left;
};

struct fragment_header {
	__u8 next;
	__u8 reserved;
	__be16 offset_and_flags;
	__be32 id;
};

/* The values of a packet that later checks need. */
struct packet {
	struct address source;
	struct address destination;
	__be16 destination_port;
	bool has_source;
	bool is_ipv4;
	bool is_syn;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REASONS + 1);
	__type(key, __u32);
	__type(value, struct counter);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, PREFIXES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix4);
	__type(value, __u32);
} prefixes4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, PREFIXES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix6);
	__type(value, __u32);
} prefixes6 SEC(".maps");

/* Dropped packets by source; the least recently seen are replaced. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SOURCES);
	__type(key, struct address);
	__type(value, __u64);
} sources SEC(".maps");

struct insertions {
	__u64 tick;
	__u64 number;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct insertions);
} insertions SEC(".maps");

/* Time at which the next packet of a source, or the next SYN to a server, is due at the limit. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, RATES);
	__type(key, struct address);
	__type(value, __u64);
} rates SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SERVERS);
	__type(key, struct server);
	__type(value, __u64);
} syns SEC(".maps");

#endif /* FILTER_H */
