/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include "arming.h"
#include "capture.h"
#include "ledger.h"
#include "readers.h"
#include "state.h"

#define NS_PER_SEC UINT64_C(1000000000)

uint64_t pmdscope_readers_hold_ns = 600 * NS_PER_SEC;

/* A table was requested since the last call of pmdscope_readers_want_queues(). */
static bool was_read;
static uint64_t read_ns; /* About the time of the last request; 0: none yet. */

void
pmdscope_readers_start(void)
{
	was_read = false;
	read_ns = 0;
}

void
pmdscope_readers_note(void)
{
	was_read = true;
}

bool
pmdscope_readers_want_queues(uint64_t now_ns)
{
	if ((pmdscope_state.conf.flags & PMDSCOPE_F_COUNT_ON_DEMAND) == 0)
		return true;
	if (was_read)
		read_ns = now_ns;
	else if (now_ns - read_ns >= pmdscope_readers_hold_ns)
		read_ns = 0;
	was_read = false;
	if (read_ns != 0)
		return true;
	/* A walk that has begun would take mbufs in queues for lost ones. */
	return pmdscope_capture_nb_sessions() != 0 || pmdscope_arming_on() ||
	       pmdscope_ledger_busy();
}
