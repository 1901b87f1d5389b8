/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "quiesce.h"

/* Timeout for a client to read its last reply. */
#define REPLY_MS 100

struct search {
	const char *runtime_dir;
	int self;
	int how; /* SHUT_ */
	bool begun;
	bool self_serves;	  /* This is a telemetry thread, with its own connection. */
	unsigned int connections; /* Their threads close them when done. */
	unsigned int threads;
};

/* Calls a function for each number in a directory of /proc. opendir() would allocate. */
static void
each_number(const char *path, void (*visit)(struct search *search, int number),
		struct search *search)
{
	char buffer[4096] __attribute__((aligned(8)));
	const int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	long len, at;

	if (dir < 0)
		return;
	while ((len = syscall(SYS_getdents64, dir, buffer, sizeof(buffer))) > 0) {
		for (at = 0; at < len;) {
			const struct dirent64 *entry = (const void *)(buffer + at);

			if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9')
				visit(search, atoi(entry->d_name));
			at += entry->d_reclen;
		}
	}
	close(dir);
}

static bool
is_telemetry_socket(const struct search *search, int fd)
{
	const size_t dir_len = strlen(search->runtime_dir);
	struct sockaddr_un name = { 0 };
	socklen_t len = sizeof(name) - 1;

	return getsockname(fd, (struct sockaddr *)&name, &len) == 0 && name.sun_family == AF_UNIX &&
	       strncmp(name.sun_path, search->runtime_dir, dir_len) == 0 &&
	       (strncmp(name.sun_path + dir_len, "/dpdk_telemetry", 15) == 0 ||
			       strcmp(name.sun_path + dir_len, "/telemetry") == 0);
}

static bool
is_listening(int fd)
{
	socklen_t len = sizeof(int);
	int listening = 0;

	return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) == 0 && listening;
}

static void
shut_down(struct search *search, int fd)
{
	if (!is_telemetry_socket(search, fd))
		return;
	search->connections += !is_listening(fd);
	shutdown(fd, search->how);
}

/* The threads of clients inherit the name of the one that accepts them. */
static bool
is_telemetry_thread(int tid)
{
	static const char *const names[] = { "telemetry-v", "dpdk-telemet-v" };
	char path[64], name[32] = "";
	unsigned int i;
	ssize_t len;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/comm", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	len = read(fd, name, sizeof(name) - 1);
	close(fd);
	for (i = 0; len > 0 && i < sizeof(names) / sizeof(names[0]); i++)
		if (strncmp(name, names[i], strlen(names[i])) == 0)
			return true;
	return false;
}

static void
count_thread(struct search *search, int tid)
{
	if (!is_telemetry_thread(tid))
		return;
	if (tid == search->self)
		search->self_serves = true;
	else
		search->threads++;
}

/*
 * A connection accepted during one search is found by the next one, as there are threads until
 * then. A forked child has no such threads, but has the sockets of its parent, which it must not
 * shut down.
 */
static bool
look(struct search *search)
{
	search->connections = 0;
	search->threads = 0;
	each_number("/proc/self/task", count_thread, search);
	if (search->threads == 0 && !search->begun)
		return true;
	search->begun = true;
	each_number("/proc/self/fd", shut_down, search);
	return search->threads == 0 && (search->connections == 0 || search->self_serves);
}

bool
pmdscope_quiesce_telemetry(const char *runtime_dir, unsigned int timeout_ms)
{
	struct search search = {
		.runtime_dir = runtime_dir,
		.self = (int)syscall(SYS_gettid),
	};
	unsigned int waited_ms;

	/* The reply to the last request is still sent, unless the client does not read it. */
	search.how = SHUT_RD;
	for (waited_ms = 0; !look(&search); waited_ms++) {
		if (waited_ms >= timeout_ms)
			return false;
		if (waited_ms >= REPLY_MS)
			search.how = SHUT_RDWR;
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	return true;
}
