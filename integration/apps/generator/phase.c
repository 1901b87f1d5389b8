/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <stdio.h>

#include <rte_cycles.h>

#include "phase.h"
#include "rate.h"
#include "settings.h"
#include "worker.h"

int
phase_run(struct phase *phase, struct app *app, uint64_t tsc_hz)
{
	int rc;

	settings.app.duration_ms = phase->duration_ms;
	phase->start = clock_now();
	if (phase->begin != NULL)
		phase->begin(&phase->start);
	workers_start(phase, tsc_hz, phase->start.tsc);
	rc = app_run(app, worker_main, NULL, phase->report);
	phase->end = clock_now();
	return rc;
}

/*
 * The first report in the second half of the warm-up, if one comes early enough to leave a quarter:
 * rates change at first, as caches fill and virtual CPUs are placed.
 */
static struct {
	uint64_t tsc; /* 0: none. */
	uint64_t sent;
} half_time;

static void
note_half_time(uint64_t elapsed_ns, uint64_t span_ns)
{
	const uint64_t warm_up_ns = settings.warm_up_ms * UINT64_C(1000000);

	(void)span_ns;
	if (half_time.tsc != 0 || elapsed_ns < warm_up_ns / 2 || elapsed_ns > warm_up_ns / 4 * 3)
		return;
	half_time.sent = workers_total().sent;
	half_time.tsc = rte_rdtsc();
}

/* settings.rate from --rate in percent. 0, or -EIO, reported. */
static int
set_rate(const struct phase *warm_up, uint64_t tsc_hz)
{
	const struct totals totals = workers_total();
	const uint64_t from = half_time.tsc != 0 ? half_time.tsc : warm_up->start.tsc;
	const double seconds = (double)clock_ns(totals.stopped - from, tsc_hz) / 1e9;
	const double reached = (double)(totals.sent - half_time.sent) / seconds;
	char all[16], part[16];

	settings.rate = (uint64_t)(reached * settings.rate_percent / 100);
	if (settings.rate == 0) {
		fprintf(stderr,
				"%s: the warm-up sent no packets of which to take %g %%: is the "
				"link up?\n",
				program_invocation_short_name, settings.rate_percent);
		return -EIO;
	}
	if (!settings.app.quiet)
		printf("the warm-up reached %s pps; %g %% are %s pps\n", rate_text(reached, all),
				settings.rate_percent, rate_text((double)settings.rate, part));
	return 0;
}

int
phase_warm_up(struct app *app, uint64_t tsc_hz)
{
	struct phase phase = {
		.rate = settings.rate,
		.duration_ms = settings.warm_up_ms,
		.drain = settings.rate_percent != 0,
		.report = note_half_time,
	};
	int rc;

	if (settings.warm_up_ms == 0)
		return 0;
	if (!settings.app.quiet)
		printf("warming up for %g s\n", (double)settings.warm_up_ms / 1e3);
	rc = phase_run(&phase, app, tsc_hz);
	return rc != 0 || settings.rate_percent == 0 ? rc : set_rate(&phase, tsc_hz);
}
