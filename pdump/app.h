/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_APP_H
#define PDUMP_APP_H

/* The app as the kernel and its own files show it, without the EAL. */

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "failure.h"

struct app {
	pid_t pid;
	uint64_t start; /* Of the process, in clock ticks since boot; tells pids apart. */
	const char *file_prefix;
	char runtime_dir[PATH_MAX];
};

/* Fields of /proc/PID/stat, by their number in proc(5). */
enum app_stat {
	APP_STAT_STATE = 3,   /* A letter. */
	APP_STAT_SYSTEM = 15, /* CPU time in the kernel, in clock ticks. */
	APP_STAT_START = 22,
	APP_STAT_VSIZE = 23, /* 0 when it has begun to end. */
};

/* What a file of /proc holds now; false with errno when it cannot be read; ENODATA: it is empty. */
bool app_read_text(const char *path, char *text, size_t size);

/* A number of a process; 0 when there is no such process. */
uint64_t app_process_stat(pid_t pid, enum app_stat field);

/* There is no such process, or it is a zombie that nobody has waited for. */
bool app_process_ended(pid_t pid);

/*
 * Find the app and look whether a secondary process can work on it at all: shared
 * configuration, version, hugepages. 0, or -1 with the failure.
 */
int app_open(struct app *app, pid_t pid, const char *file_prefix, struct failure *failure);

bool app_alive(const struct app *app);

/* Live secondary processes of the app; how many, and the first so many of them. */
unsigned int app_secondaries(const struct app *app, pid_t *pids, unsigned int max);

/* One that is not this one; 0 when there is none. */
pid_t app_find_secondary(const struct app *app, pid_t ours);

/* Beginning of the names of arrays in the runtime directory. */
#define APP_ARRAY "fbarray_"

/* Is it the name of an array that a secondary process made for itself? */
bool app_is_array_of(const char *name, pid_t pid);

/*
 * Remove what a secondary process of ours that is dead left in the runtime directory. One of another
 * PID namespace may have the same id: what is in use stays.
 */
void app_sweep(const struct app *app, pid_t dead);

/*
 * Remove the same of this process, which is about to end: the app sends it nothing more. What it
 * has sent before is answered first, for which it may take a second.
 */
void app_leave(const struct app *app);

#endif /* PDUMP_APP_H */
