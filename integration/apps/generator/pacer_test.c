/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include "check.h"
#include "pacer.h"

#define BURST 32

static const uint64_t hz = 2999999977; /* No rate divides it. */

/* Run for this many seconds in steps of up to max_step cycles. Returns the packets sent. */
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
		pacer_start(&pacer, PACER_DUE, rates[i], 1, BURST, hz, start);
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
		pacer_start(&lanes[i], PACER_DUE, 1, 3, BURST, hz, 0);
		sent += run(&lanes[i], &now, 30.5, hz / 1000, &random);
	}
	CHECK_EQ(sent, 30);
	sent = 0;
	for (i = 0; i < 3; i++) {
		now = 0;
		pacer_start(&lanes[i], PACER_DUE, 100000, 3, BURST, hz, 0);
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

	pacer_start(&pacer, PACER_DUE, 200000, 1, BURST, hz, 0);
	sent = run(&pacer, &now, 1, 60000, &random);
	now += hz / 5;
	after = run(&pacer, &now, 0.05, 60000, &random);
	CHECK(after > 19000 && after <= 20000 + BURST);
	sent += after + run(&pacer, &now, 0.75, 60000, &random);
	CHECK(sent > 399980 && sent <= 400010);
}

/* After a pause of minutes, or of years, one second is made up for. */
static void
test_long_pause(void)
{
	static const uint64_t pauses[] = { 100, UINT64_C(3000000000) };
	struct pacer pacer;
	uint64_t random = 5, now, sent;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		now = 0;
		pacer_start(&pacer, PACER_DUE, 1000000, 1, BURST, hz, 0);
		now += hz * pauses[i];
		sent = run(&pacer, &now, 3, 60000, &random);
		CHECK(sent > 3999900 && sent <= 4000100);
	}
	now = 0;
	pacer_start(&pacer, PACER_DUE, 1000000, 1, BURST, hz, 0);
	CHECK_EQ(pacer_skipped(&pacer), 0);
	now += hz * 3;
	run(&pacer, &now, 2, 60000, &random);
	CHECK(pacer_skipped(&pacer) >= 1999990 && pacer_skipped(&pacer) <= 2000100);
}

/* Packet by packet, each no more than a loop's step after it is due, and never two at once. */
static void
test_even(uint64_t rate, uint64_t max_step)
{
	const uint64_t gap = hz / rate, packets = rate / 50;
	struct pacer pacer;
	uint64_t random = 11, now = 0, sent, due;

	pacer_start(&pacer, PACER_PACKETS, rate, 1, BURST, hz, 0);
	for (sent = 0; sent < packets;) {
		now += 1 + check_random(&random) % max_step;
		due = (uint64_t)((unsigned __int128)now * rate / hz);
		if (pacer_ready(&pacer, now, BURST) == 0) {
			CHECK_EQ(due, sent);
			continue;
		}
		CHECK_EQ(pacer_ready(&pacer, now, BURST), 1);
		pacer_spend(&pacer, 1);
		sent++;
		CHECK(now - (uint64_t)((unsigned __int128)sent * hz / rate) <= max_step + 1);
	}
	CHECK(max_step < gap / 2);
	CHECK_EQ(pacer.late, 0);
}

/* The same for a loop that is slow for most of the time, but not in most of its rounds. */
static void
test_even_uneven_loop(void)
{
	struct pacer pacer;
	uint64_t now = 0, sent = 0, round;
	uint32_t n;

	pacer_start(&pacer, PACER_PACKETS, 2000000, 1, BURST, hz, 0);
	for (round = 0; now < 2 * hz; round++) {
		now += round % 40 == 0 ? hz / 300000 : hz / 20000000;
		n = pacer_ready(&pacer, now, BURST);
		pacer_spend(&pacer, n);
		sent += n;
	}
	CHECK(sent > 3999000 && sent <= 4000010);
}

/* Another thread has the CPU two thirds of the time: no reason to send bursts, nor to go faster. */
static void
test_even_without_cpu(void)
{
	struct pacer pacer;
	uint64_t random = 29, now = 0;

	pacer_start(&pacer, PACER_PACKETS, 50000, 1, BURST, hz, 0);
	while (now < 3 * hz) {
		now += hz / 50;
		run(&pacer, &now, 0.01, 300, &random);
		CHECK_EQ(pacer.together, 1);
	}
	CHECK(pacer.late > 90000);
}

/* Whole bursts, except the last one. */
static void
test_bursts(void)
{
	const uint64_t gap = hz / 100000;
	uint64_t random = 23, now = 0, sent = 0;
	struct pacer pacer;
	uint32_t n;

	pacer_start(&pacer, PACER_BURSTS, 100000, 1, BURST, hz, 0);
	while (sent < 100 * BURST) {
		now += 1 + check_random(&random) % 300;
		n = pacer_ready(&pacer, now, BURST);
		if (n == 0)
			continue;
		CHECK_EQ(n, BURST);
		pacer_spend(&pacer, n);
		sent += n;
		CHECK(now >= sent * gap && now - sent * gap < sent + 300);
	}
	CHECK_EQ(pacer_ready(&pacer, now + 4 * gap, BURST), 0);
	CHECK_EQ(pacer_ready(&pacer, now + 4 * gap, 3), 3);
	CHECK_EQ(pacer.late, 0);
}

/* A pause is made up for packet by packet, half an interval or more apart. */
static void
test_even_pause(void)
{
	const uint64_t rate = 1000000, gap = hz / rate;
	uint64_t random = 13, now = 0, last, sent;
	struct pacer pacer;

	pacer_start(&pacer, PACER_PACKETS, rate, 1, BURST, hz, 0);
	sent = run(&pacer, &now, 0.1, 100, &random);
	last = now;
	now += hz / 100;
	while (now < hz / 5) {
		now += 1 + check_random(&random) % 100;
		if (pacer_ready(&pacer, now, BURST) == 0)
			continue;
		CHECK_EQ(pacer_ready(&pacer, now, BURST), 1);
		CHECK(now - last >= gap / 2 - 100);
		pacer_spend(&pacer, 1);
		last = now;
		sent++;
	}
	CHECK(sent >= 199998 && sent <= 200000);
	CHECK(pacer.late >= 10000 && pacer.late <= 21000);
	CHECK_EQ(pacer_skipped(&pacer), 0);
}

/* A loop that takes longer than an interval still reaches the rate, then by bursts. */
static void
test_even_slow_loop(void)
{
	struct pacer pacer;
	uint64_t random = 19, now = 0, sent;

	pacer_start(&pacer, PACER_PACKETS, 1000000, 1, BURST, hz, 0);
	sent = run(&pacer, &now, 2, hz / 100000, &random);
	CHECK(sent > 1990000 && sent <= 2000010);
	CHECK(pacer.together >= 4 && pacer.together <= 16);
	/* Once the loop is fast again, single packets are sent again. */
	sent += run(&pacer, &now, 1, 100, &random);
	CHECK(sent >= 2999990 && sent <= 3000010);
	CHECK_EQ(pacer.together, 1);
}

static void
test_time_backwards(void)
{
	struct pacer pacer;

	pacer_start(&pacer, PACER_DUE, 1000, 1, BURST, hz, hz);
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
	test_even(1000, 300);
	test_even(100000, 300);
	test_even(3000001, 300);
	test_even_pause();
	test_even_slow_loop();
	test_even_uneven_loop();
	test_even_without_cpu();
	test_bursts();
	return 0;
}
