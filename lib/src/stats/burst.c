/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>

#include <rte_ethdev.h>

#include "burst.h"
#include "lcore.h"
#include "port.h"
#include "stamp.h"
#include "capture.h"
#include "window.h"

/* The driver is queried for a depth once in this many non-empty bursts, and full bursts. */
#define DEPTH_EVERY_BUSY 64
#define DEPTH_EVERY_FULL 8
/* Lengths are summed once in this many bursts with packets; a power of two. */
#define LENGTHS_EVERY 16
/* The driver is asked for values that rarely change once in this many polls; a power of two. */
#define ASK_EVERY (1U << 20)

void
pmdscope_counters_reset(struct pmdscope_queue *q)
{
	q->n = (struct pmdscope_counters){ .lengths_left = 1, .busy_left = 1, .full_left = 1 };
	q->polls_seen = 0;
	q->bytes = 0;
	q->turnover = (struct pmdscope_turnover){ 0 };
}

/* 1, 2, 3-4, 5-8, ... packets. */
static inline unsigned int
burst_bucket(uint16_t nb)
{
	const uint32_t n = ((uint32_t)nb - 1) << 1 | 1;

	return RTE_MIN(31U - (unsigned int)__builtin_clz(n), PMDSCOPE_BURST_BUCKETS - 1U);
}

/* 1, 2-3, 4-7, ... packets. */
static inline unsigned int
depth_bucket(uint32_t depth)
{
	return RTE_MIN(32U - (unsigned int)__builtin_clz(depth), PMDSCOPE_DEPTH_BUCKETS - 1U);
}

/*
 * The app may not have read the mbufs yet, and may never do so: reading all of them would cost more
 * than everything else here. Of each LENGTHS_EVERY bursts a random one is sampled, so that periodic
 * traffic is sampled evenly and the share of sampled bursts stays constant.
 */
