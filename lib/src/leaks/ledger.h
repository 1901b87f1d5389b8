/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_LEDGER_H
#define PMDSCOPE_LEDGER_H

/*
 * The leak ledger: where the mbufs of every pool are, and when to stamp them (docs/leaks.md).
 * Control thread and tables, with the state lock held.
 */

#include <stdbool.h>
#include <stdint.h>

#include <rte_mempool.h>

#include "index.h"
#include "page.h"
#include "pmdscope.h"
#include "pool.h"
#include "rx_fill.h"
#include "trend.h"

/* /pmdscope/leaks. */
extern const struct pmdscope_table pmdscope_leaks_table;

/* Number of objects by place, from one walk. */
struct pmdscope_parts {
	uint32_t common, cached, rx_posted, tx_pending, rings, held, leaked;
	uint32_t prearm;   /* Part of leaked. */
	uint32_t suspects; /* Held for too long, with no proof. */
	uint32_t missing;  /* The same, but without a stamp: the place is unknown. */
	uint32_t lost_at_least;
	/* Free objects that no traced call freed; or not their last reference. */
	uint32_t untraced_frees, untraced_last_frees;
};

/*
 * Arming because mbufs are missing, or will be soon. If nothing is found, the next try is later
 * each time.
 */
struct pmdscope_suspicion {
	bool tried;	     /* Armed for this pool, and nothing was found yet. */
	uint64_t not_before; /* ms */
	uint64_t pause_ms;
};

/* One pool of mbufs. */
struct pmdscope_ledger {
	const void *address;
	char name[RTE_MEMZONE_NAMESIZE];
	unsigned int id; /* Never reused. */
	bool seen;
	struct pmdscope_pool_counts counts;
	struct pmdscope_trend trend;
	struct pmdscope_suspicion suspicion;
	struct pmdscope_suspicion
			draining; /* The pool will be empty before a leak can be confirmed. */
	uint64_t first_leak_realtime_ns;
	uint64_t double_frees, use_after_frees;

	/* Used by the walker. */
	struct pmdscope_index index;
	bool lost_memory;	     /* No memory for an index. */
	bool walking;		     /* Part of the present walk. */
	bool placed;		     /* parts are of this arming. */
	struct pmdscope_parts parts; /* Of the last complete walk. */
	struct pmdscope_parts counting;
	struct pmdscope_rx_fill rx_fill;
	/* Longest time that an object without a stamp was missing before it came back, in walks. */
	uint32_t longest_missing;
	uint32_t ring_at;
	uint32_t mark_at;
	unsigned int chunk_at;
	uint64_t walks, walk_cycles, walk_us;
	/* Free objects by the kind of their last free. */
	uint64_t traced_frees, untraced_frees;
	/* Mbufs that untraced code is known to have taken from the pool, and whether such code
	 * frees mbufs, or the last of several references to them. Never reset.
	 */
	uint64_t untraced_takes;
	bool frees_untraced, last_frees_untraced;
	uint32_t armed_walks, free_walks, last_free_walks;
};

void pmdscope_ledger_start(const struct pmdscope_conf *conf);
void pmdscope_ledger_stop(void);
/* Once per sample, after the pools. */
void pmdscope_ledger_tick(uint64_t now_ns);
/* A walk is under way: call pmdscope_ledger_slice() soon. */
bool pmdscope_ledger_busy(void);
/* Do a bounded part of the walk. */
void pmdscope_ledger_slice(void);

/* Begin the next walk immediately. */
void pmdscope_ledger_walk_soon(void);

/* Monotonic clock, milliseconds. */
uint64_t pmdscope_ledger_now_ms(void);
/* The walker's clock: real time, milliseconds; wraps around. */
uint32_t pmdscope_ledger_clock_ms(void);
const char *pmdscope_ledger_pool_name(unsigned int id);
/* The i-th ledger, NULL after the last. */
struct pmdscope_ledger *pmdscope_ledger_get(unsigned int i);
/* The mark of an object in the pools of the current walk, NULL for any other. */
struct pmdscope_mark *pmdscope_ledger_find_mark(uintptr_t object);
/* An mbuf was just found to be lost. */
void pmdscope_ledger_found(struct pmdscope_ledger *ledger);

#endif /* PMDSCOPE_LEDGER_H */
