// The last accesses to each word, and accesses that nothing orders.
#pragma once

#include "requests.h"

namespace il {

Touch told(const Mark &mark) {
    const Moment &m = moments[mark.moment()];
    Touch t;
    t.block1 = m.block1, t.epoch = m.epoch, t.turn = m.turn, t.fences = m.fences, t.site = mark.site();
    t.thread = (uint16_t)(m.warp * 32 + mark.lane()), t.atomic = mark.atomic();
    return t;
}

// The mark of the warp's accesses from now on.
inline u32 present() {
    Warp &w = *warp;
    if (w.moment == NOBODY) { // since a barrier, a __syncwarp() or a fence
        if (moments.size() >= 1u << 28) stop_for_moments();
        moments.push_back(Moment{block_number + 1, epoch, w.turn, fences, w.first / 32});
        w.moment = (u32)moments.size() - 1;
    }
    mark = mark_of(w.moment, current->number);
    return w.moment;
}

bool is_published(const Moment &m, u32 lane) {
    const u32 block = m.block1 - 1;
    if (block < published.size() && m.epoch < published[block]) return true;
    const u64 thread = (u64)block * threads + m.warp * 32 + lane;
    return thread < last_fence.size() && last_fence[thread] > m.fences;
}

// Whether the access with that mark surely came before what the current lane does now.
inline bool is_before(const Mark &mark, Space space) {
    if (mark.moment() == NOBODY) return true;
    const Lane &l = *current;
    if (mark.moment() == warp->moment) return mark.lane() == l.number;
    if (mark.moment() < first_moment && space == SHARED) return true;
    const Moment &m = moments[mark.moment()];
    if (m.block1 != block_number + 1) return space == SHARED || is_published(m, mark.lane());
    if (m.epoch < epoch) return true;
    if (m.warp != l.thread / 32) return false;
    return mark.lane() == l.number || m.turn < warp->met[mark.lane()][l.number];
}

inline bool is_of_block(const Mark &mark) {
    return mark.moment() >= first_moment;
}

void note_race(const Touch &other, Kind other_kind, const Touch &mine, Kind kind, u32 region, Address a) {
    ++races_seen;
    for (Race &r : races)
        if (r.mine.site == mine.site && r.other.site == other.site && r.kind == kind &&
            r.other_kind == other_kind) {
            ++r.count;
            // Two warps make the clearer example: lanes of one warp might seem to run in step.
            const bool shown = r.mine.block1 == r.other.block1 && r.mine.thread / 32 == r.other.thread / 32;
            const bool apart = mine.block1 == other.block1 && mine.thread / 32 != other.thread / 32;
            if (shown && apart) r.mine = mine, r.other = other, r.address = a, r.region = region;
            return;
        }
    if (races.size() < 32) races.push_back(Race{other, mine, kind, other_kind, region, a, 1});
}

// A follower's steps are not counted one by one: it gets all the steps of the leader, and returns
// those that it does not take.
inline void start_following(const Lane &l) {
    next = &warp->led[l.followed];
    budget -= warp->led.back().steps - next->steps;
}
inline void pause_following(Lane &l) {
    if (next == &nothing) return;
    budget += warp->led.back().steps - next->steps;
    l.followed = (u32)(next - warp->led.data());
    next = &nothing;
}

// A write after another thread's write is not a race if it stores the value that was there already.
// Until that is known the hooks expect nothing, so that the lane's next event comes here first.
COLD void settle_now() {
    const Suspect &s = suspect;
    suspect.open = false;
    if (current->follows) start_following(*current);
    if (memcmp((void *)s.address, s.before, s.size) != 0)
        note_race(s.other, s.other.atomic ? ATOMIC : WRITE, s.mine, WRITE, s.region, s.address);
}
inline void settle() {
    if (suspect.open) settle_now();
}
// A read of shared memory that no thread had written. It is reported at the block's next barrier or
// end: if a thread writes the word before that, it is a race, which says more.
struct Unwritten {
    u32 region;
    Address word;
    u32 site, thread;
};
std::vector<Unwritten> unwritten;

void tell_unwritten() {
    for (const Unwritten &u : unwritten) {
        const Region &region = regions[u.region];
        if (is_of_block(region.writer.of[u.word]) && settings.races) continue;
        if (error.empty())
            error = format("{\"kind\": \"uninitialized\", \"pc\": %llu, \"thread\": %u, \"block\": %u, \"array\": %s, "
                           "\"offset\": %lld, \"element\": %u}",
                           (unsigned long long)sites[u.site].pc, u.thread, block_number,
                           quoted(region.name).c_str(), (long long)(u.word << region.shift), region.element);
        aborted = true;
        break;
    }
    unwritten.clear();
}

void new_marks(Region &region, size_t many) {
    const size_t bytes = 3 * many * sizeof(Mark);
    void *marks = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (marks == MAP_FAILED) _exit(5);
    madvise(marks, bytes, MADV_HUGEPAGE); // saves thousands of page faults
    region.writer.of = (Mark *)marks, region.first.of = region.writer.of + many, region.last.of = region.first.of + many;
}
size_t cells_of(const Region &region) { return region.shift ? region.bytes / 4 + 2 : region.bytes + 8; }

// Uses a cell for each byte from now on: neighbours in one word do not race.
COLD void split_cells(Region &region, u32 index) {
    const Region words = region;
    region.shift = 0, region.plain = false;
    new_marks(region, cells_of(region));
    for (Marks Region::*kind : {&Region::writer, &Region::first, &Region::last})
        for (size_t i = 0; i < region.bytes && (region.*kind).any; ++i) (region.*kind).of[i] = (words.*kind).of[i / 4];
    munmap(words.writer.of, 3 * cells_of(words) * sizeof(Mark));
    for (Unwritten &u : unwritten)
        if (u.region == index) u.word *= 4;
}

// One cell of an access; `noted`: whether the access is known to race by another cell of it.
void check_cell(Region &region, Address word, Address a, u32 size, Kind kind, const Mark &mine, bool &noted) {
    Mark &writer = region.writer.of[word], &first = region.first.of[word], &last = region.last.of[word];
    const Address place = region.base + (word << region.shift);
    const u32 region_index = (u32)(&region - regions.data());
    if (kind != WRITE && region.space == SHARED && !is_of_block(writer) && unwritten.size() < 64)
        unwritten.push_back(Unwritten{region_index, word, mine.site(), current->thread});
    if (!settings.races) {
        if (kind != READ) region.writer.at(word) = mine;
        return;
    }
    const bool after = is_before(writer, region.space);
    if (kind == READ) {
        if (!after && !writer.atomic() && !noted) {
            note_race(told(writer), WRITE, told(mine), READ, region_index, place);
            noted = true;
        }
        if (is_before(first, region.space)) region.first.at(word) = mine;
        else region.last.at(word) = mine;
        return;
    }
    // Two atomics do not race, unless one is for its own block and the other comes from another one.
    const bool scoped = (mine.of_block() || writer.of_block()) && !is_of_block(writer);
    if (!after && !noted && !(kind == ATOMIC && writer.atomic() && !scoped)) {
        noted = true;
        if (kind == WRITE && !writer.atomic() && size <= 16) {
            Suspect &s = suspect;
            s.open = true, s.address = a, s.size = size, s.region = region_index;
            s.other = told(writer), s.mine = told(mine);
            memcpy(s.before, (void *)a, size);
            pause_following(*current);
        } else
            note_race(told(writer), writer.atomic() ? ATOMIC : WRITE, told(mine), kind, region_index, place);
    }
    if (kind == WRITE) {
        for (const Mark *reader : {&first, &last})
            if (!noted && !is_before(*reader, region.space)) {
                note_race(told(*reader), READ, told(mine), WRITE, region_index, place);
                noted = true;
            }
        if (region.first.any) first = Mark();
        if (region.last.any) last = Mark();
    }
    region.writer.at(word) = mine;
}

void check_races(Address a, u32 size, Kind kind, Region &region, u32 site) {
    if (mark.moment() == NOBODY) present();
    Mark mine = marked(mark, site, kind == ATOMIC);
    if (of_block) mine.bits |= 1ull << 57;
    if (size < 4 && region.shift) split_cells(region, (u32)(&region - regions.data()));
    const Address first = (a - region.base) >> region.shift, last = (a + size - 1 - region.base) >> region.shift;
    bool noted = false;
    for (Address cell = first; cell <= last; ++cell) check_cell(region, cell, a, size, kind, mine, noted);
}

// `is_settled`: the mark is from this block and before its last barrier. `is_plainly_before`: that,
// or no mark, or the same lane's in the same moment, so its access came before this one.
INLINE bool is_settled(const Mark &other) { return other.moment() - first_moment < epoch_moment - first_moment; }
INLINE bool is_plainly_before(const Mark &other, const Mark &mine) {
    return other.bits == 0 || is_settled(other) || ((other.bits ^ mine.bits) & WHO_AND_WHEN) == 0;
}

// The fast path of `check_cell`, for an access of whole words that cannot race: first the most
// common case, a word without accesses since the last barrier, then other plain cases. For any
// other access it does nothing and returns false.
bool is_plain(Address a, u32 size, Kind kind, Region &region, const Mark &mine) {
    const Address start = (a - region.base) / 4, end = start + size / 4;
    for (Address word = start; word < end; ++word) {
        const Mark &writer = region.writer.of[word];
        if (kind == READ && region.space == SHARED && writer.bits == 0) return false;
        if (region.writer.any && !is_plainly_before(writer, mine)) return false;
        if (region.first.any && !is_plainly_before(region.first.of[word], mine)) return false;
        if (kind == WRITE && region.last.any && !is_plainly_before(region.last.of[word], mine)) return false;
    }
    for (Address word = start; word < end; ++word) {
        if (kind == WRITE && region.first.any) region.first.of[word] = Mark();
        if (kind == WRITE && region.last.any) region.last.of[word] = Mark();
        (kind == READ ? region.first : region.writer).at(word) = mine;
    }
    return true;
}
__attribute__((noinline)) void check(Address a, u32 size, Kind kind, Region &region, u32 site) {
    if (!region.watched) return;
    if (region.plain && size >= 4 && kind != ATOMIC && mark.moment() != NOBODY)
        if (is_plain(a, size, kind, region, marked(mark, site, false))) return;
    check_races(a, size, kind, region, site);
}

template <Kind kind, u32 size> INLINE void check(Address a, Region &region, u32 site) {
    if (LIKELY(size == 4 && region.plain && mark.moment() != NOBODY)) {
        const Address word = (a - region.base) / 4;
        if (kind == READ) {
            const bool written = region.writer.any && is_settled(region.writer.of[word]);
            Mark &first = region.first.of[word];
            if (LIKELY(written || (!region.writer.any && region.space == GLOBAL)) && LIKELY(first.bits == 0)) {
                first = marked(mark, site, false), region.first.any = true;
                return;
            }
        } else if (LIKELY(!region.first.any)) {
            Mark &writer = region.writer.of[word];
            if (LIKELY(writer.bits == 0 || is_settled(writer))) {
                writer = marked(mark, site, false), region.writer.any = true;
                return;
            }
        }
    }
    check(a, size, kind, region, site);
}

} // namespace il
