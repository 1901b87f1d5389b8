/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "control.h"
#include "find_rate.h"
#include "phase.h"
#include "rate.h"
#include "search.h"
#include "settings.h"
#include "summary.h"

/* More than a bisection of all rates needs. */
#define MAX_TRIALS 64
/* A rate counts as reached from this share on. */
#define REACHED 0.99
/* Without --min-rate the lowest rate is this part of the highest. */
#define LOWEST_PART 100

enum verdict {
	PASS,
	FAIL_LOSS,
	FAIL_NOT_REACHED, /* The generator was too slow: no result for the path. */
};

static const char *const verdicts[] = {
	[PASS] = "pass",
	[FAIL_LOSS] = "fail: loss",
	[FAIL_NOT_REACHED] = "fail: rate not reached",
};

struct trial {
	uint64_t asked; /* 0: no limit. */
	double achieved;
	uint64_t sent;
	uint64_t received;
	uint64_t lost;
	uint64_t p50_ns;
	uint64_t p99_9_ns;
	enum verdict verdict;
};

static struct trial trials[MAX_TRIALS];
static unsigned int nb_trials;

static void
report_nothing(uint64_t elapsed_ns, uint64_t span_ns)
{
	(void)elapsed_ns;
	(void)span_ns;
}

static double
loss_percent(const struct trial *trial)
{
	return trial->sent == 0 ? 100 : 100.0 * (double)trial->lost / (double)trial->sent;
}

static enum verdict
judge(const struct trial *trial)
{
	if (trial->sent == 0 || loss_percent(trial) > settings.loss_percent)
		return FAIL_LOSS;
	if (trial->achieved < REACHED * (double)trial->asked)
		return FAIL_NOT_REACHED;
	return PASS;
}

static void
print_head(void)
{
	printf("%5s  %9s  %9s  %10s  %10s  %10s  %9s  %9s  %s\n", "trial", "asked", "achieved",
			"sent", "received", "loss %", "p50 us", "p99.9 us", "verdict");
}

static void
print_trial(const struct trial *trial)
{
	char asked[16], achieved[16];

	printf("%5u  %9s  %9s  %10" PRIu64 "  %10" PRIu64 "  %10.6f  %9.2f  %9.2f  %s\n", nb_trials,
			trial->asked == 0 ? "no limit" : rate_text((double)trial->asked, asked),
			rate_text(trial->achieved, achieved), trial->sent, trial->received,
			loss_percent(trial), (double)trial->p50_ns / 1e3,
			(double)trial->p99_9_ns / 1e3, verdicts[trial->verdict]);
}

/* NULL on failure, and after a signal. */
static const struct trial *
run_trial(struct app *app, uint64_t rate, uint64_t tsc_hz)
{
	static struct summary summary;
	struct trial *trial = &trials[nb_trials];
	struct phase phase = {
		.rate = rate,
		.duration_ms = settings.trial_ms,
		.drain = true,
		.report = report_nothing,
	};

	if (nb_trials == MAX_TRIALS || phase_run(&phase, app, tsc_hz) != 0 || control_interrupted())
		return NULL;
	summarise(&summary, &phase, tsc_hz);
	*trial = (struct trial){
		.asked = rate,
		.achieved = summary.rate,
		.sent = summary.totals.sent,
		.received = summary.totals.received,
		.lost = summary.lost,
		.p50_ns = clock_ns(latency_percentile(&summary.latency, 0.5), tsc_hz),
		.p99_9_ns = clock_ns(latency_percentile(&summary.latency, 0.999), tsc_hz),
	};
	trial->verdict = judge(trial);
	nb_trials++;
	print_trial(trial);
	return trial;
}

/*
 * Returns the rate to begin with, or 0 if a trial failed; *found is a rate that has already passed,
 * or 0.
 */
static uint64_t
highest_rate(struct app *app, uint64_t tsc_hz, double *found)
{
	const struct trial *trial;

	if (settings.rate != 0)
		return settings.rate;
	trial = run_trial(app, 0, tsc_hz);
	if (trial == NULL)
		return 0;
	if (trial->verdict == PASS)
		*found = trial->achieved;
	return RTE_MAX((uint64_t)trial->achieved, UINT64_C(1));
}

/* Returns the rate found, 0 if none passes, or negative if the search was not completed. */
static double
search(struct app *app, uint64_t tsc_hz)
{
	const struct trial *trial;
	struct search state;
	uint64_t high, low;
	double found = 0;

	high = highest_rate(app, tsc_hz, &found);
	if (high == 0 || found > 0)
		return high == 0 ? -1 : found;
	low = settings.min_rate != 0 ? settings.min_rate : high / LOWEST_PART;
	low = RTE_MIN(RTE_MAX(low, UINT64_C(1)), high);
	search_start(&state, low, high,
			RTE_MAX((uint64_t)((double)high * settings.resolution_percent / 100),
					UINT64_C(1)));
	while (state.next != 0) {
		trial = run_trial(app, state.next, tsc_hz);
		if (trial == NULL)
			return -1;
		search_tell(&state, trial->verdict == PASS);
	}
	return (double)state.found;
}

static void
print_result(double found)
{
	unsigned int i, not_reached = 0;
	char text[16];

	for (i = 0; i < nb_trials; i++)
		not_reached += trials[i].verdict == FAIL_NOT_REACHED;
	if (found > 0)
		printf("highest rate with a loss of at most %g %%: %s pps\n", settings.loss_percent,
				rate_text(found, text));
	if (not_reached > 0)
		printf("in %u trials the generator did not reach the rate, with little enough loss: "
		       "there the limit is its own\n",
				not_reached);
}

static int
save(const struct app *app, double found)
{
	struct json json;
	unsigned int i;

	if (json_begin(&json) != 0)
		return -ENOMEM;
	app_json(&json, app, (double)settings.trial_ms / 1e3 * nb_trials);
	json_open(&json, "find_rate");
	json_f64(&json, "loss_allowed_ppm", settings.loss_percent * 1e4);
	json_f64(&json, "resolution_percent", settings.resolution_percent);
	json_f64(&json, "trial_s", (double)settings.trial_ms / 1e3);
	if (found > 0)
		json_f64(&json, "rate", found);
	else
		json_null(&json, "rate");
	json_open_list(&json, "trials");
	for (i = 0; i < nb_trials; i++) {
		json_open_item(&json);
		json_u64(&json, "rate_asked", trials[i].asked);
		json_f64(&json, "rate_achieved", trials[i].achieved);
		json_u64(&json, "sent", trials[i].sent);
		json_u64(&json, "received", trials[i].received);
		json_u64(&json, "lost", trials[i].lost);
		json_f64(&json, "loss_ppm", loss_percent(&trials[i]) * 1e4);
		json_u64(&json, "p50_ns", trials[i].p50_ns);
		json_u64(&json, "p99_9_ns", trials[i].p99_9_ns);
		json_str(&json, "verdict", verdicts[trials[i].verdict]);
		json_close(&json);
	}
	json_close_list(&json);
	json_close(&json);
	return app_json_save(&json, app);
}

int
find_rate(struct app *app, uint64_t tsc_hz)
{
	double found;
	int rc = 0;

	print_head();
	found = search(app, tsc_hz);
	print_result(found);
	if (settings.app.json != NULL)
		rc = save(app, found);
	if (found > 0)
		return rc;
	fprintf(stderr,
			found < 0 ? "%s: the search was ended before a result\n"
				  : "%s: no rate lost little enough: is the path up, and --loss, "
				    "--min-rate right?\n",
			program_invocation_short_name);
	return -1;
}
