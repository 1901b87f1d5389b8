/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_READERS_H
#define PMDSCOPE_READERS_H

/* Whether the counters of queues are needed. State lock held in all of these. */

#include <stdbool.h>
#include <stdint.h>

/* A reader is present for this long after its last request, nanoseconds. Shorter in tests. */
extern uint64_t pmdscope_readers_hold_ns;

void pmdscope_readers_start(void);
/* A table was requested. */
void pmdscope_readers_note(void);
/*
 * Queues have to be counted at this time of CLOCK_MONOTONIC: always, or on demand because tables
 * were requested, a capture is open, or mbufs are stamped or walked.
 */
bool pmdscope_readers_want_queues(uint64_t now_ns);

#endif /* PMDSCOPE_READERS_H */
