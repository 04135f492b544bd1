// The path of a lane: the call stack with the iteration of every loop, computed or followed.
#pragma once

#include "races.h"

namespace il {

inline u64 tag_of(Address pc, Kind kind, u32 part = 0) { return ((u64)pc ^ (u64)part << 44) << 3 | kind; }

inline u64 turn_of(const Loop &loop) { return mix(mix(loop.before, loop.head), loop.turns); }

inline void find_path(Path &p) {
    const Frame &frame = p.frames.back();
    p.hash = p.loops.size() > frame.loops ? turn_of(p.loops.back()) : frame.path;
}

// Updates the path as a basic block begins; false if it is too deep.
inline bool step_path(Path &p, Address pc) {
    Frame &frame = p.frames.back();
    if (pc <= frame.last) { // backwards: another iteration of the loop that begins here
        while (p.loops.size() > frame.loops && p.loops.back().head > pc) p.loops.pop_back();
        Loop *top = p.loops.size() > frame.loops ? &p.loops.back() : nullptr;
        if (top && top->head == pc) {
            ++top->turns;
            top->latch = std::max(top->latch, frame.last);
            p.hash = turn_of(*top);
        } else {
            if (p.loops.size() == MAX_LOOPS) return false;
            const u64 before = top ? turn_of(*top) : frame.path;
            p.loops.push_back(Loop{pc, frame.last, before, 1});
            p.hash = turn_of(p.loops.back());
        }
    } else if (p.loops.size() > frame.loops && pc > p.loops.back().latch) {
        do p.loops.pop_back();
        while (p.loops.size() > frame.loops && pc > p.loops.back().latch);
        find_path(p);
    }
    frame.last = pc;
    return true;
}

inline void push_frame(Path &p, Address caller, Address base) {
    const u64 path = p.frames.empty() ? 0x1234 : mix(p.hash, caller);
    p.frames.push_back(Frame{(u32)p.loops.size(), path, 0, base});
    p.hash = path;
}

inline void pop_frame(Path &p) {
    if (p.frames.size() <= 1) return;
    p.loops.resize(p.frames.back().loops);
    p.frames.pop_back();
    find_path(p);
}

// -- leading and following ----------------------------------------------------------------------------

// Adds the leader's next event and moves the end of the list.
inline void lead(u64 tag, u32 head, Region *region = nullptr, u32 site = 0) {
    Warp &w = *warp;
    Event &event = w.led.back();
    event.tag = tag, event.head = head, event.region = region, event.site = site;
    event.addresses = region ? w.heads[head].addresses * 32 : 0;
    const u32 steps = event.steps + ((tag & 7) == FLOW);
    w.led.push_back(nothing);
    w.led.back().steps = steps;
}

inline void lead_past(u64 tag, u32 depth = 0) {
    ++heads_kept;
    lead(tag, NONE, nullptr, depth);
}

INLINE bool follows_to(u64 tag) {
    if (next->tag != tag) return false;
    ++next;
    return true;
}

// The lane's own path, where it must be known.
Path &own_path(Lane &l) {
    if (!l.path) l.path = new Path;
    if (l.alike) {
        l.alike = false;
        const Address by = beginning(l) - warp->leaders;
        *l.path = warp->began;
        for (Frame &frame : l.path->frames)
            if (frame.base) frame.base += by;
    }
    return *l.path;
}

// Walks the leader's events as far as the lane followed, and computes its path.
COLD void go_alone(Lane &l) {
    Warp &w = *warp;
    pause_following(l);
    Path &path = own_path(l);
    l.follows = false;
    l.cursor = 0;
    for (u32 i = 0; i < l.followed; ++i) {
        const Event &event = w.led[i];
        const Address pc = event.tag >> 3;
        const Kind kind = (Kind)(event.tag & 7);
        if (event.head != NONE) w.heads[event.head].mask |= 1u << l.number, l.cursor = event.head + 1;
        if (kind == FLOW && event.head != NONE) step_path(path, pc);
        else if (kind == ENTERED) push_frame(path, pc, event.site ? beginning(l) - event.site : 0);
        else if (kind == LEFT) pop_frame(path);
    }
}

inline u64 start_of(const Path &p) { return mix(p.hash, p.frames.empty() ? 0 : p.frames.back().last); }

// The role of a lane when it first runs after a barrier: the first of a warp leads.
void place(Lane &l) {
    Warp &w = *warp;
    l.placed = true;
    if (l.number == 0) {
        const Path &path = own_path(l);
        w.began = path;
        w.start = start_of(path), w.leaders = beginning(l);
        w.led.assign(1, nothing);
        l.leads = true;
    } else if (l.alike || start_of(*l.path) == w.start)
        l.follows = true, l.followed = 0;
}

COLD void too_deep(Address pc) { end_launch(here("too_deep", pc) + "}"); }
COLD void stop_stepping(Address pc) {
    end_launch(steps_taken() > settings.max_steps ? endless(pc) : too_long(pc));
}

__attribute__((noinline)) void enter_block_alone(Address pc, Address base) {
    Lane &l = *current;
    settle();
    last_pc = pc;
    const u64 tag = tag_of(pc, FLOW);
    if (l.follows) {
        if (follows_to(tag)) return;
        go_alone(l);
    }
    if (budget-- == 0) return stop_stepping(pc);
    Path &path = *l.path;
    if (path.frames.back().base != base) { // g++ ends a function (func_exit) before its last block
        if (l.leads) lead_past(tag);
        return;
    }
    if (!step_path(path, pc)) return too_deep(pc);
    bool fresh;
    const u32 number = request(key_of(path.hash, pc, FLOW), fresh);
    if (fresh) warp->heads[number].addresses = IS_FLOW;
    if (l.leads) lead(tag, number);
}

INLINE void enter_block(Address pc, Address base) {
    if (LIKELY(follows_to(tag_of(pc, FLOW)))) {
        last_pc = pc;
        return;
    }
    if (kernel_runs) enter_block_alone(pc, base);
}

__attribute__((noinline)) void enter_function_alone(Address caller, Address base) {
    Lane &l = *current;
    settle();
    if (l.follows) {
        if (follows_to(tag_of(caller, ENTERED))) return;
        go_alone(l);
    }
    Path &path = *l.path;
    if (path.frames.size() == MAX_FRAMES) return too_deep(caller);
    if (l.leads) lead_past(tag_of(caller, ENTERED), base ? (u32)(beginning(l) - base) : 0);
    push_frame(path, caller, base);
}

INLINE void enter_function(Address caller, Address base) {
    if (!LIKELY(follows_to(tag_of(caller, ENTERED))) && kernel_runs) enter_function_alone(caller, base);
}

__attribute__((noinline)) void leave_function_alone() {
    Lane &l = *current;
    settle();
    if (l.follows) {
        if (follows_to(tag_of(0, LEFT))) return;
        go_alone(l);
    }
    if (l.leads) lead_past(tag_of(0, LEFT));
    pop_frame(*l.path);
}

INLINE void leave_function() {
    if (!LIKELY(follows_to(tag_of(0, LEFT))) && kernel_runs) leave_function_alone();
}

} // namespace il
