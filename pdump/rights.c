/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <grp.h>
#include <inttypes.h>
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

static bool
parse_groups(const char *status, struct rights *rights)
{
	const char *at = strstr(status, "\nGroups:");
	char *end;

	if (at == NULL)
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

bool
rights_parse(const char *status, struct rights *rights)
{
	const char *at = strstr(status, "\nCapEff:");

	*rights = (struct rights){ 0 };
	if (at == NULL || sscanf(at + strlen("\nCapEff:"), "%" SCNx64, &rights->capabilities) != 1)
		return false;
	if (!parse_effective(status, "\nUid:", &rights->uid) ||
			!parse_effective(status, "\nGid:", &rights->gid))
		return false;
	if (rights->uid != 0)
		rights->capabilities = 0;
	return parse_groups(status, rights);
}

static int
compare_groups(const void *a, const void *b)
{
	const gid_t x = *(const gid_t *)a, y = *(const gid_t *)b;

	return (x > y) - (x < y);
}

/* Whether this process has these groups, in any order. */
static bool
has_groups(const struct rights *rights)
{
	gid_t ours[RIGHTS_GROUPS_MAX], theirs[RIGHTS_GROUPS_MAX];
	const int nb = getgroups(RIGHTS_GROUPS_MAX, ours);

	if (nb < 0 || (unsigned int)nb != rights->nb_groups)
		return false;
	memcpy(theirs, rights->groups, sizeof(theirs));
	qsort(ours, (size_t)nb, sizeof(*ours), compare_groups);
	qsort(theirs, (size_t)nb, sizeof(*theirs), compare_groups);
	return memcmp(ours, theirs, (size_t)nb * sizeof(*ours)) == 0;
}

/*
 * Without the right to change groups, a process can only help others of its own user. They could as well
 * take its groups from any process of that user.
 */
static bool
take_groups(const struct rights *rights)
{
	if ((has_groups(rights) || setgroups(rights->nb_groups, rights->groups) == 0) &&
			setresgid(rights->gid, rights->gid, rights->gid) == 0)
		return true;
	return errno == EPERM && geteuid() == rights->uid;
}

/* Removes all others of the kernel, of which there may be more than in the headers. */
static bool
bound(uint64_t capabilities)
{
	unsigned long i;
	int is_there;

	for (i = 0; (is_there = prctl(PR_CAPBSET_READ, i)) >= 0; i++)
		if (is_there == 1 && (i >= 64 || (capabilities >> i & 1) == 0) &&
				prctl(PR_CAPBSET_DROP, i) < 0)
			return errno == EPERM; /* By no_new_privs they are of no use. */
	return true;
}

/* Those that this process does not have are left out. */
static bool
set_capabilities(uint64_t effective, uint64_t permitted)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
	unsigned int i;

	if (syscall(SYS_capget, &header, data) < 0)
		return false;
	for (i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
		data[i].permitted &= (uint32_t)(permitted >> 32 * i);
		data[i].effective = data[i].permitted & (uint32_t)(effective >> 32 * i);
		data[i].inheritable = 0;
	}
	return syscall(SYS_capset, &header, data) == 0;
}

static int
cannot_take(const struct rights *rights, struct failure *failure)
{
	return failure_set(failure, errno,
			"cannot take on the rights of the app (user %u): %s; run as root, or as its user",
			rights->uid, strerror(errno));
}

int
rights_become(const struct rights *rights, uint64_t for_a_while, struct failure *failure)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
			prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) == 0 &&
			bound(rights->capabilities) && take_groups(rights) &&
			prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) == 0 &&
			setresuid(rights->uid, rights->uid, rights->uid) == 0 &&
			prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) == 0 &&
			/* Other processes of the user cannot trace this one. */
			prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 &&
			set_capabilities(0, rights->capabilities | for_a_while))
		return 0;
	return cannot_take(rights, failure);
}

bool
rights_use(uint64_t capabilities)
{
	return set_capabilities(capabilities, UINT64_MAX);
}

int
rights_settle(const struct rights *rights, struct failure *failure)
{
	if (set_capabilities(rights->capabilities, rights->capabilities))
		return 0;
	return cannot_take(rights, failure);
}
