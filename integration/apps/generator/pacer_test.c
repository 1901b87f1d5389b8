/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include "check.h"
#include "pacer.h"

#define BURST 32

static const uint64_t hz = 2999999977; /* No rate divides it. */

/* Run for so many seconds in steps of up to max_step cycles. Returns the packets sent. */
static uint64_t
run(struct pacer *pacer, uint64_t *now, double seconds, uint64_t max_step, uint64_t *random)
{
	const uint64_t end = *now + (uint64_t)(seconds * (double)hz);
	uint64_t sent = 0;
	uint32_t n;

	while (*now < end) {
		*now += 1 + check_random(random) % max_step;
		n = pacer_ready(pacer, *now, BURST);
		CHECK(n <= BURST);
		pacer_spend(pacer, n);
		sent += n;
	}
	return sent;
}

/* Exact to the packet over 20 s, for a jittery loop, all kinds of rates and a late TSC. */
static void
test_accuracy(void)
{
	static const uint64_t rates[] = { 1, 7, 1000, 199999, 200000, 1000003 };
	uint64_t random = 42, start = UINT64_C(1) << 63, now;
	struct pacer pacer;
	unsigned int i;

	for (i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
		now = start;
		pacer_start(&pacer, rates[i], 1, BURST, hz, start);
		const uint64_t sent = run(&pacer, &now, 20, 60000, &random);
		const uint64_t due = (uint64_t)((unsigned __int128)(now - start) * rates[i] / hz);

		CHECK(sent <= due);
		CHECK(due - sent <= 2);
	}
}

/* Lanes share the rate without rounding, also when each gets a fraction of a packet a second. */
static void
test_lanes(void)
{
	struct pacer lanes[3];
	uint64_t random = 7, now, sent = 0;
	unsigned int i;

	for (i = 0; i < 3; i++) {
		now = 0;
		pacer_start(&lanes[i], 1, 3, BURST, hz, 0);
		sent += run(&lanes[i], &now, 30.5, hz / 1000, &random);
	}
	CHECK_EQ(sent, 30);
	sent = 0;
	for (i = 0; i < 3; i++) {
		now = 0;
		pacer_start(&lanes[i], 100000, 3, BURST, hz, 0);
		sent += run(&lanes[i], &now, 10, 60000, &random);
	}
	CHECK(sent > 999990 && sent <= 1000003);
}

/* A pause is made up for in full, but at no more than twice the rate. */
static void
test_pause(void)
{
	struct pacer pacer;
	uint64_t random = 3, now = 0, sent, after;

	pacer_start(&pacer, 200000, 1, BURST, hz, 0);
	sent = run(&pacer, &now, 1, 60000, &random);
	now += hz / 5;
	after = run(&pacer, &now, 0.05, 60000, &random);
	CHECK(after > 19000 && after <= 20000 + BURST);
	sent += after + run(&pacer, &now, 0.75, 60000, &random);
	CHECK(sent > 399980 && sent <= 400010);
}

/* Of a pause of minutes, or of years, a second is made up for. */
static void
test_long_pause(void)
{
	static const uint64_t pauses[] = { 100, UINT64_C(3000000000) };
	struct pacer pacer;
	uint64_t random = 5, now, sent;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		now = 0;
		pacer_start(&pacer, 1000000, 1, BURST, hz, 0);
		now += hz * pauses[i];
		sent = run(&pacer, &now, 3, 60000, &random);
		CHECK(sent > 3999900 && sent <= 4000100);
	}
}

static void
test_time_backwards(void)
{
	struct pacer pacer;

	pacer_start(&pacer, 1000, 1, BURST, hz, hz);
	CHECK_EQ(pacer_ready(&pacer, 0, BURST), 0);
	CHECK_EQ(pacer_ready(&pacer, hz + hz / 100, 3), 3);
}

int
main(void)
{
	test_accuracy();
	test_lanes();
	test_pause();
	test_long_pause();
	test_time_backwards();
	return 0;
}
