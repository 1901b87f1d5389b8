/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_ARGS_H
#define PMDSCOPE_ARGS_H

/* Settings from the command line and from the environment. */

#include "pmdscope.h"

/*
 * PMDSCOPE_LEAK_MODE, where it is set, replaces the mode in conf. A bad value is logged and
 * ignored.
 */
void pmdscope_args_environment(struct pmdscope_conf *conf);

#endif /* PMDSCOPE_ARGS_H */
