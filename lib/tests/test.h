/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_TEST_H
#define PMDSCOPE_TEST_H

/* Shared by the tests: checks, an EAL in its own directory, a telemetry client. */

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_eal.h>

#define CHECK(cond) \
	do { \
		if (!(cond)) { \
			fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #cond); \
			exit(1); \
		} \
	} while (0)

#define CHECK_U64(actual, expected) \
	do { \
		const uint64_t a_ = (actual), e_ = (expected); \
		if (a_ != e_) { \
			fprintf(stderr, "%s:%d: %s is %" PRIu64 ", not %" PRIu64 "\n", __FILE__, \
					__LINE__, #actual, a_, e_); \
			exit(1); \
		} \
	} while (0)

#define TEST_DIR "/tmp/pmdscope-"
static char test_dir[] = TEST_DIR "test-XXXXXX";

static inline void
test_remove(const char *dir, const char *leaf)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s%s", dir, leaf);
	remove(path);
}

static inline void
test_remove_dir(void)
{
	static const char *const leaves[] = { "/dpdk_telemetry.v2", "/pmdscope.sock",
		"/pmdscope.sock:1", "" };
	unsigned int i;

	if (test_dir[0] == '\0')
		return;
	for (i = 0; i < RTE_DIM(leaves); i++)
		test_remove(rte_eal_get_runtime_dir(), leaves[i]);
	test_remove(test_dir, "/dpdk");
	test_remove(test_dir, "");
}

/*
 * Start the EAL on these lcores, without hugepages and devices, in its own directory. DPDK 21.11
 * does not use $RUNTIME_DIRECTORY, so there the file-prefix is unique.
 */
static inline void
test_eal_mb(const char *lcores, const char *megabytes)
{
	char *argv[] = { (char *)(uintptr_t) "test", (char *)(uintptr_t) "--no-huge",
		(char *)(uintptr_t) "--no-pci", (char *)(uintptr_t) "--no-shconf",
		(char *)(uintptr_t) "-m", (char *)(uintptr_t)megabytes,
		(char *)(uintptr_t) "--file-prefix", test_dir + strlen(TEST_DIR),
		(char *)(uintptr_t) "--lcores", (char *)(uintptr_t)lcores,
		(char *)(uintptr_t) "--log-level=lib.eal:error", NULL };

	CHECK(mkdtemp(test_dir) != NULL);
	atexit(test_remove_dir);
	setenv("RUNTIME_DIRECTORY", test_dir, 1);
	CHECK(rte_eal_init(RTE_DIM(argv) - 1, argv) >= 0);
}

static inline void
test_eal(const char *lcores)
{
	test_eal_mb(lcores, "64");
}

