// Runs CUDA kernels that were compiled for the CPU and counts what a profiler would tell.
//
// The kernel's object calls the hooks below before every access to memory (-fsanitize=thread) and at
// every basic block (-fsanitize-coverage=trace-pc); no sanitizer library is linked. The threads of a
// block are fibers of one system thread. A lane runs until it waits or ends; its accesses are kept
// until the whole warp has come as far, and then counted as the warp's requests: two lanes belong to
// the same request if they reached the same instruction on the same path, which is the call stack with
// the turn of every loop around it.
//
//   program SPEC DATA REPORT    what to launch, its arrays, and where the report (JSON) goes

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

typedef uint32_t u32;
typedef uint64_t u64;
typedef uintptr_t Address;

// What the kernel's object lists; declared in shim.h too.
struct il_parameter {
    unsigned int bytes, element;
    int read_only;
};
struct il_kernel {
    const char *name;
    void (*call)(void **arguments);
    const il_parameter *parameters;
    int count;
};
extern "C" const il_kernel il_kernels[];
extern "C" const int il_kernel_count;
extern "C" char *il_touch_shared();

#define CALLER ((Address)__builtin_return_address(0))

namespace il {

enum Kind { READ, WRITE, ATOMIC, FLOW };
enum Space { GLOBAL, SHARED, CONSTANT };
enum State { NEW, READY, AT_BARRIER, AT_COLLECTIVE, DONE };
enum Collective { SHUFFLE, BALLOT, REDUCE, SYNCWARP };
const char *const KINDS[] = {"read", "write", "atomic", "flow"};
const char *const SPACES[] = {"global", "shared", "constant"};

const size_t STACK_BYTES = 128 << 10, GUARD_BYTES = 16 << 10;
const u32 NOBODY = 0;

// -- memory that a kernel may touch -----------------------------------------------------------------

// Who touched a word, when: `epoch` counts the block's barriers, `turn` the warp's, `fences` all.
struct Touch {
    u32 block1 = NOBODY; // the block's number plus one
    u32 epoch = 0, turn = 0, fences = 0, site = 0;
    uint16_t thread = 0, atomic = 0;
};
struct Cell {
    Touch writer, first, last;
};

struct Region {
    std::string name;
    Address base = 0;
    size_t bytes = 0;
    u32 element = 4;
    Space space = GLOBAL;
    bool read_only = false, dynamic = false, used = false;
    Cell *cells = nullptr;
};

struct Site {
    Address pc = 0;
    Kind kind = READ;
    u32 region = 0, size = 0;
    u64 requests = 0, lanes = 0, sectors = 0, ideal_sectors = 0, wavefronts = 0, ideal_wavefronts = 0;
    u64 operations = 0;
    u32 worst = 0, worst_same = 0;
    u64 ways[33] = {};
    bool sampled = false;
    u32 sample_mask = 0, sample_block = 0, sample_warp = 0;
    int64_t sample[32] = {};
};

// A row of what the first block did: one instruction between two barriers.
struct Step {
    u32 epoch, site;
    u64 requests = 0, lanes = 0, sectors = 0, wavefronts = 0;
    u32 worst = 0, most = 0;
};

struct Loop {
    Address head, latch;
    u64 before, turns;
};
struct Frame {
    u32 loops;
    u64 path;
    Address last;
};
const u32 MAX_LOOPS = 64, MAX_FRAMES = 64;

struct Suspect { // a second write to a word, which may turn out to store the same value
    bool open = false;
    Address address = 0;
    u32 size = 0, region = 0;
    unsigned char before[16];
    Touch other, mine;
};

struct Lane {
    State state = NEW;
    u32 thread = 0, number = 0; // in the block; in the warp
    u32 x = 0, y = 0, z = 0;
    void *stack_pointer = nullptr;
    char *stack = nullptr;
    Address waits_at = 0;
    u64 steps = 0;
    u32 cursor = 0;
    u64 path = 0;
    u32 loops_used = 0, frames_used = 0;
    Loop loops[MAX_LOOPS];
    Frame frames[MAX_FRAMES];
    Suspect suspect;
    // at a warp-level function
    Collective collective = SHUFFLE;
    int what = 0, argument = 0, width = 0;
    u32 mask = 0;
    u64 value = 0, result = 0;
};

struct Head {
    u64 key;
    u32 site, mask, addresses;
};
struct Addresses {
    Address of[32];
};

struct Warp {
    u32 first = 0, count = 0; // lanes
    u32 turn = 1;
    u32 met[32][32];
    std::vector<Head> heads;
    std::vector<Addresses> addresses;
    std::vector<u64> table; // generation in the upper half, index in the lower
    u32 generation = 1;
};

struct Race {
    Touch other, mine;
    Kind kind, other_kind;
    u32 region;
    Address address;
    u64 count;
};

struct Settings {
    u32 grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
    size_t dynamic_bytes = 0;
    u64 max_steps = 1u << 25;
    u64 max_requests = 1u << 19;
    u64 seed = 0;
    bool races = true;
};

Settings settings;
std::string report_path;
std::vector<Region> regions;
std::vector<Site> sites;
std::vector<Step> steps;
std::vector<Race> races;
u64 races_seen = 0;
std::vector<Lane> lanes;
std::vector<Warp> warps;
std::vector<char *> free_stacks;
Lane *current = nullptr;
Warp *warp = nullptr;
u32 block_number = 0, block_x = 0, block_y = 0, block_z = 0, epoch = 0, fences = 0, threads = 0;
bool kernel_runs = false, aborted = false, reported = false;
void *scheduler = nullptr;
const il_kernel *kernel = nullptr;
std::vector<void *> arguments;
Address tls_base = 0;
u64 total_steps = 0, total_barriers = 0, most_barriers = 0, flow_requests = 0, flow_lanes = 0;
u64 blocks_run = 0, shuffles = 0;
std::vector<u32> published;   // by block: writes before this epoch are known to all
std::vector<u32> last_fence;  // by thread of the grid
std::string error;            // JSON of what ended the launch
u32 last_region = 0;
Address last_pc = 0;

// -- JSON ---------------------------------------------------------------------------------------------

std::string format(const char *pattern, ...) {
    char text[1024];
    va_list list;
    va_start(list, pattern);
    vsnprintf(text, sizeof text, pattern, list);
    va_end(list);
    return text;
}

std::string quoted(const std::string &text) {
    std::string out = "\"";
    for (unsigned char c : text) {
        if (c == '"' || c == '\\') out += '\\', out += (char)c;
        else if (c < 32 || c > 126) out += format("\\u%04x", c);
        else out += (char)c;
    }
    return out + "\"";
}

void write_report() {
    if (reported) return;
    reported = true;
    FILE *out = fopen(report_path.c_str(), "w");
    if (!out) _exit(4);
    fprintf(out, "{\"error\": %s,\n", error.empty() ? "null" : error.c_str());
    fprintf(out, "\"races_seen\": %llu, \"races\": [", (unsigned long long)races_seen);
    for (size_t i = 0; i < races.size(); ++i) {
        const Race &r = races[i];
        const Region &region = regions[r.region];
        fprintf(out,
                "%s{\"array\": %s, \"offset\": %lld, \"element\": %u, \"space\": \"%s\", \"kind\": \"%s\", "
                "\"other_kind\": \"%s\", \"pc\": %llu, \"other_pc\": %llu, \"thread\": %u, "
                "\"other_thread\": %u, \"block\": %u, \"other_block\": %u, \"count\": %llu}",
                i ? ",\n" : "", quoted(region.name).c_str(), (long long)(r.address - region.base),
                region.element, SPACES[region.space], KINDS[r.kind], KINDS[r.other_kind],
                (unsigned long long)sites[r.mine.site].pc, (unsigned long long)sites[r.other.site].pc,
                (u32)r.mine.thread, (u32)r.other.thread, r.mine.block1 - 1, r.other.block1 - 1,
                (unsigned long long)r.count);
    }
    fprintf(out, "],\n\"sites\": [");
    bool first = true;
    for (size_t i = 0; i < sites.size(); ++i) {
        const Site &s = sites[i];
        if (!s.requests) continue;
        fprintf(out,
                "%s{\"site\": %zu, \"pc\": %llu, \"kind\": \"%s\", \"space\": \"%s\", \"array\": %s, "
                "\"size\": %u, \"requests\": %llu, \"lanes\": %llu, \"sectors\": %llu, "
                "\"ideal_sectors\": %llu, \"wavefronts\": %llu, \"ideal_wavefronts\": %llu, "
                "\"operations\": %llu, \"worst\": %u, \"worst_same\": %u, \"ways\": {",
                first ? "" : ",\n", i, (unsigned long long)s.pc, KINDS[s.kind],
                SPACES[regions[s.region].space], quoted(regions[s.region].name).c_str(), s.size,
                (unsigned long long)s.requests, (unsigned long long)s.lanes,
                (unsigned long long)s.sectors, (unsigned long long)s.ideal_sectors,
                (unsigned long long)s.wavefronts, (unsigned long long)s.ideal_wavefronts,
                (unsigned long long)s.operations, s.worst, s.worst_same);
        first = false;
        bool more = false;
        for (int way = 1; way <= 32; ++way)
            if (s.ways[way]) {
                fprintf(out, "%s\"%d\": %llu", more ? ", " : "", way, (unsigned long long)s.ways[way]);
                more = true;
            }
        fprintf(out, "}, \"sample\": ");
        if (!s.sampled) fprintf(out, "null}");
        else {
            fprintf(out, "{\"block\": %u, \"warp\": %u, \"offsets\": [", s.sample_block, s.sample_warp);
            for (int lane = 0; lane < 32; ++lane)
                if (s.sample_mask >> lane & 1)
                    fprintf(out, "%s%lld", lane ? ", " : "", (long long)s.sample[lane]);
                else fprintf(out, "%snull", lane ? ", " : "");
            fprintf(out, "]}}");
        }
    }
    fprintf(out, "],\n\"steps\": [");
    for (size_t i = 0; i < steps.size(); ++i) {
        const Step &s = steps[i];
        fprintf(out,
                "%s{\"epoch\": %u, \"site\": %u, \"requests\": %llu, \"lanes\": %llu, \"sectors\": %llu, "
                "\"wavefronts\": %llu, \"worst\": %u, \"most\": %u}",
                i ? ",\n" : "", s.epoch, s.site, (unsigned long long)s.requests,
                (unsigned long long)s.lanes, (unsigned long long)s.sectors,
                (unsigned long long)s.wavefronts, s.worst, s.most);
    }
    fprintf(out, "],\n\"arrays\": [");
    for (size_t i = 0; i < regions.size(); ++i) {
        const Region &r = regions[i];
        fprintf(out, "%s{\"name\": %s, \"space\": \"%s\", \"bytes\": %zu, \"element\": %u, \"used\": %s, \"dynamic\": %s}",
                i ? ", " : "", quoted(r.name).c_str(), SPACES[r.space], r.bytes, r.element,
                r.used ? "true" : "false", r.dynamic ? "true" : "false");
    }
    fprintf(out,
            "],\n\"totals\": {\"blocks\": %llu, \"threads\": %u, \"barriers\": %llu, \"most_barriers\": %llu, "
            "\"shuffles\": %llu, \"steps\": %llu, \"flow_requests\": %llu, \"flow_lanes\": %llu}}\n",
            (unsigned long long)blocks_run, threads, (unsigned long long)total_barriers,
            (unsigned long long)most_barriers, (unsigned long long)shuffles,
            (unsigned long long)total_steps, (unsigned long long)flow_requests,
            (unsigned long long)flow_lanes);
    if (fclose(out) != 0) _exit(4);
}

// -- fibers -------------------------------------------------------------------------------------------

extern "C" void il_switch(void **save, void *next);
#if defined(__x86_64__)
asm(R"(
    .text
    .globl il_switch
    .type il_switch,@function
il_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size il_switch,.-il_switch
)");
const size_t SAVED_WORDS = 6;
void *prepared(char *stack, size_t bytes, void (*entry)()) {
    void **top = (void **)((Address)(stack + bytes) & ~(Address)15);
    *--top = nullptr; // as if `entry` had been called
    *--top = (void *)entry;
    for (size_t i = 0; i < SAVED_WORDS; ++i) *--top = nullptr;
    return top;
}
#elif defined(__aarch64__)
asm(R"(
    .text
    .globl il_switch
    .type il_switch,%function
il_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .size il_switch,.-il_switch
)");
void *prepared(char *stack, size_t bytes, void (*entry)()) {
    char *top = (char *)((Address)(stack + bytes) & ~(Address)15) - 160;
    memset(top, 0, 160);
    *(void **)(top + 88) = (void *)entry;
    return top;
}
#else
#error "kernels run on x86-64 and arm64 only"
#endif

char *new_stack() {
    if (free_stacks.empty()) {
        const size_t many = 32, each = STACK_BYTES + GUARD_BYTES;
        char *block = (char *)mmap(nullptr, many * each, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (block == MAP_FAILED) _exit(5);
        for (size_t i = 0; i < many; ++i) {
            mprotect(block + i * each, GUARD_BYTES, PROT_NONE);
            free_stacks.push_back(block + i * each + GUARD_BYTES);
        }
    }
    char *stack = free_stacks.back();
    free_stacks.pop_back();
    return stack;
}

void to_scheduler() { il_switch(&current->stack_pointer, scheduler); }

// -- errors: what ends a launch -----------------------------------------------------------------------

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

void out_of_bounds(Address a, u32 size, Kind kind, Address pc) {
    const Region *nearest = nullptr;
    u64 least = ~0ull;
    for (const Region &r : regions) {
        u64 distance = a < r.base ? r.base - a : a >= r.base + r.bytes ? a - (r.base + r.bytes) + 1 : 0;
        if (distance < least) least = distance, nearest = &r;
    }
    std::string text = here("out_of_bounds", pc) + format(", \"access\": \"%s\", \"size\": %u", KINDS[kind], size);
    if (a < 4096) text += ", \"null\": true";
    else if (nearest && least < (64u << 20))
        text += format(", \"array\": %s, \"offset\": %lld, \"element\": %u, \"bytes\": %zu, \"space\": \"%s\"",
                       quoted(nearest->name).c_str(), (long long)(a - nearest->base), nearest->element,
                       nearest->bytes, SPACES[nearest->space]);
    end_launch(text + "}");
}

// -- sites and requests -------------------------------------------------------------------------------

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
    auto found = known_sites.emplace(SiteKey{pc, (u32)kind, region, size}, (u32)sites.size());
    if (found.second) {
        Site site;
        site.pc = pc, site.kind = kind, site.region = region, site.size = size;
        sites.push_back(site);
    }
    return found.first->second;
}

inline u64 mix(u64 a, u64 b) {
    u64 x = (a ^ b) * 0x9e3779b97f4a7c15ull;
    x ^= x >> 29;
    x = (x + b) * 0xbf58476d1ce4e5b9ull;
    return x ^ (x >> 32);
}

// The index of the warp's request with that key, to which this lane has not contributed yet.
inline u32 request(u64 key, bool &fresh) {
    Warp &w = *warp;
    Lane &l = *current;
    const u32 bit = 1u << l.number;
    if (l.cursor < w.heads.size()) {
        Head &head = w.heads[l.cursor];
        if (head.key == key && !(head.mask & bit)) {
            head.mask |= bit;
            fresh = false;
            return l.cursor++;
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
        u32 index = (u32)w.heads.size();
        w.table[slot] = (u64)w.generation << 32 | (index + 1);
        w.heads.push_back(Head{key, 0, bit, 0});
        l.cursor = index + 1;
        fresh = true;
        return index;
    }
}

// -- races --------------------------------------------------------------------------------------------

inline bool is_published(const Touch &t) {
    const u32 block = block_of(t);
    if (block < published.size() && t.epoch < published[block]) return true;
    const u64 thread = (u64)block * threads + t.thread;
    return thread < last_fence.size() && last_fence[thread] > t.fences;
}

// Whether that touch surely came before what the current lane does now.
inline bool is_before(const Touch &t, Space space) {
    if (t.block1 == NOBODY) return true;
    const Lane &l = *current;
    if (t.block1 != block_number + 1) return space == SHARED || is_published(t);
    if (t.thread == l.thread || t.epoch < epoch) return true;
    if (t.thread / 32 != l.thread / 32) return false;
    return t.turn < warp->met[t.thread % 32][l.number];
}

void note_race(const Touch &other, Kind other_kind, const Touch &mine, Kind kind, u32 region, Address a) {
    ++races_seen;
    for (Race &r : races)
        if (r.mine.site == mine.site && r.other.site == other.site && r.kind == kind &&
            r.other_kind == other_kind) {
            ++r.count;
            // Two warps make the clearer example: no thought of lanes in step comes up.
            const bool shown = r.mine.block1 == r.other.block1 && r.mine.thread / 32 == r.other.thread / 32;
            const bool apart = mine.block1 == other.block1 && mine.thread / 32 != other.thread / 32;
            if (shown && apart) r.mine = mine, r.other = other, r.address = a, r.region = region;
            return;
        }
    if (races.size() < 32) races.push_back(Race{other, mine, kind, other_kind, region, a, 1});
}

// A write after another thread's write is no race if it stores what was there already.
inline void settle(Lane &l) {
    Suspect &s = l.suspect;
    if (!s.open) return;
    s.open = false;
    if (memcmp((void *)s.address, s.before, s.size) != 0)
        note_race(s.other, s.other.atomic ? ATOMIC : WRITE, s.mine, WRITE, s.region, s.address);
}

// A read of shared memory that nobody had written. Told when the block comes to its next barrier or
// its end: where a thread writes the word after all, that is a race, and says more.
struct Unwritten {
    u32 region;
    Address word;
    u32 site, thread;
};
std::vector<Unwritten> unwritten;

void tell_unwritten() {
    for (const Unwritten &u : unwritten) {
        const Region &region = regions[u.region];
        const Cell &cell = region.cells[u.word];
        if (cell.writer.block1 == block_number + 1 && settings.races) continue;
        if (error.empty())
            error = format("{\"kind\": \"uninitialized\", \"pc\": %llu, \"thread\": %u, \"block\": %u, \"array\": %s, "
                           "\"offset\": %lld, \"element\": %u}",
                           (unsigned long long)sites[u.site].pc, u.thread, block_number,
                           quoted(region.name).c_str(), (long long)(4 * u.word), region.element);
        aborted = true;
        break;
    }
    unwritten.clear();
}

inline void check_races(Address a, u32 size, Kind kind, u32 region_index, Region &region, u32 site) {
    Lane &l = *current;
    Touch mine;
    mine.block1 = block_number + 1, mine.epoch = epoch, mine.turn = warp->turn, mine.fences = fences;
    mine.site = site, mine.thread = (uint16_t)l.thread, mine.atomic = kind == ATOMIC;
    const Address first = (a - region.base) / 4, last = (a + size - 1 - region.base) / 4;
    bool told = false;
    for (Address word = first; word <= last; ++word) {
        Cell &cell = region.cells[word];
        const bool written = cell.writer.block1 != NOBODY &&
                             (region.space != SHARED || cell.writer.block1 == block_number + 1);
        if (kind != WRITE && region.space == SHARED && !written && unwritten.size() < 64)
            unwritten.push_back(Unwritten{region_index, word, site, l.thread});
        if (!settings.races) {
            if (kind != READ) cell.writer = mine;
            continue;
        }
        if (kind == READ) {
            if (!cell.writer.atomic && !is_before(cell.writer, region.space) && !told) {
                note_race(cell.writer, WRITE, mine, READ, region_index, region.base + 4 * word);
                told = true;
            }
            if (is_before(cell.first, region.space) || cell.first.thread == mine.thread) cell.first = mine;
            else cell.last = mine;
            continue;
        }
        if (!is_before(cell.writer, region.space) && !told && !(kind == ATOMIC && cell.writer.atomic)) {
            told = true;
            if (kind == WRITE && !cell.writer.atomic && size <= 16) {
                Suspect &s = l.suspect;
                s.open = true, s.address = a, s.size = size, s.region = region_index;
                s.other = cell.writer, s.mine = mine;
                memcpy(s.before, (void *)a, size);
            } else
                note_race(cell.writer, cell.writer.atomic ? ATOMIC : WRITE, mine, kind, region_index,
                          region.base + 4 * word);
        }
        if (kind == WRITE)
            for (const Touch *reader : {&cell.first, &cell.last})
                if (!told && !is_before(*reader, region.space)) {
                    note_race(*reader, READ, mine, WRITE, region_index, region.base + 4 * word);
                    told = true;
                }
        cell.writer = mine;
        if (kind == WRITE) cell.first = Touch(), cell.last = Touch();
    }
}

// -- an access ----------------------------------------------------------------------------------------

inline Region *region_at(Address a, u32 size, u32 &index) {
    Region &again = regions[last_region];
    if (a - again.base < again.bytes && a + size <= again.base + again.bytes) {
        index = last_region;
        return &again;
    }
    for (u32 i = 0; i < regions.size(); ++i) {
        Region &r = regions[i];
        if (a - r.base < r.bytes && a + size <= r.base + r.bytes) {
            index = last_region = i;
            return &r;
        }
    }
    return nullptr;
}

void access(Address a, u32 size, Kind kind, Address pc, u32 part = 0) {
    if (!kernel_runs) return;
    Lane &l = *current;
    if (a - (Address)l.stack < STACK_BYTES) return;
    settle(l);
    last_pc = pc;
    u32 index = 0;
    Region *region = region_at(a, size, index);
    if (!region) return out_of_bounds(a, size, kind, pc);
    if ((size & (size - 1)) == 0 && (a & (size - 1)))
        return end_launch(here("misaligned", pc) +
                          format(", \"access\": \"%s\", \"size\": %u, \"array\": %s, \"offset\": %lld, \"element\": %u}",
                                 KINDS[kind], size, quoted(region->name).c_str(),
                                 (long long)(a - region->base), region->element));
    if (kind != READ && region->read_only)
        return end_launch(here("read_only", pc) + format(", \"array\": %s, \"offset\": %lld, \"element\": %u}",
                                                         quoted(region->name).c_str(),
                                                         (long long)(a - region->base), region->element));
    region->used = true;
    if (region->space == CONSTANT) return;
    bool fresh;
    u32 number = request(mix(l.path + part, pc * 4 + kind), fresh);
    Head &head = warp->heads[number];
    if (fresh) {
        head.site = site_of(pc, kind, index, size);
        head.addresses = (u32)warp->addresses.size();
        if (warp->addresses.size() >= settings.max_requests)
            return end_launch(here("too_many_requests", pc) + format(", \"limit\": %llu}", (unsigned long long)settings.max_requests));
        warp->addresses.emplace_back();
    }
    warp->addresses[head.addresses].of[l.number] = a;
    if (region->cells) check_races(a, size, kind, index, *region, head.site);
}

void access_range(Address a, size_t bytes, Kind kind, Address pc) {
    u32 part = 0;
    for (size_t done = 0; done < bytes;) {
        u32 size = (u32)std::min<size_t>(4, bytes - done);
        access(a + done, size == 3 ? 1 : size, kind, pc, part++);
        done += size == 3 ? 1 : size;
    }
}

// -- a warp's requests become counts ------------------------------------------------------------------

// Distinct values of `of[lane] >> shift` over the lanes of `mask`, where each lane covers `size` bytes.
u32 distinct(const Addresses &a, u32 mask, u32 size, int shift) {
    Address seen[128];
    u32 count = 0;
    for (u32 rest = mask; rest; rest &= rest - 1) {
        const Address start = a.of[__builtin_ctz(rest)];
        for (Address piece = start >> shift; piece <= (start + size - 1) >> shift; ++piece) {
            bool known = false;
            for (u32 i = count; i-- > 0 && !known;) known = seen[i] == piece;
            if (!known && count < 128) seen[count++] = piece;
        }
    }
    return count;
}

// The cycles that shared memory needs: lanes go in phases (all at once; halves for 8 bytes, quarters
// for 16), and in a phase each of the 32 banks gives one 4-byte word a cycle, to whoever asks for it.
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

void count(Warp &w) {
    for (const Head &head : w.heads) {
        const u32 lanes_here = (u32)__builtin_popcount(head.mask);
        if (head.addresses == ~0u) {
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
            u32 different = distinct(a, head.mask, site.size, 0) / site.size;
            u32 same = 0;
            for (u32 i = head.mask; i; i &= i - 1) {
                u32 here = 0;
                for (u32 j = head.mask; j; j &= j - 1) here += a.of[__builtin_ctz(i)] == a.of[__builtin_ctz(j)];
                same = std::max(same, here);
            }
            (void)different;
            site.worst_same = std::max(site.worst_same, same);
        }
        if (region.space == GLOBAL) {
            sectors = distinct(a, head.mask, site.size, 5);
            const u32 words = distinct(a, head.mask, site.size, 2);
            site.sectors += sectors;
            site.ideal_sectors += site.size < 4 ? (lanes_here * site.size + 31) / 32 : (words + 7) / 8;
            worst = sectors;
        } else {
            shared_cost(a, head.mask, site.size, wavefronts, phases, worst);
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
        }
    }
    w.heads.clear(), w.addresses.clear();
    if (++w.generation == 0) w.generation = 1, std::fill(w.table.begin(), w.table.end(), 0);
    for (u32 i = 0; i < w.count; ++i) lanes[w.first + i].cursor = 0;
}

// -- the path of a lane -------------------------------------------------------------------------------

inline void enter_block(Address pc) {
    Lane &l = *current;
    settle(l);
    last_pc = pc;
    if (++l.steps > settings.max_steps)
        return end_launch(here("endless", pc) + format(", \"limit\": %llu}", (unsigned long long)settings.max_steps));
    Frame &frame = l.frames[l.frames_used - 1];
    if (pc <= frame.last) { // backwards: another turn of the loop that begins here
        while (l.loops_used > frame.loops && l.loops[l.loops_used - 1].head > pc) --l.loops_used;
        Loop *top = l.loops_used > frame.loops ? &l.loops[l.loops_used - 1] : nullptr;
        if (top && top->head == pc) {
            ++top->turns;
            top->latch = std::max(top->latch, frame.last);
        } else {
            if (l.loops_used == MAX_LOOPS) return end_launch(here("too_deep", pc) + "}");
            const u64 before = top ? mix(mix(top->before, top->head), top->turns) : frame.path;
            l.loops[l.loops_used++] = Loop{pc, frame.last, before, 1};
        }
    } else
        while (l.loops_used > frame.loops && pc > l.loops[l.loops_used - 1].latch) --l.loops_used;
    frame.last = pc;
    if (l.loops_used > frame.loops) {
        const Loop &top = l.loops[l.loops_used - 1];
        l.path = mix(mix(top.before, top.head), top.turns);
    } else
        l.path = frame.path;
    bool fresh;
    const u32 number = request(mix(l.path, pc * 4 + FLOW), fresh);
    if (fresh) warp->heads[number].addresses = ~0u;
}

inline void enter_function(Address caller) {
    Lane &l = *current;
    if (l.frames_used == MAX_FRAMES) return end_launch(here("too_deep", caller) + "}");
    const u64 path = l.frames_used ? mix(l.path, caller) : 0x1234;
    l.frames[l.frames_used++] = Frame{l.loops_used, path, 0};
    l.path = path;
}

inline void leave_function() {
    Lane &l = *current;
    settle(l);
    if (l.frames_used <= 1) return;
    l.loops_used = l.frames[--l.frames_used].loops;
    const Frame &frame = l.frames[l.frames_used - 1];
    if (l.loops_used > frame.loops) {
        const Loop &top = l.loops[l.loops_used - 1];
        l.path = mix(mix(top.before, top.head), top.turns);
    } else
        l.path = frame.path;
}

// -- waiting ------------------------------------------------------------------------------------------

void wait(State state, Address pc) {
    settle(*current);
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
    const int width = l.width;
    const int start = (int)l.number / width * width, inside = (int)l.number % width;
    int source;
    if (l.what == 0) source = start + ((l.argument % width) + width) % width;
    else if (l.what == 1) source = inside - l.argument < 0 ? (int)l.number : (int)l.number - l.argument;
    else if (l.what == 2) source = inside + l.argument >= width || l.argument < 0 ? (int)l.number : (int)l.number + l.argument;
    else source = (inside ^ l.argument) >= width ? (int)l.number : start + (inside ^ l.argument);
    const u64 nothing = ~0ull; // a NaN, or -1: what a lane outside the mask gives is undefined
    if (source < 0 || source >= (int)w.count || !(l.mask >> source & 1)) return nothing;
    const Lane &from = lanes[w.first + (u32)source];
    return from.state == AT_COLLECTIVE ? from.value : nothing;
}

// Lets the lanes of one mask go on if all of them that still run wait for the same.
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
        }
        if (asking.collective == SYNCWARP) {
            ++w.turn;
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
    enter_function(0);
    kernel->call(arguments.data());
    settle(*current);
    current->state = DONE;
    to_scheduler();
}

void run(Lane &l) {
    current = &l;
    warp = &warps[l.thread / 32];
    if (l.state == NEW) {
        l.stack = new_stack();
        l.stack_pointer = prepared(l.stack, STACK_BYTES, lane_main);
    }
    l.state = READY;
    kernel_runs = true;
    il_switch(&scheduler, l.stack_pointer);
    kernel_runs = false;
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

std::string waiting(const Lane &l) {
    const char *where = l.state == DONE ? "end" : l.state == AT_BARRIER ? "barrier" : "collective";
    return format("{\"thread\": %u, \"at\": \"%s\", \"pc\": %llu}", l.thread, where, (unsigned long long)l.waits_at);
}

// Nobody can run any more: all wait at one barrier, or the kernel is stuck. Whether it goes on.
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
        std::string text = format("{\"kind\": \"stuck_collective\", \"pc\": %llu, \"thread\": %u, \"block\": %u, \"mask\": %u",
                                  (unsigned long long)stuck->waits_at, stuck->thread, block_number, stuck->mask);
        if (missing) {
            text += ", \"missing\": " + waiting(*missing);
            if (missing->state == AT_COLLECTIVE) text += format(", \"missing_mask\": %u", missing->mask);
        }
        end_launch(text + "}");
        return false;
    }
    if (!first) return false; // all have ended
    if (done) {
        end_launch(format("{\"kind\": \"ended_before_barrier\", \"pc\": %llu, \"thread\": %u, \"block\": %u, \"ended\": %u, \"gone\": %u}",
                          (unsigned long long)first->waits_at, first->thread, block_number, done, gone->thread));
        return false;
    }
    for (const Lane &l : lanes)
        if (l.waits_at != first->waits_at) {
            end_launch(format("{\"kind\": \"divergent_barrier\", \"pc\": %llu, \"thread\": %u, \"block\": %u, \"other\": ",
                              (unsigned long long)first->waits_at, first->thread, block_number) +
                       waiting(l) + "}");
            return false;
        }
    return true;
}

