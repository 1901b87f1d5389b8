/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_APP_H
#define PDUMP_APP_H

/* The app as seen through the kernel and its own files, without the EAL. */

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
	APP_STAT_VSIZE = 23, /* 0 once it has begun to end. */
};

/* Read a file of /proc; false with errno if it cannot be read; ENODATA: it is empty. */
bool app_read_text(const char *path, char *text, size_t size);

/* A number from /proc/PID/stat; 0 if there is no such process. */
uint64_t app_process_stat(pid_t pid, enum app_stat field);

/* There is no such process, or it is a zombie that has not been waited for. */
bool app_process_ended(pid_t pid);

/* The directory that has dpdk/PREFIX, as the EAL chooses it. */
const char *app_runtime_base(void);

/*
 * Find the app and check whether a secondary process can attach to it: shared
 * configuration, version, hugepages. 0, or -1 with the failure.
 */
int app_open(struct app *app, pid_t pid, const char *file_prefix, struct failure *failure);

bool app_alive(const struct app *app);

/* Live secondary processes of the app; returns their number, and in pids the first of them. */
unsigned int app_secondaries(const struct app *app, pid_t *pids, unsigned int max);

/* A secondary process other than `ours`; 0 if there is none. */
pid_t app_find_secondary(const struct app *app, pid_t ours);

/* Beginning of the names of arrays in the runtime directory. */
#define APP_ARRAY "fbarray_"

/* Whether this is the name of an array that a secondary process made for itself. */
bool app_is_array_of(const char *name, pid_t pid);

/*
 * Remove the files that a dead secondary process of ours left in the runtime directory. A process
 * of another PID namespace may have the same id: files in use are kept.
 */
void app_sweep(const struct app *app, pid_t dead);

/*
 * Remove the same of this process, which is about to end: the app then sends it nothing more.
 * Earlier requests are answered first, which may take a second.
 */
void app_leave(const struct app *app);

#endif /* PDUMP_APP_H */
