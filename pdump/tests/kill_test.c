/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* What kills at any moment leave in a real app: argv is the app and the program. */

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "captured_app.h"
#include "locks.h"
#include "test.h"

#define KILLS 24
/* Latest time of the kill: attaching and detaching take less. */
#define LATEST_US 120000

static char
state_of(pid_t pid)
{
	char path[64], state = 'X';
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "r");
	if (f != NULL && fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
		state = 'X';
	if (f != NULL)
		fclose(f);
	return state;
}

/* Stop a process wherever it is. */
static void
freeze(pid_t pid)
{
	unsigned int i;

	kill(pid, SIGSTOP);
	for (i = 0; i < 10000 && strchr("TXZ", state_of(pid)) == NULL; i++)
		usleep(100);
}

static unsigned int
nb_kills(void)
{
	const char *wanted = getenv("PMDSCOPE_KILL_ROUNDS");

	return wanted != NULL ? (unsigned int)atoi(wanted) : KILLS;
}

/* Whether a process has writable access to the memory with the app's locks. */
static bool
can_write_locks(pid_t pid)
{
	char path[64], line[PATH_MAX + 128];
	bool can = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	f = fopen(path, "r");
	while (f != NULL && !can && fgets(line, sizeof(line), f) != NULL)
		can = strstr(line, "rw-s") != NULL && strstr(line, app.prefix) != NULL &&
		      (strstr(line, "/fbarray_memzone\n") != NULL ||
				      strstr(line, "/config") != NULL);
	if (f != NULL)
		fclose(f);
	return can;
}

/* A capture after a kill works. */
static void
capture_again(void)
{
	struct capture c;

	start(&c, PMDSCOPE_DIR_RX | PMDSCOPE_DIR_TX, 0);
	expect_ring(&c);
	CHECK_U64((unsigned int)stop(&c), 0);
}

/* At any time a capture holds no lock of the app, and cannot take one: a stopped one proves it. */
static void
check_stopped(pid_t worker, unsigned int kill_nb)
{
	char lock[LOCKS_NAME_MAX];

	freeze(worker);
	CHECK(!can_write_locks(worker));
	if (locks_wait(&pdump_app, 2000, lock) == LOCKS_HELD)
		fprintf(stderr, "kill %u: %s is held\n", kill_nb, lock);
	CHECK(locks_wait(&pdump_app, 0, lock) != LOCKS_HELD);
}

/*
 * One capture in which the worker, the watchdog, or both are killed; returns whether there was a
 * worker.
 */
static bool
die(unsigned int i)
{
	struct pmdscope_tee_message m = { 0 };
	struct capture c;
	pid_t worker;
	int fds[2];

	start(&c, PMDSCOPE_DIR_RX | PMDSCOPE_DIR_TX, 0);
	if (i % 2 != 0) {
		expect_ring(&c);
		shutdown(c.fd, SHUT_WR);
	}
	usleep((useconds_t)(rand() % LATEST_US));
	worker = worker_of(c.pid);
	if (worker > 0)
		check_stopped(worker, i);
	if (i % 3 != 1 && worker > 0)
		kill(worker, SIGKILL);
	if (i % 3 != 0 || worker == 0)
		kill(c.pid, SIGKILL);
	if (worker > 0)
		kill(worker, SIGCONT);
	/* A process that was still cleaning up after the last capture continues with this one. */
	while (receive(&c, &m, fds) && m.kind != PMDSCOPE_TEE_RING)
		;
	if (m.kind == PMDSCOPE_TEE_RING) {
		close(fds[0]);
		close(fds[1]);
	}
	stop(&c);
	return worker > 0;
}

/*
 * Kills at any moment of the start and end of a capture: the next one works, and nothing is left.
 */
static void
test_kills(void)
{
	const struct report before = ask();
	unsigned int i, caught = 0;
	struct report after;

	srand((unsigned int)time(NULL));
	for (i = 0; i < nb_kills(); i++) {
		caught += die(i);
		/* Code that takes locks of the app continues. */
		CHECK(ask().sent >= before.sent);
		capture_again();
	}
	fprintf(stderr, "%u of %u workers stopped\n", caught, i);
	CHECK(i < KILLS || caught > 0);
	after = ask();
	CHECK(after.sent > before.sent);
	CHECK_U64(after.zones, before.zones);
}

/* The memory of a capture is not freed, alive or dead; afterwards it is unchanged. */
static void
test_uninit(bool killed)
{
	const struct report before = ask();
	struct capture c;
	pid_t worker;

	start(&c, PMDSCOPE_DIR_RX | PMDSCOPE_DIR_TX, 0);
	expect_ring(&c);
	worker = worker_of(c.pid);
	if (killed) {
		kill(c.pid, SIGKILL);
		kill(worker, SIGKILL);
		stop(&c);
	}
	CHECK_U64(say("u\n").zones, before.zones);
	if (killed)
		return;
	sleep_ms(100);
	CHECK(strchr("RSD", state_of(worker)) != NULL);
	stop_app();
	CHECK_U64((unsigned int)stop(&c), 0);
}

int
main(int argc, char **argv)
{
	begin_test(argc, argv);
	/* Prove that this check can fail. */
	CHECK(can_write_locks(app.pid));
	test_kills();
	/* Without a capture, it is freed. */
	CHECK(ask().zones == say("u\n").zones + 1);
	stop_app();
	start_app(argv[1]);
	test_uninit(false);
	start_app(argv[1]);
	test_uninit(true);
	return 0;
}
