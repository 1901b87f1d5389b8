/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PROCESS_MEMORY_H
#define PROCESS_MEMORY_H

#include <fcntl.h>
#include <stdio.h>

#include "app_memory.h"
#include "test.h"

/* Open the memory of a process. */
static inline void
open_memory_of(pid_t pid)
{
	char path[32];
	int proc;

	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	proc = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	CHECK(proc >= 0);
	CHECK(app_memory_open(proc, openat(proc, "root", O_PATH | O_DIRECTORY | O_CLOEXEC)));
}

#endif /* PROCESS_MEMORY_H */
