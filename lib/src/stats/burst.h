/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_BURST_H
#define PMDSCOPE_BURST_H

/* The ethdev callbacks and what they count: the fast path. */

#include <stdbool.h>

#include <rte_ethdev.h>

#include "pmdscope.h"
#include "turnover.h"

#define PMDSCOPE_BURST_BUCKETS 8
#define PMDSCOPE_DEPTH_BUCKETS 13

enum pmdscope_dir {
	PMDSCOPE_RX,
	PMDSCOPE_TX,
	PMDSCOPE_NB_DIRS,
};

enum pmdscope_depth_state {
	PMDSCOPE_DEPTH_UNKNOWN,
	PMDSCOPE_DEPTH_SUPPORTED,
	PMDSCOPE_DEPTH_UNSUPPORTED,
};

/* Largest burst that is counted by its exact size. */
#define PMDSCOPE_BURST_SIZES 64U

/* Counters of one queue and direction; the lcore that polls the queue writes them. */
struct pmdscope_counters {
	/* Bursts with packets to the next sample; samples of this run. */
	uint32_t sample_left;
	uint32_t samples;
	uint32_t sample_random;
	uint32_t sample_slot;
	uint32_t depth_state;
	uint32_t depth;
	/* Of the bursts whose lengths were summed; lengths_seq is odd while these two change. */
	uint64_t sampled_packets;
	uint64_t sampled_bytes;
	uint32_t lengths_seq;
	uint32_t descriptors;
	/* Packets in bursts above PMDSCOPE_BURST_SIZES. */
	uint64_t larger_packets;
	/*
	 * Bursts by their number of packets, from 0; the last are the larger ones. One increment
	 * per burst: the numbers of polls and packets are derived by readers.
	 */
	uint64_t sizes[PMDSCOPE_BURST_SIZES + 2] __rte_cache_aligned;
	/* Samples of bursts that received; those of depth 0 are the empty polls. */
	uint64_t depths[PMDSCOPE_DEPTH_BUCKETS];
	struct pmdscope_window depth_window;
	uint64_t depth_max;
	/* The pool of a receive queue, if the driver reports it; never dereferenced. */
	const struct rte_mempool *pool;
	/* The pool of a packet that was received; few drivers report theirs. Never dereferenced. */
	const struct rte_mempool *seen_pool;
};

struct __rte_cache_aligned pmdscope_queue {
	struct pmdscope_counters n;
	/* The rest is used by the control thread. */
	uint16_t port;
	uint16_t queue;
	enum pmdscope_dir dir;
	/* The port has this queue, so it is a row. */
	bool present;
	uint64_t polls_seen;
	uint64_t bytes; /* Highest estimate so far. */
	struct pmdscope_turnover turnover;
	/*
	 * Our callback. DPDK removes a callback only from a queue that the port has at that
	 * moment, and keeps the others over reconfiguration, even for the next port with the
	 * same id. So the callback and this object are kept until it could be removed.
	 */
	const struct rte_eth_rxtx_callback *callback;
};

/* Set to 0; the lcore that polls the queue should not do so at the same time. */
void pmdscope_counters_reset(struct pmdscope_queue *q);

/* Sums over the bursts of a queue, all of the same moment. */
struct pmdscope_burst_sums {
	uint64_t polls;
	uint64_t empty;
	uint64_t packets;
	/* Bursts of 1, 2, 3 to 4, 5 to 8, ... packets; the last bucket is open-ended. */
	uint64_t bursts[PMDSCOPE_BURST_BUCKETS];
};

/* Any thread. */
struct pmdscope_burst_sums pmdscope_queue_sums(const struct pmdscope_queue *q);

/*
 * Bytes of this many packets, which are all so far, estimated from the mean length of those
 * sampled; never decreases. State lock held.
 */
uint64_t pmdscope_queue_bytes(struct pmdscope_queue *q, uint64_t packets);

/* The callbacks; arg is a struct pmdscope_queue. */
uint16_t pmdscope_burst_rx(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t nb_rx,
		uint16_t max_pkts, void *arg);
uint16_t pmdscope_burst_tx(
		uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t nb_pkts, void *arg);

#endif /* PMDSCOPE_BURST_H */
