/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef QUIESCE_H
#define QUIESCE_H

/*
 * DPDK's telemetry threads live on after rte_eal_cleanup() and fault on the memory that it
 * unmaps, if a client asks at that moment. A program that ends while it is watched has to
 * send the clients away first.
 */

#include <stdbool.h>

/*
 * Shut down every connection to, and the listening socket of, the telemetry sockets below
 * runtime_dir. Waits up to timeout_ms for requests in progress. True if none is left.
 */
bool quiesce_telemetry(const char *runtime_dir, unsigned int timeout_ms);

#endif /* QUIESCE_H */
