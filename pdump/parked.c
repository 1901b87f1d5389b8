/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <string.h>

#include "attach.h"
#include "capture_memory.h"
#include "grace.h"
#include "parked.h"

/* Whether no thread of the app is in a callback that was removed. */
static bool
has_left(const struct app *app)
{
	static struct grace grace;

	return grace_begin(&grace, app->pid) && grace_wait(&grace);
}

/* Disable the taps of a parked state, as far as their ports and queues are back. */
static bool
is_disabled(struct state *state, const struct app *app, const struct ports *ports)
{
	state->app_pid = app->pid;
	return taps_disable(state, ports) == TAPS_DISABLED;
}

void
parked_clean(const struct app *app, const struct ports *ports, struct line_set *kept)
{
	static struct state_file files[STATE_MAX_PARKED];
	const unsigned int nb = state_open_parked(files, app);
	bool over[STATE_MAX_PARKED] = { false };
	unsigned int i, nb_over = 0, nb_kept = 0;

	for (i = 0; i < nb; i++) {
		over[i] = is_disabled(files[i].state, app, ports);
		nb_over += over[i];
	}
	if (nb_over > 0 && !has_left(app)) {
		memset(over, 0, sizeof(over));
		nb_over = 0;
	}
	for (i = 0; i < nb; i++)
		if (!over[i] && capture_memory_is_kept(files[i].state)) {
			line_set_join(kept, &files[i].state->kept);
			nb_kept++;
		}
	for (i = 0; i < nb; i++) {
		if (!over[i]) {
			state_close(&files[i]);
			continue;
		}
		capture_memory_return_kept(files[i].state, --nb_over == 0 && nb_kept == 0);
		state_remove(&files[i]);
	}
}