void run_block() {
    epoch = 0;
    for (Region &r : regions)
        if (r.space == SHARED) memset((void *)r.base, 0xff, r.bytes);
    for (u32 t = 0; t < threads; ++t) {
        Lane &l = lanes[t];
        l.state = NEW, l.cursor = 0, l.path = 0, l.loops_used = l.frames_used = 0, l.steps = 0;
        l.suspect.open = false;
    }
    unwritten.clear();
    for (Warp &w : warps) {
        w.turn = 1;
        memset(w.met, 0, sizeof w.met);
    }
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
        ++epoch, ++barriers;
        for (Lane &l : lanes) l.state = READY;
    }
    for (const Lane &l : lanes) total_steps += l.steps;
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
        l.x = t % settings.block[0], l.y = t / settings.block[0] % settings.block[1];
        l.z = t / settings.block[0] / settings.block[1];
    }
    warps.resize((threads + 31) / 32);
    for (u32 i = 0; i < warps.size(); ++i) warps[i].first = 32 * i, warps[i].count = std::min(32u, threads - 32 * i);
    for (u32 number : order_of((u32)blocks, settings.seed)) {
        block_number = number;
        block_x = number % settings.grid[0], block_y = number / settings.grid[0] % settings.grid[1];
        block_z = number / settings.grid[0] / settings.grid[1];
        run_block();
        if (aborted) {
            for (Warp &w : warps) count(w);
            return;
        }
    }
}

