/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <signal.h>
#include <stddef.h>

#include "sigterm.h"

static volatile sig_atomic_t asked;
static volatile pid_t forward_to;

static void
on_term(int sig)
{
	asked = 1;
	if (forward_to > 0)
		kill(forward_to, sig);
}

void
sigterm_watch(void)
{
	const struct sigaction action = { .sa_handler = on_term, .sa_flags = SA_RESTART };

	sigaction(SIGTERM, &action, NULL);
}

bool
sigterm_received(void)
{
	return asked != 0;
}

void
sigterm_forward_to(pid_t child)
{
	forward_to = child;
	if (asked && child > 0)
		kill(child, SIGTERM);
}
