/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * Captures from an app whose memory cgroup has little left: they are refused, or take less, and the
 * app is not killed. SKIP where cgroups cannot be made.
 */

#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rte_eal.h>

#include "capture.h"
#include "capture_instance.h"
#include "capture_test.h"
#include "headroom.h"

#define SKIPPED 77
#define MIB (UINT64_C(1) << 20)
/* More than a page of a CPU and the rest of this test take. */
#define LEFT_MIN (4 * MIB)

static struct pmdscope_cgroup cgroup;

static bool
put(const char *file, uint64_t value)
{
	char path[PATH_MAX + 64];
	FILE *f;
	bool ok;

	snprintf(path, sizeof(path), "%s/%s", cgroup.dir, file);
	f = fopen(path, "w");
	if (f == NULL)
		return false;
	ok = fprintf(f, "%" PRIu64 "\n", value) > 0;
	return fclose(f) == 0 && ok;
}

static uint64_t
get(const char *file)
{
	char path[PATH_MAX + 64];
	uint64_t value = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", cgroup.dir, file);
	f = fopen(path, "r");
	CHECK(f != NULL && fscanf(f, "%" SCNu64, &value) == 1);
	fclose(f);
	return value;
}

static uint64_t
used(void)
{
	return get(cgroup.v2 ? "memory.current" : "memory.usage_in_bytes");
}

/* A cgroup below our own whose memory can be limited. */
static bool
make_cgroup(void)
{
	struct pmdscope_cgroup own[PMDSCOPE_CGROUPS_MAX];
	const unsigned int n = pmdscope_cgroups_find("", own);
	unsigned int i;

	for (i = 0; i < n; i++) {
		cgroup = own[i];
		snprintf(cgroup.dir + strlen(cgroup.dir), 32, "/pmdscope-test-%d", (int)getpid());
		if (mkdir(cgroup.dir, 0755) < 0)
			continue;
		if (put(cgroup.v2 ? "memory.max" : "memory.limit_in_bytes", 1024 * MIB))
			return true;
		rmdir(cgroup.dir);
	}
	return false;
}

static struct pmdscope_tee_message
ask(int *fd, uint32_t ring_size)
{
	struct request req = test_request();
	int fds[2];

	req.hdr.ring_size = ring_size;
	*fd = test_connect();
	test_send(*fd, &req);
	return test_receive(*fd, fds);
}

static void
leave(int fd)
{
	close(fd);
	test_pump(5);
	CHECK(pmdscope_capture_nb_sessions() == 0 && pmdscope_capture_retired_bytes() == 0);
}

/* With this much left: the largest ring is refused, the one that is named instead fits. */
static void
test_left(uint64_t left)
{
	const uint64_t limit = used() + left;
	struct pmdscope_tee_message message;
	int fds[8], fd;
	unsigned int n;

	CHECK(put(cgroup.v2 ? "memory.max" : "memory.limit_in_bytes", limit));
	message = ask(&fd, PMDSCOPE_RING_MAX_SIZE);
	CHECK(message.kind == PMDSCOPE_TEE_REFUSE && message.value == ENOMEM);
	printf("%" PRIu64 " MiB: %s\n", left / MIB, message.text);
	CHECK(strstr(message.text, "app's cgroup has") != NULL);
	leave(fd);
	CHECK(message.ring_size >= PMDSCOPE_RING_MIN_SIZE && message.ring_size < left);
	/* As many as the app permits, or as there is memory for. */
	for (n = 0; n < RTE_DIM(fds); n++) {
		message = ask(&fds[n], n == 0 ? message.ring_size : PMDSCOPE_RING_MIN_SIZE);
		if (message.kind != PMDSCOPE_TEE_ACCEPT)
			break;
	}
	CHECK(n > 0 && n < RTE_DIM(fds));
	CHECK(limit - used() >= LEFT_MIN);
	do
		close(fds[n]);
	while (n-- > 0);
	test_pump(5);
	CHECK(pmdscope_capture_nb_sessions() == 0);
}

/* Without enough for any ring. */
static void
test_nothing_left(void)
{
	struct pmdscope_tee_message message;
	int fd;

	CHECK(put(cgroup.v2 ? "memory.max" : "memory.limit_in_bytes", used() + 5 * MIB));
	message = ask(&fd, PMDSCOPE_RING_MIN_SIZE);
	CHECK(message.kind == PMDSCOPE_TEE_REFUSE && message.value == ENOMEM);
	CHECK(message.ring_size == 0 && strstr(message.text, "no size fits") != NULL);
	leave(fd);
}

static int
run_app(void)
{
	CHECK(put("cgroup.procs", (uint64_t)getpid()));
	test_capture_eal(1);
	test_capture_start(4, 64);
	test_left(12 * MIB);
	test_left(20 * MIB);
	test_left(30 * MIB);
	test_nothing_left();
	CHECK(put(cgroup.v2 ? "memory.max" : "memory.limit_in_bytes", 1024 * MIB));
	test_capture_stop();
	rte_eal_cleanup();
	return EXIT_SUCCESS;
}

int
main(void)
{
	unsigned int i;
	int status;
	pid_t pid;

	if (!make_cgroup()) {
		printf("SKIP: no memory cgroup can be made here\n");
		return SKIPPED;
	}
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0)
		exit(run_app());
	CHECK(waitpid(pid, &status, 0) == pid);
	/* The kernel may still be taking the process out of it. */
	for (i = 0; i < 100 && rmdir(cgroup.dir) < 0; i++)
		usleep(10000);
	if (WIFSIGNALED(status))
		fprintf(stderr, "the app was killed by signal %d\n", WTERMSIG(status));
	CHECK(WIFEXITED(status));
	return WEXITSTATUS(status);
}
