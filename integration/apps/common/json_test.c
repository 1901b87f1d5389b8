/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "json.h"

static void
fill(struct json *json)
{
	CHECK_EQ(json_begin(json), 0);
	json_u64(json, "big", UINT64_MAX);
	json_open(json, "in");
	json_str(json, "odd", "a\"b\\c\n");
	json_f64(json, "rate", 1.5);
	json_close(json);
	json_open(json, "empty");
	json_close(json);
	json_f64(json, "nan", NAN);
	json_null(json, "none");
	json_open_list(json, "list");
	json_item(json, "a");
	json_item(json, "\"");
	json_close_list(json);
	json_open_list(json, "nothing");
	json_close_list(json);
	json_u64(json, "end", 0);
}

static void
test_content(const char *path)
{
	const char *wanted = "{\"big\":18446744073709551615,\"in\":{\"odd\":\"a\\\"b\\\\c\\u000a\","
			     "\"rate\":1.500},\"empty\":{},\"nan\":null,\"none\":null,"
			     "\"list\":[\"a\",\"\\\"\"],\"nothing\":[],\"end\":0}\n";
	char text[512] = { 0 };
	struct json json;
	FILE *file;

	fill(&json);
	CHECK_EQ(json_save(&json, path), 0);
	file = fopen(path, "r");
	CHECK(file != NULL);
	CHECK(fread(text, 1, sizeof(text) - 1, file) > 0);
	fclose(file);
	CHECK(strcmp(text, wanted) == 0);
}

/* A directory has the name of the file: the rename fails, and no file may be left next to it. */
static void
test_failure(const char *dir)
{
	char path[64];
	struct json json;
	struct dirent *entry;
	int entries = 0;
	DIR *listing;

	snprintf(path, sizeof(path), "%s/taken", dir);
	CHECK_EQ(mkdir(path, 0700), 0);
	fill(&json);
	CHECK(json_save(&json, path) < 0);
	fill(&json);
	CHECK(json_save(&json, "/nonexistent/directory/file") == -ENOENT);

	listing = opendir(dir);
	CHECK(listing != NULL);
	while ((entry = readdir(listing)) != NULL)
		entries += entry->d_name[0] != '.';
	closedir(listing);
	rmdir(path);
	CHECK_EQ(entries, 2);
}

int
main(void)
{
	char dir[] = "/tmp/json_test.XXXXXX", path[64];

	CHECK(mkdtemp(dir) != NULL);
	snprintf(path, sizeof(path), "%s/out.json", dir);
	test_content(path);
	test_failure(dir);
	unlink(path);
	rmdir(dir);
	return 0;
}
