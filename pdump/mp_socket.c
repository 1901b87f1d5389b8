/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * Prepares the socket between the EAL of this process and that of the app as soon as it exists: sending must
 * not block forever if the app does not read and its short queue is full.
 */

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <rte_eal.h>
#include <rte_errno.h>

#include "failure.h"

/* It is among the first descriptors of this process, which has few. */
#define FDS_MAX 1024
/* As long as rte_pdump waits for an answer. */
#define SEND_S 5

int __real_rte_mp_channel_init(void);
int __wrap_rte_mp_channel_init(void);

/* The EAL keeps the descriptor for itself. */
static int
find_socket(void)
{
	struct sockaddr_un addr;
	char prefix[PATH_MAX];
	socklen_t len;
	int fd, n;

	n = snprintf(prefix, sizeof(prefix), "%s/mp_socket_%d_", rte_eal_get_runtime_dir(),
			(int)getpid());
	for (fd = 0; fd < FDS_MAX; fd++) {
		memset(&addr, 0, sizeof(addr));
		len = sizeof(addr) - 1;
		if (getsockname(fd, (struct sockaddr *)&addr, &len) == 0 &&
				addr.sun_family == AF_UNIX &&
				strncmp(addr.sun_path, prefix, (size_t)n) == 0)
			return fd;
	}
	return -1;
}

static bool
limit_sends(void)
{
	const struct timeval timeout = { .tv_sec = SEND_S };
	const int fd = find_socket();

	return fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) == 0;
}

int
__wrap_rte_mp_channel_init(void)
{
	const int ret = __real_rte_mp_channel_init();

	if (ret == 0 && !limit_sends()) {
		complain("the socket of the EAL cannot be given a timeout: %s", strerror(errno));
		rte_errno = EIO;
		return -1;
	}
	return ret;
}
