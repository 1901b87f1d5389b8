/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_ENTER_H
#define PDUMP_ENTER_H

/* The environment of the app, such as a container. */

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include <linux/capability.h>

#include "failure.h"
#include "options.h"
#include "rights.h"

/* What it takes to enter namespaces. */
#define ENTER_CAPABILITIES (1ULL << CAP_SYS_ADMIN | 1ULL << CAP_SYS_CHROOT | 1ULL << CAP_SYS_PTRACE)

/* The process of the app, as the kernel describes it. */
struct target {
	int pidfd;
	int root; /* Its root directory. */
	int mountinfo;
	pid_t pid; /* As it sees itself. */
	struct rights rights;
	bool is_apart;	     /* It is in other namespaces than this process. */
	bool has_other_pids; /* The same of its PID namespace. */
};

/*
 * Find out its rights and namespaces from its directory in /proc. In other namespaces than ours, it is to have
 * no capability: what confines it there, such as a filter of system calls, does not confine this process. 0, or
 * -1 with the failure.
 */
int target_describe(struct target *app, int proc, struct failure *failure);

/*
 * Enter its namespaces, with a root directory that has only its runtime directory, its mounts of hugepages, /proc
 * and /sys. Paths are resolved as the user of this process, without capabilities. base leads to the runtime
 * directory as seen from here, and then as the app sees it. 0, or -1 with the failure.
 */
int enter(const struct target *app, char base[PATH_MAX], const char *file_prefix,
		struct failure *failure);

/*
 * Become a process in the PID namespace: returns 0 in a child, with the app's process id there in the options.
 * -1 with the failure.
 */
int enter_pids(const struct target *app, struct options *options, struct failure *failure);

#endif /* PDUMP_ENTER_H */
