/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef BACKPRESSURE_H
#define BACKPRESSURE_H

/*
 * Periodically TX takes nothing for some time, as with a peer that does not read, and the app
 * retries.
 */

#include <stdbool.h>
#include <stdint.h>

#include "periodic.h"

/* TX takes nothing at this TSC. */
static inline bool
backpressure_now(const struct periodic *pressure, uint64_t now)
{
	return now >= pressure->start &&
	       (now - pressure->start) % pressure->period < pressure->cycles;
}

#endif /* BACKPRESSURE_H */
