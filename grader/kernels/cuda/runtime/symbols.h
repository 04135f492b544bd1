// The arrays of the kernel's object, by the program's symbols, and the handlers of signals.
#pragma once

#include "blocks.h"

namespace il {

[[noreturn]] void refuse(const std::string &why) {
    fprintf(stderr, "%s\n", why.c_str());
    _exit(3);
}

std::string demangled(const char *name) {
    if (strncmp(name, "_Z", 2)) return name; // `s` alone would be read as `short`
    int status = 0;
    char *text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
    std::string found = status == 0 && text ? text : name;
    free(text);
    return found;
}

// Whether a symbol is the shim's, this runtime's or the C library's, not an array of the learner's.
bool is_ours(const std::string &name) {
    for (const char *start : {"il_", "il::", "std::", "__", "_IO_", "guard variable for "})
        if (name.rfind(start, 0) == 0) return true;
    return name == "warpSize";
}

// Whether a static shared array is declared in another kernel than the launched one, which cannot
// name it: a stray access must not reach it. Arrays of __device__ functions are anybody's.
bool is_of_another_kernel(const std::string &name) {
    for (int i = 0; i < il_kernel_count; ++i)
        if (&il_kernels[i] != kernel && name.rfind(std::string(il_kernels[i].name) + "::", 0) == 0) return true;
    return false;
}

// A launch that no GPU takes: refuses it.
void refuse_large_blocks() {
    const size_t most = 48 << 10, most_of_all = 227 << 10;
    size_t bytes = 0;
    for (const Region &r : regions)
        if (r.space == SHARED && !r.dynamic && r.name.rfind(std::string(kernel->name) + "::", 0) == 0) bytes += r.bytes;
    if (bytes > most)
        refuse(format("the static shared arrays of `%s` have %zu bytes and a kernel can have %zu: declare the array extern "
                      "__shared__, and the launch gives it", kernel->name, bytes, most));
    if (bytes + settings.dynamic_bytes > most_of_all)
        refuse(format("a block of `%s` needs %zu bytes of shared memory, %zu static and %zu dynamic, and can have %zu",
                      kernel->name, bytes + settings.dynamic_bytes, bytes, settings.dynamic_bytes, most_of_all));
}

// Shared arrays are the program's thread-local symbols; __device__ and __constant__ ones its objects.
void read_symbols(const std::vector<std::string> &dynamic) {
    const int file = open("/proc/self/exe", O_RDONLY);
    struct stat status;
    if (file < 0 || fstat(file, &status)) _exit(6);
    const size_t bytes = (size_t)status.st_size;
    char *const image = (char *)mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (image == MAP_FAILED) _exit(6);
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)image;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(image + head->e_shoff);
    const char *names = image + sections[head->e_shstrndx].sh_offset;
    for (int i = 0; i < head->e_shnum; ++i) {
        if (!strcmp(names + sections[i].sh_name, ".rodata"))
            literals = sections[i].sh_addr, literals_bytes = sections[i].sh_size;
        if (sections[i].sh_type != SHT_SYMTAB) continue;
        const Elf64_Sym *symbols = (const Elf64_Sym *)(image + sections[i].sh_offset);
        const char *text = image + sections[sections[i].sh_link].sh_offset;
        const size_t many = sections[i].sh_size / sizeof(Elf64_Sym);
        Address tls_base = 0; // the wrapper returns the address of one thread-local variable
        for (size_t k = 0; k < many && !tls_base; ++k)
            if (ELF64_ST_TYPE(symbols[k].st_info) == STT_TLS && strstr(text + symbols[k].st_name, "il_touched"))
                tls_base = (Address)il_touch_shared() - symbols[k].st_value;
        bool kernels = false; // the local symbols of one file follow its name
        for (size_t k = 0; k < many; ++k) {
            const Elf64_Sym &symbol = symbols[k];
            const char *name = text + symbol.st_name;
            const int type = ELF64_ST_TYPE(symbol.st_info);
            if (type == STT_FILE) {
                kernels = strcmp(name, "kernel.cpp") == 0;
                continue;
            }
            // Symbols of libraries are hidden (--exclude-libs).
            const bool global = ELF64_ST_BIND(symbol.st_info) != STB_LOCAL && ELF64_ST_VISIBILITY(symbol.st_other) == STV_DEFAULT;
            const bool shared = type == STT_TLS && (kernels || global);
            if (!shared && !(type == STT_OBJECT && symbol.st_size && (kernels || global) && symbol.st_shndx < head->e_shnum)) continue;
            if (strncmp(name, "_ZTH", 4) == 0) continue;
            Region region;
            if (strncmp(name, "_ZGV", 4) == 0) {
                // g++ gives a shared array of vectors a guard. It is set here, so that no lane runs
                // the empty initializer; a region without a name is not counted.
                if (!shared) continue;
                region.space = CONSTANT;
                region.base = tls_base + symbol.st_value, region.bytes = symbol.st_size;
                *(char *)region.base = 1;
                regions.push_back(region);
                continue;
            }
            region.name = demangled(name);
            if (is_ours(region.name)) continue;
            if (shared) {
                if (is_of_another_kernel(region.name)) continue;
                region.space = SHARED;
                region.base = tls_base + symbol.st_value;
                region.bytes = symbol.st_size;
                region.dynamic = std::find(dynamic.begin(), dynamic.end(), region.name) != dynamic.end();
                // All dynamic arrays share one memory, under the kernel's name for it.
                if (region.dynamic && region.name != dynamic[0]) continue;
                if (region.dynamic) region.bytes = settings.dynamic_bytes;
            } else {
                const char *section = names + sections[symbol.st_shndx].sh_name;
                const bool constant = strcmp(section, ".il_constant") == 0;
                const bool data = !strcmp(section, ".data") || !strcmp(section, ".bss") || !strcmp(section, ".rodata");
                if (!constant && !data) continue;
                region.space = constant ? CONSTANT : GLOBAL;
                region.read_only = constant || !strcmp(section, ".rodata");
                region.base = symbol.st_value;
                region.bytes = symbol.st_size;
            }
            regions.push_back(region);
        }
    }
    munmap(image, bytes);
}

void make_marks() {
    for (Region &r : regions) {
        if (r.space == CONSTANT || !r.bytes) continue;
        r.watched = r.space == SHARED || settings.races, r.plain = settings.races;
        if (r.watched) new_marks(r, cells_of(r));
    }
}

void on_fault(int number, siginfo_t *info, void *) {
    const Address a = (Address)info->si_addr;
    kernel_runs = false;
    const char *kind = number == SIGFPE ? "division" : "fault";
    if (current && current->stack && a < (Address)current->stack && a >= (Address)current->stack - GUARD_BYTES)
        kind = "stack";
    if (error.empty()) error = here(kind, last_pc) + "}";
    write_report();
    _exit(0);
}

void watch_faults() {
    static char space[65536];
    stack_t stack = {};
    stack.ss_sp = space, stack.ss_size = sizeof space;
    sigaltstack(&stack, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(number, &action, nullptr);
}

} // namespace il
