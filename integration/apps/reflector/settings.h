/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef SETTINGS_H
#define SETTINGS_H

/* Settings from the command line. */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <rte_config.h>

#include "answer.h"
#include "app.h"
#include "options.h"
#include "schedule.h"

struct settings {
	struct app_options app;
	struct answer_addresses addresses;
	struct schedule leak;
	uint64_t corrupt_every;	      /* Packets of an lcore; 0: never. */
	uint64_t work[RTE_MAX_LCORE]; /* TSC cycles for each packet. */
	uint64_t stall_us;
	uint64_t stall_every_ms;
	uint64_t sleep_us;
	uint64_t sleep_every_ms;
	uint64_t retry_us; /* 0: no retry. */
	uint64_t refuse_us;
	uint64_t refuse_every_ms;
	uint64_t alarm_us;
	uint64_t alarm_every_ms;
	bool faults; /* At each SIGUSR2. */
	uint64_t restart_every_ms;
	uint64_t restart_down_ms;
};

/* Filled in by the parsers of settings_specs; read-only afterwards. */
extern struct settings settings;

extern const struct option_spec settings_specs[];
extern const unsigned int settings_nb_specs;

void settings_help(FILE *out);

#endif /* SETTINGS_H */
