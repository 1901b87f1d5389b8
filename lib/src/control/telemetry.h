/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_TELEMETRY_H
#define PMDSCOPE_TELEMETRY_H

/* The commands of docs/telemetry.md. */

/*
 * Register them, once per process. DPDK cannot unregister a command, so they answer null
 * while the library does not run. 0, or a negative errno.
 */
int pmdscope_telemetry_register(void);

#endif /* PMDSCOPE_TELEMETRY_H */
