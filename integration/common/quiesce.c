/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include "quiesce.h"

static bool
is_below(int fd, const char *path_prefix)
{
	struct sockaddr_un name = { 0 };
	socklen_t len = sizeof(name) - 1;

	return getsockname(fd, (struct sockaddr *)&name, &len) == 0 && name.sun_family == AF_UNIX &&
	       strncmp(name.sun_path, path_prefix, strlen(path_prefix)) == 0;
}

static bool
is_listening(int fd)
{
	socklen_t len = sizeof(int);
	int listening = 0;

	return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) == 0 && listening;
}

/* Shut down what is there. Returns the connections; their threads close them when done. */
static unsigned int
shut_down(const char *path_prefix)
{
	DIR *fds = opendir("/proc/self/fd");
	unsigned int connections = 0;
	struct dirent *entry;
	int fd;

	if (fds == NULL)
		return 0;
	while ((entry = readdir(fds)) != NULL) {
		fd = atoi(entry->d_name);
		if (entry->d_name[0] == '.' || !is_below(fd, path_prefix))
			continue;
		connections += !is_listening(fd);
		shutdown(fd, SHUT_RDWR);
	}
	closedir(fds);
	return connections;
}

bool
quiesce_telemetry(const char *runtime_dir, unsigned int timeout_ms)
{
	char path_prefix[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
	unsigned int waited_ms;

	snprintf(path_prefix, sizeof(path_prefix), "%s/dpdk_telemetry", runtime_dir);
	for (waited_ms = 0; shut_down(path_prefix) > 0; waited_ms++) {
		if (waited_ms == timeout_ms)
			return false;
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	return true;
}
