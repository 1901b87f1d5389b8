/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <signal.h>
#include <stddef.h>

#include "sigterm.h"

static volatile sig_atomic_t asked;
static volatile pid_t heir;

static void
on_term(int sig)
{
	asked = 1;
	if (heir > 0)
		kill(heir, sig);
}

void
ending_watch(void)
{
	const struct sigaction action = { .sa_handler = on_term, .sa_flags = SA_RESTART };

	sigaction(SIGTERM, &action, NULL);
}

bool
ending_asked(void)
{
	return asked != 0;
}

void
ending_pass_on(pid_t child)
{
	heir = child;
	if (asked && child > 0)
		kill(child, SIGTERM);
}
