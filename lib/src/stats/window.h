/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_WINDOW_H
#define PMDSCOPE_WINDOW_H

/*
 * High-water marks over fixed windows: one writer each, read by the holder of the state lock,
 * independent of how often they are read.
 */

#include "pmdscope.h"

/* Number of the current window, from 1 up. Advanced by the control thread, state lock held. */
extern uint64_t pmdscope_window_now;

static inline void
pmdscope_window_note(struct pmdscope_window *w, uint64_t value)
{
	const uint64_t now = __atomic_load_n(&pmdscope_window_now, __ATOMIC_RELAXED);

	if (w->id == now) {
		if (value > w->max)
			__atomic_store_n(&w->max, value, __ATOMIC_RELEASE);
		return;
	}
	/* A reader that sees the new maximum must also see the new number: hence this order. */
	__atomic_store_n(&w->prev, w->id + 1 == now ? w->max : 0, __ATOMIC_RELAXED);
	__atomic_store_n(&w->id, now, __ATOMIC_RELEASE);
	__atomic_store_n(&w->max, value, __ATOMIC_RELEASE);
}

/* Highest value in the last complete window. Caller holds the state lock. */
static inline uint64_t
pmdscope_window_last(const struct pmdscope_window *w)
{
	const uint64_t id = __atomic_load_n(&w->id, __ATOMIC_ACQUIRE);
	const uint64_t max = __atomic_load_n(&w->max, __ATOMIC_ACQUIRE);

	if (id + 1 == pmdscope_window_now && __atomic_load_n(&w->id, __ATOMIC_RELAXED) == id)
		return max;
	/* The writer is in the current window, or has been silent for a whole one. */
	if (__atomic_load_n(&w->id, __ATOMIC_RELAXED) == pmdscope_window_now)
		return __atomic_load_n(&w->prev, __ATOMIC_RELAXED);
	return 0;
}

#endif /* PMDSCOPE_WINDOW_H */
