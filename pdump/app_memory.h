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

/* Identifies an object by its symbol. */
struct app_symbol {
	const char *name;
	size_t size;
};

/*
 * Open the memory of a process, which all other functions concern; they need no further rights. proc is its
 * directory in /proc, root its root directory; both are kept. False with errno.
 */
bool app_memory_open(int proc, int root);

/*
 * Look up these symbols in the files that the process has mapped, with the rights of this one, and close the
 * directories.
 */
void app_memory_find(const struct app_symbol *symbols, unsigned int nb);

/*
 * Address of an object of this name and size, or 0 if it was not found. The executable is searched first, as
 * the linker does: if it has its own definition, by static linking or as a copy of a library's, all
 * code uses that one.
 */
uintptr_t app_memory_symbol(const char *name, size_t size);

/* /proc/PID/maps; NULL with errno. Only one may be read at a time: they share a file position. */
FILE *app_memory_maps(void);

/* The next mapping; false at the end. */
bool app_memory_next(FILE *maps, struct mapping *mapping);

bool app_memory_read(uintptr_t from, void *to, size_t len);

#endif /* PDUMP_APP_MEMORY_H */
