/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef REST_H
#define REST_H

/*
 * For comparing observations of the app with its actual state: on SIGUSR1 faults stop, packets
 * under way arrive, the lcores stop polling, and a line with the state is printed; on SIGUSR2 the
 * app continues.
 */

#include <stdbool.h>
#include <stdint.h>

enum rest_phase {
	REST_NONE,
	REST_SETTLE, /* Polling without faults. */
	REST_STILL,  /* Packets do not move. */
};

/* Of one lcore. */
struct rest_lcore {
	bool quiet;
	bool settled;
	uint32_t polls; /* Since all lcores are without faults. */
};

extern enum rest_phase rest_phase;

/* Requested phase. */
static inline enum rest_phase
rest_asked(void)
{
	return __atomic_load_n(&rest_phase, __ATOMIC_ACQUIRE);
}

/* Block the signals, before the first thread is started. */
void rest_prepare(void);

/*
 * Start the thread that handles the signals. print is called when all nb_lcores have stopped.
 * 0 or -errno.
 */
int rest_start(unsigned int nb_lcores, void (*print)(void));

/* End and join the thread. Has no effect without rest_start(). */
void rest_end(void);

/* The slow half of rest_poll(). */
void rest_obey(struct rest_lcore *lcore);

/* Once per iteration of each poll loop: waits here while the app is at rest. */
static inline void
rest_poll(struct rest_lcore *lcore)
{
	if (__builtin_expect(rest_asked() != REST_NONE, 0))
		rest_obey(lcore);
}

#endif /* REST_H */
