/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "json.h"

static void
put_string(FILE *out, const char *s)
{
	fputc('"', out);
	for (; *s != '\0'; s++) {
		if (*s == '"' || *s == '\\')
			fprintf(out, "\\%c", *s);
		else if ((unsigned char)*s < 0x20)
			fprintf(out, "\\u%04x", (unsigned char)*s);
		else
			fputc(*s, out);
	}
	fputc('"', out);
}

static void
put_comma(struct json *json)
{
	if (!json->first)
		fputc(',', json->out);
	json->first = false;
}

static void
put_key(struct json *json, const char *key)
{
	put_comma(json);
	put_string(json->out, key);
	fputc(':', json->out);
}

int
json_begin(struct json *json)
{
	*json = (struct json){ .first = true };
	json->out = open_memstream(&json->text, &json->size);
	if (json->out == NULL)
		return -ENOMEM;
	fputc('{', json->out);
	return 0;
}

void
json_u64(struct json *json, const char *key, uint64_t value)
{
	put_key(json, key);
	fprintf(json->out, "%" PRIu64, value);
}

void
json_f64(struct json *json, const char *key, double value)
{
	if (!isfinite(value)) {
		json_null(json, key);
		return;
	}
	put_key(json, key);
	fprintf(json->out, "%.3f", value);
}

void
json_str(struct json *json, const char *key, const char *value)
{
	put_key(json, key);
	put_string(json->out, value);
}

void
json_null(struct json *json, const char *key)
{
	put_key(json, key);
	fputs("null", json->out);
}

void
json_open(struct json *json, const char *key)
{
	put_key(json, key);
	fputc('{', json->out);
	json->first = true;
}

void
json_close(struct json *json)
{
	fputc('}', json->out);
	json->first = false;
}

void
json_open_list(struct json *json, const char *key)
{
	put_key(json, key);
	fputc('[', json->out);
	json->first = true;
}

void
json_item(struct json *json, const char *value)
{
	put_comma(json);
	put_string(json->out, value);
}

void
json_open_item(struct json *json)
{
	put_comma(json);
	fputc('{', json->out);
	json->first = true;
}

void
json_close_list(struct json *json)
{
	fputc(']', json->out);
	json->first = false;
}

static int
write_file(const char *path, const char *text, size_t size)
{
	FILE *file = fopen(path, "we");
	int rc = 0;

	if (file == NULL)
		return -errno;
	if (fwrite(text, 1, size, file) != size)
		rc = -errno;
	if (fclose(file) != 0 && rc == 0)
		rc = -errno;
	return rc;
}

int
json_save(struct json *json, const char *path)
{
	char *fresh = NULL;
	int rc = 0;

	fputs("}\n", json->out);
	if (ferror(json->out) || fclose(json->out) != 0 ||
			asprintf(&fresh, "%s.%d.tmp", path, (int)getpid()) < 0)
		rc = -ENOMEM;
	if (rc == 0)
		rc = write_file(fresh, json->text, json->size);
	if (rc == 0 && rename(fresh, path) != 0)
		rc = -errno;
	if (rc != 0 && fresh != NULL)
		unlink(fresh);
	free(fresh);
	free(json->text);
	return rc;
}