// -- what the kernel's object holds -------------------------------------------------------------------

int find_tls(dl_phdr_info *info, size_t, void *) {
    for (int i = 0; i < info->dlpi_phnum; ++i)
        if (info->dlpi_phdr[i].p_type == PT_TLS) tls_base = (Address)info->dlpi_tls_data;
    return 1; // the program itself comes first
}

std::string demangled(const char *name) {
    int status = 0;
    char *text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
    std::string found = status == 0 && text ? text : name;
    free(text);
    return found;
}

// Shared arrays are the program's thread-local symbols; __device__ and __constant__ ones its objects.
void read_symbols(const std::vector<std::string> &dynamic) {
    il_touch_shared();
    dl_iterate_phdr(find_tls, nullptr);
    FILE *file = fopen("/proc/self/exe", "rb");
    if (!file) _exit(6);
    std::vector<char> image;
    char chunk[65536];
    for (size_t got; (got = fread(chunk, 1, sizeof chunk, file)) > 0;) image.insert(image.end(), chunk, chunk + got);
    fclose(file);
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)image.data();
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(image.data() + head->e_shoff);
    const char *names = image.data() + sections[head->e_shstrndx].sh_offset;
    for (int i = 0; i < head->e_shnum; ++i) {
        if (sections[i].sh_type != SHT_SYMTAB) continue;
        const Elf64_Sym *symbols = (const Elf64_Sym *)(image.data() + sections[i].sh_offset);
        const char *text = image.data() + sections[sections[i].sh_link].sh_offset;
        const size_t many = sections[i].sh_size / sizeof(Elf64_Sym);
        bool ours = false; // symbols of one file follow its name
        for (size_t k = 0; k < many; ++k) {
            const Elf64_Sym &symbol = symbols[k];
            const char *name = text + symbol.st_name;
            const int type = ELF64_ST_TYPE(symbol.st_info);
            if (type == STT_FILE) {
                ours = strcmp(name, "kernel.cpp") == 0;
                continue;
            }
            const bool global = ELF64_ST_BIND(symbol.st_info) != STB_LOCAL;
            if (strncmp(name, "_ZTH", 4) == 0 || strncmp(name, "_ZGV", 4) == 0) continue;
            Region region;
            region.name = demangled(name);
            if (type == STT_TLS && region.name.find("il_") == std::string::npos) {
                region.space = SHARED;
                region.base = tls_base + symbol.st_value;
                region.bytes = symbol.st_size;
                region.dynamic = std::find(dynamic.begin(), dynamic.end(), region.name) != dynamic.end();
                if (region.dynamic) region.bytes = settings.dynamic_bytes;
            } else if (type == STT_OBJECT && symbol.st_size && (ours || global) && symbol.st_shndx < head->e_shnum) {
                const char *section = names + sections[symbol.st_shndx].sh_name;
                const bool constant = strcmp(section, ".il_constant") == 0;
                const bool data = !strcmp(section, ".data") || !strcmp(section, ".bss") || !strcmp(section, ".rodata");
                if (!constant && !(data && (ours || region.name.rfind("_", 0) != 0))) continue;
                if (region.name.find("il_") != std::string::npos || region.name.find("il::") != std::string::npos ||
                    region.name.find("std::") != std::string::npos)
                    continue;
                region.space = constant ? CONSTANT : GLOBAL;
                region.read_only = constant || !strcmp(section, ".rodata");
                region.base = symbol.st_value;
                region.bytes = symbol.st_size;
            } else
                continue;
            regions.push_back(region);
        }
    }
}

