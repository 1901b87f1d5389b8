/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PIPE_H
#define PIPE_H

/* One lane of the pipeline: a queue pair, its software rings and its held packets. */

#include <stdbool.h>
#include <stdint.h>

#include <rte_ether.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_ring.h>

#include "hold.h"
#include "pacer.h"
#include "pattern.h"

struct pipe {
	uint16_t port;
	uint16_t queue;
	uint16_t number;
	struct rte_ether_addr mac;
	struct rte_mempool *packets;
	struct rte_mempool *clones;

	struct rte_ring *in;	  /* RX to worker. */
	struct rte_ring *out;	  /* Worker to TX. */
	struct rte_ring *stuck;	  /* To a consumer that hangs: always full. */
	struct rte_ring *unacked; /* Sent, and kept for retransmission. */
	struct hold hold;

	/* Used by the RX stage. */
	struct pattern pattern;
	struct pacer pacer;
	uint64_t seq;
	/* Used by the worker. */
	uint64_t bursts;     /* That held packets. */
	uint32_t since_hold; /* Packets since the last one that was held. */
};

/* Packets of one lcore. Written by that lcore, read by the control thread. */
struct pipe_stats {
	uint64_t rx;
	uint64_t tx;
	uint64_t rx_dropped;   /* Ring to the worker full. */
	uint64_t work_dropped; /* Ring to TX full, or dropped by --mix. */
	uint64_t tx_dropped;   /* Not taken by TX. */
	uint64_t runts;
	uint64_t clones; /* Sent in addition to the packets received. */
	uint64_t chains;
	uint64_t held;
} __rte_cache_aligned;

/* A packet of one mbuf with a single reference. */
static inline bool
pipe_packet_plain(const struct rte_mbuf *m)
{
	return RTE_MBUF_DIRECT(m) && m->nb_segs == 1 && rte_mbuf_refcnt_read(m) == 1;
}

#endif /* PIPE_H */
