/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef JSON_H
#define JSON_H

/* Writes one JSON object into memory, then to a file in one step. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct json {
	FILE *out;
	char *text;
	size_t size;
	bool first; /* Nothing was written yet in the current object or list. */
};

/* 0, or -ENOMEM. */
int json_begin(struct json *json);

void json_u64(struct json *json, const char *key, uint64_t value);
/* Three decimals; null for a number that is not finite. */
void json_f64(struct json *json, const char *key, double value);
void json_str(struct json *json, const char *key, const char *value);
void json_null(struct json *json, const char *key);
/* A member that is itself an object, until json_close(). */
void json_open(struct json *json, const char *key);
void json_close(struct json *json);
/* A member that is a list of strings or objects, until json_close_list(). */
void json_open_list(struct json *json, const char *key);
void json_item(struct json *json, const char *value);
/* An item that is an object, until json_close(). */
void json_open_item(struct json *json);
void json_close_list(struct json *json);

/*
 * Close the object and store it at path by renaming a complete file: a reader sees all of
 * it or nothing. Frees the memory in any case. 0, or a negative errno; path is then
 * untouched.
 */
int json_save(struct json *json, const char *path);

#endif /* JSON_H */
