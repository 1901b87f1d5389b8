/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* pmdscope-generator: sends probes at a given rate and checks the packets that return. */

#include <errno.h>
#include <stdio.h>

#include "app.h"
#include "clock.h"
#include "control.h"
#include "find_rate.h"
#include "phase.h"
#include "report.h"
#include "settings.h"
#include "summary.h"
#include "worker.h"

#define POOL_NAME "generator_pool"

static struct app app = { .pool_name = POOL_NAME, .options = &settings.app };

/*
 * Leave the link up without polling it. DPDK's memif driver unmaps the rings of a peer that
 * leaves, even while an lcore reads them. A peer that is to end properly has to end now.
 */
static void
keep_link(void)
{
	if (settings.keep_link_ms == 0 || control_interrupted())
		return;
	printf("all packets sent, link stays up for %g s\n", (double)settings.keep_link_ms / 1e3);
	control_sleep(settings.keep_link_ms);
}

/* Send, receive and sum up. 0, or negative after a message. */
static int
measure(uint64_t tsc_hz)
{
	static struct summary summary;
	struct phase phase = {
		.count = settings.count,
		.duration_ms = settings.app.duration_ms,
		.drain = true,
		.begin = report_start,
		.report = report,
	};
	int rc = report_open(tsc_hz);

	if (rc == 0)
		rc = phase_warm_up(&app, tsc_hz);
	if (rc == 0 && control_interrupted()) {
		fprintf(stderr, "%s: ended during the warm-up\n", program_invocation_short_name);
		rc = -EINTR;
	}
	if (rc != 0) {
		app_stop(&app);
		return rc;
	}
	/* The warm-up may have set it. */
	phase.rate = settings.rate;
	rc = phase_run(&phase, &app, tsc_hz);
	if (report_close(&phase.end) != 0)
		rc = -1;

	summarise(&summary, &phase, tsc_hz);
	workers_free_pending();
	keep_link();
	summary.in_use = app_stop(&app) + workers_in_use();
	summary_print(&summary);
	if (settings.app.json != NULL && summary_save(&summary, &app) != 0)
		rc = -1;
	if (summary_judge(&summary) != 0)
		rc = -1;
	return rc;
}

static int
search(uint64_t tsc_hz)
{
	int rc = phase_warm_up(&app, tsc_hz);

	if (rc == 0)
		rc = find_rate(&app, tsc_hz);
	workers_free_pending();
	keep_link();
	app_stop(&app);
	return rc;
}

int
main(int argc, char **argv)
{
	int rc = settings_parse(&argc, argv);

	if (rc >= 0)
		return rc;
	app.wait_link_ms = settings.wait_link_ms;
	rc = app_open(&app, argc, argv);
	if (rc != 0)
		return rc;
	rc = workers_create(&app);
	if (rc != 0)
		app_stop(&app);
	else if (settings.find_rate)
		rc = search(clock_measure_hz());
	else
		rc = measure(clock_measure_hz());
	workers_destroy();
	app_close(&app);
	return rc == 0 ? APP_EXIT_OK : APP_EXIT_FAILED;
}
