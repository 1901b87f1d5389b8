/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <rte_eal.h>
#include <rte_version.h>

#include "app.h"
#include "app_memory.h"
#include "locks.h"

#define MP_SOCKET "mp_socket_"
/* How long the app may wait for answers, including those of other processes. */
#define LEAVE_MS 1000
/* The EAL's files are among the first descriptors of this process, which has few. */
#define FDS_MAX 1024

bool
app_read_text(const char *path, char *text, size_t size)
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;
	int error;

	if (fd < 0)
		return false;
	n = read(fd, text, size - 1);
	error = n < 0 ? errno : ENODATA;
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	errno = error;
	return n > 0;
}

/* A field of /proc/PID/stat, and the text after it; NULL if there is no such process. */
static const char *
find_stat(pid_t pid, unsigned int field, char *text, size_t size)
{
	char path[32], *p;
	unsigned int i;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (!app_read_text(path, text, size))
		return NULL;
	/* Field 2 is the name in parentheses, which may contain any character. */
	p = strrchr(text, ')');
	for (i = 2; p != NULL && i < field; i++)
		p = strchr(p + 1, ' ');
	return p != NULL ? p + 1 : NULL;
}

uint64_t
app_process_stat(pid_t pid, enum app_stat field)
{
	char text[1024];
	const char *p = find_stat(pid, field, text, sizeof(text));

	return p != NULL ? strtoull(p, NULL, 10) : 0;
}

bool
app_process_ended(pid_t pid)
{
	char text[1024];
	const char *state = find_stat(pid, APP_STAT_STATE, text, sizeof(text));

	return state == NULL || *state == 'Z' || *state == 'X';
}

const char *
app_runtime_base(void)
{
	const char *base = getenv("RUNTIME_DIRECTORY");

	if (base == NULL && getuid() == 0)
		base = "/var/run";
	if (base == NULL)
		base = getenv("XDG_RUNTIME_DIR");
	return base != NULL ? base : "/tmp";
}

static int
find_runtime_dir(struct app *app, struct failure *failure)
{
	const int len = snprintf(app->runtime_dir, sizeof(app->runtime_dir), "%s/dpdk/%s",
			app_runtime_base(), app->file_prefix);

	if (len < 0 || (size_t)len >= sizeof(app->runtime_dir) - NAME_MAX)
		return failure_set(failure, ENAMETOOLONG, "--file-prefix: the path is too long");
	return 0;
}

/* The first words of struct rte_mem_config, which has no public declaration. */
struct config_head {
	uint32_t magic;
	uint32_t version;
};

/* Updates of a release keep its ABI; layouts that are not part of it are checked later. */
static int
check_version(const struct config_head *head, struct failure *failure)
{
	if (LOCKS_RELEASE(head->version) == LOCKS_RELEASE(RTE_VERSION))
		return 0;
	return failure_set(failure, EPROTONOSUPPORT,
			"the app has DPDK %u.%02u.%u, pmdscope-pdump %s: install the one of its release",
			head->version >> 24, head->version >> 16 & 0xff, head->version >> 8 & 0xff,
			rte_version() + strcspn(rte_version(), "0123456789"));
}

/* An app holds a lock on its configuration for as long as it lives. */
static int
check_owner(const struct app *app, int fd, struct failure *failure)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	if (fcntl(fd, F_GETLK, &lock) < 0)
		return failure_set(failure, errno, "the app's configuration: %s", strerror(errno));
	if (lock.l_type == F_UNLCK)
		return failure_set(failure, ESRCH, "the app with file prefix %.40s has ended",
				app->file_prefix);
	/* 0: a process that has no id in this namespace; -1: a lock that is not that of a process. */
	if (lock.l_pid != app->pid)
		return failure_set(failure, ESRCH, "file prefix %.40s is of process %d, not %d",
				app->file_prefix, (int)lock.l_pid, (int)app->pid);
	return 0;
}

static int
check_config(const struct app *app, struct failure *failure)
{
	int ret;

	char path[PATH_MAX + 8];
	struct config_head head;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/config", app->runtime_dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT && access(app->runtime_dir, F_OK) < 0)
		return failure_set(failure, ENOENT, "no app has the file prefix %.40s here",
				app->file_prefix);
	if (fd < 0 && errno == ENOENT)
		return failure_set(failure, ENOENT,
				"no shared memory: restart the app without --in-memory, --no-shconf");
	if (fd < 0)
		return failure_set(failure, errno, "the app's shared memory: %s, for its user (%u)",
				strerror(errno), geteuid());
	n = pread(fd, &head, sizeof(head), 0);
	ret = check_owner(app, fd, failure);
	close(fd);
	if (ret < 0)
		return -1;
	if (n != sizeof(head) || head.magic != RTE_MAGIC)
		return failure_set(
				failure, EAGAIN, "the app has not finished its start; try again");
	return check_version(&head, failure);
}

/* Another process cannot map hugepage files that were removed. */
static int
check_hugepages(const struct app *app, struct failure *failure)
{
	FILE *maps = app_memory_maps();
	char file[NAME_MAX + 8];
	bool deleted = false;
	struct mapping m;

	snprintf(file, sizeof(file), "/%.*smap_", NAME_MAX, app->file_prefix);
	while (maps != NULL && !deleted && app_memory_next(maps, &m))
		deleted = strstr(m.path, file) != NULL && strstr(m.path, " (deleted)") != NULL;
	if (maps != NULL)
		fclose(maps);
	if (!deleted)
		return 0;
	return failure_set(failure, ENOTSUP,
			"its memory cannot be mapped: restart the app without --huge-unlink=always");
}

