/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef VALUES_H
#define VALUES_H

/* Parsers of options that only the generator has, for its option table. They fill settings. */

#include "options.h"

int parse_mac(const struct option_spec *spec, const char *text);
int parse_stall(const struct option_spec *spec, const char *text);
int parse_hot_queue(const struct option_spec *spec, const char *text);
int parse_speed(const struct option_spec *spec, const char *text);
int parse_vlan(const struct option_spec *spec, const char *text);
int parse_rate_or_percent(const struct option_spec *spec, const char *text);
int parse_percent(const struct option_spec *spec, const char *text); /* double */
int parse_pace(const struct option_spec *spec, const char *text);

#endif /* VALUES_H */
