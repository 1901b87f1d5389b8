/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "attach.h"
#include "capture_socket.h"
#include "enter.h"
#include "private_root.h"
#include "sigterm.h"

/* The namespaces of a container; the PID namespace applies to children. */
#define OTHERS (CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP)
/* Room for all groups that a process can have. */
#define STATUS_MAX (1U << 20)

/* Static, as it is too large for a stack. */
static struct private_root private;

/* A namespace that the kernel does not have counts as the same. */
static bool
same_namespace(int proc, const char *name)
{
	struct stat ours, theirs;
	char path[48];

	snprintf(path, sizeof(path), "ns/%s", name);
	if (fstatat(proc, path, &theirs, 0) < 0)
		return errno == ENOENT;
	snprintf(path, sizeof(path), "/proc/self/ns/%s", name);
	return stat(path, &ours) == 0 && ours.st_dev == theirs.st_dev &&
	       ours.st_ino == theirs.st_ino;
}

/* The last number is the id in the innermost PID namespace. */
static pid_t
parse_own_pid(const char *status)
{
	const char *at = strstr(status, "\nNSpid:"), *end;

	if (at == NULL)
		return 0;
	end = strchr(++at, '\n');
	while (end != NULL && end > at && end[-1] != '\t')
		end--;
	return end != NULL ? (pid_t)atoi(end) : 0;
}

static int
read_status(struct target *app, int proc, struct failure *failure)
{
	static char status[STATUS_MAX];
	const int fd = openat(proc, "status", O_RDONLY | O_CLOEXEC);
	const ssize_t n = fd < 0 ? -1 : read(fd, status, sizeof(status) - 1);

	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return failure_set(failure, ESRCH, "the app has ended");
	status[n] = '\0';
	app->pid = parse_own_pid(status);
	if (app->pid > 0 && rights_parse(status, &app->rights))
		return 0;
	return failure_set(failure, ENOTSUP, "/proc/PID/status of the app: of an unknown form");
}

int
target_describe(struct target *app, int proc, struct failure *failure)
{
	static const char *const names[] = { "mnt", "net", "ipc", "uts", "cgroup" };
	unsigned int i;

	/* What is said of rights in there does not apply here. */
	if (!same_namespace(proc, "user"))
		return failure_set(failure, EPERM,
				"the app is in another user namespace: run pmdscope in its container");
	app->has_other_pids = !same_namespace(proc, "pid");
	app->is_apart = app->has_other_pids;
	for (i = 0; i < RTE_DIM(names); i++)
		app->is_apart |= !same_namespace(proc, names[i]);
	if (read_status(app, proc, failure) < 0)
		return -1;
	if (app->is_apart)
		app->rights.capabilities = 0;
	return 0;
}

/* The runtime directory, by its path here or below the root directory of a process like the app. */
static int
open_runtime_dir(const struct target *app, const char *base, const char *file_prefix)
{
	char path[2 * PATH_MAX];
	int pid, at = 0;

	snprintf(path, sizeof(path), "%s/dpdk/%s", base, file_prefix);
	if (sscanf(path, "/proc/%d/root/%n", &pid, &at) == 1 && at > 0)
		return private_root_open(app->root, path + at - 1);
	return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/*
 * The path that the app has bound its socket to, which may differ from the path to it here. Nothing
 * is sent, so the app does not notice.
 */
static int
find_base(const struct target *app, char base[PATH_MAX], const char *file_prefix,
		struct failure *failure)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	const int dir = open_runtime_dir(app, base, file_prefix);
	const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	char tail[NAME_MAX + 32], *at;
	socklen_t len = sizeof(addr) - 1;
	int ret;

	snprintf(addr.sun_path, sizeof(addr.sun_path), "/proc/self/fd/%d/mp_socket", dir);
	ret = dir < 0 || fd < 0 ? -1 : connect(fd, (struct sockaddr *)&addr, sizeof(addr));
	if (ret == 0) {
		memset(&addr, 0, sizeof(addr));
		ret = getpeername(fd, (struct sockaddr *)&addr, &len);
	}
	if (ret < 0)
		failure_set(failure, errno, "%.30s/dpdk/%.20s/mp_socket: %s, for the app's user",
				base, file_prefix, strerror(errno));
	if (dir >= 0)
		close(dir);
	if (fd >= 0)
		close(fd);
	if (ret < 0)
		return -1;
	snprintf(tail, sizeof(tail), "/dpdk/%s/mp_socket", file_prefix);
	at = addr.sun_path[0] == '/' ? strstr(addr.sun_path, tail) : NULL;
	if (at == NULL || strcmp(at, tail) != 0)
		return failure_set(
				failure, ENOTSUP, "the app has its socket at %.80s", addr.sun_path);
	*at = '\0';
	snprintf(base, PATH_MAX, "%s", addr.sun_path);
	return 0;
}

