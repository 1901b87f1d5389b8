/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef SEQUENCE_H
#define SEQUENCE_H

/*
 * Follows one stream of sequence numbers, which begins at 0, in bounded memory: a bitmap of
 * the last SEQUENCE_WINDOW numbers distinguishes a packet out of order from a second copy.
 */

#include <stdbool.h>
#include <stdint.h>

/* Number of latest gaps that are kept; a packet that fills an older one has no known extent. */
#define SEQUENCE_JUMPS 256 /* A power of two. */

#define SEQUENCE_WINDOW 65536 /* A power of two, at least 64. */

/* Number of reordered packets kept, at which the run of a later one may stop. */
#define SEQUENCE_BEHIND 64

/* Degrees of n-reordering that are counted: TCP resends after three copies of an acknowledgement. */
#define SEQUENCE_DEGREES 3

/* A packet that came before packets with lower numbers. */
struct sequence_jump {
	uint64_t from;	  /* Lowest number that was missing. */
	uint64_t number;  /* Its own. */
	uint64_t arrival; /* Number of packets that came before. */
};

/* A reordered packet: runs of later packets do not extend beyond it. */
struct sequence_behind {
	uint64_t number;
	uint64_t arrival;
};

struct sequence {
	uint64_t next;	     /* One more than the highest number seen. */
	uint64_t received;   /* Different packets, the late ones included. */
	uint64_t duplicates; /* Second copies. */
	uint64_t reordered;  /* Came after a packet with a higher number (RFC 4737). */
	uint64_t late;	     /* Older than the window: out of order, or a copy; unknown which. */
	/* Reordering extent of RFC 4737, 4.2.1: packets since the first one with a higher number. */
	uint64_t extents; /* Reordered packets whose extent is known. */
	uint64_t extent_sum;
	uint64_t extent_max;
	/* n-reordering of RFC 4737, 5: the n packets right before it all had higher numbers. */
	uint64_t n_reordered[SEQUENCE_DEGREES]; /* For n of at least 1, 2, 3. */
	uint64_t n_max;
	uint64_t nb_behind;
	struct sequence_behind behind[SEQUENCE_BEHIND]; /* Numbers and arrivals ascend. */
	uint64_t nb_jumps;
	struct sequence_jump jumps[SEQUENCE_JUMPS]; /* Oldest first, from nb_jumps on, modulo. */
	uint64_t seen[SEQUENCE_WINDOW / 64];
};

enum sequence_verdict {
	SEQUENCE_NEW,
	SEQUENCE_REORDERED,
	SEQUENCE_DUPLICATE,
	SEQUENCE_LATE,
};

/* Count a packet. A sequence of zero bytes is one without packets. */
enum sequence_verdict sequence_see(struct sequence *sequence, uint64_t number);

/*
 * The same for n packets, at least 1, with consecutive numbers that begin with this one, if it is
 * the next. Otherwise false, and nothing is counted.
 */
bool sequence_see_next(struct sequence *sequence, uint64_t number, uint32_t n);

#endif /* SEQUENCE_H */
