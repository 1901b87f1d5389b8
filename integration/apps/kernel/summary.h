/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef KERNEL_SUMMARY_H
#define KERNEL_SUMMARY_H

/* Results of a run of the generator: as text, and as JSON with the names of the DPDK generator. */

#include "clock.h"
#include "latency.h"
#include "run.h"

struct totals {
	struct transport_stats stats;
	uint64_t received; /* Without second copies. */
	uint64_t duplicates;
	uint64_t reordered;
	uint64_t late;
	uint64_t foreign;
	uint64_t short_packets;
	uint64_t drops;
};

/* Results of a run. */
struct summary {
	struct totals totals;
	struct moment start, end; /* Around the run. */
	struct latency latency;
	struct cpu_time cpu;
	const struct transport *transport; /* Of one flow; all are alike. */
	uint64_t tsc_hz;
	uint64_t lost;
	uint64_t first_send;
	uint64_t last_send;
	double duration_s; /* From the start until the last thread stopped sending. */
	double rate;
};

void summary_print(const struct summary *s);

/* 0, or -1 after a message. */
int summary_save(const struct summary *s);

/* A run without a usable result is a failure. 0, or -1 after a message. */
int summary_judge(const struct totals *t);

#endif /* KERNEL_SUMMARY_H */