/* All mounts that the app may take hugepages from, now or later, except where it may not go. */
static int
add_hugepages(const struct target *app, FILE *mountinfo, struct failure *failure)
{
	char path[PATH_MAX], type[16], line[3 * PATH_MAX];
	const char *rest;
	unsigned int i;

	while (fgets(line, sizeof(line), mountinfo) != NULL) {
		rest = strstr(line, " - ");
		if (rest == NULL || sscanf(rest, " - %15s", type) != 1 ||
				strcmp(type, "hugetlbfs") != 0 ||
				sscanf(line, "%*s %*s %*s %*s %4095s", path) != 1)
			continue;
		/* Of several mounts at one path the topmost one counts. */
		for (i = 0; i < private.nb; i++)
			if (strcmp(private.dirs[i].path, path) == 0)
				break;
		if (i == private.nb && private_root_add(&private, app->root, path, failure) < 0 &&
				failure->error != EACCES)
			return -1;
	}
	return 0;
}

static int
add_dirs(const struct target *app, const char *base, const char *file_prefix,
		struct failure *failure)
{
	const int fd = fcntl(app->mountinfo, F_DUPFD_CLOEXEC, 0);
	FILE *mountinfo = fd < 0 ? NULL : fdopen(fd, "r");
	char path[2 * PATH_MAX];
	int ret;

	if (mountinfo == NULL)
		return failure_set(failure, errno, "mounts of the app: %s", strerror(errno));
	snprintf(path, sizeof(path), "%s/dpdk/%s", base, file_prefix);
	ret = private_root_add(&private, app->root, path, failure);
	if (ret == 0)
		ret = private_root_add_proc(&private, app->root, failure);
	if (ret == 0)
		ret = add_hugepages(app, mountinfo, failure);
	fclose(mountinfo);
	return ret;
}

static int
visit(const char *what, bool done, struct failure *failure)
{
	if (done)
		return 0;
	return failure_set(failure, errno,
			"cannot enter the %s of the app: %s; run as root with CAP_SYS_ADMIN", what,
			strerror(errno));
}

/* Mounts can be copied only in their own namespace. */
static int
copy_mounts(const struct target *app, struct failure *failure)
{
	int home = -1;
	int ret = visit("mounts",
			unshare(CLONE_NEWNS) == 0 &&
					mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
					(home = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC)) >=
							0 &&
					setns(app->pidfd, CLONE_NEWNS) == 0,
			failure);

	if (ret == 0) {
		ret = private_root_copy(&private, failure);
		if (setns(home, CLONE_NEWNS) < 0)
			ret = visit("mounts", false, failure);
	}
	if (home >= 0)
		close(home);
	return ret;
}

static void
close_mounts(void)
{
	unsigned int i;

	for (i = 0; i < private.nb; i++)
		close(private.dirs[i].dir);
}

int
enter(const struct target *app, char base[PATH_MAX], const char *file_prefix,
		struct failure *failure)
{
	int ret;

	if (find_base(app, base, file_prefix, failure) < 0 ||
			add_dirs(app, base, file_prefix, failure) < 0)
		return -1;
	/* The C library loads it when a thread ends, and there are no libraries in the new root. */
	dlopen("libgcc_s.so.1", RTLD_NOW);
	/* All that is done with these is in this one statement. */
	ret = visit("namespaces", rights_use(ENTER_CAPABILITIES), failure) < 0 ||
	      copy_mounts(app, failure) < 0 ||
	      visit("namespaces", setns(app->pidfd, OTHERS) == 0, failure) < 0 ||
	      private_root_switch(&private, failure) < 0;
	close_mounts();
	return ret ? -1 : 0;
}

/* When the first process of a PID namespace ends, which may be the app, all others are killed. */
static __rte_noreturn void
await_child(const struct target *app, pid_t child, int consumer)
{
	struct pollfd pfd = { .fd = app->pidfd, .events = POLLIN };
	int status;

	sigterm_forward_to(child);
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			_exit(1);
	if (WIFEXITED(status))
		_exit(WEXITSTATUS(status));
	if (poll(&pfd, 1, ENDING_MS) > 0)
		pmdscope_capture_send(consumer, PMDSCOPE_TEE_END, ESHUTDOWN, "the app has ended");
	_exit(1);
}

int
enter_pids(const struct target *app, struct options *options, struct failure *failure)
{
	const pid_t child = fork();

	if (child < 0)
		return failure_set(failure, errno, "cannot start a process: %s", strerror(errno));
	if (child > 0)
		await_child(app, child, options->fd);
	/* If the outer process is killed, the child gets a request to end, as from a watchdog. */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	options->pid = app->pid;
	return 0;
}
