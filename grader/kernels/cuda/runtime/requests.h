// Sites, that is, instructions that access an array, and the requests of warps at them.
#pragma once

#include "endings.h"

namespace il {

COLD void stop_for_moments() { end_launch(here("too_large", last_pc) + "}"); }

struct SiteKey {
    Address pc;
    u32 kind, region, size;
    bool operator==(const SiteKey &o) const {
        return pc == o.pc && kind == o.kind && region == o.region && size == o.size;
    }
};
struct SiteHash {
    size_t operator()(const SiteKey &k) const {
        return (k.pc * 0x9e3779b97f4a7c15ull) ^ (k.region * 131 + k.kind * 7 + k.size);
    }
};
std::unordered_map<SiteKey, u32, SiteHash> known_sites;

u32 site_of(Address pc, Kind kind, u32 region, u32 size) {
    const SiteKey key = {pc, (u32)kind, region, size};
    const auto found = known_sites.find(key);
    if (found != known_sites.end()) return found->second;
    if (sites.size() > 65535) stop_for_moments();
    Site site;
    site.pc = pc, site.kind = kind, site.region = region, site.size = size;
    sites.push_back(site);
    return known_sites[key] = (u32)sites.size() - 1;
}

inline u64 mix(u64 a, u64 b) {
    u64 x = (a ^ b) * 0x9e3779b97f4a7c15ull;
    x ^= x >> 29;
    x = (x + b) * 0xbf58476d1ce4e5b9ull;
    return x ^ (x >> 32);
}

// The path is well mixed already; its low bits choose the place in the table.
inline u64 key_of(u64 path, Address pc, Kind kind) {
    const u64 x = path ^ ((u64)pc * 4 + kind) * 0x9e3779b97f4a7c15ull;
    return x ^ (x >> 31);
}

// The index of the warp's request with that key, to which this lane has not contributed yet.
inline u32 request(u64 key, bool &fresh) {
    Warp &w = *warp;
    Lane &l = *current;
    const u32 bit = 1u << l.number;
    // Lanes mostly follow the first one; one that skipped a branch is found a little further on.
    const u32 known = (u32)w.heads.size(), near = std::min(known, l.cursor + 6);
    for (u32 i = l.cursor; i < near; ++i) {
        Head &head = w.heads[i];
        if (head.key == key && !(head.mask & bit)) {
            head.mask |= bit;
            fresh = false;
            l.cursor = i + 1;
            return i;
        }
    }
    for (;;) {
        if (w.heads.size() * 2 >= w.table.size()) {
            size_t size = std::max<size_t>(1024, w.table.size() * 4);
            w.table.assign(size, 0);
            for (u32 i = 0; i < w.heads.size(); ++i) {
                size_t slot = w.heads[i].key & (size - 1);
                while (w.table[slot]) slot = (slot + 1) & (size - 1);
                w.table[slot] = (u64)w.generation << 32 | (i + 1);
            }
        }
        const size_t last = w.table.size() - 1;
        size_t slot = key & last;
        bool again = false;
        while (w.table[slot] >> 32 == w.generation) {
            u32 index = (u32)w.table[slot] - 1;
            Head &head = w.heads[index];
            if (head.key == key) {
                if (head.mask & bit) {
                    again = true;
                    break;
                }
                head.mask |= bit;
                l.cursor = index + 1;
                fresh = false;
                return index;
            }
            slot = (slot + 1) & last;
        }
        if (again) {
            key = mix(key, 0x51ed);
            continue;
        }
        if (++heads_kept > settings.max_heads)
            end_launch(steps_taken() > settings.max_heads / 8 ? endless(last_pc) : too_many("too_many_steps", last_pc, settings.max_heads));
        u32 index = (u32)w.heads.size();
        w.table[slot] = (u64)w.generation << 32 | (index + 1);
        w.heads.push_back(Head{key, 0, bit, 0});
        l.cursor = index + 1;
        fresh = true;
        return index;
    }
}

} // namespace il
