/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef REPORT_H
#define REPORT_H

/* The line that the generator prints at each interval. */

#include <stdint.h>

/* Before the run: the frequency of the TSC. */
void report_start(uint64_t tsc_hz);

/* Print the line, unless quiet. For app_run(). */
void report(uint64_t elapsed_ns, uint64_t span_ns);

#endif /* REPORT_H */
