/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_PROGRESS_H
#define PMDSCOPE_PROGRESS_H

/*
 * Whether the pollers of the app make progress. Time in which one of them does not (a debugger, a
 * starved CPU) does not count as holding time of mbufs. Control thread.
 */

#include <stdbool.h>
#include <stdint.h>

void pmdscope_progress_start(void);
/* All pollers have polled since the last call, except those that have ended. */
bool pmdscope_progress_made(uint64_t now_ms);

#endif /* PMDSCOPE_PROGRESS_H */
