/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef WORKER_H
#define WORKER_H

/* The poll loops of the generator: each lcore sends on its lanes and receives on them. */

#include <stdbool.h>
#include <stdint.h>

#include "app.h"
#include "latency.h"
#include "pacer.h"
#include "phase.h"
#include "probe.h"
#include "replay.h"
#include "returned.h"
#include "sequence.h"

/* The sending half of a lane; without a TX queue its shares are 0. Only its lcore writes it. */
struct sender {
	uint64_t built; /* Sequence numbers used; the last nb_pending are not sent yet. */
	uint64_t quota;
	struct pacer pacer;
	uint64_t handed; /* TSC when the NIC got the latest packets; 0: none yet. */
	struct rte_mbuf *pending[APP_MAX_BURST]; /* Oldest first. */
	uint16_t nb_pending;
	struct returned returned;
	struct flow flow;
	uint32_t rank;	    /* Among the lanes with a TX queue. */
	uint32_t shares;    /* Of the rate; all packets but each shares-th are in the first flow. */
	uint32_t nb_hot;    /* Packets of the first flow before the turn of the next one. */
	uint32_t next_size; /* Index in settings.sizes. */
	struct replay_cursor replay;
	struct probe_template template;
} __rte_cache_aligned;

/* Counters of one lcore. Only that lcore writes them. */
struct worker {
	uint64_t sent;
	uint64_t sent_bytes;
	uint64_t received_bytes; /* Of all probes of this phase, copies too. */
	uint64_t tx_short;	 /* Packets that the NIC did not take at first; offered again. */
	uint64_t no_mbuf;	 /* Times that the pool was empty. */
	uint64_t foreign;	 /* Received, but not a probe of this run. */
	uint64_t corrupted;	 /* Probes of this run that were changed; --verify. */
	uint64_t answered;	 /* ARP, ND and ping requests for a source address. */
	uint64_t first_send;	 /* TSC before the first and after the last packet; 0: none. */
	uint64_t last_send;
	uint64_t stopped; /* TSC when it stopped sending; 0: still sending. */
	struct latency latency;
	struct latency gaps; /* Times between consecutive packets of a queue, as given to the NIC. */
	bool sends;	     /* It has a TX queue. */
	struct sequence *sequences; /* One for each lane of the generator. */
} __rte_cache_aligned;

/* Totals over all lcores at one moment. */
struct totals {
	uint64_t sent;
	uint64_t sent_bytes;
	uint64_t tx_short;
	uint64_t no_mbuf;
	uint64_t received; /* Without second copies. */
	uint64_t duplicates;
	uint64_t reordered;
	uint64_t late;
	uint64_t foreign;
	uint64_t corrupted;
	uint64_t answered;
	uint64_t first_send;
	uint64_t last_send;
	uint64_t stopped;
	uint64_t extents; /* Reordered packets whose extent is known; see sequence.h. */
	uint64_t extent_sum;
	uint64_t extent_max;
	uint64_t n_reordered[SEQUENCE_DEGREES]; /* n-reordering of RFC 4737, 5. */
	uint64_t n_max;
	uint64_t received_bytes;
	uint64_t missing;      /* Overtaken by a later packet of their queue, and not back yet. */
	uint64_t pace_late;    /* Left an interval late, or later. */
	uint64_t pace_skipped; /* Due, but not sent: of pauses of more than a second. */
};

/* Determine the addresses, set up lanes and lcores. 0, or a negative errno, reported. */
int workers_create(const struct app *app);

/*
 * Set all counters to 0, free unsent packets, and begin to count time and credit. Call it right
 * before the lcores are launched. Packets of earlier phases that still return are ignored.
 */
void workers_start(const struct phase *phase, uint64_t tsc_hz, uint64_t now);

int worker_main(void *arg);

struct totals workers_total(void);

/* Packets of one lcore. */
uint64_t worker_sent(unsigned int lcore);
uint64_t worker_received(unsigned int lcore);

/* True if it has queues. */
bool worker_is_used(unsigned int lcore);

/* Merge the latencies of all lcores into a cleared histogram. */
void workers_latency(struct latency *latency);

/* The same for the times between consecutive packets. */
void workers_gaps(struct latency *gaps);

/* Cycles between two packets of the queue with the highest configured rate; 0: no limit. */
uint64_t workers_target_gap(uint64_t rate, uint64_t tsc_hz);

/* Free unsent packets, and mbufs kept for others, after all lcores have ended. */
void workers_free_pending(void);

/* Packets missing from the pool for sending, after the ports have been closed. */
unsigned int workers_in_use(void);

void workers_destroy(void);

#endif /* WORKER_H */
