/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <stdlib.h>

#include "check.h"
#include "sizes.h"

#define LEAST 60
#define MOST 1514

static uint32_t
count_of(const struct sizes *sizes, uint16_t size)
{
	uint32_t i, count = 0;

	for (i = 0; i < sizes->nb; i++)
		count += sizes->size[i] == size;
	return count;
}

static void
check_order(const char *text, const uint16_t *wanted, uint32_t nb)
{
	struct sizes sizes;
	uint32_t i;

	CHECK_EQ(sizes_parse(&sizes, text, LEAST, MOST), 0);
	CHECK_EQ(sizes.nb, nb);
	for (i = 0; i < nb; i++)
		CHECK_EQ(sizes.size[i], wanted[i]);
	sizes_free(&sizes);
}

static void
test_order(void)
{
	check_order("128", (const uint16_t[]){ 128 }, 1);
	check_order("60-63", (const uint16_t[]){ 60, 61, 62, 63 }, 4);
	check_order("1514-1514", (const uint16_t[]){ 1514 }, 1);
	check_order("1500,64,512", (const uint16_t[]){ 1500, 64, 512 }, 3);
	/* The packets of different sizes alternate. */
	check_order("64:2,128:1", (const uint16_t[]){ 64, 128, 64 }, 3);
	check_order("64,64", (const uint16_t[]){ 64, 64 }, 2);
}

static void
test_imix(void)
{
	struct sizes sizes;

	CHECK_EQ(sizes_parse(&sizes, "imix", LEAST, MOST), 0);
	CHECK_EQ(sizes.nb, 12);
	CHECK_EQ(count_of(&sizes, 60), 7);
	CHECK_EQ(count_of(&sizes, 590), 4);
	CHECK_EQ(count_of(&sizes, 1514), 1);
	CHECK_EQ(sizes.min, 60);
	CHECK_EQ(sizes.max, 1514);
	sizes_free(&sizes);
	/* Larger headers raise the smallest size. */
	CHECK_EQ(sizes_parse(&sizes, "imix", 80, 1518), 0);
	CHECK_EQ(count_of(&sizes, 80), 7);
	CHECK_EQ(sizes.min, 80);
	sizes_free(&sizes);
}

/* In any part of the rounds, a size is less than two packets away from its share. */
static void
test_shares(void)
{
	static const struct {
		uint16_t size;
		uint32_t weight;
	} kinds[] = { { 60, 500 }, { 61, 1 }, { 1514, 37 }, { 900, 300 } };
	const uint32_t round = 838;
	struct sizes sizes;
	unsigned int kind;
	uint32_t i;

	CHECK_EQ(sizes_parse(&sizes, "60:500,61:1,1514:37,900:300", LEAST, MOST), 0);
	CHECK_EQ(sizes.nb, round);
	for (kind = 0; kind < 4; kind++) {
		int64_t seen = 0;

		for (i = 0; i < round; i++) {
			seen += sizes.size[i] == kinds[kind].size;
			CHECK(llabs(seen * round - (int64_t)kinds[kind].weight * (i + 1)) <
					2 * (int64_t)round);
		}
		CHECK_EQ(seen, kinds[kind].weight);
	}
	CHECK_EQ(sizes.min, 60);
	CHECK_EQ(sizes.max, 1514);
	sizes_free(&sizes);
}

static void
test_bad(void)
{
	static const char *const bad[] = { "", "59", "1515", "60-", "-60", "70-60", "60-1515",
		"60,", ",60", "60:", "60:0", ":1", "60:1:1", "60:65536", "60:65535,61:1", "IMIX",
		"60 ", " 60", "+60", "60-70-80", "60-70,80", "60;70", "0x40" };
	struct sizes sizes = { .nb = 7 };
	unsigned int i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CHECK_EQ(sizes_parse(&sizes, bad[i], LEAST, MOST), -EINVAL);
		CHECK_EQ(sizes.nb, 7);
	}
}

int
main(void)
{
	test_order();
	test_imix();
	test_shares();
	test_bad();
	return 0;
}
