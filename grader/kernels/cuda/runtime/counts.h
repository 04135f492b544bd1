// Turns a warp's requests into counts.
#pragma once

#include "accesses.h"

namespace il {

// Distinct values of `of[lane] >> shift` over the lanes of `mask`, where each lane covers `size` bytes.
u32 distinct(const Addresses &a, u32 mask, u32 size, int shift) {
    Address seen[128], highest = 0;
    u32 count = 0;
    for (u32 rest = mask; rest; rest &= rest - 1) {
        const Address start = a.of[__builtin_ctz(rest)];
        for (Address piece = start >> shift; piece <= (start + size - 1) >> shift; ++piece) {
            bool known = false;
            if (piece <= highest) // else it is new: addresses mostly rise with the lane
                for (u32 i = count; i-- > 0 && !known;) known = seen[i] == piece;
            if (!known && count < 128) seen[count++] = piece;
            highest = std::max(highest, piece);
        }
    }
    return count;
}

// The cycles that shared memory needs: lanes go in phases (all at once; halves for 8 bytes, quarters
// for 16). In a phase each of the 32 banks gives one 4-byte word a cycle, to all lanes that ask it.
void shared_cost(const Addresses &a, u32 mask, u32 size, u32 &wavefronts, u32 &phases, u32 &worst) {
    const u32 group = size <= 4 ? 32 : size == 8 ? 16 : 8;
    wavefronts = phases = worst = 0;
    for (u32 start = 0; start < 32; start += group) {
        const u32 part = mask & (group == 32 ? ~0u : ((1u << group) - 1) << start);
        if (!part) continue;
        Address words[32][32];
        u32 many[32] = {}, most = 0;
        for (u32 rest = part; rest; rest &= rest - 1) {
            const Address address = a.of[__builtin_ctz(rest)];
            for (Address word = address / 4; word <= (address + size - 1) / 4; ++word) {
                const u32 bank = word % 32;
                bool known = false;
                for (u32 i = 0; i < many[bank] && !known; ++i) known = words[bank][i] == word;
                if (!known) {
                    words[bank][many[bank]++] = word;
                    most = std::max(most, many[bank]);
                }
            }
        }
        wavefronts += most, ++phases, worst = std::max(worst, most);
    }
}

Step &step_of(u32 site) {
    for (size_t i = steps.size(); i-- > 0 && steps[i].epoch == epoch;)
        if (steps[i].site == site) return steps[i];
    Step step;
    step.epoch = epoch, step.site = site;
    steps.push_back(step);
    return steps.back();
}

inline u32 lanes_in(u32 mask) { return mask == ~0u ? 32 : (u32)__builtin_popcount(mask); }

// Lanes in a row, each `step` bytes after the previous one: a few numbers give the counts.
struct Row {
    bool is_row;
    u32 many;
    int64_t step;
    u64 reach; // bytes from the first to the last one
};

Row row_of(const Addresses &a, u32 mask) {
    const u32 first = (u32)__builtin_ctz(mask), many = lanes_in(mask);
    Row row = {((u64)mask >> first & ((mask >> first) + 1ull)) == 0, many, 0, 0};
    if (!row.is_row || many == 1) return row;
    const Address *of = a.of + first;
    row.step = (int64_t)(of[1] - of[0]);
    Address expected = of[0], other = 0;
    for (u32 i = 0; i < many; ++i, expected += (u64)row.step) other |= of[i] ^ expected;
    row.is_row = other == 0;
    row.reach = (row.step < 0 ? -(u64)row.step : (u64)row.step) * (many - 1);
    return row;
}

// As `distinct`, of sectors and of words or bytes. An access lies within one sector; lanes less
// than a sector apart skip no sector.
void global_cost(const Addresses &a, u32 mask, u32 size, u32 &sectors, u32 &ideal) {
    const Row row = row_of(a, mask);
    if (!row.is_row) {
        sectors = distinct(a, mask, size, 5);
        ideal = size < 4 ? (distinct(a, mask, size, 0) + 31) / 32 : (distinct(a, mask, size, 2) + 7) / 8;
        return;
    }
    ideal = ((row.step ? row.many : 1) * size + 31) / 32;
    const Address one = a.of[__builtin_ctz(mask)], low = row.step < 0 ? one - row.reach : one;
    sectors = row.reach >= 32ull * (row.many - 1) && row.step ? row.many : (u32)((low + row.reach) / 32 - low / 32) + 1;
}

// For whole words: a row of lanes returns to a bank after 32 / gcd(32, step in words) lanes.
bool row_cost(const Addresses &a, u32 mask, u32 &ways) {
    const Row row = row_of(a, mask);
    if (!row.is_row) return false;
    const int64_t words = row.step / 4;
    const u32 banks = words ? 32u >> std::min(5, __builtin_ctzll((u64)words)) : 1;
    ways = words ? (row.many + banks - 1) / banks : 1;
    return true;
}

void count(Warp &w) {
    // Followers have contributed to the requests that they share with the leader.
    for (u32 i = 1; i < w.count; ++i) {
        const Lane &l = lanes[w.first + i];
        if (l.follows && l.followed) w.led[l.followed - 1].last |= 1u << i;
    }
    u32 following = 0;
    for (size_t i = w.led.size(); i-- > 0;) {
        following |= w.led[i].last;
        if (w.led[i].head != NONE) w.heads[w.led[i].head].mask |= following;
    }
    for (const Head &head : w.heads) {
        const u32 lanes_here = lanes_in(head.mask);
        if (head.addresses == IS_FLOW) {
            ++flow_requests, flow_lanes += lanes_here;
            continue;
        }
        Site &site = sites[head.site];
        const Region &region = regions[site.region];
        const Addresses &a = w.addresses[head.addresses];
        ++site.requests, site.lanes += lanes_here;
        u32 sectors = 0, wavefronts = 0, phases = 0, worst = 0;
        if (site.kind == ATOMIC) {
            site.operations += lanes_here;
            u32 same = 0;
            for (u32 i = head.mask; i; i &= i - 1) {
                u32 here = 0;
                for (u32 j = head.mask; j; j &= j - 1) here += a.of[__builtin_ctz(i)] == a.of[__builtin_ctz(j)];
                same = std::max(same, here);
            }
            site.worst_same = std::max(site.worst_same, same);
        }
        if (region.space == GLOBAL) {
            u32 ideal = 0;
            global_cost(a, head.mask, site.size, sectors, ideal);
            site.sectors += sectors, site.ideal_sectors += ideal;
            worst = sectors;
        } else {
            if (site.size == 4 && row_cost(a, head.mask, worst)) wavefronts = worst, phases = 1;
            else shared_cost(a, head.mask, site.size, wavefronts, phases, worst);
            site.wavefronts += wavefronts, site.ideal_wavefronts += phases;
            ++site.ways[worst];
        }
        if (!site.sampled || worst > site.worst) {
            site.sampled = true, site.sample_mask = head.mask, site.sample_block = block_number;
            site.sample_warp = w.first / 32;
            for (u32 rest = head.mask; rest; rest &= rest - 1) {
                const int lane = __builtin_ctz(rest);
                site.sample[lane] = (int64_t)(a.of[lane] - region.base);
            }
        }
        site.worst = std::max(site.worst, worst);
        if (block_number == 0 && steps.size() < 4096) {
            Step &step = step_of(head.site);
            ++step.requests, step.lanes += lanes_here, step.sectors += sectors, step.wavefronts += wavefronts;
            step.worst = std::max(step.worst, worst), step.most = std::max(step.most, lanes_here);
            step.masks[w.first / 32] |= head.mask;
        }
    }
    // At a barrier a follower that came as far as the leader has the leader's path.
    for (u32 i = 0; i < w.count; ++i) {
        Lane &l = lanes[w.first + i];
        if (l.follows && l.state == AT_BARRIER) {
            warp = &w;
            if (l.followed + 1 == w.led.size() && lanes[w.first].state == AT_BARRIER) l.alike = true;
            else go_alone(l);
        }
        l.placed = l.leads = l.follows = false;
        l.cursor = 0;
    }
    w.moment = NOBODY;
    w.led.clear(), w.heads.clear(), w.addresses.clear();
    if (++w.generation == 0) w.generation = 1, std::fill(w.table.begin(), w.table.end(), 0);
}

} // namespace il
