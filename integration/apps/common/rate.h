/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef RATE_H
#define RATE_H

/* A number per second as text, such as "200.0k". Returns text. */
const char *rate_text(double per_second, char text[16]);

#endif /* RATE_H */
