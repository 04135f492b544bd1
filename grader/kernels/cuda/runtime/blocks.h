// Waiting lanes, a block, and the grid.
#pragma once

#include "counts.h"

namespace il {

void wait(State state, Address pc) {
    settle();
    last_pc = pc;
    current->state = state;
    current->waits_at = pc;
    to_scheduler();
}

void collective(Collective kind, int what, u32 mask, u64 value, int argument, int width, Address pc) {
    Lane &l = *current;
    if (mask == 0 || !(mask >> l.number & 1)) {
        end_launch(here("not_in_mask", pc) + format(", \"mask\": %u, \"lane\": %u}", mask, l.number));
        return;
    }
    l.collective = kind, l.what = what, l.mask = mask, l.value = value, l.argument = argument, l.width = width;
    wait(AT_COLLECTIVE, pc);
}

u64 shuffled(const Warp &w, const Lane &l) {
    // As in PTX: five bits of the argument count, and xor reaches into earlier segments.
    const int width = l.width, number = (int)l.number, by = l.argument & 31;
    const int start = number / width * width, end = start + width;
    int source = number;
    if (l.what == 0) source = start + by % width;
    else if (l.what == 1 && number - by >= start) source = number - by;
    else if (l.what == 2 && number + by < end) source = number + by;
    else if (l.what == 3 && (number ^ by) < end) source = number ^ by;
    const u64 nothing = ~0ull; // a NaN, or -1: the value of a lane outside the mask is undefined
    if (source < 0 || source >= (int)w.count || !(l.mask >> source & 1)) return nothing;
    const Lane &from = lanes[w.first + (u32)source];
    return from.state == AT_COLLECTIVE ? from.value : nothing;
}

// The lanes that brought the same value as `l`; for __match_all_sync() all of them, or none.
u64 matching(const Warp &w, u32 present, const Lane &l) {
    u32 same = 0;
    for (u32 rest = present; rest; rest &= rest - 1)
        if (lanes[w.first + (u32)__builtin_ctz(rest)].value == l.value) same |= rest & -rest;
    return l.what == 0 || same == present ? same : 0;
}

// Lets the lanes of one mask go on if all of them that still run wait for the same function.
bool resolve(Warp &w) {
    for (u32 i = 0; i < w.count; ++i) {
        Lane &asking = lanes[w.first + i];
        if (asking.state != AT_COLLECTIVE) continue;
        bool all = true;
        u32 present = 0;
        for (u32 j = 0; j < w.count && all; ++j) {
            const Lane &other = lanes[w.first + j];
            if (!(asking.mask >> j & 1) || other.state == DONE) continue;
            all = other.state == AT_COLLECTIVE && other.mask == asking.mask &&
                  other.collective == asking.collective && other.what == asking.what;
            present |= 1u << j;
        }
        if (!all) continue;
        u32 ballot = 0;
        long long sum = 0;
        bool first = true;
        for (u32 rest = present; rest; rest &= rest - 1) {
            const Lane &l = lanes[w.first + (u32)__builtin_ctz(rest)];
            if (l.value) ballot |= 1u << l.number;
            const long long v = (long long)l.value;
            if (first) sum = v;
            else if (l.what == 0) sum += v;
            else if (l.what == 1) sum = std::min(sum, v);
            else if (l.what == 2) sum = std::max(sum, v);
            else if (l.what == 3) sum &= v;
            else if (l.what == 4) sum |= v;
            else sum ^= v;
            first = false;
        }
        for (u32 rest = present; rest; rest &= rest - 1) {
            Lane &l = lanes[w.first + (u32)__builtin_ctz(rest)];
            if (l.collective == SHUFFLE) l.result = shuffled(w, l);
            else if (l.collective == BALLOT)
                l.result = l.what == 0 ? ballot : l.what == 1 ? ballot != 0 : ballot == present;
            else if (l.collective == REDUCE) l.result = (u64)sum;
            else if (l.collective == MATCH) l.result = matching(w, present, l);
        }
        if (asking.collective == SYNCWARP) {
            ++w.turn, w.moment = NOBODY;
            for (u32 a = present; a; a &= a - 1)
                for (u32 b = present; b; b &= b - 1) w.met[__builtin_ctz(a)][__builtin_ctz(b)] = w.turn;
        } else
            ++shuffles;
        for (u32 rest = present; rest; rest &= rest - 1) lanes[w.first + (u32)__builtin_ctz(rest)].state = READY;
        return true;
    }
    return false;
}

// -- a block ------------------------------------------------------------------------------------------

void lane_main() {
    enter_function(0, 0);
    kernel->call(arguments.data());
    settle();
    current->state = DONE;
    to_scheduler();
}

void run(Lane &l) {
    current = &l;
    warp = &warps[l.thread / 32];
    if (l.state == NEW) {
        l.stack = new_stack();
        l.stack_pointer = prepared(l.stack, beginning(l) - (Address)l.stack, lane_main);
    }
    l.state = READY;
    if (!l.placed) place(l);
    allowed = std::min(settings.max_steps, l.steps + settings.max_total - total_steps);
    budget = allowed - l.steps;
    if (l.follows) {
        if (warp->led.back().steps - warp->led[l.followed].steps <= budget) start_following(l);
        else go_alone(l);
    }
    slots = (Address *)warp->addresses.data() + l.number;
    mark = mark_of(warp->moment, l.number);
    places[0] = l.place;
    kernel_runs = true;
    il_switch(&scheduler, l.stack_pointer);
    kernel_runs = false;
    pause_following(l);
    total_steps = std::min(settings.max_total, total_steps + steps_taken() - l.steps);
    l.steps = steps_taken();
    if (l.state == DONE) {
        free_stacks.push_back(l.stack);
        l.stack = nullptr;
    }
    current = nullptr;
}

u64 next_random(u64 &state) {
    state += 0x9e3779b97f4a7c15ull;
    return mix(state, state >> 17);
}

std::vector<u32> order_of(u32 many, u64 seed) {
    std::vector<u32> order(many);
    for (u32 i = 0; i < many; ++i) order[i] = i;
    if (seed)
        for (u32 i = many; i > 1; --i) std::swap(order[i - 1], order[next_random(seed) % i]);
    return order;
}

std::string with_other(const Lane &l) {
    return format(", \"other_thread\": %u, \"other_pc\": %llu", l.thread, (unsigned long long)l.waits_at);
}

// No lane can run: all wait at one barrier, or the kernel is stuck. Returns whether it goes on.
bool pass_barrier() {
    u32 done = 0;
    const Lane *first = nullptr, *gone = nullptr, *stuck = nullptr;
    for (const Lane &l : lanes) {
        if (l.state == DONE) ++done, gone = gone ? gone : &l;
        else if (l.state == AT_COLLECTIVE) stuck = stuck ? stuck : &l;
        else if (!first) first = &l;
    }
    if (stuck) {
        const Warp &w = warps[stuck->thread / 32];
        const Lane *missing = nullptr;
        for (u32 j = 0; j < w.count && !missing; ++j) {
            const Lane &other = lanes[w.first + j];
            if ((stuck->mask >> j & 1) && other.state != DONE &&
                (other.state != AT_COLLECTIVE || other.mask != stuck->mask || other.collective != stuck->collective))
                missing = &other;
        }
        const char *why = !missing                          ? "stuck_collective"
                          : missing->state == AT_BARRIER    ? "partner_at_barrier"
                          : missing->mask != stuck->mask    ? "partner_with_other_mask"
                                                            : "partner_elsewhere";
        std::string text = format("{\"kind\": \"%s\", \"pc\": %llu, \"thread\": %u, \"block\": %u, \"mask\": %u", why,
                                  (unsigned long long)stuck->waits_at, stuck->thread, block_number, stuck->mask);
        if (missing) text += with_other(*missing) + format(", \"other_mask\": %u", missing->mask);
        end_launch(text + "}");
        return false;
    }
    if (!first) return false; // all have ended
    if (done) {
        end_launch(format("{\"kind\": \"ended_before_barrier\", \"pc\": %llu, \"thread\": %u, \"block\": %u, \"ended\": %u, \"other_thread\": %u}",
                          (unsigned long long)first->waits_at, first->thread, block_number, done, gone->thread));
        return false;
    }
    for (const Lane &l : lanes)
        if (l.waits_at != first->waits_at) {
            end_launch(format("{\"kind\": \"divergent_barrier\", \"pc\": %llu, \"thread\": %u, \"block\": %u",
                              (unsigned long long)first->waits_at, first->thread, block_number) +
                       with_other(l) + "}");
            return false;
        }
    votes = 0;
    for (const Lane &l : lanes) votes += l.value != 0;
    return true;
}

void run_block() {
    epoch = 0, heads_kept = requests_kept = 0;
    for (Region &r : regions)
        if (r.space == SHARED && (r.used || !blocks_run)) {
            memset((void *)r.base, 0xff, r.bytes);
            for (Marks *marks : {&r.writer, &r.first, &r.last}) marks->forget(cells_of(r));
        }
    for (u32 t = 0; t < threads; ++t) {
        Lane &l = lanes[t];
        l.state = NEW, l.steps = 0, l.alike = true;
    }
    unwritten.clear();
    first_moment = epoch_moment = (u32)moments.size();
    for (Warp &w : warps) w.began.clear(), ++w.turn; // forget warp-level calls of other blocks
    const std::vector<u32> order = order_of((u32)warps.size(), settings.seed ? settings.seed + block_number : 0);
    u64 barriers = 0;
    for (;;) {
        for (u32 number : order) {
            Warp &w = warps[number];
            do {
                for (u32 i = 0; i < w.count; ++i) {
                    Lane &l = lanes[w.first + i];
                    if (l.state == NEW || l.state == READY) run(l);
                    if (aborted) return;
                }
            } while (resolve(w));
        }
        tell_unwritten();
        if (aborted || !pass_barrier()) break;
        for (Warp &w : warps) count(w);
        heads_kept = requests_kept = 0;
        epoch_moment = (u32)moments.size();
        ++epoch, ++barriers;
        for (Lane &l : lanes) l.state = READY;
    }
    if (aborted) return;
    for (Warp &w : warps) count(w);
    total_barriers += barriers;
    most_barriers = std::max(most_barriers, barriers);
    ++blocks_run;
}

void run_grid() {
    threads = settings.block[0] * settings.block[1] * settings.block[2];
    const u64 blocks = (u64)settings.grid[0] * settings.grid[1] * settings.grid[2];
    lanes.resize(threads);
    for (u32 t = 0; t < threads; ++t) {
        Lane &l = lanes[t];
        l.thread = t, l.number = t % 32;
        l.place = {t % settings.block[0], t / settings.block[0] % settings.block[1], t / settings.block[0] / settings.block[1]};
    }
    warps.resize((threads + 31) / 32);
    for (u32 i = 0; i < warps.size(); ++i) warps[i].first = 32 * i, warps[i].count = std::min(32u, threads - 32 * i);
    if (blocks > settings.max_total / threads) { // a thread takes at least one step
        end_launch(too_long(0));
        return;
    }
    places[2] = {settings.block[0], settings.block[1], settings.block[2]};
    places[3] = {settings.grid[0], settings.grid[1], settings.grid[2]};
    const std::vector<u32> order = order_of(settings.seed ? (u32)blocks : 0, settings.seed);
    for (u64 turn = 0; turn < blocks; ++turn) {
        const u32 number = settings.seed ? order[turn] : (u32)turn;
        block_number = number;
        places[1] = {number % settings.grid[0], number / settings.grid[0] % settings.grid[1],
                     number / settings.grid[0] / settings.grid[1]};
        run_block();
        if (aborted) {
            for (Warp &w : warps) count(w);
            return;
        }
    }
}

} // namespace il
