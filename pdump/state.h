/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_STATE_H
#define PDUMP_STATE_H

/*
 * A file in the app's runtime directory that records what a capture has changed in the app. It
 * survives a kill, so that the watchdog or the next run can undo the changes. The holder of the
 * file's lock owns the capture; the kernel releases the lock when its last holder has exited.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <rte_dev.h>

#include "app.h"

#define STATE_MAX_TAPS 1024U

struct state_tap {
	char device[RTE_DEV_NAME_MAX_LEN];
	uint16_t port;
	uint16_t queue;
	uint8_t dir;   /* PMDSCOPE_DIR_*. */
	uint8_t armed; /* Enabled in the app, or about to be. */
	uint64_t list; /* Where the app's list with it begins; 0 when not known. */
};

struct state {
	uint32_t magic;
	uint32_t size;	 /* Of this struct. */
	int32_t app_pid; /* As the process in charge counts. */
	int32_t worker;	 /* The process in charge. */
	uint64_t app_start;
	uint64_t counters;   /* Address of the app's counters; 0 if they were not touched. */
	uint32_t first_port; /* From whose counters on the capture has its memory. */
	uint32_t built;	     /* They are ours: nobody frees them. */
	uint32_t accepted;   /* The consumer has its rings. */
	uint32_t nb_taps;
	int32_t watchdog; /* The process that locked the file, and the parent of the worker. */
	struct state_tap taps[STATE_MAX_TAPS];
};

struct state_file {
	struct state *state; /* Mapped, shared with the file. */
	int fd;
	char path[PATH_MAX];
};

/* Make the file of a new capture and lock it. 0, or -1 with the failure. */
int state_create(struct state_file *file, const struct app *app, struct failure *failure);

/*
 * Open and lock the file of a capture whose owners are all dead; false when there is none (left).
 * Files that are of no use, as those of an app that has ended, are removed on the way.
 */
bool state_find_left(struct state_file *file, const struct app *app);

/* A process of another capture of this app that goes on; 0 when there is none. */
pid_t state_find_other(const struct state_file *ours, const struct app *app);

/* Nothing is left of the capture: remove the file. */
void state_remove(struct state_file *file);

/* Let go of a file, which stays. */
void state_close(struct state_file *file);

#endif /* PDUMP_STATE_H */
