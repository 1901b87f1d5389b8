/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ini.h>

#include "config.h"

#define OWN_NAME "config"

struct config {
	const struct option_spec *specs;
	unsigned int nb_specs;
	const char *path;
	FILE *in;
	int line;
	bool failed; /* Reported: later lines have no effect. */
};

static int
complain(struct config *config, const char *what, const char *name)
{
	fprintf(stderr, "%s: %s:%d: %s '%s'; see --help\n", program_invocation_short_name,
			config->path, config->line, what, name);
	return -EINVAL;
}

static const struct option_spec *
find(const struct config *config, const char *name)
{
	unsigned int i;

	for (i = 0; i < config->nb_specs; i++)
		if (strcmp(config->specs[i].name, name) == 0)
			return &config->specs[i];
	return NULL;
}

static int
set_flag(struct config *config, const struct option_spec *spec, const char *value)
{
	if (strcmp(value, "yes") == 0)
		return spec->parse(spec, NULL);
	if (strcmp(value, "no") == 0)
		return 0;
	return complain(config, "not yes or no:", value);
}

static int
set(struct config *config, const char *section, const char *name, const char *value)
{
	const struct option_spec *spec = find(config, name);
	char *copy;
	int rc;

	if (*section != '\0')
		return complain(config, "there are no sections here, but options follow", section);
	if (spec == NULL || strcmp(name, OWN_NAME) == 0)
		return complain(config, "unknown option", name);
	if (spec->value == NULL)
		return set_flag(config, spec, value);
	/* Parsers may keep the text. */
	copy = strdup(value);
	if (copy == NULL)
		return -ENOMEM;
	rc = spec->parse(spec, copy);
	if (rc != 0)
		complain(config, "wrong value of", name);
	return rc;
}

/* For inih: nonzero is success. */
static int
take(void *arg, const char *section, const char *name, const char *value)
{
	struct config *config = arg;

	if (!config->failed && set(config, section, name, value) != 0)
		config->failed = true;
	return !config->failed;
}

/* For inih: reads like fgets(). Counts lines, and ends the file after an error. */
static char *
read_line(char *text, int room, void *arg)
{
	struct config *config = arg;
	const size_t size = (size_t)room;
	char *line = config->failed ? NULL : fgets(text, room, config->in);

	if (line == NULL)
		return NULL;
	config->line++;
	if (strlen(line) + 1 == size && line[size - 2] != '\n') {
		complain(config, "too long a line:", line);
		config->failed = true;
		return NULL;
	}
	return line;
}

int
config_parse(const struct option_spec *specs, unsigned int nb_specs, const char *path)
{
	struct config config = { .specs = specs, .nb_specs = nb_specs, .path = path };
	static char comments[] = "#;";
	int line;

	config.in = fopen(path, "re");
	if (config.in == NULL) {
		fprintf(stderr, "%s: --config %s: %s\n", program_invocation_short_name, path,
				strerror(errno));
		return -EINVAL;
	}
	/* An indented line does not continue the previous one. */
	ini_allow_multiline = false;
	ini_inline_comment_prefixes = comments;
	line = ini_parse_stream(read_line, &config, take, &config);
	if (line != 0 && !config.failed) {
		config.line = line;
		complain(&config, "neither a comment nor", "name = value");
		config.failed = true;
	}
	if (!config.failed && ferror(config.in)) {
		complain(&config, "read error in", path);
		config.failed = true;
	}
	fclose(config.in);
	return config.failed ? -EINVAL : 0;
}
