/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <stdio.h>
#include <string.h>
#include <time.h>

#include <zlib.h>

#include <rte_byteorder.h>

#include "hdr.h"

/* Three digits take 2048 buckets for the smallest values, and 1024 more for each power of two. */
#define SUB_BITS 11
#define HALF (1U << (SUB_BITS - 1))
#define COUNTS ((64 - SUB_BITS + 2) * HALF)

#define COOKIE UINT32_C(0x1c849313)
#define COMPRESSED_COOKIE UINT32_C(0x1c849314)

/* A number takes at most 9 bytes; each bucket in use may be between two runs of empty ones. */
#define PAYLOAD_MAX ((2 * LATENCY_BUCKETS + 1) * 9)

struct header {
	rte_be32_t cookie;
	rte_be32_t payload_size;
	rte_be32_t normalizing_offset;
	rte_be32_t digits;
	rte_be64_t lowest;
	rte_be64_t highest;
	rte_be64_t double_ratio; /* IEEE 754 */
} __attribute__((packed));

static uint64_t counts[COUNTS];

static uint32_t
index_of(uint64_t ns)
{
	const unsigned int shift =
			64 - SUB_BITS -
			(unsigned int)__builtin_clzll(ns | ((UINT64_C(1) << SUB_BITS) - 1));

	return shift * HALF + (uint32_t)(ns >> shift);
}

/* Fill counts. Returns one more than the largest index in use. */
static uint32_t
fill(const struct latency *latency, uint64_t tsc_hz)
{
	uint32_t used = 0, index;
	unsigned int i;
	uint64_t ns;

	memset(counts, 0, sizeof(counts));
	for (i = 0; i < LATENCY_BUCKETS; i++) {
		if (latency->buckets[i] == 0)
			continue;
		ns = clock_ns(latency_value(latency, i), tsc_hz);
		index = index_of(RTE_MIN(ns, HDR_MAX_NS));
		counts[index] += latency->buckets[i];
		used = RTE_MAX(used, index + 1);
	}
	return used;
}

/* ZigZag LEB128 in at most 9 bytes, of which the last has 8 bits. */
static uint8_t *
put_number(uint8_t *at, int64_t number)
{
	uint64_t left = (uint64_t)number << 1 ^ (uint64_t)(number >> 63);
	unsigned int i;

	for (i = 0; i < 8 && left >> 7 != 0; i++, left >>= 7)
		*at++ = (uint8_t)(left | 0x80);
	*at++ = (uint8_t)left;
	return at;
}

/* Counts; a negative one means that many empty buckets. */
static uint32_t
put_counts(uint8_t *payload, uint32_t used)
{
	uint8_t *at = payload;
	uint32_t i, next;

	for (i = 0; i < used; i = next) {
		next = i + 1;
		if (counts[i] != 0) {
			at = put_number(at, (int64_t)counts[i]);
			continue;
		}
		while (counts[next] == 0)
			next++;
		at = put_number(at, -(int64_t)(next - i));
	}
	return (uint32_t)(at - payload);
}

static size_t
put_base64(char *to, const uint8_t *from, size_t size)
{
	static const char digits[] =
			"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char *at = to;
	size_t i;

	for (i = 0; i < size; i += 3) {
		const uint32_t second = i + 1 < size ? from[i + 1] : 0;
		const uint32_t third = i + 2 < size ? from[i + 2] : 0;
		const uint32_t bits = (uint32_t)from[i] << 16 | second << 8 | third;

		*at++ = digits[bits >> 18];
		*at++ = digits[bits >> 12 & 63];
		*at++ = i + 1 < size ? digits[bits >> 6 & 63] : '=';
		*at++ = i + 2 < size ? digits[bits & 63] : '=';
	}
	*at = '\0';
	return (size_t)(at - to);
}

const char *
hdr_encode(const struct latency *latency, uint64_t tsc_hz, size_t *size)
{
	static uint8_t plain[sizeof(struct header) + PAYLOAD_MAX];
	/* zlib adds little even to data that cannot be compressed. */
	static uint8_t packed[8 + sizeof(plain) + sizeof(plain) / 64 + 64];
	static char text[(sizeof(packed) + 2) / 3 * 4 + 1];
	const uint32_t payload = put_counts(plain + sizeof(struct header), fill(latency, tsc_hz));
	const struct header header = {
		.cookie = rte_cpu_to_be_32(COOKIE),
		.payload_size = rte_cpu_to_be_32(payload),
		.digits = rte_cpu_to_be_32(HDR_DIGITS),
		.lowest = rte_cpu_to_be_64(1),
		.highest = rte_cpu_to_be_64(HDR_MAX_NS),
		.double_ratio = rte_cpu_to_be_64(UINT64_C(0x3ff0000000000000)), /* 1.0 */
	};
	uLongf room = sizeof(packed) - 8;
	rte_be32_t words[2];

	memcpy(plain, &header, sizeof(header));
	if (compress(packed + 8, &room, plain, sizeof(header) + payload) != Z_OK)
		return NULL;
	words[0] = rte_cpu_to_be_32(COMPRESSED_COOKIE);
	words[1] = rte_cpu_to_be_32((uint32_t)room);
	memcpy(packed, words, sizeof(words));
	*size = put_base64(text, packed, 8 + room);
	return text;
}

void
hdr_log_begin(struct output *output, const struct moment *start)
{
	const double seconds = (double)start->realtime_ns / 1e9;
	const time_t whole = (time_t)(start->realtime_ns / 1000000000);
	char date[64], text[512];
	struct tm tm;
	int size;

	gmtime_r(&whole, &tm);
	strftime(date, sizeof(date), "%a %b %d %H:%M:%S UTC %Y", &tm);
	size = snprintf(text, sizeof(text),
			"#[Latencies of pmdscope-generator in nanoseconds]\n"
			"#[Histogram log format version 1.3]\n"
			"#[StartTime: %.3f (seconds since epoch), %s]\n"
			"#[BaseTime: %.3f (seconds since epoch)]\n"
			"\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\","
			"\"Interval_Compressed_Histogram\"\n",
			seconds, date, seconds);
	output_write(output, text, (size_t)size);
}

void
hdr_log_line(struct output *output, const char *tag, uint64_t start_ns, uint64_t span_ns,
		const struct latency *latency, uint64_t tsc_hz)
{
	size_t size;
	const char *histogram = hdr_encode(latency, tsc_hz, &size);
	static char line[2 * PAYLOAD_MAX + 256];
	int length;

	if (histogram == NULL)
		return;
	/* The maximum is in milliseconds: HdrHistogram's tools expect it divided by 10^6. */
	length = snprintf(line, sizeof(line), "%s%s%s%.6f,%.6f,%.6f,%s\n",
			tag != NULL ? "Tag=" : "", tag != NULL ? tag : "", tag != NULL ? "," : "",
			(double)start_ns / 1e9, (double)span_ns / 1e9,
			(double)clock_ns(latency->max, tsc_hz) / 1e6, histogram);
	output_write(output, line, (size_t)length);
}
