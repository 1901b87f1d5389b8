/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_ELF_SYMBOL_H
#define PDUMP_ELF_SYMBOL_H

/* Where a 64-bit ELF file defines a symbol. The file is untrusted. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct elf_symbol {
	uint64_t value;	     /* Address as linked. */
	uint64_t size;	     /* Bytes. */
	uint64_t first_page; /* Linked address of the first page that is loaded. */
};

/*
 * Search the dynamic symbols and those for the debugger, at most budget of them, which counts down: a file may
 * list more than could be read in a lifetime. False if they do not define the symbol, or the file is not an ELF
 * file of this machine.
 */
bool elf_symbol_find(const void *file, size_t size, const char *name, uint64_t *budget,
		struct elf_symbol *symbol);

#endif /* PDUMP_ELF_SYMBOL_H */
