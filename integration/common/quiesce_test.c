/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.h"
#include "quiesce.h"

/* As DPDK does: a thread reads requests until the connection ends, then closes it. */
static void *
serve(void *arg)
{
	const int fd = *(int *)arg;
	char byte;

	while (read(fd, &byte, 1) > 0)
		;
	close(fd);
	return NULL;
}

static int
open_socket(const char *path, bool server)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	int rc;

	strcpy(name.sun_path, path);
	CHECK(fd >= 0);
	rc = server ? bind(fd, (struct sockaddr *)&name, sizeof(name))
		    : connect(fd, (struct sockaddr *)&name, sizeof(name));
	CHECK_EQ(rc, 0);
	if (server)
		CHECK_EQ(listen(fd, 4), 0);
	return fd;
}

int
main(void)
{
	char dir[] = "/tmp/quiesce_test.XXXXXX", path[64], other_path[64], byte = 0;
	int listener, client, served, held, other, other_client;
	pthread_t thread;

	CHECK(mkdtemp(dir) != NULL);
	snprintf(path, sizeof(path), "%s/dpdk_telemetry.v2", dir);
	snprintf(other_path, sizeof(other_path), "%s/other.sock", dir);
	listener = open_socket(path, true);
	other = open_socket(other_path, true);
	other_client = open_socket(other_path, false);
	client = open_socket(path, false);
	served = accept(listener, NULL, NULL);
	CHECK(served >= 0);
	CHECK_EQ(pthread_create(&thread, NULL, serve, &served), 0);

	CHECK(quiesce_telemetry(dir, 1000));
	pthread_join(thread, NULL);
	CHECK_EQ(read(client, &byte, 1), 0);
	CHECK(accept(listener, NULL, NULL) < 0);
	/* Other sockets live on. */
	held = accept(other, NULL, NULL);
	CHECK(held >= 0);
	CHECK_EQ(write(other_client, "x", 1), 1);

	/* A request that never ends: the wait does. */
	unlink(path);
	close(listener);
	listener = open_socket(path, true);
	client = open_socket(path, false);
	CHECK(accept(listener, NULL, NULL) >= 0);
	CHECK(!quiesce_telemetry(dir, 20));

	unlink(path);
	unlink(other_path);
	rmdir(dir);
	return 0;
}
