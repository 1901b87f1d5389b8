/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef REPORT_H
#define REPORT_H

/* Counters of the lcores, and functions to print and save them. */

#include <stdint.h>

#include "answer.h"
#include "app.h"

#define REFLECTOR_POOL_NAME "reflector_pool"

/* Written by one lcore, read by the control thread. */
struct reflector_stats {
	uint64_t rx;
	uint64_t rx_bytes;
	uint64_t tx;
	uint64_t dropped;		/* Not taken by TX, freed. */
	uint64_t other;			/* Only MAC addresses swapped. */
	uint64_t runts;			/* Too short to send, freed. */
	uint64_t answers[ANSWER_KINDS]; /* With --ip, by enum answer_kind. */
	uint64_t leaked;
	uint64_t corrupted;
	uint64_t stalls;
	uint64_t restarts;
} __rte_cache_aligned;

extern struct reflector_stats stats[RTE_MAX_LCORE];

#define REPORT_MAX_FAULTS 4096

/* Time of an injected page fault by the app's own clock. */
struct fault_time {
	uint64_t begin_ns; /* CLOCK_REALTIME. */
	uint64_t ns;	   /* 0: the thread lost its CPU meanwhile, or there was no fault. */
};

/* Injected page faults in their order. */
extern struct fault_time report_faults[REPORT_MAX_FAULTS];
extern unsigned int report_nb_faults;

/* Report on this app from now on. */
void report_start(const struct app *app);

/* The counters of all lcores. */
struct reflector_stats report_total(void);

/* Print the line of an interval. */
void report_interval(uint64_t elapsed_ns, uint64_t span_ns);

/* Print the summary. in_use: packets that are missing from the pool. */
void report_summary(const struct reflector_stats *sum, double duration_s, unsigned int in_use);

/* Write the summary to --json. 0, or a negative errno, reported. */
int report_save(const struct reflector_stats *sum, double duration_s, unsigned int in_use);

#endif /* REPORT_H */
