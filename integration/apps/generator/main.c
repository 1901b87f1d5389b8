/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* pmdscope-generator: sends probes at a given rate and checks the packets that return. */

#include "app.h"
#include "clock.h"
#include "report.h"
#include "settings.h"
#include "summary.h"
#include "worker.h"

#define POOL_NAME "generator_pool"

static struct app app = { .pool_name = POOL_NAME, .options = &settings.app };

/* Send, receive and sum up. 0, or negative after a message. */
static int
run(void)
{
	static struct summary summary;
	struct moment start, end;
	unsigned int in_use;
	uint64_t tsc_hz;
	int rc;

	tsc_hz = clock_measure_hz();
	rc = report_open(tsc_hz);
	if (rc != 0) {
		app_stop(&app);
		return rc;
	}
	start = clock_now();
	report_start(&start);
	workers_start(tsc_hz, start.tsc);
	rc = app_run(&app, worker_main, NULL, report);
	end = clock_now();
	if (report_close(&end) != 0)
		rc = -1;

	workers_free_pending();
	in_use = app_stop(&app);
	summarise(&summary, &start, &end, tsc_hz, in_use);
	summary_print(&summary);
	if (settings.app.json != NULL && summary_save(&summary, &app) != 0)
		rc = -1;
	if (summary_judge(&summary) != 0)
		rc = -1;
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
	if (rc == 0)
		rc = run();
	else
		app_stop(&app);
	workers_destroy();
	app_close(&app);
	return rc == 0 ? APP_EXIT_OK : APP_EXIT_FAILED;
}