/* Wait until cond holds, 5 s at most. */
#define WAIT_FOR(cond) \
	do { \
		unsigned int tries_ = 0; \
		while (!(cond)) { \
			if (++tries_ > 6000) { \
				fprintf(stderr, "%s:%d: not in 30 s: %s\n", __FILE__, __LINE__, \
						#cond); \
				exit(1); \
			} \
			rte_delay_us_sleep(5000); \
		} \
	} while (0)

/* --- JSON: as much as DPDK writes ------------------------------------------------------ */

static inline const char *
json_string_end(const char *s)
{
	if (*s++ != '"')
		return NULL;
	for (; *s != '"'; s++) {
		if ((unsigned char)*s < 0x20)
			return NULL;
		if (*s == '\\')
			s++;
	}
	return s + 1;
}

/* End of the value at s, NULL if it is not valid JSON. */
static inline const char *
json_end(const char *s)
{
	const char open = *s;

	if (open == '"')
		return json_string_end(s);
	if (strncmp(s, "null", 4) == 0)
		return s + 4;
	if (open != '{' && open != '[') {
		const char *end = s + strspn(s, "-0123456789");

		return end > s ? end : NULL;
	}
	for (s++; *s != open + 2; s++) {
		if (open == '{' && (s = json_string_end(s)) != NULL && *s++ != ':')
			return NULL;
		if (s == NULL || (s = json_end(s)) == NULL)
			return NULL;
		if (*s == open + 2)
			break;
		if (*s != ',')
			return NULL;
	}
	return s + 1;
}

/* The value of a key of the object at s, or NULL. The object is valid. */
static inline const char *
json_get(const char *s, const char *key)
{
	if (*s++ != '{')
		return NULL;
	while (*s == '"') {
		const char *end = json_string_end(s);
		const bool match = (size_t)(end - s) == strlen(key) + 2 &&
				   strncmp(s + 1, key, strlen(key)) == 0;

		if (match)
			return end + 1;
		s = json_end(end + 1);
		s += *s == ',';
	}
	return NULL;
}

/* Element i of the array at s, NULL beyond its end. */
static inline const char *
json_at(const char *s, unsigned int i)
{
	for (s++; *s != ']'; s++) {
		if (i-- == 0)
			return s;
		s = json_end(s);
		if (*s == ']')
			break;
	}
	return NULL;
}

static inline unsigned int
json_len(const char *s)
{
	unsigned int n = 0;

	while (json_at(s, n) != NULL)
		n++;
	return n;
}

/* --- Telemetry ------------------------------------------------------------------------- */

#define REPLY_SIZE 16384

static inline int
tel_connect(void)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	char banner[1024];
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(sun.sun_path, sizeof(sun.sun_path), "%s/dpdk_telemetry.v2",
			rte_eal_get_runtime_dir());
	CHECK(connect(fd, (struct sockaddr *)&sun, sizeof(sun)) == 0);
	CHECK(read(fd, banner, sizeof(banner)) > 0);
	return fd;
}

/* Request a page; returns the answer, a valid object below the limit, or NULL for null. */
static inline const char *
tel_ask(const char *cmd, const char *params)
{
	static char reply[2 * REPLY_SIZE];
	static int fd = -1;
	char request[256];
	const char *body;
	ssize_t n;

	if (fd < 0)
		fd = tel_connect();
	snprintf(request, sizeof(request), "%s%s%s", cmd, params[0] != '\0' ? "," : "", params);
	CHECK(write(fd, request, strlen(request)) > 0);
	n = read(fd, reply, sizeof(reply) - 1);
	CHECK(n > 0);
	CHECK(n < REPLY_SIZE);
	reply[n] = '\0';
	CHECK(json_end(reply) == reply + n);
	body = json_get(reply, cmd);
	CHECK(body != NULL);
	return *body == '{' ? body : NULL;
}

static inline uint64_t
tel_u64(const char *body, const char *key)
{
	const char *value = json_get(body, key);

	if (value == NULL) {
		fprintf(stderr, "no %s in %s\n", key, body);
		exit(1);
	}
	return strtoull(value, NULL, 10);
}

/* A number in a row of a table of one page. */
static inline uint64_t
tel_cell(const char *body, const char *column, unsigned int i)
{
	const char *values = json_get(body, column);

	CHECK(values != NULL);
	values = json_at(values, i);
	CHECK(values != NULL);
	return strtoull(values, NULL, 10);
}

static inline bool
tel_cell_is(const char *body, const char *column, unsigned int i, const char *text)
{
	const char *s = json_at(json_get(body, column), i);

	CHECK(s != NULL);
	return strncmp(s + 1, text, strlen(text)) == 0 && s[1 + strlen(text)] == '"';
}

/* The row with this text in a column, or -1. */
static inline int
tel_find(const char *body, const char *column, const char *text)
{
	const unsigned int n = json_len(json_get(body, column));
	unsigned int i;

	for (i = 0; i < n; i++)
		if (tel_cell_is(body, column, i, text))
			return (int)i;
	return -1;
}

#endif /* PMDSCOPE_TEST_H */
