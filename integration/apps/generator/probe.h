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

#define PROBE_MAX_FRAME 1514 /* Without FCS. */
#define PROBE_MIN_FRAME 60

/* UDP: the echo port, and a range that the flows vary. */
#define PROBE_DST_PORT 7
#define PROBE_SRC_PORT 49152
#define PROBE_MAX_FLOWS 16384

#define PROBE_MAGIC 0x504d5301 /* "PMS" and the version of this header */

/* What follows the UDP header. All fields big-endian; the rest is zero, or filled. */
struct probe_header {
	rte_be32_t magic;
	rte_be16_t run;	 /* Tells the packets of this run from those of an earlier one. */
	rte_be16_t lane; /* Sending queue, counted over all ports. */
	rte_be64_t seq;	 /* From 0, per lane. */
	rte_be64_t tsc;	 /* When the packet was first offered to the NIC. */
} __attribute__((packed));

/* Who talks to whom. */
struct probe_path {
	bool ipv6;
	struct rte_ether_addr src_mac;
	struct rte_ether_addr dst_mac;
	uint8_t src_ip[16]; /* IPv4: the first four bytes. */
	uint8_t dst_ip[16];
};

/* A frame ready to be copied, but for what differs from packet to packet. */
struct probe_template {
	uint8_t frame[PROBE_MAX_FRAME];
	bool ipv6;
	bool fill; /* Payload behind the probe header from probe_fill(), not zero. */
	/* Sums of the 16-bit words that are the same in every packet. */
	uint32_t ip_sum;
	uint32_t udp_sum;
};

struct probe {
	uint16_t run;
	uint16_t lane;
	uint64_t seq;
	uint64_t tsc;
};

/* Smallest frame that holds all headers. */
uint16_t probe_min_frame(bool ipv6);

/* fill is false afterwards. */
void probe_template(struct probe_template *template, const struct probe_path *path);

/*
 * Bytes that no other packet of the run has: words of SplitMix64 from the seed lane << 48 | seq,
 * little-endian, the last one cut.
 */
void probe_fill(uint8_t *at, uint32_t size, const struct probe *probe);

/*
 * Make an empty mbuf a probe of size bytes, from probe_min_frame() to PROBE_MAX_FRAME, with
 * right checksums. flow is under PROBE_MAX_FLOWS.
 */
void probe_write(const struct probe_template *template, struct rte_mbuf *m, uint16_t size,
		uint16_t flow, const struct probe *probe);

/* Read a packet from the outside. False if it is no probe of this address family. */
bool probe_read(const struct rte_mbuf *m, bool ipv6, struct probe *probe);

#endif /* PROBE_H */