static __rte_noinline void
sample_lengths(struct pmdscope_counters *n, struct rte_mbuf **pkts, uint16_t nb)
{
	const uint32_t busy = n->lengths_seq | 1;
	uint64_t bytes = 0;
	uint32_t slot;
	uint16_t i;

	for (i = 0; i < nb; i++)
		bytes += pkts[i]->pkt_len;
	__atomic_store_n(&n->lengths_seq, busy, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	__atomic_store_n(&n->sampled_packets, n->sampled_packets + nb, __ATOMIC_RELAXED);
	__atomic_store_n(&n->sampled_bytes, n->sampled_bytes + bytes, __ATOMIC_RELAXED);
	__atomic_store_n(&n->lengths_seq, busy + 1, __ATOMIC_RELEASE);
	n->lengths_random = n->lengths_random * 1664525 + 1013904223;
	slot = n->lengths_random >> 16 & (LENGTHS_EVERY - 1);
	n->lengths_left = LENGTHS_EVERY + slot - n->lengths_slot;
	n->lengths_slot = slot;
}

static inline void
count_burst(struct pmdscope_counters *n, struct rte_mbuf **pkts, uint16_t nb)
{
	if (unlikely(--n->lengths_left == 0))
		sample_lengths(n, pkts, nb);
	n->packets += nb;
	n->bursts[burst_bucket(nb)]++;
}

/* False while the lcore updates them, which is rare and short. */
static bool
read_lengths(const struct pmdscope_counters *n, uint64_t *packets, uint64_t *bytes)
{
	const uint32_t seq = __atomic_load_n(&n->lengths_seq, __ATOMIC_ACQUIRE);

	*packets = __atomic_load_n(&n->sampled_packets, __ATOMIC_RELAXED);
	*bytes = __atomic_load_n(&n->sampled_bytes, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return (seq & 1) == 0 && __atomic_load_n(&n->lengths_seq, __ATOMIC_RELAXED) == seq;
}

uint64_t
pmdscope_queue_bytes(struct pmdscope_queue *q)
{
	uint64_t packets, bytes, estimate;

	if (!read_lengths(&q->n, &packets, &bytes) || packets == 0)
		return q->bytes;
	estimate = (uint64_t)((unsigned __int128)__atomic_load_n(&q->n.packets, __ATOMIC_RELAXED) *
			      bytes / packets);
	/* Short packets after long ones lower the mean, but a counter must not decrease. */
	q->bytes = RTE_MAX(q->bytes, estimate);
	return q->bytes;
}

/* Not on the control thread: only the lcore that polls a queue knows that it exists. */
static __rte_noinline void
ask_rx(struct pmdscope_queue *q)
{
	struct rte_eth_rxq_info info;

	pmdscope_lcore_bursts();
	if (rte_eth_rx_queue_info_get(q->port, q->queue, &info) == 0) {
		q->n.descriptors = info.nb_desc;
		__atomic_store_n(&q->n.pool, info.mp, __ATOMIC_RELAXED);
	}
}

static __rte_noinline void
ask_tx(struct pmdscope_queue *q)
{
	struct rte_eth_txq_info info;

	pmdscope_lcore_bursts();
	if (rte_eth_tx_queue_info_get(q->port, q->queue, &info) == 0)
		q->n.descriptors = info.nb_desc;
}

/*
 * On the polling lcore as well: vhost counts under a lock that its data path only tries to take,
 * so a count on another thread would cost the app a burst.
 */
static __rte_noinline void
sample_depth(struct pmdscope_queue *q, uint16_t nb_rx)
{
	struct pmdscope_counters *n = &q->n;
	int left = -ENOTSUP;

	if (pmdscope_port_counts_waiting(q->port))
		left = rte_eth_rx_queue_count(q->port, q->queue);
	if (left < 0) {
		if (left == -ENOTSUP)
			n->depth_state = PMDSCOPE_DEPTH_UNSUPPORTED;
		return;
	}
	n->depth_state = PMDSCOPE_DEPTH_SUPPORTED;
	n->depth = (uint32_t)left + nb_rx;
	n->depths[depth_bucket(n->depth)]++;
	if (n->depth > n->depth_max)
		n->depth_max = n->depth;
	pmdscope_window_note(&n->depth_window, n->depth);
}

static inline bool
depth_is_due(struct pmdscope_counters *n, bool full)
{
	bool due = false;

	if (--n->busy_left == 0) {
		n->busy_left = DEPTH_EVERY_BUSY;
		due = true;
	}
	if (full && --n->full_left == 0) {
		n->full_left = DEPTH_EVERY_FULL;
		due = true;
	}
	return due;
}

uint16_t
pmdscope_burst_rx(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t nb_rx,
		uint16_t max_pkts, void *arg)
{
	struct pmdscope_queue *q = arg;
	struct pmdscope_counters *n = &q->n;

	if (unlikely((n->polls++ & (ASK_EVERY - 1)) == 0))
		ask_rx(q);
	if (nb_rx == 0) {
		n->empty++;
		n->depth = 0;
		return 0;
	}
	count_burst(n, pkts, nb_rx);
	if (n->depth_state != PMDSCOPE_DEPTH_UNSUPPORTED && depth_is_due(n, nb_rx == max_pkts))
		sample_depth(q, nb_rx);
	pmdscope_stamp_rx(port, queue, pkts, nb_rx);
	pmdscope_capture_burst(port, queue, PMDSCOPE_DIR_RX, pkts, nb_rx);
	return nb_rx;
}

uint16_t
pmdscope_burst_tx(
		uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t nb_pkts, void *arg)
{
	struct pmdscope_queue *q = arg;
	struct pmdscope_counters *n = &q->n;

	if (unlikely((n->polls++ & (ASK_EVERY - 1)) == 0))
		ask_tx(q);
	if (nb_pkts == 0) {
		n->empty++;
		return 0;
	}
	count_burst(n, pkts, nb_pkts);
	pmdscope_stamp_tx(port, queue, pkts, nb_pkts);
	pmdscope_capture_burst(port, queue, PMDSCOPE_DIR_TX, pkts, nb_pkts);
	return nb_pkts;
}
