/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PROBE_H
#define PROBE_H

/* The packets of the generator: Ethernet, IPv4 or IPv6 without options, UDP, probe header. */

#include <stdbool.h>
#include <stdint.h>

#include <rte_byteorder.h>
#include <rte_ether.h>
#include <rte_mbuf.h>

#include "flows.h"

#define PROBE_MAX_FRAME 1514 /* Without FCS and VLAN tag. */
#define PROBE_MIN_FRAME 60

/* UDP: the echo port, and a range that the flows vary. */
#define PROBE_DST_PORT 7
#define PROBE_SRC_PORT 49152
#define PROBE_MAX_FLOWS 16384

#define PROBE_MAGIC 0x504d /* "PM" */

/*
 * What follows the UDP header. All fields big-endian; the rest is zero, or filled. It fits into the
 * smallest frame of Ethernet, so numbers and stamps have only 48 bits: a day of cycles at 3 GHz.
 */
struct probe_header {
	rte_be16_t magic;
	rte_be16_t run;	     /* Distinguishes the packets of this run from earlier ones. */
	rte_be16_t lane;     /* Sending queue, counted over all ports. */
	rte_be16_t seq_high; /* From 0, per lane. */
	rte_be32_t seq_low;
	rte_be16_t tsc_high; /* Time when the packet was first offered to the NIC. */
	rte_be32_t tsc_low;
} __attribute__((packed));

#define PROBE_NUMBER_MASK ((UINT64_C(1) << 48) - 1)

/* Addresses of both sides. */
struct probe_path {
	bool ipv6;
	struct rte_ether_addr src_mac;
	struct rte_ether_addr dst_mac;
	uint8_t src_ip[16]; /* IPv4: the first four bytes. */
	uint8_t dst_ip[16];
	bool tagged;  /* With a VLAN tag. */
	uint16_t tci; /* Priority and VLAN ID. */
};

/* A frame ready to be copied, except values that differ between packets. */
struct probe_template {
	uint8_t frame[PROBE_MAX_FRAME + sizeof(struct rte_vlan_hdr)];
	bool ipv6;
	/*
	 * Offsets of the IP header, of the last 32 bits of both addresses, and of the UDP header.
	 */
	uint16_t l3, src_tail, dst_tail, l4;
	/* The addresses of the path, and the default ports. */
	struct flow first;
	bool fill;	   /* Payload behind the probe header from probe_fill(), not zero. */
	bool only_headers; /* Mbufs come with a payload of zeros, which need not be written. */
	/* Sums of the 16-bit words that are the same in every packet. */
	uint32_t ip_sum;
	uint32_t udp_sum;
};

struct probe {
	uint16_t run;
	uint16_t lane;
	uint64_t seq; /* A packet carries the lower 48 bits of both. */
	uint64_t tsc;
};

/* Smallest frame that holds all headers, without a VLAN tag. */
uint16_t probe_min_frame(bool ipv6);

/* fill and only_headers are false afterwards. */
void probe_template(struct probe_template *template, const struct probe_path *path);

/*
 * Bytes that are unique to a packet of the run: words of SplitMix64 from the seed lane << 48 | seq,
 * little-endian, the last one cut.
 */
void probe_fill(uint8_t *at, uint32_t size, const struct probe *probe);

/*
 * Make an empty mbuf a probe of size bytes, from probe_min_frame() to PROBE_MAX_FRAME, both 4 more
 * with a VLAN tag, with valid checksums.
 */
void probe_write_flow(const struct probe_template *template, struct rte_mbuf *m, uint16_t size,
		const struct flow *flow, const struct probe *probe);

/*
 * The same for n mbufs and n sizes, with consecutive numbers, and one flow and time stamp: twice
 * as fast. The template has only_headers and no fill.
 */
void
probe_write_burst(const struct probe_template *template, struct rte_mbuf *const *pkts, uint32_t n,
		const uint16_t *sizes, const struct flow *flow, const struct probe *first);

/* As probe_write_flow(); `flow`, less than PROBE_MAX_FLOWS, is added to the default source port. */
void probe_write(const struct probe_template *template, struct rte_mbuf *m, uint16_t size,
		uint16_t flow, const struct probe *probe);

/* Cycles from the stamp of a received probe until now, within half a day; 0 if it is later. */
static inline uint64_t
probe_age(const struct probe *probe, uint64_t now)
{
	const uint64_t age = (now - probe->tsc) & PROBE_NUMBER_MASK;

	/* The TSCs of two sockets may differ by a little more than the trip took. */
	return age <= PROBE_NUMBER_MASK / 2 ? age : 0;
}

/*
 * Read a received packet, with or without a VLAN tag. False if it is not a probe of this
 * address family.
 */
bool probe_read(const struct rte_mbuf *m, bool ipv6, struct probe *probe);

/* Probes of one burst that are consecutive. */
struct probe_run {
	struct probe first;
	uint16_t n; /* 0: the first packet is not a probe. */
	uint64_t bytes;
};

/*
 * Read the first of n packets as probe_read() does, and count how many follow it with the next
 * numbers, and with the same run, lane and stamp.
 */
void probe_read_run(struct rte_mbuf *const *pkts, uint16_t n, bool ipv6, struct probe_run *run);

/*
 * True if the filled payload of a packet that probe_read() has read is the one that probe_write()
 * wrote to a packet of size bytes from this template. Headers are not checked: a network may
 * change them. A VLAN tag may have been added or removed.
 */
bool probe_intact(const struct probe_template *template, const struct rte_mbuf *m, uint16_t size,
		const struct probe *probe);

#endif /* PROBE_H */
