/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef CONFIG_H
#define CONFIG_H

/*
 * A file of options: lines "name = value" with the long names of an option table. Options without a
 * value have yes or no. Comments begin with # or ;, also after a value and a blank.
 */

#include "options.h"

/*
 * Parse the options of a file as if they had been given on the command line; "config" itself is not
 * allowed. Errors are reported with file and line. 0, or a negative errno. Values live until the
 * end of the program.
 */
int config_parse(const struct option_spec *specs, unsigned int nb_specs, const char *path);

#endif /* CONFIG_H */
