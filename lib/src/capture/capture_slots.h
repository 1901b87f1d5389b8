/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_CAPTURE_SLOTS_H
#define PMDSCOPE_CAPTURE_SLOTS_H

/*
 * How lcores find captures, and how the control thread detects that they no longer use them.
 *
 * An lcore makes its tee_seq odd, loads the slots, uses what it found, and makes tee_seq even.
 * The control thread empties a slot, then reads every tee_seq. Both sides need their store to be
 * visible before their load (Dekker); instead of a barrier on the lcore, the control thread calls
 * membarrier(2), which runs one on every running thread of the process.
 */

#include <stdbool.h>
#include <stdint.h>

#include <rte_atomic.h>

#include "pmdscope.h"
#include "capture_instance.h"

struct pmdscope_tee {
	struct pmdscope_capture *captures[PMDSCOPE_CAPTURE_SLOTS];
	/* membarrier(2) works, so lcores need no barrier of their own. */
	uint8_t asymmetric;
	/* The lcore has seen a burst while a capture was armed. */
	uint8_t seen[RTE_MAX_LCORE];
	uint64_t foreign_bursts __rte_cache_aligned;
};

extern struct pmdscope_tee pmdscope_capture_slots;

static inline void
pmdscope_capture_enter(unsigned int lcore)
{
	uint32_t *seq = &pmdscope_lcores[lcore].tee_seq;

	__atomic_store_n(seq, *seq + 1, __ATOMIC_RELAXED);
	if (likely(__atomic_load_n(&pmdscope_capture_slots.asymmetric, __ATOMIC_RELAXED)))
		rte_compiler_barrier();
	else
		rte_smp_mb();
}

static inline void
pmdscope_capture_leave(unsigned int lcore)
{
	uint32_t *seq = &pmdscope_lcores[lcore].tee_seq;

	__atomic_store_n(seq, *seq + 1, __ATOMIC_RELEASE);
}

#endif /* PMDSCOPE_CAPTURE_SLOTS_H */
