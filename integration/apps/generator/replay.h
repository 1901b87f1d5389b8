/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef REPLAY_H
#define REPLAY_H

/*
 * Packets of a capture file, in memory, sent again in their order and at their times. Several lanes
 * share them: of n lanes, lane i has the packets i, i + n, ..., counted over all loops.
 */

#include <stdbool.h>
#include <stdint.h>

#define REPLAY_MIN_FRAME 14
#define REPLAY_MAX_FRAME 2048 /* Room in an mbuf. */

struct replay_packet {
	const uint8_t *data;
	uint32_t size;
	uint64_t ns;  /* Since the first packet of the file. */
	uint64_t due; /* The same in cycles and at the chosen speed; replay_schedule() sets it. */
};

struct replay {
	struct replay_packet *packet;
	uint64_t nb;
	uint64_t nb_cut; /* Packets of which the file has only the first part. */
	uint16_t min_size;
	uint16_t max_size;
	uint8_t *bytes;
	uint64_t loop_due; /* From the start of a loop to that of the next, cycles. */
};

/* Position of a lane. */
struct replay_cursor {
	uint64_t at;
	uint64_t loop_start; /* Cycles from the start of the run. */
};

/*
 * Read a pcap or pcapng file of Ethernet. Packets that are older than their predecessor get its
 * time. 0, or a negative errno after a message; there is then nothing to free.
 */
int replay_load(struct replay *replay, const char *path);

void replay_free(struct replay *replay);

/*
 * Calculate when packets are due at speed times the speed of the file. The time between two
 * loops is the mean time between two packets.
 */
void replay_schedule(struct replay *replay, uint64_t hz, double speed);

/*
 * Number of packets, at most max, that a lane of nb_lanes has to send elapsed cycles after the
 * start.
 */
uint32_t replay_ready(const struct replay *replay, struct replay_cursor cursor,
		unsigned int nb_lanes, uint64_t elapsed, uint32_t max);

/* The next packet of the lane. */
const struct replay_packet *
replay_next(const struct replay *replay, struct replay_cursor *cursor, unsigned int nb_lanes);

#endif /* REPLAY_H */
