/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "app.h"
#include "grace.h"

#define PAUSE_NS 2000000L
/*
 * Timeouts for a stopped thread, and for one that waits for a CPU. On CPUs without ticks the
 * kernel counts CPU time once a second.
 */
#define WAIT_STOPPED_MS 2500
#define WAIT_RUNNABLE_MS 10000
#define SWITCHES "\nvoluntary_ctxt_switches:"

bool
grace_parse(const char *stat, const char *schedstat, const char *status,
		struct grace_thread *thread)
{
	const char *state = strrchr(stat, ')');
	const char *switches = strstr(status, SWITCHES);

	if (state == NULL || state[1] != ' ' || !isalpha((unsigned char)state[2]) ||
			switches == NULL)
		return false;
	thread->state = state[2];
	return sscanf(schedstat, "%" SCNu64, &thread->cpu_ns) == 1 &&
	       sscanf(switches + strlen(SWITCHES), "%" SCNu64, &thread->switches) == 1;
}

bool
grace_passed(const struct grace_thread *before, const struct grace_thread *now)
{
	/* Asleep voluntarily, or dead. D may be a page fault in the callback, T any place. */
	if (now->state == 'S' || now->state == 'I' || now->state == 'Z' || now->state == 'X')
		return true;
	/*
	 * A page fault that waits for I/O counts as going to sleep once; a callback does not do so
	 * twice.
	 */
	return now->switches >= before->switches + 2 ||
	       now->cpu_ns >= before->cpu_ns + GRACE_CPU_NS;
}

static bool
read_text(pid_t pid, pid_t tid, const char *name, char *text, size_t size)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", (int)pid, (int)tid, name);
	return app_read_text(path, text, size);
}

/* Read the state of a thread. A thread that has ended counts as dead, which is fine. */
static bool
look(pid_t pid, pid_t tid, struct grace_thread *thread)
{
	char stat[1024], schedstat[128], status[4096];

	*thread = (struct grace_thread){ .tid = tid, .state = 'X' };
	if (!read_text(pid, tid, "stat", stat, sizeof(stat)) ||
			!read_text(pid, tid, "status", status, sizeof(status)))
		return errno == ENOENT || errno == ESRCH;
	/* A kernel without schedstats shows only how often a thread went to sleep. */
	if (!read_text(pid, tid, "schedstat", schedstat, sizeof(schedstat)))
		strcpy(schedstat, "0");
	return grace_parse(stat, schedstat, status, thread);
}

/* The next entry; NULL at the end, with an errno of 0, and on an error. */
static const struct dirent *
next_entry(DIR *dir)
{
	errno = 0;
	return readdir(dir);
}

bool
grace_begin(struct grace *grace, pid_t pid)
{
	struct grace_thread thread;
	const struct dirent *entry;
	char path[32];
	DIR *dir;
	bool all = true;

	*grace = (struct grace){ .pid = pid };
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	if (dir == NULL)
		return errno == ENOENT;
	while (all && (entry = next_entry(dir)) != NULL) {
		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		all = grace->nb_threads < GRACE_MAX_THREADS &&
		      look(pid, atoi(entry->d_name), &thread);
		if (all && !grace_passed(&thread, &thread))
			grace->threads[grace->nb_threads++] = thread;
	}
	/* Threads that cannot be listed may be in the callback, unless the process has ended. */
	all = all && (errno == 0 || errno == ENOENT);
	closedir(dir);
	return all;
}

/* Forget the threads that have left; true when one of the others could run. */
static bool
look_again(struct grace *grace)
{
	struct grace_thread now;
	bool runnable = false;
	unsigned int i = 0;

	while (i < grace->nb_threads) {
		if (!look(grace->pid, grace->threads[i].tid, &now)) {
			i++;
		} else if (grace_passed(&grace->threads[i], &now)) {
			grace->threads[i] = grace->threads[--grace->nb_threads];
		} else {
			runnable |= now.state == 'R';
			grace->threads[i++].state = now.state;
		}
	}
	return runnable;
}

bool
grace_wait(struct grace *grace)
{
	const struct timespec pause = { .tv_nsec = PAUSE_NS };
	unsigned int ms, limit = WAIT_RUNNABLE_MS;

	for (ms = 0; ms < limit && grace->nb_threads > 0; ms += PAUSE_NS / 1000000) {
		nanosleep(&pause, NULL);
		limit = look_again(grace) ? WAIT_RUNNABLE_MS : WAIT_STOPPED_MS;
	}
	return grace->nb_threads == 0;
}
