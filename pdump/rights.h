/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_RIGHTS_H
#define PDUMP_RIGHTS_H

/* User and groups of a process. */

#include <stdbool.h>
#include <sys/types.h>

#include "failure.h"

/* Of a process in more groups, only this many are used. */
#define RIGHTS_GROUPS_MAX 64

struct rights {
	uid_t uid;
	gid_t gid;
	gid_t groups[RIGHTS_GROUPS_MAX];
	unsigned int nb_groups;
};

/* Parse the effective ids in the text of /proc/PID/status. */
bool rights_parse(const char *status, struct rights *rights);

/* Take these on permanently, without any capability. 0, or -1 with the failure. */
int rights_take(const struct rights *rights, struct failure *failure);

#endif /* PDUMP_RIGHTS_H */
