// Reads the order: what to launch, and its arrays.
#pragma once

#include "symbols.h"

namespace il {

std::vector<u64> values; // of scalars, kept alive

void read_spec(const char *spec, const char *data) {
    FILE *file = fopen(spec, "r");
    if (!file) refuse("the order cannot be read");
    int memory = open(data, O_RDWR);
    if (memory < 0) refuse("the arrays cannot be opened");
    const size_t gap = 64u << 20;
    char line[4096];
    std::vector<std::string> dynamic;
    std::vector<Address> bases;
    values.reserve(256);
    std::vector<bool> named; // by array: whether a parameter gives its element size
    while (fgets(line, sizeof line, file)) {
        char word[64], name[256];
        unsigned long long a = 0, b = 0, c = 0, d = 0;
        if (sscanf(line, "%63s", word) != 1) continue;
        const std::string what = word;
        if (what == "kernel" && sscanf(line, "%*s %255s", name) == 1) {
            for (int i = 0; i < il_kernel_count; ++i)
                if (!strcmp(il_kernels[i].name, name)) kernel = &il_kernels[i];
        } else if (what == "grid") sscanf(line, "%*s %u %u %u", &settings.grid[0], &settings.grid[1], &settings.grid[2]);
        else if (what == "block") sscanf(line, "%*s %u %u %u", &settings.block[0], &settings.block[1], &settings.block[2]);
        else if (what == "shared") sscanf(line, "%*s %zu", &settings.dynamic_bytes);
        else if (what == "steps" && sscanf(line, "%*s %llu", &a) == 1) settings.max_steps = a;
        else if (what == "total" && sscanf(line, "%*s %llu", &a) == 1) settings.max_total = a;
        else if (what == "requests" && sscanf(line, "%*s %llu", &a) == 1) settings.max_requests = a;
        else if (what == "seed" && sscanf(line, "%*s %llu", &a) == 1) settings.seed = a;
        else if (what == "races" && sscanf(line, "%*s %llu", &a) == 1) settings.races = a != 0;
        else if (what == "dynamic" && sscanf(line, "%*s %255s", name) == 1) dynamic.push_back(name);
        else if (what == "array" && sscanf(line, "%*s %llu %llu %llu %llu %255s", &a, &b, &c, &d, name) == 5) {
            // offset in the file, bytes, bytes of an element, whether it is read-only
            Region region;
            region.name = name, region.bytes = b, region.element = (u32)c, region.read_only = d != 0;
            const size_t room = (b + 4095) / 4096 * 4096 + 4096;
            char *place = (char *)mmap(nullptr, room + 2 * gap, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (place == MAP_FAILED) refuse("no room for the arrays");
            region.base = (Address)(place + gap);
            if (b && mmap(place + gap, room - 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, (off_t)a) == MAP_FAILED)
                refuse("the arrays cannot be mapped");
            bases.push_back(region.base);
            named.push_back(false);
            regions.push_back(region);
        } else if (what == "pointer" && sscanf(line, "%*s %llu %llu", &a, &b) == 2) {
            if (a >= bases.size()) refuse("no such array");
            const int number = (int)values.size();
            // The size of an element is that of the kernel's parameter.
            if (kernel && number < kernel->count && kernel->parameters[number].element && !named[a])
                regions[a].element = kernel->parameters[number].element, named[a] = true;
            values.push_back(bases[a] + b);
        } else if (what == "value" && sscanf(line, "%*s %llx %llu", &a, &b) == 2) {
            const int number = (int)values.size();
            if (kernel && number < kernel->count && kernel->parameters[number].bytes != b)
                refuse(format("argument %d has %u bytes, %llu were given", number + 1, kernel->parameters[number].bytes, b));
            values.push_back(a);
        }
        else if (what == "null") values.push_back(0);
    }
    fclose(file);
    close(memory);
    if (!kernel) refuse("no such kernel");
    if ((int)values.size() != kernel->count) refuse("another number of arguments");
    for (u64 &value : values) arguments.push_back(&value);
    read_symbols(dynamic);
    refuse_large_blocks();
    make_marks();
}

} // namespace il