void make_cells() {
    for (Region &r : regions) {
        if (r.space == CONSTANT || !r.bytes) continue;
        const size_t bytes = (r.bytes / 4 + 2) * sizeof(Cell);
        void *cells = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (cells == MAP_FAILED) _exit(5);
        if (r.space == SHARED || settings.races) r.cells = (Cell *)cells;
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

// -- the order ----------------------------------------------------------------------------------------

[[noreturn]] void refuse(const std::string &why) {
    fprintf(stderr, "%s\n", why.c_str());
    _exit(3);
}

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
    std::vector<std::pair<int, u64>> given; // 0: a pointer, 1: a value
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
        else if (what == "requests" && sscanf(line, "%*s %llu", &a) == 1) settings.max_requests = a;
        else if (what == "seed" && sscanf(line, "%*s %llu", &a) == 1) settings.seed = a;
        else if (what == "races" && sscanf(line, "%*s %llu", &a) == 1) settings.races = a != 0;
        else if (what == "dynamic" && sscanf(line, "%*s %255s", name) == 1) dynamic.push_back(name);
        else if (what == "array" && sscanf(line, "%*s %llu %llu %llu %llu %255s", &a, &b, &c, &d, name) == 5) {
            // offset in the file, bytes, bytes of an element, whether it may only be read
            Region region;
            region.name = name, region.bytes = b, region.element = (u32)c, region.read_only = d != 0;
            const size_t room = (b + 4095) / 4096 * 4096 + 4096;
            char *place = (char *)mmap(nullptr, room + 2 * gap, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (place == MAP_FAILED) refuse("no room for the arrays");
            region.base = (Address)(place + gap);
            if (b && mmap(place + gap, room - 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, (off_t)a) == MAP_FAILED)
                refuse("the arrays cannot be mapped");
            bases.push_back(region.base);
            regions.push_back(region);
        } else if (what == "pointer" && sscanf(line, "%*s %llu %llu", &a, &b) == 2) {
            if (a >= bases.size()) refuse("no such array");
            values.push_back(bases[a] + b);
        } else if (what == "value" && sscanf(line, "%*s %llx", &a) == 1) values.push_back(a);
        else if (what == "null") values.push_back(0);
    }
    fclose(file);
    close(memory);
    if (!kernel) refuse("no such kernel");
    if ((int)values.size() != kernel->count) refuse("another number of arguments");
    for (u64 &value : values) arguments.push_back(&value);
    read_symbols(dynamic);
    make_cells();
}

} // namespace il

