/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef CAPTURED_APP_H
#define CAPTURED_APP_H

/* A real app, and captures of it by pmdscope-pdump. */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "pmdscope_ring.h"
#include "state.h"

struct captured_app {
	pid_t pid;
	FILE *in, *out;
	char prefix[32];
};

/* The app that runs, and the values that pdump needs. */
extern struct captured_app app;
extern struct app pdump_app;

/* The app's report on itself. */
struct report {
	uint64_t sent;
	unsigned int allocs, zones;
};

struct capture {
	pid_t pid;
	int fd;
	const struct pmdscope_ring_hdr *hdr;
	struct pmdscope_ring_tail *tail;
	uint64_t at;
	char remark[sizeof(((struct pmdscope_tee_message *)0)->text)];
};

void sleep_ms(unsigned int ms);

/*
 * Start the app; argv is the app and pmdscope-pdump. The test exits as skipped if no app can run.
 * Its end also stops the app.
 */
void begin_test(int argc, char **argv);

void start_app(char *path);

/* Also removes its files; does nothing without an app. */
void stop_app(void);

/* Sends a line, and returns the answer. */
struct report say(const char *line);
struct report ask(void);

/* A capture of net_null0, and one of a port, or two, in the format of pdump's --port. */
void start(struct capture *c, uint16_t dirs, uint32_t snaplen);
void start_on(const char *port, struct capture *c, uint16_t dirs, uint32_t snaplen);
void start_on_two(const char *port, const char *second, struct capture *c, uint16_t dirs,
		uint32_t snaplen);

/* One message, with its descriptors; false at the end. */
bool receive(const struct capture *c, struct pmdscope_tee_message *message, int fds[2]);

/* Maps the ring of the next message. */
void expect_ring(struct capture *c);

/* The next message refuses the capture, with this text in the reason. */
void expect_refusal(const struct capture *c, const char *why);

/* The process that is attached, of the one that was started; 0 if there is none. */
pid_t worker_of(pid_t pid);

/* Disconnect and wait for the end; returns the exit code. */
int stop(struct capture *c);

/* Check all waiting records; returns the number of packets. */
uint64_t check_records(struct capture *c, uint32_t snaplen, uint64_t *next, uint64_t *missing);

#endif /* CAPTURED_APP_H */
