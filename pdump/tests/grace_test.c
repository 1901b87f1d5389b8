/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <unistd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "grace.h"
#include "test.h"

#define STATUS \
	"Name:\tapp\nState:\tR\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t9\n"

static void
test_parse(void)
{
	struct grace_thread t = { 0 };

	CHECK(grace_parse("12 (a) b) S) R 1 12", "20000001 5 3\n", STATUS, &t));
	CHECK(t.state == 'R');
	CHECK_U64(t.cpu_ns, 20000001);
	CHECK_U64(t.switches, 7);
	CHECK(!grace_parse("12 (app", "1 2 3", STATUS, &t));
	CHECK(!grace_parse("12 (app)", "1 2 3", STATUS, &t));
	CHECK(!grace_parse("12 (app) ", "1 2 3", STATUS, &t));
	CHECK(!grace_parse("12 (app) R", "", STATUS, &t));
	CHECK(!grace_parse("12 (app) R", "x", STATUS, &t));
	CHECK(!grace_parse("12 (app) R", "1", "Name:\tapp\n", &t));
	CHECK(!grace_parse("12 (app) R", "1", "\nvoluntary_ctxt_switches:\t\n", &t));
}

/* Elapsed time, preemption and stops do not prove that a thread has left. */
static void
test_rule(void)
{
	const struct grace_thread before = { .state = 'R', .cpu_ns = 1000, .switches = 5 };
	struct grace_thread now = before;

	CHECK(!grace_passed(&before, &now));
	now.cpu_ns = before.cpu_ns + GRACE_CPU_NS - 1;
	now.switches = before.switches + 1;
	CHECK(!grace_passed(&before, &now));
	now.state = 'T';
	CHECK(!grace_passed(&before, &now));
	now.state = 't';
	CHECK(!grace_passed(&before, &now));
	now.state = 'D';
	CHECK(!grace_passed(&before, &now));
	now.cpu_ns = before.cpu_ns + GRACE_CPU_NS;
	CHECK(grace_passed(&before, &now));
	now = before;
	now.switches = before.switches + 2;
	CHECK(grace_passed(&before, &now));
	now = before;
	now.state = 'S';
	CHECK(grace_passed(&before, &now));
	now.state = 'Z';
	CHECK(grace_passed(&before, &now));
}

static bool reads_are_empty;

ssize_t __real_read(int fd, void *buf, size_t size);
ssize_t __wrap_read(int fd, void *buf, size_t size);

/* The failure of an earlier call has no effect. */
ssize_t
__wrap_read(int fd, void *buf, size_t size)
{
	if (!reads_are_empty)
		return __real_read(fd, buf, size);
	errno = ENOENT;
	return 0;
}

static bool lists_fail;

struct dirent64 *__real_readdir64(DIR *dir);
struct dirent64 *__wrap_readdir64(DIR *dir);

struct dirent64 *
__wrap_readdir64(DIR *dir)
{
	if (!lists_fail)
		return __real_readdir64(dir);
	errno = ENOMEM;
	return NULL;
}

static char
state_of(pid_t pid)
{
	char path[64], state = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "r");
	CHECK(f != NULL && fscanf(f, "%*d (%*[^)]) %c", &state) == 1);
	fclose(f);
	return state;
}

/* A child that spins, or one that sleeps. */
static pid_t
start(bool spins)
{
	const pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid != 0 && !spins)
		WAIT_FOR(state_of(pid) == 'S');
	if (pid != 0)
		return pid;
	/* Also if the test fails. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		if (!spins)
			pause();
}

static void
test_processes(void)
{
	static struct grace grace;
	struct timespec from, to;
	pid_t pid;

	/* A polling thread leaves the callback by running on. */
	pid = start(true);
	CHECK(grace_begin(&grace, pid));
	CHECK_U64(grace.nb_threads, 1);
	CHECK(grace_wait(&grace));
	/* A thread that cannot be read may be in the callback; it does not count as dead. */
	reads_are_empty = true;
	CHECK(!grace_begin(&grace, pid));
	reads_are_empty = false;
	CHECK(grace_begin(&grace, pid));
	reads_are_empty = true;
	CHECK(!grace_wait(&grace));
	reads_are_empty = false;
	/* A list that cannot be read does not count as empty. */
	lists_fail = true;
	CHECK(!grace_begin(&grace, pid));
	lists_fail = false;
	/* A stopped thread never leaves, and the wait for it is bounded. */
	kill(pid, SIGSTOP);
	WAIT_FOR(state_of(pid) == 'T');
	CHECK(grace_begin(&grace, pid));
	clock_gettime(CLOCK_MONOTONIC, &from);
	CHECK(!grace_wait(&grace));
	clock_gettime(CLOCK_MONOTONIC, &to);
	CHECK(to.tv_sec - from.tv_sec >= 2);
	/* A dead thread has left. */
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	CHECK(grace_wait(&grace));
	CHECK(grace_begin(&grace, pid));
	CHECK_U64(grace.nb_threads, 0);

	/* A sleeping thread is outside immediately. */
	pid = start(false);
	CHECK(grace_begin(&grace, pid));
	CHECK_U64(grace.nb_threads, 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

int
main(void)
{
	test_parse();
	test_rule();
	test_processes();
	return 0;
}
