/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef COUNTER_H
#define COUNTER_H

/* Counters with one writer, a polling lcore, and any number of readers. */

#include <stdint.h>

/* Only by the writer: a plain add, stored in one piece. */
static inline void
counter_add(uint64_t *counter, uint64_t n)
{
	__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

/* Only by the writer. */
static inline void
counter_set(uint64_t *counter, uint64_t value)
{
	__atomic_store_n(counter, value, __ATOMIC_RELAXED);
}

static inline uint64_t
counter_read(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

#endif /* COUNTER_H */
