/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_SIGTERM_H
#define PDUMP_SIGTERM_H

/* SIGTERM asks for a graceful shutdown. It is pending until it is read. */

#include <stdbool.h>
#include <sys/types.h>

/* Handle it in this process and in those that it forks later. */
void sigterm_watch(void);

bool sigterm_received(void);

/* Forward it to this child, even if it came earlier; with 0 to no process. */
void sigterm_forward_to(pid_t child);

#endif /* PDUMP_SIGTERM_H */
