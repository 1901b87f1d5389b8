/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_HEADROOM_H
#define PMDSCOPE_HEADROOM_H

/*
 * Memory that this process can still get: what the host has available, and what each memory cgroup
 * leaves that the process is in, up to the root or to the border of its container. A cgroup without
 * memory kills a process; allocations do not fail in it. For the control thread.
 */

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Kept free, at least. */
#define PMDSCOPE_HEADROOM_MARGIN (UINT64_C(8) << 20)

struct pmdscope_headroom {
	uint64_t bytes; /* UINT64_MAX: not known. */
	bool cgroup;	/* Left by a cgroup; otherwise by the host. */
};

/* Of a process in one hierarchy. */
struct pmdscope_cgroup {
	bool v2;
	size_t top; /* Length of the part of dir that is the mount point. */
	char dir[PATH_MAX];
};

/* A process is in at most one memory cgroup of version 1 and one cgroup of version 2. */
#define PMDSCOPE_CGROUPS_MAX 2

/*
 * Find the cgroups of this process in the file system tree at root, "" for the real one. Returns
 * their number.
 */
unsigned int
pmdscope_cgroups_find(const char *root, struct pmdscope_cgroup cgroups[PMDSCOPE_CGROUPS_MAX]);

/* What these and the host leave. Limits that cannot be read are left out. */
struct pmdscope_headroom pmdscope_headroom_of(
		const char *root, const struct pmdscope_cgroup *cgroups, unsigned int nb_cgroups);

/* What this process has now. */
struct pmdscope_headroom pmdscope_headroom_now(void);

/* Of it, what a capture may take: an eighth is kept free, and at least the margin. */
uint64_t pmdscope_headroom_usable(const struct pmdscope_headroom *headroom);

/* Whether this many bytes can be allocated now, and the margin is left. */
bool pmdscope_headroom_has(uint64_t bytes);

#endif /* PMDSCOPE_HEADROOM_H */
