/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <stdio.h>

#include "rate.h"

const char *
rate_text(double per_second, char text[16])
{
	if (per_second >= 1e6)
		snprintf(text, 16, "%.3fM", per_second / 1e6);
	else if (per_second >= 1e3)
		snprintf(text, 16, "%.1fk", per_second / 1e3);
	else
		snprintf(text, 16, "%.1f", per_second);
	return text;
}
