/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <string.h>

#include <zlib.h>

#include <rte_byteorder.h>

#include "check.h"
#include "hdr.h"

#define HZ UINT64_C(1000000000) /* A cycle is a nanosecond. */
#define HEADER 40

static struct latency l;
static uint8_t plain[1 << 20];

static uint32_t
digit(char c)
{
	const char *digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *found = strchr(digits, c);

	CHECK(c != '\0' && found != NULL);
	return (uint32_t)(found - digits);
}

static uint32_t
be32(const uint8_t *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Decode base64 and zlib. Returns the size of the result in plain. */
static uint64_t
unpack(const char *text, size_t size)
{
	static uint8_t packed[1 << 20];
	uLongf room = sizeof(plain);
	size_t i, n = 0;

	CHECK_EQ(size, strlen(text));
	CHECK_EQ(size % 4, 0);
	for (i = 0; i < size; i += 4) {
		const uint32_t bits = digit(text[i]) << 18 | digit(text[i + 1]) << 12 |
				      (text[i + 2] == '=' ? 0 : digit(text[i + 2]) << 6) |
				      (text[i + 3] == '=' ? 0 : digit(text[i + 3]));

		packed[n++] = (uint8_t)(bits >> 16);
		packed[n++] = (uint8_t)(bits >> 8);
		packed[n++] = (uint8_t)bits;
	}
	n -= (size_t)(text[size - 1] == '=') + (size_t)(text[size - 2] == '=');
	CHECK_EQ(be32(packed), 0x1c849314);
	CHECK_EQ(be32(packed + 4), n - 8);
	CHECK_EQ(uncompress(plain, &room, packed + 8, n - 8), Z_OK);
	return room;
}

static const uint8_t *
number(const uint8_t *at, int64_t *value)
{
	uint64_t bits = 0;
	unsigned int i;

	for (i = 0; i < 9; i++) {
		bits |= (uint64_t)(i < 8 ? *at & 0x7f : *at) << 7 * i;
		if (*at++ < 0x80)
			break;
	}
	*value = (int64_t)(bits >> 1) ^ -(int64_t)(bits & 1);
	return at;
}

/* The count at a value, decoded independently: the value of each index is calculated again. */
static void
check_values(const uint64_t *values, const uint64_t *wanted, unsigned int nb_values)
{
	size_t size;
	const char *text = hdr_encode(&l, HZ, &size);
	const uint8_t *at = plain + HEADER, *end = plain + unpack(text, size);
	uint64_t index = 0;
	unsigned int i = 0;
	int64_t count;

	CHECK_EQ(be32(plain), 0x1c849313);
	CHECK_EQ(be32(plain + 4), end - at);
	CHECK_EQ(be32(plain + 12), 3);
	while (at < end) {
		at = number(at, &count);
		if (count < 0) {
			index += (uint64_t)-count;
			continue;
		}
		const uint64_t power = index < 2048 ? 0 : index / 1024 - 1;
		const uint64_t low = index < 2048 ? index : (index % 1024 + 1024) << power;
		const double high = (double)(low + (UINT64_C(1) << power));

		CHECK(i < nb_values);
		CHECK((double)values[i] >= (double)low * 0.996 &&
				(double)values[i] <= high * 1.004);
		CHECK_EQ(count, wanted[i]);
		i++;
		index++;
	}
	CHECK_EQ(i, nb_values);
}

static void
add(uint64_t value, uint64_t n)
{
	while (n-- > 0)
		latency_add(&l, value);
}

static void
test_counts(void)
{
	static const uint64_t values[] = { 0, 1, 255, 2047, 2100, 5000, 123456, 1000000007,
		HDR_MAX_NS };
	static const uint64_t wanted[] = { 1, 63, 64, 65, 8191, 8192, 3, 1, 2 };
	unsigned int i;

	latency_clear(&l);
	for (i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		add(values[i], wanted[i]);
	check_values(values, wanted, sizeof(values) / sizeof(values[0]));
}

/* A count of every size, and values that a decoder must reject. */
static void
test_extremes(void)
{
	const uint64_t value = 77;
	unsigned int bits;
	uint64_t count;

	for (bits = 0; bits < 62; bits++) {
		latency_clear(&l);
		latency_add(&l, value);
		count = UINT64_C(1) << bits;
		l.buckets[77] = count;
		check_values(&value, &count, 1);
	}
	latency_clear(&l);
	latency_add(&l, UINT64_MAX);
	count = 1;
	check_values((const uint64_t[]){ HDR_MAX_NS }, &count, 1);
	latency_clear(&l);
	check_values(NULL, NULL, 0);
}

/* Every bucket in use: the largest text there is. */
static void
test_full(void)
{
	const char *text;
	unsigned int i;
	size_t size;

	latency_clear(&l);
	latency_add(&l, 0);
	latency_add(&l, UINT64_MAX);
	for (i = 0; i < LATENCY_BUCKETS; i++)
		l.buckets[i] = UINT64_MAX >> (2 + i % 60);
	text = hdr_encode(&l, HZ, &size);
	unpack(text, size);
}

int
main(void)
{
	test_counts();
	test_extremes();
	test_full();
	return 0;
}
