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
#include <string.h>
#include <sys/types.h>

#include <rte_common.h>
#include <rte_dev.h>

#include "app.h"
#include "line_set.h"
#include "pmdscope_ring.h"

#define STATE_MAX_TAPS 1024U
/* Parked states of an app, see parked.h. */
#define STATE_MAX_PARKED 8U

struct state_tap {
	char device[RTE_DEV_NAME_MAX_LEN];
	uint16_t port;
	uint16_t queue;
	uint8_t dir;   /* PMDSCOPE_DIR_*. */
	uint8_t armed; /* Enabled in the app, or about to be. */
	uint64_t list; /* Start of the app's list that contains it; 0 if not known. */
};

struct state {
	uint32_t magic;
	uint32_t size;	 /* Of this struct. */
	int32_t app_pid; /* In the namespace of the process in charge. */
	int32_t worker;	 /* The process in charge. */
	uint64_t app_start;
	uint64_t counters;   /* Address of the app's counters; 0 if they were not touched. */
	uint32_t first_port; /* First port whose counters are memory of the capture. */
	uint32_t built;	     /* The counters are ours: the app cannot free them. */
	uint32_t accepted;   /* The consumer has its rings. */
	uint32_t nb_taps;    /* Read it by state_nb_taps(). */
	int32_t watchdog;    /* The process that locked the file, and the parent of the worker. */
	uint32_t retired;    /* Of its memory, only `kept` is still in use. */
	struct line_set others; /* Counters that parked states have kept. */
	struct line_set kept;
	struct state_tap taps[STATE_MAX_TAPS];
};

struct state_file {
	struct state *state; /* Mapped, shared with the file. */
	int fd;
	char path[PATH_MAX];
};

/* The number of taps, at most STATE_MAX_TAPS: the app's user can change the file at any time. */
static inline unsigned int
state_nb_taps(const struct state *state)
{
	const uint32_t nb = __atomic_load_n(&state->nb_taps, __ATOMIC_RELAXED);

	return RTE_MIN(nb, STATE_MAX_TAPS);
}

/* Whether the numbers in a tap can be those of a queue. */
static inline bool
state_tap_valid(const struct state_tap *tap)
{
	return tap->port < RTE_MAX_ETHPORTS && tap->queue < RTE_MAX_QUEUES_PER_PORT &&
	       (tap->dir == PMDSCOPE_DIR_RX || tap->dir == PMDSCOPE_DIR_TX) &&
	       memchr(tap->device, '\0', sizeof(tap->device)) != NULL;
}

/* Create the file of a new capture and lock it. 0, or -1 with the failure. */
int state_create(struct state_file *file, const struct app *app, struct failure *failure);

/*
 * Open and lock the file of a capture whose owners are all dead; false if there is none (any
 * more). Useless files, such as those of an app that has ended, are removed during the search.
 */
bool state_find_left(struct state_file *file, const struct app *app);

/* A process of another running capture of this app; 0 if there is none. */
pid_t state_find_other(const struct state_file *ours, const struct app *app);

/* The capture has left nothing in the app: remove the file. */
void state_remove(struct state_file *file);

/*
 * Keep the file at this path as a parked one, which is not locked. False if there are too many, or
 * on an error, which is reported on stderr.
 */
bool state_park(const char *path, const struct app *app);

/* Open all parked files of this app; returns their number. Useless ones are removed. */
unsigned int state_open_parked(struct state_file files[STATE_MAX_PARKED], const struct app *app);

/* Whether there is no room for another parked file. */
bool state_parked_full(const struct app *app);

/* Close and unlock a file without removing it. */
void state_close(struct state_file *file);

#endif /* PDUMP_STATE_H */
