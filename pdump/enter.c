/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "app.h"
#include "app_memory.h"
#include "attach.h"
#include "callbacks.h"
#include "capture_socket.h"
#include "enter.h"
#include "ops_table.h"
#include "private_root.h"
#include "rights.h"
#include "sigterm.h"

/* The namespaces of a container; the PID namespace applies to children. */
#define OTHERS (CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP)
/* A process with thousands of groups has more, which are not needed. */
#define STATUS_MAX 16384

/* Seals of a copy of this program. */
#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)
#define COPY_BYTES (1U << 20)
/* More than pmdscope or a shell has. */
#define FDS_MAX 65536

struct entrance {
	int pidfd; /* Of the app. */
	int root;  /* Its root directory. */
	int home;  /* Our mount namespace. */
	pid_t pid; /* Of the app, as it sees itself. */
	struct rights rights;
	char base[sizeof(((struct sockaddr_un *)0)->sun_path)]; /* Its RUNTIME_DIRECTORY. */
	struct private_root private;
};

/* Static, as it is too large for a stack. */
static struct entrance entrance = { .pidfd = -1, .root = -1, .home = -1 };

static int
copy_program(int memory)
{
	const int program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	ssize_t n;

	do {
		n = program < 0 ? -1 : sendfile(memory, program, NULL, COPY_BYTES);
	} while (n > 0);
	if (program >= 0)
		close(program);
	return n < 0 ? -1 : fcntl(memory, F_ADD_SEALS, SEALS);
}

/*
 * Through /proc/PID/exe, processes inside could open the file of this program, and as root write to
 * it later. So a copy runs that cannot be changed.
 */
static int
run_from_memory(char **argv, struct failure *failure)
{
	const int program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	const bool is_copy = program >= 0 && fcntl(program, F_GET_SEALS) == SEALS;
	int memory;

	if (program >= 0)
		close(program);
	if (is_copy)
		return 0;
	memory = memfd_create("pmdscope-pdump", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (memory >= 0 && copy_program(memory) == 0)
		fexecve(memory, argv, environ);
	return failure_set(failure, errno, "cannot run from memory: %s", strerror(errno));
}

/*
 * Close all inherited descriptors. Standard output is a file of the host, whose mode root could
 * still change, and nothing is written to it.
 */
static void
close_others(int fd)
{
	int other;

	dup2(STDERR_FILENO, STDOUT_FILENO);
	for (other = STDERR_FILENO + 1; other < FDS_MAX; other++)
		if (other != fd)
			close(other);
}

static bool
same_namespace(pid_t pid, const char *name)
{
	struct stat ours, theirs;
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, name);
	if (stat(path, &theirs) < 0)
		return false;
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
look_at_process(pid_t pid, struct failure *failure)
{
	char path[32], status[STATUS_MAX];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	if (!app_read_text(path, status, sizeof(status)))
		return failure_set(failure, ESRCH, "there is no process %d", (int)pid);
	entrance.pid = parse_own_pid(status);
	if (entrance.pid <= 0 || !rights_parse(status, &entrance.rights))
		return failure_set(failure, ENOTSUP, "%s: of an unknown form", path);
	if (!same_namespace(pid, "user"))
		return failure_set(failure, EPERM,
				"the app is in another user namespace: run pmdscope in its container");
	return 0;
}

/*
 * The path that the app has bound its socket to, which may differ from the path to it here. Nothing
 * is sent, so the app does not notice.
 */
static int
find_base(const char *file_prefix, struct failure *failure)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	const char *base = getenv("RUNTIME_DIRECTORY");
	char path[PATH_MAX], tail[NAME_MAX + 32];
	socklen_t len = sizeof(addr) - 1;
	int dir, fd, ret;
	char *at;

	snprintf(path, sizeof(path), "%s/dpdk/%s", base != NULL ? base : "", file_prefix);
	dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	snprintf(addr.sun_path, sizeof(addr.sun_path), "/proc/self/fd/%d/mp_socket", dir);
	ret = dir < 0 || fd < 0 ? -1 : connect(fd, (struct sockaddr *)&addr, sizeof(addr));
	if (ret == 0) {
		memset(&addr, 0, sizeof(addr));
		ret = getpeername(fd, (struct sockaddr *)&addr, &len);
	}
	if (ret < 0)
		failure_set(failure, errno, "%.80s/mp_socket: %s", path, strerror(errno));
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
	memcpy(entrance.base, addr.sun_path, sizeof(entrance.base));
	return 0;
}

/*
 * All mounts that the app may take hugepages from, now or later. Without access to one of them,
 * this fails.
 */
static int
add_hugepages(FILE *mountinfo, struct failure *failure)
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
		for (i = 0; i < entrance.private.nb; i++)
			if (strcmp(entrance.private.dirs[i].path, path) == 0)
				break;
		if (i == entrance.private.nb && private_root_add(&entrance.private, entrance.root,
								path, failure) < 0)
			return -1;
	}
	return 0;
}