// -- what the kernel's object calls -------------------------------------------------------------------

using namespace il;

extern "C" {

struct il_uint3 {
    unsigned int x, y, z;
};

il_uint3 il_where(int which) {
    if (which == 0) return {current->x, current->y, current->z};
    if (which == 1) return {block_x, block_y, block_z};
    const u32 *sizes = which == 2 ? settings.block : settings.grid;
    return {sizes[0], sizes[1], sizes[2]};
}
void il_barrier() { wait(AT_BARRIER, CALLER); }
void il_syncwarp(unsigned int mask) { collective(SYNCWARP, 0, mask, 0, 0, 32, CALLER); }
unsigned long long il_shuffle(int kind, unsigned int mask, unsigned long long value, int lane, int width) {
    if (width < 1 || width > 32 || (width & (width - 1))) {
        end_launch(here("shuffle_width", CALLER) + format(", \"width\": %d}", width));
        return 0;
    }
    collective(SHUFFLE, kind, mask, value, lane, width, CALLER);
    return current->result;
}
unsigned int il_ballot(int kind, unsigned int mask, int predicate) {
    collective(BALLOT, kind, mask, predicate != 0, 0, 32, CALLER);
    return (unsigned int)current->result;
}
long long il_warp_reduce(int kind, unsigned int mask, long long value) {
    collective(REDUCE, kind, mask, (u64)value, 0, 32, CALLER);
    return (long long)current->result;
}
void il_fence(int scope) {
    settle(*current);
    if (scope == 0) return;
    ++fences;
    const u64 blocks = (u64)settings.grid[0] * settings.grid[1] * settings.grid[2];
    if (published.empty()) {
        published.assign(blocks, 0);
        if (blocks * threads < (1u << 26)) last_fence.assign(blocks * threads, 0);
    }
    // What came before the block's last barrier is published with what this thread wrote itself.
    published[block_number] = std::max(published[block_number], epoch);
    const u64 thread = (u64)block_number * threads + current->thread;
    if (thread < last_fence.size()) last_fence[thread] = fences;
}
void il_atomic(void *address, unsigned int bytes) { access((Address)address, bytes, ATOMIC, CALLER); }
void il_trap() { end_launch(here("trap", CALLER) + "}"); }
void il_assert_failed(const char *text) {
    end_launch(here("assertion", CALLER) + ", \"text\": " + quoted(text) + "}");
}
void __stack_chk_fail() {
    end_launch(here("local_array", last_pc) + "}");
    abort();
}

void __tsan_init() {}
void __tsan_func_entry(void *caller) {
    if (kernel_runs) enter_function((Address)caller);
}
void __tsan_func_exit() {
    if (kernel_runs) leave_function();
}
void __sanitizer_cov_trace_pc() {
    if (kernel_runs) enter_block(CALLER);
}
#define IL_HOOKS(size)                                                                             \
    void __tsan_read##size(void *a) { access((Address)a, size, READ, CALLER); }                    \
    void __tsan_write##size(void *a) { access((Address)a, size, WRITE, CALLER); }                  \
    void __tsan_read_write##size(void *a) {                                                        \
        access((Address)a, size, READ, CALLER);                                                    \
        access((Address)a, size, WRITE, CALLER);                                                   \
    }                                                                                              \
    void __tsan_unaligned_read##size(void *a) { access((Address)a, size, READ, CALLER); }          \
    void __tsan_unaligned_write##size(void *a) { access((Address)a, size, WRITE, CALLER); }        \
    void __tsan_volatile_read##size(void *a) { access((Address)a, size, READ, CALLER); }           \
    void __tsan_volatile_write##size(void *a) { access((Address)a, size, WRITE, CALLER); }
