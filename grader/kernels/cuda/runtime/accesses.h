// One access of one lane.
#pragma once

#include "paths.h"

namespace il {

// `index`: where the search starts, and where it ended.
inline Region *region_at(Address a, u32 size, u32 &index) {
    Region &again = regions[index];
    if (a - again.base < again.bytes && a + size <= again.base + again.bytes) return &again;
    for (u32 i = 0; i < regions.size(); ++i) {
        Region &r = regions[i];
        if (a - r.base < r.bytes && a + size <= r.base + r.bytes) {
            index = last_region = i;
            return &r;
        }
    }
    return nullptr;
}

COLD void refuse_access(const char *why, Address a, u32 size, Kind kind, Address pc, const Region &region) {
    end_launch(here(why, pc) +
               format(", \"access\": \"%s\", \"size\": %u, \"array\": %s, \"offset\": %lld, \"element\": %u}", KINDS[kind],
                      size, quoted(region.name).c_str(), (long long)(a - region.base), region.element));
}

// For a lane that does not follow: the request is found by its path.
u32 request_alone(Address pc, Kind kind, u32 part, u64 tag, u32 region, u32 size) {
    Lane &l = *current;
    if (l.follows) go_alone(l);
    bool fresh;
    const u32 number = request(key_of(l.path->hash + part, pc, kind), fresh);
    if (fresh) {
        Head &head = warp->heads[number];
        head.site = site_of(pc, kind, region, size);
        head.addresses = (u32)warp->addresses.size();
        if (++requests_kept > settings.max_requests) end_launch(too_many("too_many_requests", pc, settings.max_requests));
        warp->addresses.emplace_back();
        slots = warp->addresses.data()->of + l.number;
    }
    if (l.leads) {
        const Head &head = warp->heads[number];
        lead(tag, number, &regions[sites[head.site].region], head.site);
    }
    return number;
}

__attribute__((noinline)) void access(Address a, u32 size, Kind kind, Address pc, u32 part = 0) {
    if (!kernel_runs) return;
    Lane &l = *current;
    if (a - (Address)l.stack < STACK_BYTES) return;
    settle();
    last_pc = pc;
    const u64 tag = tag_of(pc, kind, part);
    const bool as_led = next->tag == tag;
    u32 index = as_led ? (u32)(next->region - regions.data()) : last_region;
    Region *region = region_at(a, size, index);
    if (!region) {
        if (kind == READ && a - literals < literals_bytes) return;
        return out_of_bounds(a, size, kind, pc);
    }
    if ((size & (size - 1)) == 0 && (a & (size - 1))) return refuse_access("misaligned", a, size, kind, pc, *region);
    if (kind != READ && region->read_only) return refuse_access("read_only", a, size, kind, pc, *region);
    region->used = true;
    if (region->space == CONSTANT) return;
    u32 site;
    if (as_led) {
        slots[next->addresses] = a, site = next->site;
        ++next;
    } else {
        const Head &head = warp->heads[request_alone(pc, kind, part, tag, index, size)];
        slots[head.addresses * 32] = a, site = head.site;
    }
    check(a, size, kind, *region, site);
}

// The same for a lane that follows the leader.
template <Kind kind, u32 size> INLINE void access(Address a, Address pc) {
    const Event &event = *next;
    if (LIKELY(event.tag == tag_of(pc, kind))) {
        Region &region = *event.region; // at least `size` bytes, since the leader was there
        if (LIKELY(a - region.base <= region.bytes - size) && LIKELY((a & (size - 1)) == 0)) {
            last_pc = pc;
            ++next;
            slots[event.addresses] = a;
            return check<kind, size>(a, region, event.site);
        }
    }
    access(a, size, kind, pc);
}

// The copy of a struct: words, and part of a word at either end.
void access_range(Address a, size_t bytes, Kind kind, Address pc) {
    u32 part = 0;
    for (size_t done = 0; done < bytes;) {
        u32 size = 4;
        while (size > bytes - done || (a + done) % size) size /= 2;
        access(a + done, size, kind, pc, part++);
        done += size;
    }
}

} // namespace il
