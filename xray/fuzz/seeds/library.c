/* SPDX-License-Identifier: BSD-3-Clause */
/* A library of the made-up app, for the fuzz target maps. */

long held[4] = { 1 };
static __thread long cached = 2;

long *
use(void)
{
	return cached ? &cached : held;
}
