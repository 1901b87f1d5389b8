/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef ANSWER_H
#define ANSWER_H

/*
 * Answers for IP addresses as a host does: ARP requests, IPv6 neighbour solicitations, and ICMP and
 * ICMPv6 echo requests, up to two VLAN tags deep. A packet becomes its answer in place.
 *
 * Each fragment of an echo request is answered separately, without reassembly: the type changes
 * in the first, and the checksum is corrected by the difference, so that a wrong one stays wrong.
 */

#include <stdbool.h>
#include <stdint.h>

#include <rte_ether.h>
#include <rte_mbuf.h>

#define ANSWER_MAX_ADDRESSES 64

struct answer_address {
	uint8_t ip[16]; /* Four bytes for IPv4. */
	uint8_t bits;	/* Length of the prefix. */
	bool ipv6;
};

struct answer_addresses {
	struct answer_address address[ANSWER_MAX_ADDRESSES];
	unsigned int nb;
};

enum answer_kind {
	ANSWER_NONE,	/* Not for these addresses: unchanged. */
	ANSWER_IGNORED, /* A host would not answer: unchanged, to be dropped. */
	ANSWER_ARP,
	ANSWER_NEIGHBOUR,
	ANSWER_ECHO, /* Each fragment of a request. */
	ANSWER_KINDS,
};

/* Read "ADDRESS" or "ADDRESS/N": one address, or all with the same first N bits. */
bool answer_parse(const char *text, struct answer_address *address);

/*
 * Turn a packet into its answer, if one of the addresses has to answer. own is the MAC address of
 * the port. Other ARP, ICMP and multicast packets are ignored; ANSWER_NONE is the rest.
 */
enum answer_kind answer_packet(struct rte_mbuf *m, const struct rte_ether_addr *own,
		const struct answer_addresses *addresses);

#endif /* ANSWER_H */
