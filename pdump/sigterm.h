/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_ENDING_H
#define PDUMP_ENDING_H

/* SIGTERM asks for an end in order. It is remembered, so that no moment is the wrong one. */

#include <stdbool.h>
#include <sys/types.h>

/* From now on, in this process and in those that it forks. */
void ending_watch(void);

bool ending_asked(void);

/* Pass it on to this child, as well when it has come already; to nobody with 0. */
void ending_pass_on(pid_t child);

#endif /* PDUMP_ENDING_H */
