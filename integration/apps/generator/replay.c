/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pcap/pcap.h>

#include "replay.h"

#define NS_PER_S UINT64_C(1000000000)

/* State while a file is read. Addresses of packets are known only at the end. */
struct reader {
	struct replay *replay;
	uint64_t room, bytes_room, nb_bytes;
	uint64_t first_ns;
};

static int
refuse(const char *path, const char *why)
{
	fprintf(stderr, "%s: --replay %s: %s\n", program_invocation_short_name, path, why);
	return -EINVAL;
}

/* Make room for one more packet. */
static bool
grow(struct reader *reader, uint32_t size)
{
	struct replay *replay = reader->replay;
	void *more;

	if (replay->nb == reader->room) {
		reader->room = reader->room == 0 ? 1024 : 2 * reader->room;
		more = realloc(replay->packet, reader->room * sizeof(*replay->packet));
		if (more == NULL)
			return false;
		replay->packet = more;
	}
	if (reader->nb_bytes + size > reader->bytes_room) {
		reader->bytes_room = 2 * (reader->bytes_room + size);
		more = realloc(replay->bytes, reader->bytes_room);
		if (more == NULL)
			return false;
		replay->bytes = more;
	}
	return true;
}

static void
append(struct reader *reader, const struct pcap_pkthdr *header, const uint8_t *data)
{
	struct replay *replay = reader->replay;
	/* With this precision, tv_usec are nanoseconds. */
	const uint64_t ns = (uint64_t)header->ts.tv_sec * NS_PER_S + (uint64_t)header->ts.tv_usec;
	struct replay_packet *packet = &replay->packet[replay->nb];
	uint64_t since;

	if (replay->nb == 0)
		reader->first_ns = ns;
	since = ns > reader->first_ns ? ns - reader->first_ns : 0;
	if (replay->nb > 0 && since < packet[-1].ns)
		since = packet[-1].ns;
	*packet = (struct replay_packet){ .size = header->caplen, .ns = since };
	memcpy(replay->bytes + reader->nb_bytes, data, header->caplen);
	reader->nb_bytes += header->caplen;
	if (replay->nb == 0 || header->caplen < replay->min_size)
		replay->min_size = (uint16_t)header->caplen;
	if (header->caplen > replay->max_size)
		replay->max_size = (uint16_t)header->caplen;
	if (header->caplen < header->len)
		replay->nb_cut++;
	replay->nb++;
}

static int
read_packet(struct reader *reader, const char *path, const struct pcap_pkthdr *header,
		const uint8_t *data)
{
	char why[160];

	if (header->caplen < REPLAY_MIN_FRAME || header->caplen > REPLAY_MAX_FRAME) {
		snprintf(why, sizeof(why),
				"packet %" PRIu64
				" has %u bytes, and can have %u to %u; leave it out, "
				"with 'editcap FILE NEW %" PRIu64 "', say",
				reader->replay->nb + 1, header->caplen, REPLAY_MIN_FRAME,
				REPLAY_MAX_FRAME, reader->replay->nb + 1);
		return refuse(path, why);
	}
	if (!grow(reader, header->caplen)) {
		refuse(path, "no memory for all of its packets");
		return -ENOMEM;
	}
	append(reader, header, data);
	return 0;
}

static int
read_packets(struct reader *reader, const char *path, pcap_t *pcap)
{
	struct pcap_pkthdr *header;
	const uint8_t *data;
	int more, rc;

	while ((more = pcap_next_ex(pcap, &header, &data)) == 1) {
		rc = read_packet(reader, path, header, data);
		if (rc != 0)
			return rc;
	}
	if (more != PCAP_ERROR_BREAK)
		return refuse(path, pcap_geterr(pcap));
	if (reader->replay->nb == 0)
		return refuse(path, "it has no packets");
	return 0;
}

static void
set_addresses(struct replay *replay)
{
	const uint8_t *data = replay->bytes;
	uint64_t i;

	for (i = 0; i < replay->nb; i++) {
		replay->packet[i].data = data;
		data += replay->packet[i].size;
	}
}

int
replay_load(struct replay *replay, const char *path)
{
	struct reader reader = { .replay = replay };
	char error[PCAP_ERRBUF_SIZE];
	pcap_t *pcap;
	int rc;

	memset(replay, 0, sizeof(*replay));
	pcap = pcap_open_offline_with_tstamp_precision(path, PCAP_TSTAMP_PRECISION_NANO, error);
	if (pcap == NULL)
		return refuse(path, error);
	if (pcap_datalink(pcap) == DLT_EN10MB)
		rc = read_packets(&reader, path, pcap);
	else
		rc = refuse(path, "its packets are not Ethernet");
	pcap_close(pcap);
	if (rc != 0)
		replay_free(replay);
	else
		set_addresses(replay);
	return rc;
}

void
replay_free(struct replay *replay)
{
	free(replay->packet);
	free(replay->bytes);
	memset(replay, 0, sizeof(*replay));
}

void
replay_schedule(struct replay *replay, uint64_t hz, double speed)
{
	const double cycles = (double)hz / (double)NS_PER_S / speed;
	const uint64_t span = replay->packet[replay->nb - 1].ns;
	const double gap = replay->nb > 1 ? (double)span / (double)(replay->nb - 1) : 0;
	uint64_t i;

	for (i = 0; i < replay->nb; i++)
		replay->packet[i].due = (uint64_t)((double)replay->packet[i].ns * cycles);
	replay->loop_due = (uint64_t)(((double)span + gap) * cycles);
}

static void
advance(const struct replay *replay, struct replay_cursor *cursor, unsigned int nb_lanes)
{
	cursor->at += nb_lanes;
	while (cursor->at >= replay->nb) {
		cursor->at -= replay->nb;
		cursor->loop_start += replay->loop_due;
	}
}

/* A lane may begin after the end of a short file. */
static void
settle(const struct replay *replay, struct replay_cursor *cursor)
{
	advance(replay, cursor, 0);
}

uint32_t
replay_ready(const struct replay *replay, struct replay_cursor cursor, unsigned int nb_lanes,
		uint64_t elapsed, uint32_t max)
{
	uint32_t n = 0;

	settle(replay, &cursor);
	while (n < max && cursor.loop_start + replay->packet[cursor.at].due <= elapsed) {
		n++;
		advance(replay, &cursor, nb_lanes);
	}
	return n;
}

const struct replay_packet *
replay_next(const struct replay *replay, struct replay_cursor *cursor, unsigned int nb_lanes)
{
	const struct replay_packet *packet;

	settle(replay, cursor);
	packet = &replay->packet[cursor->at];
	advance(replay, cursor, nb_lanes);
	return packet;
}
