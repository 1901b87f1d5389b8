/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_RIGHTS_H
#define PDUMP_RIGHTS_H

/* User, groups and capabilities of a process. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "failure.h"

/* Of a process in more groups, only this many are used. */
#define RIGHTS_GROUPS_MAX 64

struct rights {
	uid_t uid;
	gid_t gid;
	gid_t groups[RIGHTS_GROUPS_MAX];
	unsigned int nb_groups;
	uint64_t capabilities; /* A bit for each. */
};

/*
 * Parse what is effective in the text of /proc/PID/status. Capabilities count for root only: another
 * process of the same user, which lacks them, could otherwise use them through files of that user.
 */
bool rights_parse(const char *status, struct rights *rights);

/*
 * Become that user permanently. Of the capabilities of this process, those of the rights remain, and those
 * to be used for a while; none is effective. 0, or -1 with the failure.
 */
int rights_become(const struct rights *rights, uint64_t for_a_while, struct failure *failure);

/* Make exactly these capabilities effective, as far as this process has them. */
bool rights_use(uint64_t capabilities);

/* Keep and use the capabilities of the rights only, permanently. 0, or -1 with the failure. */
int rights_settle(const struct rights *rights, struct failure *failure);

#endif /* PDUMP_RIGHTS_H */
