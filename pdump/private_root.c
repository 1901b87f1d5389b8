/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include "private_root.h"

/* Not in the headers of every C library; those of the kernel cannot be included in addition. */
#ifndef OPEN_TREE_CLONE
#define OPEN_TREE_CLONE 1
#define OPEN_TREE_CLOEXEC O_CLOEXEC
#define MOVE_MOUNT_F_EMPTY_PATH 0x00000004
#endif

/* First mount point: every system has it, and in our own namespace no other process needs it. */
#define PLACE "/tmp"
#define HARMLESS (MS_NOSUID | MS_NODEV | MS_NOEXEC)

int
private_root_open(int root, const char *path)
{
	const struct open_how how = {
		.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};

	return (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
}

static int
cannot_share(const char *path, int error, struct failure *failure)
{
	return failure_set(
			failure, error, "cannot share %.60s of the app: %s", path, strerror(error));
}

int
private_root_add(struct private_root *private, int root, const char *path, struct failure *failure)
{
	int dir;

	if (private->nb == PRIVATE_ROOT_MAX)
		return failure_set(failure, E2BIG, "the app has too many mounts of hugepages");
	dir = private_root_open(root, path);
	if (dir < 0)
		return cannot_share(path, errno, failure);
	snprintf(private->dirs[private->nb].path, PATH_MAX, "%s", path);
	private->dirs[private->nb++].dir = dir;
	return 0;
}

int
private_root_add_proc(struct private_root *private, int root, struct failure *failure)
{
	struct statfs fs;

	if (private_root_add(private, root, "/proc", failure) < 0)
		return -1;
	/* Another file system could contain anything. */
	if (fstatfs(private->dirs[private->nb - 1].dir, &fs) < 0 || fs.f_type != PROC_SUPER_MAGIC)
		return failure_set(
				failure, ENOTSUP, "the app has no /proc: link it with libpmdscope");
	private->dirs[private->nb - 1].read_only = true;
	return 0;
}

int
private_root_copy(struct private_root *private, struct failure *failure)
{
	unsigned int i;
	int tree;

	for (i = 0; i < private->nb; i++) {
		tree = (int)syscall(SYS_open_tree, private->dirs[i].dir, "",
				AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
		if (tree < 0)
			return cannot_share(private->dirs[i].path, errno, failure);
		close(private->dirs[i].dir);
		private->dirs[i].dir = tree;
	}
	return 0;
}

/* Create a path below this directory, with all its parents. */
static bool
make_dirs(const char *path)
{
	char part[PATH_MAX];
	size_t len = 0;

	path += strspn(path, "/");
	while (path[len] != '\0') {
		len += strcspn(path + len, "/");
		snprintf(part, sizeof(part), "%.*s", (int)len, path);
		if (mkdir(part, 0755) < 0 && errno != EEXIST)
			return false;
		len += strspn(path + len, "/");
	}
	return true;
}

/* The flags apply to this mount only: the file system may be mounted elsewhere too. */
static bool
restrict_mount(const char *path, unsigned long flags)
{
	return mount(NULL, path, NULL, MS_REMOUNT | MS_BIND | HARMLESS | flags, NULL) == 0;
}

static bool
mount_sys(void)
{
	return mkdir("sys", 0555) == 0 && mount("sysfs", "sys", "sysfs", HARMLESS, NULL) == 0 &&
	       restrict_mount("sys", MS_RDONLY);
}

static bool
mount_dir(int tree, const char *path, bool read_only)
{
	path += strspn(path, "/");
	return syscall(SYS_move_mount, tree, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) == 0 &&
	       mount(NULL, path, NULL, MS_PRIVATE, NULL) == 0 &&
	       restrict_mount(path, read_only ? MS_RDONLY : 0);
}

static bool
build(const struct private_root *private)
{
	char options[96];
	unsigned int i;

	snprintf(options, sizeof(options), "mode=0755,size=1m,uid=%u,gid=%u", geteuid(), getegid());
	if (mount("tmpfs", PLACE, "tmpfs", HARMLESS, options) < 0 || chdir(PLACE) < 0 ||
			!mount_sys())
		return false;
	for (i = 0; i < private->nb; i++)
		if (!make_dirs(private->dirs[i].path))
			return false;
	for (i = 0; i < private->nb; i++)
		if (!mount_dir(private->dirs[i].dir, private->dirs[i].path,
				    private->dirs[i].read_only))
			return false;
	return restrict_mount(PLACE, MS_RDONLY);
}

int
private_root_switch(const struct private_root *private, struct failure *failure)
{
	/* The former root is mounted on top of the new one until it is unmounted. */
	if (build(private) && syscall(SYS_pivot_root, ".", ".") == 0 &&
			umount2(".", MNT_DETACH) == 0 && chdir("/") == 0)
		return 0;
	return failure_set(failure, errno, "cannot mount a root directory for the app's files: %s",
			strerror(errno));
}
