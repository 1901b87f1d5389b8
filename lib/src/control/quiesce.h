/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_QUIESCE_H
#define PMDSCOPE_QUIESCE_H

/*
 * DPDK's telemetry threads keep running after rte_eal_cleanup(), and fault on the memory that it
 * unmapped if a client then sends a command. So clients are disconnected first.
 */

#include <stdbool.h>

/*
 * Shut down every connection to, and the listening sockets of, the telemetry sockets below
 * runtime_dir, and wait up to timeout_ms for DPDK's telemetry threads to end, except for the
 * calling thread. True if none is left. Allocates nothing: it may be called in a signal handler.
 */
bool pmdscope_quiesce_telemetry(const char *runtime_dir, unsigned int timeout_ms);

#endif /* PMDSCOPE_QUIESCE_H */
