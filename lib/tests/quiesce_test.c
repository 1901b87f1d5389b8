/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "quiesce.h"
#include "test.h"

static bool stuck;
static bool accepting;
static unsigned int served; /* Connections for which a thread was started. */

/* As in DPDK: a thread reads requests until the connection ends, then closes it. */
static void *
serve(void *arg)
{
	const int fd = (int)(intptr_t)arg;
	char byte;

	__atomic_fetch_add(&served, 1, __ATOMIC_RELEASE);
	while (read(fd, &byte, 1) > 0)
		;
	/* A request that never ends. */
	while (__atomic_load_n(&stuck, __ATOMIC_ACQUIRE))
		usleep(1000);
	close(fd);
	return NULL;
}

static void *
accept_all(void *arg)
{
	const int listener = (int)(intptr_t)arg;
	pthread_t thread;
	int fd;

	pthread_setname_np(pthread_self(), "telemetry-v2");
	__atomic_store_n(&accepting, true, __ATOMIC_RELEASE);
	while ((fd = accept(listener, NULL, NULL)) >= 0) {
		CHECK_U64(pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd), 0);
		pthread_detach(thread);
	}
	return NULL;
}

static int
open_socket(const char *path, bool server)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	strcpy(name.sun_path, path);
	CHECK(fd >= 0);
	if (server) {
		unlink(path);
		CHECK(bind(fd, (struct sockaddr *)&name, sizeof(name)) == 0);
		CHECK(listen(fd, 4) == 0);
	} else {
		CHECK(connect(fd, (struct sockaddr *)&name, sizeof(name)) == 0);
	}
	return fd;
}

static pthread_t
start_server(int listener)
{
	pthread_t thread;

	__atomic_store_n(&accepting, false, __ATOMIC_RELEASE);
	CHECK_U64(pthread_create(&thread, NULL, accept_all, (void *)(intptr_t)listener), 0);
	WAIT_FOR(__atomic_load_n(&accepting, __ATOMIC_ACQUIRE));
	return thread;
}

/* A client that is served by a thread. */
static int
connect_served(const char *path)
{
	const unsigned int before = __atomic_load_n(&served, __ATOMIC_ACQUIRE);
	const int fd = open_socket(path, false);

	WAIT_FOR(__atomic_load_n(&served, __ATOMIC_ACQUIRE) == before + 1);
	return fd;
}

/* A child has the sockets of its parent, and must not shut them down. */
static void
test_forked_child(const char *dir, int client)
{
	const pid_t child = fork();
	int status;

	if (child == 0)
		_exit(pmdscope_quiesce_telemetry(dir, 20) ? 0 : 1);
	CHECK(child > 0);
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(send(client, "x", 1, MSG_NOSIGNAL) == 1);
}

int
main(void)
{
	char dir[] = "/tmp/quiesce_test.XXXXXX", path[64], other_path[64], byte = 0;
	int listener, client, held, other, other_client;
	pthread_t server;

	CHECK(mkdtemp(dir) != NULL);
	snprintf(path, sizeof(path), "%s/dpdk_telemetry.v2", dir);
	snprintf(other_path, sizeof(other_path), "%s/other.sock", dir);
	CHECK(pmdscope_quiesce_telemetry(dir, 0));
	other = open_socket(other_path, true);
	other_client = open_socket(other_path, false);

	listener = open_socket(path, true);
	server = start_server(listener);
	client = connect_served(path);
	test_forked_child(dir, client);
	CHECK(pmdscope_quiesce_telemetry(dir, 5000));
	pthread_join(server, NULL);
	CHECK(read(client, &byte, 1) == 0);
	CHECK(accept(listener, NULL, NULL) < 0);
	/* Other sockets are not affected. */
	held = accept(other, NULL, NULL);
	CHECK(held >= 0);
	CHECK(write(other_client, "x", 1) == 1);
	close(listener);

	/* A request that never ends: the wait ends nevertheless. */
	__atomic_store_n(&stuck, true, __ATOMIC_RELEASE);
	listener = open_socket(path, true);
	server = start_server(listener);
	client = connect_served(path);
	CHECK(send(client, "x", 1, MSG_NOSIGNAL) == 1);
	CHECK(!pmdscope_quiesce_telemetry(dir, 20));
	__atomic_store_n(&stuck, false, __ATOMIC_RELEASE);
	CHECK(pmdscope_quiesce_telemetry(dir, 5000));

	unlink(path);
	unlink(other_path);
	rmdir(dir);
	return 0;
}
