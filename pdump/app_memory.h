/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_APP_MEMORY_H
#define PDUMP_APP_MEMORY_H

/* The private memory of another process, read only. */

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* A line of /proc/PID/maps. */
struct mapping {
	uintptr_t start, end;
	uint64_t offset; /* In the file. */
	uint64_t inode;
	char perms[5];
	char path[PATH_MAX]; /* Empty for memory without a file. */
};

/*
 * /proc/PID/maps; NULL with errno. After app_memory_keep() only one may be read at a time: they
 * share a file position.
 */
FILE *app_memory_maps(pid_t pid);

/* The next mapping; false at the end. */
bool app_memory_next(FILE *maps, struct mapping *mapping);

bool app_memory_read(pid_t pid, uintptr_t from, void *to, size_t len);

/*
 * Address of an object of this name and size, or 0. The executable is searched first, as the
 * linker does: if it has its own definition, by static linking or as a copy of a library's, all
 * code uses that one.
 */
uintptr_t app_memory_symbol(pid_t pid, const char *name, size_t size);

/* Identifies an object by its symbol. */
struct app_symbol {
	const char *name;
	size_t size;
};

/*
 * Open the memory of a process, and look up these symbols in it. All later calls concern that
 * process, whatever id they are given, need no further rights, and know no other symbols. False
 * with errno.
 */
bool app_memory_keep(pid_t pid, const struct app_symbol *symbols, unsigned int nb);

/* Whether the memory may be read. Only a refusal counts. */
bool app_memory_may_read(pid_t pid);

#endif /* PDUMP_APP_MEMORY_H */
