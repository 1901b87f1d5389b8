/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef WORK_H
#define WORK_H

/* Processing cost on demand, to make a bottleneck. */

#include <stdint.h>

#include <rte_common.h>
#include <rte_cycles.h>

/* Keep the lcore busy for this many TSC cycles. Not inlined, so that profiles show it. */
static __rte_noinline void
process_packets(uint64_t cycles)
{
	const uint64_t begin = rte_rdtsc();

	/* The TSC is read anew each time, so the compiler cannot drop the loop. */
	while (rte_rdtsc() - begin < cycles)
		;
}

#endif /* WORK_H */