int
app_open(struct app *app, pid_t pid, const char *file_prefix, struct failure *failure)
{
	char path[PATH_MAX + 16];

	*app = (struct app){ .pid = pid, .file_prefix = file_prefix };
	app->start = app_process_stat(pid, APP_STAT_START);
	if (app->start == 0)
		return failure_set(failure, ESRCH, "there is no process %d", (int)pid);
	if (find_runtime_dir(app, failure) < 0 || check_config(app, failure) < 0)
		return -1;
	snprintf(path, sizeof(path), "%s/hugepage_info", app->runtime_dir);
	if (access(path, R_OK) < 0)
		return failure_set(failure, errno,
				"its memory is not shared: restart the app without --no-huge");
	return check_hugepages(app, failure);
}

bool
app_alive(const struct app *app)
{
	return app_process_stat(app->pid, APP_STAT_START) == app->start;
}

/* Whether a process still listens on this socket. */
static bool
answers(const char *dir, const char *name)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	const int len = snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%s", dir, name);
	bool alive;
	int fd;

	if (len < 0 || (size_t)len >= sizeof(addr.sun_path))
		return true;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return true;
	alive = connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) == 0 ||
		errno != ECONNREFUSED;
	close(fd);
	return alive;
}

unsigned int
app_secondaries(const struct app *app, pid_t *pids, unsigned int max)
{
	DIR *dir = opendir(app->runtime_dir);
	const struct dirent *entry;
	unsigned int nb = 0;
	int pid;

	while (dir != NULL && nb < max && (entry = readdir(dir)) != NULL)
		if (sscanf(entry->d_name, MP_SOCKET "%d_", &pid) == 1 &&
				answers(app->runtime_dir, entry->d_name))
			pids[nb++] = pid;
	if (dir != NULL)
		closedir(dir);
	return nb;
}

pid_t
app_find_secondary(const struct app *app, pid_t ours)
{
	pid_t pids[2];
	const unsigned int nb = app_secondaries(app, pids, RTE_DIM(pids));
	unsigned int i;

	for (i = 0; i < nb; i++)
		if (pids[i] != ours)
			return pids[i];
	return 0;
}

bool
app_is_array_of(const char *name, pid_t pid)
{
	const char *last = strrchr(name, '_');
	char owner[16];
	ptrdiff_t len;

	if (strncmp(name, APP_ARRAY, strlen(APP_ARRAY)) != 0)
		return false;
	len = snprintf(owner, sizeof(owner), "_%d", (int)pid);
	if (strcmp(last, owner) == 0)
		return true;
	/* In DPDK 23.11.7, 25.11.2 and 26.07 a time follows the id. */
	return last - name >= len && strncmp(last - len, owner, (size_t)len) == 0;
}

/* Whether a secondary process with this id, in any namespace, made the file of this name. */
static bool
is_made_by(const char *name, pid_t pid)
{
	char socket_name[32];

	snprintf(socket_name, sizeof(socket_name), MP_SOCKET "%d_", (int)pid);
	return strncmp(name, socket_name, strlen(socket_name)) == 0 || app_is_array_of(name, pid);
}

/* Whether a process uses it. The EAL holds a lock on each array that it uses. */
static bool
is_in_use(const char *dir, int dir_fd, const char *name)
{
	bool used;
	int fd;

	if (strncmp(name, APP_ARRAY, strlen(APP_ARRAY)) != 0)
		return answers(dir, name);
	fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
	if (fd < 0)
		return true;
	used = flock(fd, LOCK_EX | LOCK_NB) < 0;
	close(fd);
	return used;
}

/* Whether this process uses it. */
static bool
is_ours(int dir_fd, const char *name)
{
	struct sockaddr_un addr;
	struct stat of_name, of_fd;
	const char *last;
	socklen_t len;
	int fd;

	if (fstatat(dir_fd, name, &of_name, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	for (fd = 0; fd < FDS_MAX; fd++) {
		if (fstat(fd, &of_fd) == 0 && of_fd.st_dev == of_name.st_dev &&
				of_fd.st_ino == of_name.st_ino)
			return true;
		memset(&addr, 0, sizeof(addr));
		len = sizeof(addr) - 1;
		if (getsockname(fd, (struct sockaddr *)&addr, &len) < 0 ||
				addr.sun_family != AF_UNIX)
			continue;
		last = strrchr(addr.sun_path, '/');
		if (last != NULL && strcmp(last + 1, name) == 0)
			return true;
	}
	return false;
}

static void
remove_files(const struct app *app, pid_t pid, bool ours)
{
	DIR *dir = opendir(app->runtime_dir);
	const struct dirent *entry;

	if (dir == NULL)
		return;
	while ((entry = readdir(dir)) != NULL)
		if (is_made_by(entry->d_name, pid) &&
				(ours ? is_ours(dirfd(dir), entry->d_name)
				      : !is_in_use(app->runtime_dir, dirfd(dir), entry->d_name)))
			unlinkat(dirfd(dir), entry->d_name, 0);
	closedir(dir);
}

void
app_sweep(const struct app *app, pid_t dead)
{
	remove_files(app, dead, false);
}

void
app_leave(const struct app *app)
{
	const int fd = open(app->runtime_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const struct timespec pause = { .tv_nsec = 1000000L };
	unsigned int ms;

	/* The EAL of the app holds this lock from its request until it has all answers. */
	for (ms = 0; fd >= 0 && ms < LEAVE_MS && flock(fd, LOCK_EX | LOCK_NB) < 0; ms++)
		nanosleep(&pause, NULL);
	remove_files(app, getpid(), true);
	if (fd >= 0)
		close(fd);
}
