/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <elf.h>
#include <string.h>
#include <unistd.h>

#include "elf_symbol.h"

struct file {
	const uint8_t *bytes;
	size_t size;
};

/* Copies a struct at an offset, as nothing in a file need be aligned. */
static bool
get(const struct file *f, uint64_t off, void *to, size_t len)
{
	if (off > f->size || len > f->size - off)
		return false;
	memcpy(to, f->bytes + off, len);
	return true;
}

static bool
get_entry(const struct file *f, uint64_t off, uint64_t i, void *to, size_t len)
{
	return i <= f->size / len && off <= f->size && get(f, off + i * len, to, len);
}

static bool
get_header(const struct file *f, Elf64_Ehdr *ehdr)
{
	return get(f, 0, ehdr, sizeof(*ehdr)) && memcmp(ehdr->e_ident, ELFMAG, SELFMAG) == 0 &&
	       ehdr->e_ident[EI_CLASS] == ELFCLASS64 &&
	       (ehdr->e_type == ET_DYN || ehdr->e_type == ET_EXEC) &&
	       ehdr->e_phentsize == sizeof(Elf64_Phdr);
}

static bool
find_first_page(const struct file *f, const Elf64_Ehdr *ehdr, uint64_t *addr)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	Elf64_Phdr phdr;
	unsigned int i;

	for (i = 0; i < ehdr->e_phnum; i++) {
		if (!get_entry(f, ehdr->e_phoff, i, &phdr, sizeof(phdr)))
			return false;
		if (phdr.p_type == PT_LOAD) {
			*addr = phdr.p_vaddr & ~(page - 1);
			return true;
		}
	}
	return false;
}

/* The name is compared with its NUL, within the string section. */
static bool
has_name(const struct file *f, const Elf64_Shdr *strings, uint32_t at, const char *name)
{
	const size_t len = strlen(name) + 1;

	return strings->sh_offset <= f->size && strings->sh_size <= f->size - strings->sh_offset &&
	       at < strings->sh_size && len <= strings->sh_size - at &&
	       memcmp(f->bytes + strings->sh_offset + at, name, len) == 0;
}

static bool
find_in_section(const struct file *f, const Elf64_Ehdr *ehdr, const Elf64_Shdr *section,
		const char *name, uint64_t *budget, struct elf_symbol *symbol)
{
	const uint64_t nb = section->sh_size / sizeof(Elf64_Sym);
	Elf64_Shdr strings;
	Elf64_Sym sym;
	uint64_t i;

	if (section->sh_link >= ehdr->e_shnum ||
			!get_entry(f, ehdr->e_shoff, section->sh_link, &strings, sizeof(strings)))
		return false;
	for (i = 0; i<nb && * budget> 0 && get_entry(f, section->sh_offset, i, &sym, sizeof(sym));
			i++) {
		--*budget;
		if (sym.st_shndx == SHN_UNDEF || ELF64_ST_TYPE(sym.st_info) != STT_OBJECT ||
				!has_name(f, &strings, sym.st_name, name))
			continue;
		symbol->value = sym.st_value;
		symbol->size = sym.st_size;
		return true;
	}
	return false;
}

bool
elf_symbol_find(const void *bytes, size_t size, const char *name, uint64_t *budget,
		struct elf_symbol *symbol)
{
	const struct file f = { .bytes = bytes, .size = size };
	Elf64_Shdr section;
	Elf64_Ehdr ehdr;
	unsigned int i;

	if (!get_header(&f, &ehdr) || !find_first_page(&f, &ehdr, &symbol->first_page))
		return false;
	if (ehdr.e_shentsize != sizeof(section))
		return false;
	for (i = 0; i < ehdr.e_shnum; i++) {
		if (!get_entry(&f, ehdr.e_shoff, i, &section, sizeof(section)))
			return false;
		if ((section.sh_type == SHT_DYNSYM || section.sh_type == SHT_SYMTAB) &&
				find_in_section(&f, &ehdr, &section, name, budget, symbol))
			return true;
	}
	return false;
}
