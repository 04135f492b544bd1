// The parts of a launch: memory, sites, lanes, warps, and its settings.
#pragma once

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

typedef uint32_t u32;
typedef uint64_t u64;
typedef uintptr_t Address;

// The list in the kernel's object; also declared in shim.h.
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

#define COLD __attribute__((noinline, cold))
#define INLINE inline __attribute__((always_inline))
#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define CALLER ((Address)__builtin_return_address(0))
#define FRAME ((Address)__builtin_frame_address(1))

namespace il {

enum Kind { READ, WRITE, ATOMIC, FLOW, ENTERED, LEFT };
enum Space { GLOBAL, SHARED, CONSTANT };
enum State { NEW, READY, AT_BARRIER, AT_COLLECTIVE, DONE };
enum Collective { SHUFFLE, BALLOT, REDUCE, MATCH, SYNCWARP };
const char *const KINDS[] = {"read", "write", "atomic", "flow"};
const char *const SPACES[] = {"global", "shared", "constant"};

const size_t STACK_BYTES = 128 << 10, GUARD_BYTES = 16 << 10;
const u32 NOBODY = 0;

// -- memory that a kernel may access ----------------------------------------------------------------

// An access to a word: `epoch` counts the block's barriers, `turn` the warp's, `fences` all.
struct Touch {
    u32 block1 = NOBODY; // the block's number plus one
    u32 epoch = 0, turn = 0, fences = 0, site = 0;
    uint16_t thread = 0, atomic = 0;
};
// The same in eight bytes, since every word of every array has three: `moment` is the number of
// what a warp's accesses share until the next barrier.
struct Moment {
    u32 block1, epoch, turn, fences, warp;
};
struct Mark {
    u64 bits = 0; // from the lowest: 32 of the moment, 16 of the site, 8 of the lane, 1 for an atomic, 1 for its scope
    u32 moment() const { return (u32)bits; }
    u32 site() const { return (u32)(bits >> 32) & 0xffff; }
    u32 lane() const { return (u32)(bits >> 48) & 0xff; }
    bool atomic() const { return bits >> 56; }
    bool of_block() const { return bits >> 57; }
};
const u64 WHO_AND_WHEN = 0x00ff0000ffffffff; // of a mark's bits
inline Mark mark_of(u32 moment, u32 lane) { return {moment | (u64)lane << 48}; }
inline Mark marked(const Mark &mark, u32 site, bool atomic) { return {mark.bits | (u64)site << 32 | (u64)atomic << 56}; }
// The marks of a region's cells, by kind: most arrays are only read or only written, and a kind
// without marks is skipped.
struct Marks {
    Mark *of = nullptr;
    bool any = false;
    Mark &at(Address cell) {
        any = true;
        return of[cell];
    }
    void forget(size_t many) {
        if (any) memset((void *)of, 0, many * sizeof(Mark));
        any = false;
    }
};

struct Region {
    std::string name;
    Address base = 0;
    size_t bytes = 0;
    u32 element = 4;
    Space space = GLOBAL;
    bool read_only = false, dynamic = false, used = false;
    u32 shift = 2; // a cell is a word, or a byte after an access to less than a word
    bool watched = false, plain = false; // it has marks; and they are of words, for races
    Marks writer, first, last; // of the last write, and of two reads since
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

// A step of the first block: one instruction between two barriers.
struct Step {
    u32 epoch, site;
    u64 requests = 0, lanes = 0, sectors = 0, wavefronts = 0;
    u32 worst = 0, most = 0;
    u32 masks[32] = {}; // by warp: the lanes that were active at least once
};

struct Loop {
    Address head, latch;
    u64 before, turns;
};
struct Frame {
    u32 loops;
    u64 path;
    Address last, base; // base: the function's frame pointer
};
const u32 MAX_LOOPS = 64, MAX_FRAMES = 64;
struct Path { // few loops and frames, in most kernels: a page for each lane would take long to get
    u64 hash = 0;
    std::vector<Loop> loops;
    std::vector<Frame> frames;
    void clear() { hash = 0, loops.clear(), frames.clear(); }
};

struct Suspect { // a second write to a word, which may turn out to store the same value
    bool open = false;
    Address address = 0;
    u32 size = 0, region = 0;
    unsigned char before[16];
    Touch other, mine;
};

struct Place {
    u32 x, y, z;
};

struct Lane {
    State state = NEW;
    u32 thread = 0, number = 0; // in the block; in the warp
    Place place = {0, 0, 0};
    void *stack_pointer = nullptr;
    char *stack = nullptr;
    Address waits_at = 0;
    u64 steps = 0;
    u32 cursor = 0;
    // The first lane of a warp leads: from each barrier on, its events are recorded. Another lane
    // follows it, event by event, as long as both have the same events: then its path is the
    // leader's and need not be computed. `followed`: the events so far, when it last stopped.
    bool placed = false, leads = false, follows = false;
    bool alike = false; // its path is the leader's at the last barrier
    u32 followed = 0;
    Path *path = nullptr; // of lanes that once left the leader
    // at a warp-level function
    Collective collective = SHUFFLE;
    int what = 0, argument = 0, width = 0;
    u32 mask = 0;
    u64 value = 0, result = 0;
};

// A request in the making.
struct Head {
    u64 key;
    u32 site, mask, addresses;
};
const u32 NONE = ~0u, IS_FLOW = ~0u; // the latter stands in `addresses`
struct Addresses {
    Addresses() {} // only elements that lanes wrote are read
    Address of[32];
};
// An event of the leader: `tag` says what and where. `head` is its request, or NONE for an event
// without one: a call, a return, or the block behind a return. The list ends with a tag of 0.
struct Event {
    u64 tag;
    Region *region;
    u32 head, addresses;
    u32 site; // of ENTERED: how deep in the lane's stack the frame lies
    u32 last; // the lanes that followed up to here and no further
    u32 steps; // basic blocks before this one
};

struct Warp {
    u32 first = 0, count = 0; // lanes
    u32 turn = 1, moment = NOBODY;
    u32 met[32][32] = {};
    std::vector<Event> led;
    Path began; // the leader's at the last barrier
    u64 start = 0;
    Address leaders = 0; // where its stack begins
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
    u64 max_total = 1u << 29; // steps of all threads together
    // In a block, between two barriers: requests kept until the whole warp has come as far.
    u64 max_requests = 1u << 19, max_heads = 1u << 22;
    u64 seed = 0;
    bool races = true;
};

Settings settings;
std::string report_path;
std::vector<Region> regions;
std::vector<Site> sites;
std::vector<Step> steps;
std::vector<Race> races;
std::vector<Moment> moments(1); // the first belongs to no access
u32 first_moment = 1;           // of the present block
u32 epoch_moment = 1;           // since its last barrier
u64 races_seen = 0;
std::vector<Lane> lanes;
std::vector<Warp> warps;
std::vector<char *> free_stacks;
char *unused = nullptr; // memory for stacks that no lane has used yet
size_t unused_stacks = 0;
Lane *current = nullptr;
Warp *warp = nullptr;
u32 block_number = 0, epoch = 0, fences = 0, threads = 0;
Place places[4]; // the current thread, the block, their sizes
// Of the current lane, for the hooks: its next event if it goes on like the leader, how many steps
// it may take, where its addresses go, and the mark of its accesses.
const Event nothing = {0, nullptr, NONE, 0, 0, 0, 0}; // for one that does not follow, or has to stop
const Event *next = &nothing;
u64 budget = 0, allowed = 0;
Address *slots = nullptr;
Mark mark;
Suspect suspect;
bool of_block = false; // the current atomic is one for the threads of a block, such as atomicAdd_block
bool kernel_runs = false, aborted = false, reported = false;
void *scheduler = nullptr;
const il_kernel *kernel = nullptr;
std::vector<void *> arguments;
u64 total_steps = 0, total_barriers = 0, most_barriers = 0, flow_requests = 0, flow_lanes = 0;
u64 blocks_run = 0, shuffles = 0;
u32 votes = 0; // lanes that brought a true predicate to the last barrier
u64 heads_kept = 0, requests_kept = 0; // of the block, since its last barrier
std::vector<u32> published;   // by block: writes before this epoch are known to all
std::vector<u32> last_fence;  // by thread of the grid
std::string error;            // JSON of what ended the launch
u32 last_region = 0;
Address last_pc = 0;
Address literals = 0; // the section of strings and of unnamed tables
size_t literals_bytes = 0;

} // namespace il
