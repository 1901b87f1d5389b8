/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <stdio.h>

#include "phase.h"
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

static void
report_nothing(uint64_t elapsed_ns, uint64_t span_ns)
{
	(void)elapsed_ns;
	(void)span_ns;
}

int
phase_warm_up(struct app *app, uint64_t rate, uint64_t tsc_hz)
{
	struct phase phase = {
		.rate = rate,
		.duration_ms = settings.warm_up_ms,
		.report = report_nothing,
	};

	if (settings.warm_up_ms == 0)
		return 0;
	if (!settings.app.quiet)
		printf("warming up for %g s\n", (double)settings.warm_up_ms / 1e3);
	return phase_run(&phase, app, tsc_hz);
}
