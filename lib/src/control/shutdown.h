/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_SHUTDOWN_H
#define PMDSCOPE_SHUTDOWN_H

/*
 * The end of the process, in any way. rte_eal_cleanup() unmaps the memory that the control thread
 * and DPDK's telemetry threads read, and rte_exit() calls it without notice to the app. So the
 * library wraps both functions and stops these threads first. exit() stops them as well.
 */

#include <stdbool.h>

/* Once per process, in pmdscope_init(): exit() will then end our threads. */
void pmdscope_shutdown_prepare(void);

/*
 * Calls of rte_eal_cleanup() and rte_exit() reach the library first; depends on how it was linked.
 */
bool pmdscope_shutdown_intercepts(void);

/* Shut DPDK's telemetry down, for good. False, and a log line, when a request does not end. */
bool pmdscope_shutdown_telemetry(void);

#endif /* PMDSCOPE_SHUTDOWN_H */
