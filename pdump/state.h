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
#include <rte_memzone.h>

#include "app.h"

#define STATE_MAX_TAPS 1024U

/* What the process in charge is at, for whoever finds it dead. */
enum state_phase {
	STATE_OUTSIDE,	 /* Not attached to the app. */
	STATE_ALLOCATOR, /* In the app's allocator: locks of the app may be held. */
	STATE_INSIDE,	 /* Attached, but holding no lock. */
};

struct state_tap {
	char device[RTE_DEV_NAME_MAX_LEN];
	uint16_t port;
	uint16_t queue;
	uint8_t dir;	   /* PMDSCOPE_DIR_*. */
	uint8_t armed;	   /* Enabled in the app, or about to be. */
	uint64_t callback; /* Address of the app's struct for it; 0 when not known. */
	uint64_t list;	   /* Where the app's list with it begins; 0 when not known. */
};

struct state {
	uint32_t magic;
	uint32_t size;	 /* Of this struct. */
	int32_t app_pid; /* As the process in charge counts. */
	int32_t worker;	 /* The process in charge. */
	uint64_t app_start;
	uint32_t phase;			 /* enum state_phase. */
	uint32_t accepted;		 /* The consumer has its rings. */
	char zone[RTE_MEMZONE_NAMESIZE]; /* Memzone of the capture, whether or not it exists. */
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

/* Has a capture of this app died in the app's allocator? Its file stays. */
bool state_find_died_in_allocator(const struct app *app);

/* Nothing is left of the capture: remove the file. */
void state_remove(struct state_file *file);

/* Let go of a file, which stays. */
void state_close(struct state_file *file);

static inline void
state_enter(struct state *state, enum state_phase phase)
{
	__atomic_store_n(&state->phase, phase, __ATOMIC_SEQ_CST);
}

#endif /* PDUMP_STATE_H */
