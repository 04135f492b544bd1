// What ends a launch, as JSON: the kind of fault, the thread and the place.
#pragma once

#include "fibers.h"

namespace il {

u32 block_of(const Touch &t) { return t.block1 - 1; }

void end_launch(const std::string &json) {
    if (error.empty()) error = json;
    aborted = true;
    if (current && kernel_runs) {
        kernel_runs = false;
        to_scheduler();
    }
}

std::string here(const char *kind, Address pc) {
    return format("{\"kind\": \"%s\", \"pc\": %llu, \"thread\": %u, \"block\": %u", kind,
                  (unsigned long long)pc, current ? current->thread : 0, block_number);
}

u64 steps_taken() { return allowed - budget; } // by the current lane

std::string endless(Address pc) {
    return here("endless", pc) + format(", \"limit\": %llu}", (unsigned long long)steps_taken() - 1);
}
std::string too_long(Address pc) {
    return here("too_long", pc) + format(", \"limit\": %llu}", (unsigned long long)settings.max_total);
}
std::string too_many(const char *kind, Address pc, u64 limit) {
    return here(kind, pc) + format(", \"limit\": %llu}", (unsigned long long)limit);
}

void out_of_bounds(Address a, u32 size, Kind kind, Address pc) {
    const Region *nearest = nullptr;
    u64 least = ~0ull;
    for (const Region &r : regions) {
        if (r.name.empty()) continue;
        u64 distance = a < r.base ? r.base - a : a >= r.base + r.bytes ? a - (r.base + r.bytes) + 1 : 0;
        if (distance < least || (distance == least && a == r.base)) least = distance, nearest = &r;
    }
    const bool local = current && a - (Address)current->stack + (1u << 20) < (2u << 20);
    const bool near = nearest && least < (64u << 20);
    const bool shared = near && nearest->space == SHARED;
    const char *what = a < 4096         ? "null_pointer"
                       : local          ? "local_memory"
                       : !near          ? "no_array"
                       : !shared        ? "out_of_bounds"
                       : nearest->bytes ? "out_of_shared"
                                        : "no_dynamic_shared";
    std::string text = here(what, pc) + format(", \"access\": \"%s\"", KINDS[kind]);
    if (a >= 4096 && !local && near)
        text += format(", \"array\": %s, \"offset\": %lld, \"element\": %u, \"bytes\": %zu", quoted(nearest->name).c_str(),
                       (long long)(a - nearest->base), nearest->element, nearest->bytes);
    end_launch(text + "}");
}

} // namespace il
