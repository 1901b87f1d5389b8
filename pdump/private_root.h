/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_PRIVATE_ROOT_H
#define PDUMP_PRIVATE_ROOT_H

/*
 * A root directory that contains only /sys and some directories of another mount namespace, at the
 * paths that they have there.
 */

#include <limits.h>
#include <stdbool.h>

#include "failure.h"

#define PRIVATE_ROOT_MAX 16

struct private_root {
	unsigned int nb;
	struct {
		char path[PATH_MAX];
		int dir; /* Then a copy of its mount, not mounted anywhere. */
		bool read_only;
	} dirs[PRIVATE_ROOT_MAX];
};

/*
 * Find a directory below the root directory of another process. Links lead to nowhere else than there. A
 * descriptor, or -1 with errno.
 */
int private_root_open(int root, const char *path);

/*
 * Add a directory, by its path below the root directory of another process. 0, or -1 with the failure, EACCES
 * if this process may not reach it.
 */
int
private_root_add(struct private_root *private, int root, const char *path, struct failure *failure);

/* Add /proc in the same way, read-only. It shows the processes of the other PID namespace. */
int private_root_add_proc(struct private_root *private, int root, struct failure *failure);

/*
 * Copy the mounts of all directories, in their mount namespace, with CAP_SYS_ADMIN. 0, or -1 with the failure.
 */
int private_root_copy(struct private_root *private, struct failure *failure);

/*
 * Make it the root directory of this process, which must be in a mount namespace of its own. The
 * directories are mounted in the order in which they were added.
 */
int private_root_switch(const struct private_root *private, struct failure *failure);

#endif /* PDUMP_PRIVATE_ROOT_H */