IL_HOOKS(1)
IL_HOOKS(2)
IL_HOOKS(4)
IL_HOOKS(8)
IL_HOOKS(16)
void __tsan_read_range(void *a, size_t bytes) { access_range((Address)a, bytes, READ, CALLER); }
void __tsan_write_range(void *a, size_t bytes) { access_range((Address)a, bytes, WRITE, CALLER); }
void __tsan_vptr_update(void *, void *) {}
void __tsan_vptr_read(void *) {}
void *__tsan_memcpy(void *to, const void *from, size_t bytes) {
    access_range((Address)from, bytes, READ, CALLER);
    access_range((Address)to, bytes, WRITE, CALLER);
    return memcpy(to, from, bytes);
}
void *__tsan_memmove(void *to, const void *from, size_t bytes) {
    access_range((Address)from, bytes, READ, CALLER);
    access_range((Address)to, bytes, WRITE, CALLER);
    return memmove(to, from, bytes);
}
void *__tsan_memset(void *to, int value, size_t bytes) {
    access_range((Address)to, bytes, WRITE, CALLER);
    return memset(to, value, bytes);
}
}

int main(int count, char **given) {
    if (count != 4) refuse("program SPEC DATA REPORT");
    report_path = given[3];
    read_spec(given[1], given[2]);
    watch_faults();
    run_grid();
    fflush(stdout);
    write_report();
    _exit(0);
}
