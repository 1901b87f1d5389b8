/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/stat.h>

#include "runtime_dir.h"

/* Others may create files in it, but not replace those of their owners, as in /tmp. */
static bool
is_shared(const struct stat *st)
{
	return (st->st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

/* No other user can put something else at this path. A link that only they can replace is as good. */
static int
check(const char *path, bool is_last, struct failure *failure)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return failure_set(failure, errno, "%.50s: %s, for the app's user (%u)", path,
				strerror(errno), geteuid());
	if (is_last && !S_ISDIR(st.st_mode))
		return failure_set(failure, ENOTDIR, "%.60s is not a directory", path);
	if (st.st_uid != 0 && st.st_uid != geteuid())
		return failure_set(failure, EPERM,
				"%.40s is of user %u, the app of user %u: only its own may be used",
				path, st.st_uid, geteuid());
	if (S_ISDIR(st.st_mode) && is_shared(&st) && (is_last || (st.st_mode & S_ISVTX) == 0))
		return failure_set(failure, EPERM,
				"others may replace files in %.40s (mode %o): chmod go-w", path,
				st.st_mode & 07777);
	return 0;
}

/* From the root directory on, so that nothing above can change meanwhile. */
static int
check_all(const char *path, struct failure *failure)
{
	char part[PATH_MAX];
	size_t len = 0;

	if (check("/", false, failure) < 0)
		return -1;
	while (path[len] != '\0') {
		len += strcspn(path + len + 1, "/") + 1;
		snprintf(part, sizeof(part), "%.*s", (int)len, path);
		if (check(part, path[len] == '\0', failure) < 0)
			return -1;
	}
	return 0;
}

int
runtime_dir_choose(const char *base, const char *file_prefix, struct failure *failure)
{
	char path[2 * PATH_MAX], real[PATH_MAX];

	snprintf(path, sizeof(path), "%s/dpdk/%s", base, file_prefix);
	if (path[0] != '/' || (access(path, F_OK) < 0 && errno == ENOENT))
		return failure_set(failure, ENOENT, "no app has the file prefix %.40s here",
				file_prefix);
	/* The EAL knows the app by this path: it has to be the one that the app uses. */
	if (check_all(path, failure) < 0)
		return -1;
	if (realpath(path, real) == NULL)
		return failure_set(failure, errno, "%.60s: %s", path, strerror(errno));
	if (check_all(real, failure) < 0)
		return -1;
	if (access(path, R_OK | W_OK | X_OK) < 0)
		return failure_set(failure, errno,
				"%.40s: %s, for the app's user (%u): did it give up rights?", path,
				strerror(errno), geteuid());
	if (setenv("RUNTIME_DIRECTORY", base, 1) == 0)
		return 0;
	return failure_set(failure, errno, "RUNTIME_DIRECTORY: %s", strerror(errno));
}
