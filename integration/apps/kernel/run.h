/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef RUN_H
#define RUN_H

/* The threads of a run, which ends by a signal, by its time, or when all threads have ended. */

#include <stdbool.h>
#include <stdint.h>

#include "json.h"
#include "transport.h"

/* CPU time of a thread, nanoseconds, including softirqs that run on its time. */
struct cpu_time {
	uint64_t user_ns;
	uint64_t system_ns;
};

extern bool run_stop_asked;

/* True once the run has to end. */
static inline bool
run_stopping(void)
{
	return __atomic_load_n(&run_stop_asked, __ATOMIC_RELAXED);
}

/* Block the signals that end a run. Before any thread is started. */
void run_prepare(void);

/* Run main(index) in each thread, and report at each interval. 0, or -1 after a message. */
int run_threads(void (*thread_main)(unsigned int index),
		void (*report)(uint64_t elapsed_ns, uint64_t span_ns));

/* CPU time of the calling thread so far. */
struct cpu_time run_cpu_time(void);

/* Sum up, for a summary. */
void run_add_stats(struct transport_stats *sum, const struct transport_stats *stats);

/* Members that both summaries have. */
void run_json_head(struct json *json, double duration_s);
void run_json_kernel(struct json *json, const struct transport_stats *sum,
		const struct cpu_time *cpu, const struct transport *sample, uint64_t drops);

/* The same for the text output: system calls, CPU, errors, buffers. */
void run_print_kernel(const struct transport_stats *sum, const struct cpu_time *cpu,
		const struct transport *sample, double duration_s);

/* 0, or -1 after a message. */
int run_json_save(struct json *json);

#endif /* RUN_H */