static int
add_dirs(FILE *mountinfo, const char *file_prefix, struct failure *failure)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/dpdk/%s", entrance.base, file_prefix);
	if (private_root_add(&entrance.private, entrance.root, path, failure) < 0 ||
			private_root_add_proc(&entrance.private, entrance.root, failure) < 0)
		return -1;
	return add_hugepages(mountinfo, failure);
}

/* Open everything that needs the rights of this process, while it has them. */
static int
open_app(pid_t pid, struct failure *failure)
{
	const struct app_symbol symbols[] = { ops_table_symbol, callbacks_symbol };
	struct pollfd pfd = { .events = POLLIN };
	char path[32];

	entrance.pidfd = pfd.fd = (int)syscall(SYS_pidfd_open, pid, 0);
	snprintf(path, sizeof(path), "/proc/%d/root", (int)pid);
	entrance.root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (pfd.fd < 0 || entrance.root < 0 || !app_memory_keep(pid, symbols, RTE_DIM(symbols)))
		return failure_set(failure, errno, "cannot look into process %d: %s", (int)pid,
				strerror(errno));
	if (look_at_process(pid, failure) < 0)
		return -1;
	/* The process did not end and its id was not reused during all of this. */
	if (poll(&pfd, 1, 0) != 0)
		return failure_set(failure, ESRCH, "the app has ended");
	return 0;
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
visit_mounts(pid_t pid, const char *file_prefix, struct failure *failure)
{
	char path[32];
	FILE *mountinfo;
	int ret;

	snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)pid);
	mountinfo = fopen(path, "re");
	if (mountinfo == NULL)
		return failure_set(failure, errno, "%s: %s", path, strerror(errno));
	ret = visit("mounts",
			unshare(CLONE_NEWNS) == 0 &&
					mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
					(entrance.home = open("/proc/self/ns/mnt",
							 O_RDONLY | O_CLOEXEC)) >= 0 &&
					setns(entrance.pidfd, CLONE_NEWNS) == 0,
			failure);
	if (ret == 0) {
		ret = add_dirs(mountinfo, file_prefix, failure);
		if (setns(entrance.home, CLONE_NEWNS) < 0)
			ret = visit("mounts", false, failure);
	}
	fclose(mountinfo);
	return ret;
}

static void
close_mounts(void)
{
	unsigned int i;

	close(entrance.root);
	close(entrance.home);
	for (i = 0; i < entrance.private.nb; i++)
		close(entrance.private.dirs[i].tree);
}

/* The environment of root may contain secrets. */
static void
wipe_environment(void)
{
	char **variable;

	for (variable = environ; variable != NULL && *variable != NULL; variable++)
		explicit_bzero(*variable, strlen(*variable));
	clearenv();
}

/*
 * All rights are given up before any process of ours is in the PID namespace of the app: a process
 * that may trace others in there would get them.
 */
static int
give_up(struct failure *failure)
{
	if (private_root_switch(&entrance.private, failure) < 0)
		return -1;
	close_mounts();
	wipe_environment();
	if (rights_take(&entrance.rights, failure) < 0)
		return -1;
	if (prctl(PR_SET_DUMPABLE, 0) == 0 && setenv("RUNTIME_DIRECTORY", entrance.base, 1) == 0)
		return 0;
	return failure_set(failure, errno, "cannot be kept from the app: %s", strerror(errno));
}

/* When the first process of a PID namespace ends, which may be the app, all others are killed. */
static __rte_noreturn void
await_child(pid_t child, int consumer)
{
	struct pollfd pfd = { .fd = entrance.pidfd, .events = POLLIN };
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
enter_namespaces(struct options *options, char **argv, struct failure *failure)
{
	pid_t child;

	if (run_from_memory(argv, failure) < 0)
		return -1;
	close_others(options->fd);
	if (open_app(options->pid, failure) < 0 || find_base(options->file_prefix, failure) < 0)
		return -1;
	/* The C library loads it when a thread ends, and there are no libraries in the new root. */
	dlopen("libgcc_s.so.1", RTLD_NOW);
	if (visit_mounts(options->pid, options->file_prefix, failure) < 0 ||
			visit("namespaces", setns(entrance.pidfd, OTHERS) == 0, failure) < 0)
		return -1;
	if (give_up(failure) < 0)
		return -1;
	child = fork();
	if (child < 0)
		return failure_set(failure, errno, "cannot start a process: %s", strerror(errno));
	if (child > 0)
		await_child(child, options->fd);
	/* If the outer process is killed, the child gets a request to end, as from a watchdog. */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	close(entrance.pidfd);
	options->pid = entrance.pid;
	return 0;
}
