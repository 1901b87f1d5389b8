/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* The maximum that receive queues hold: when it is known, and conditions that must not lower it. */

#include "rx_fill.h"
#include "test.h"

#define SLACK 512
#define UNKNOWN UINT32_MAX

static struct pmdscope_rx_fill fill;
static struct pmdscope_proof proof;

static void
restart(void)
{
	fill = (struct pmdscope_rx_fill){ 0 };
	proof = (struct pmdscope_proof){ .walk = 1, .rx_born = 1, .rx_capacity = 1024 };
}

/*
 * A walk of a pool with this many mbufs in use, whose queues have turned over since the last walk.
 */
static void
flow(uint32_t in_use, bool is_empty)
{
	const struct pmdscope_pool_counts counts = { .in_use = in_use };

	proof.walk++;
	proof.rx_turned = proof.walk - 1;
	pmdscope_rx_fill_note(&fill, &proof, &counts, is_empty);
}

static void
test_least(void)
{
	restart();
	CHECK_U64(pmdscope_rx_fill_most(&fill), UNKNOWN);
	flow(900, false);
	flow(900, false);
	/* Two walks after the one that first saw the queues. */
	CHECK_U64(pmdscope_rx_fill_most(&fill), UNKNOWN);
	flow(1000, false);
	CHECK_U64(pmdscope_rx_fill_most(&fill), 1000 + SLACK);
	/* Part of the pool is lost: the queues hold no more than before. */
	flow(6000, false);
	flow(6000, false);
	CHECK_U64(pmdscope_rx_fill_most(&fill), 1000 + SLACK);
	/* One walk finds the queues without their mbufs. */
	flow(10, false);
	flow(6000, false);
	CHECK_U64(pmdscope_rx_fill_most(&fill), 1000 + SLACK);
}

static void
test_stands_still(void)
{
	const struct pmdscope_pool_counts counts = { .in_use = 10 };
	unsigned int i;

	restart();
	for (i = 0; i < 4; i++)
		flow(1000, false);
	/* No traffic: the queues may hold nothing, and the known value is kept. */
	for (i = 0; i < 200; i++) {
		proof.walk++;
		if (i >= 8)
			pmdscope_rx_fill_note(&fill, &proof, &counts, false);
	}
	CHECK_U64(pmdscope_rx_fill_most(&fill), 1000 + SLACK);
}

static void
test_empty(void)
{
	unsigned int i;

	restart();
	for (i = 0; i < 4; i++)
		flow(1000, false);
	/*
	 * Without free mbufs queues are not refilled, so free mbufs do not show how many they hold.
	 */
	for (i = 0; i < 200; i++)
		flow(100, true);
	/* They may still lack mbufs in the first walk after that, but not in the second. */
	flow(100, false);
	CHECK_U64(pmdscope_rx_fill_most(&fill), 1000 + SLACK);
}

static void
test_forgets(void)
{
	unsigned int i;

	restart();
	for (i = 0; i < 4; i++)
		flow(1000, false);
	/* The app permanently holds more. */
	for (i = 0; i < 80; i++)
		flow(5000, false);
	CHECK_U64(pmdscope_rx_fill_most(&fill), 5000 + SLACK);
}

static void
test_new_queues(void)
{
	unsigned int i;

	restart();
	for (i = 0; i < 4; i++)
		flow(1000, false);
	proof.rx_capacity = 4096;
	flow(1000, false);
	CHECK_U64(pmdscope_rx_fill_most(&fill), UNKNOWN);
	flow(1000, false);
	CHECK_U64(pmdscope_rx_fill_most(&fill), 1000 + SLACK);
	proof.rx_born = proof.walk;
	flow(1000, false);
	CHECK_U64(pmdscope_rx_fill_most(&fill), UNKNOWN);
}

int
main(void)
{
	test_least();
	test_stands_still();
	test_empty();
	test_forgets();
	test_new_queues();
	return 0;
}
