/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "rights.h"

static bool
parse_effective(const char *status, const char *field, unsigned int *id)
{
	const char *at = strstr(status, field);
	unsigned int real;

	return at != NULL && sscanf(at + strlen(field), "%u %u", &real, id) == 2;
}

bool
rights_parse(const char *status, struct rights *rights)
{
	const char *at = strstr(status, "\nGroups:");
	char *end;

	*rights = (struct rights){ 0 };
	if (at == NULL || !parse_effective(status, "\nUid:", &rights->uid) ||
			!parse_effective(status, "\nGid:", &rights->gid))
		return false;
	at += strlen("\nGroups:");
	while (rights->nb_groups < RIGHTS_GROUPS_MAX) {
		at += strspn(at, " \t");
		if (*at < '0' || *at > '9')
			break;
		rights->groups[rights->nb_groups++] = (gid_t)strtoul(at, &end, 10);
		at = end;
	}
	return true;
}

/* Removes all capabilities of the kernel, of which there may be more than in the headers. */
static bool
drop_bounding_set(void)
{
	unsigned long capability;

	for (capability = 0; prctl(PR_CAPBSET_READ, capability) >= 0; capability++)
		if (prctl(PR_CAPBSET_DROP, capability) < 0)
			return false;
	return true;
}

static bool
drop_capabilities(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = { 0 };

	return syscall(SYS_capset, &header, none) == 0;
}

int
rights_take(const struct rights *rights, struct failure *failure)
{
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) == 0 && drop_bounding_set() &&
			setgroups(rights->nb_groups, rights->groups) == 0 &&
			setresgid(rights->gid, rights->gid, rights->gid) == 0 &&
			setresuid(rights->uid, rights->uid, rights->uid) == 0 &&
			drop_capabilities() && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
		return 0;
	return failure_set(failure, errno, "cannot take on the rights of the app (user %u): %s",
			rights->uid, strerror(errno));
}
