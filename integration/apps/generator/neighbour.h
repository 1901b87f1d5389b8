/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef NEIGHBOUR_H
#define NEIGHBOUR_H

/* MAC addresses of neighbours, by ARP (RFC 826) or IPv6 neighbour discovery (RFC 4861). */

#include <stdbool.h>
#include <stdint.h>

#include <rte_ether.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include "probe.h"

/*
 * Make an empty mbuf a request for the MAC address of an IP address, from the source addresses of
 * the path, in its VLAN.
 */
void neighbour_ask(struct rte_mbuf *m, const struct probe_path *path, const uint8_t *target);

/* True if a packet is the answer; returns the MAC address in it. */
bool neighbour_told(const struct rte_mbuf *m, const struct probe_path *path, const uint8_t *target,
		struct rte_ether_addr *mac);

/*
 * Ask on the first TX queue of a started port, once per second, and listen on all its RX queues,
 * for timeout_ms. Other packets are dropped, and answered if a host with the source address of the
 * path would answer them. 0, or a negative errno after a message.
 */
int neighbour_resolve(uint16_t port, uint16_t nb_rx_queues, struct rte_mempool *pool,
		const struct probe_path *path, const uint8_t *target, uint64_t timeout_ms,
		struct rte_ether_addr *mac);

#endif /* NEIGHBOUR_H */
