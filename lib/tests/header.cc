/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include "pmdscope.h"
#include "pmdscope_ring.h"

static_assert(sizeof(pmdscope_record) == 32, "records are laid out as in C");

int
main()
{
	pmdscope_conf conf = {};

	conf.flags = PMDSCOPE_F_NO_TEE;
	if (pmdscope_init(&conf) != 0)
		return 1;
	pmdscope_poll(pmdscope_tx_burst(0, 0, nullptr, 0));
	pmdscope_fini();
	return 0;
}
