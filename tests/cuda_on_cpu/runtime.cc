// What runs kernels, behind cuda_on_cpu.h: fibers, barriers, collectives, launches.
#include "cuda_on_cpu.h"

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

constinit thread_local unsigned char shared_bytes[cuda_on_cpu::max_shared_bytes] = {};

namespace cuda_on_cpu {

constinit thread_local Now now{};
#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t stack_bytes = 1 << 18;
#else
constexpr std::size_t stack_bytes = 1 << 16;
#endif

enum class Wait { none, block, warp, finished };

// 16 bytes on their way to shared memory, or zeros.
struct Copy {
    void* to;
    const void* from;
    int group;
    void arrive() const {
        if (from) std::memcpy(to, from, 16);
        else std::memset(to, 0, 16);
    }
};

struct Fiber {
    ucontext_t first;
    jmp_buf point;
    bool started = false;
    Wait wait = Wait::finished;
    dim3 thread;
    int lane = 0, warp = 0;
    char* stack = nullptr;
    void* sanitizer = nullptr;
    std::vector<Copy> copies;
    int group = 0;  // of the copies that come next
};

struct Warp {
    unsigned waiting = 0;
    void* slot[warp_size];
    unsigned mask[warp_size];
    unsigned line[warp_size];
};

struct Runner {
    std::vector<Fiber> fibers;
    std::vector<Warp> warps;
    std::vector<int> order;
    Fiber* current = nullptr;
    jmp_buf home;
    void* home_sanitizer = nullptr;
    const void* home_stack = nullptr;
    std::size_t home_stack_bytes = 0;
    Body body = nullptr;
    void* const* args = nullptr;
    int alive = 0, arrived = 0;
    unsigned barrier_line = 0;
    int vote_sum = 0, vote_result = 0;
    std::string error;
    std::uint64_t seed = 0, random = 0;

    unsigned next_random() {
        random = random * 6364136223846793005ull + 1442695040888963407ull;
        return static_cast<unsigned>(random >> 33);
    }
    // Where threads are shuffled some copies arrive when they are asked for; the others when the thread waits for them.
    void copy(void* to, const void* from) {
        const Copy x{to, from, current->group};
        if (seed != 0 && next_random() % 2) x.arrive();
        else current->copies.push_back(x);
    }
    void wait_for_copies() {
        for (const Copy& x : current->copies) x.arrive();
        current->copies.clear();
    }
    void wait_for_groups(int newest) {
        auto& copies = current->copies;
        const int known = current->group - newest;
        for (const Copy& x : copies)
            if (x.group < known) x.arrive();
        std::erase_if(copies, [=](const Copy& x) { return x.group < known; });
    }
    void shuffle(std::vector<int>& items) {
        for (std::size_t i = items.size(); seed != 0 && i > 1; --i) std::swap(items[i - 1], items[next_random() % i]);
    }
    // Resumes those of order[low .. high) that wait for nothing; was there any?
    bool run_ready(std::size_t low, std::size_t high) {
        bool any = false;
        for (std::size_t i = low; i < high && error.empty(); ++i)
            if (fibers[order[i]].wait == Wait::none) any = true, resume(fibers[order[i]]);
        return any;
    }
    void prepare(dim3 shape);
    void run_block(dim3 index, std::uint64_t order_seed);
    void resume(Fiber& fiber);
    void leave();
    [[noreturn]] void fail(const std::string& what);
    void release_block();
    int sync_block(int vote, unsigned line);
    void collective(unsigned mask, void* slot, void (*act)(void* const*), unsigned line);
    static void entry();
};

static constinit thread_local Runner* runner = nullptr;  // made by the first launch: it is found without a call

static void start_switch(void** save, const void* stack, std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(save, stack, bytes);
#else
    (void)save, (void)stack, (void)bytes;
#endif
}

static void finish_switch(void* saved, const void** stack, std::size_t* bytes) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(saved, stack, bytes);
#else
    (void)saved, (void)stack, (void)bytes;
#endif
}

__attribute__((noinline)) void Runner::entry() {
    finish_switch(nullptr, &runner->home_stack, &runner->home_stack_bytes);
    for (;;) {
        runner->body(runner->args);
        runner->current->wait = Wait::finished;
        --runner->alive;
        if (runner->alive > 0 && runner->arrived == runner->alive) runner->release_block();
        runner->leave();
    }
}

__attribute__((noinline)) void Runner::leave() {
    Fiber& fiber = *current;
    start_switch(&fiber.sanitizer, home_stack, home_stack_bytes);
    if (_setjmp(fiber.point) == 0) _longjmp(home, 1);
    finish_switch(runner->current->sanitizer, &runner->home_stack, &runner->home_stack_bytes);
}

__attribute__((noinline)) void Runner::resume(Fiber& fiber) {
    current = &fiber;
    now.thread = fiber.thread;
    now.lane = fiber.lane;
    start_switch(&home_sanitizer, fiber.stack, stack_bytes);
    if (_setjmp(home) == 0) {
        if (fiber.started) _longjmp(fiber.point, 1);
        fiber.started = true;
        setcontext(&fiber.first);
    }
    finish_switch(runner->home_sanitizer, nullptr, nullptr);
}

void Runner::fail(const std::string& what) {
    const dim3 t = current->thread, b = now.block;
    if (error.empty())
        error = what + " (thread " + std::to_string(t.x) + "," + std::to_string(t.y) + "," + std::to_string(t.z) + " of block " +
                std::to_string(b.x) + "," + std::to_string(b.y) + "," + std::to_string(b.z) + ")";
    leave();
    std::abort();
}

void Runner::release_block() {
    arrived = 0;
    vote_result = vote_sum;
    vote_sum = 0;
    for (Fiber& fiber : fibers)
        if (fiber.wait == Wait::block) fiber.wait = Wait::none;
}

int Runner::sync_block(int vote, unsigned line) {
    if (arrived == 0) barrier_line = line;
    if (barrier_line != line)
        fail("divergent barrier: lines " + std::to_string(barrier_line) + " and " + std::to_string(line));
    vote_sum += vote;
    current->wait = Wait::block;
    if (++arrived == alive) release_block();
    leave();
    return vote_result;
}

void Runner::collective(unsigned mask, void* slot, void (*act)(void* const*), unsigned line) {
    Warp& warp = warps[current->warp];
    const int lane = current->lane;
    if (!(mask >> lane & 1u)) fail("a lane outside its own mask at line " + std::to_string(line));
    warp.slot[lane] = slot;
    warp.mask[lane] = mask;
    warp.line[lane] = line;
    warp.waiting |= 1u << lane;
    if ((warp.waiting & mask) != mask) {
        current->wait = Wait::warp;
        leave();
        return;
    }
    for (int other = 0; other < warp_size; ++other)
        if (mask >> other & 1u && (warp.mask[other] != mask || warp.line[other] != line))
            fail("divergent warp collective: lines " + std::to_string(warp.line[other]) + " and " + std::to_string(line));
    act(warp.slot);
    warp.waiting &= ~mask;
    for (int other = 0; other < warp_size; ++other)
        if (mask >> other & 1u) fibers[current->warp * warp_size + other].wait = Wait::none;
    leave();
}

void Runner::prepare(dim3 shape) {
    const std::size_t count = std::size_t(shape.x) * shape.y * shape.z;
    if (fibers.size() < count) {
        const std::size_t old = fibers.size();
        fibers.resize(count);
        for (std::size_t i = old; i < count; ++i) {
            Fiber& fiber = fibers[i];
            fiber.stack = static_cast<char*>(mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        }
        for (Fiber& fiber : fibers) fiber.started = false;
    }
    order.resize(count);
    warps.resize((count + warp_size - 1) / warp_size);
    for (std::size_t i = 0; i < fibers.size(); ++i) {
        Fiber& fiber = fibers[i];
        if (!fiber.started) {
            getcontext(&fiber.first);
            fiber.first.uc_stack.ss_sp = fiber.stack;
            fiber.first.uc_stack.ss_size = stack_bytes;
            fiber.first.uc_link = nullptr;
            makecontext(&fiber.first, &Runner::entry, 0);
        }
        const unsigned k = static_cast<unsigned>(i);
        fiber.thread = {k % shape.x, k / shape.x % shape.y, k / (shape.x * shape.y)};
        fiber.lane = static_cast<int>(i % warp_size);
        fiber.warp = static_cast<int>(i / warp_size);
        fiber.wait = Wait::finished;
    }
}

void Runner::run_block(dim3 index, std::uint64_t order_seed) {
    now.block = index;
    seed = order_seed;
    alive = static_cast<int>(order.size());
    arrived = vote_sum = 0;
    random = seed * 0x9e3779b97f4a7c15ull + index.x + 7919ull * index.y + 104729ull * index.z;
    for (Warp& warp : warps) warp.waiting = 0;
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i), fibers[i].wait = Wait::none, fibers[i].copies.clear(), fibers[i].group = 0;
    while (alive > 0) {
        bool progress = false;
        shuffle(order);
        if (seed % 2 == 0) {
            progress = run_ready(0, order.size());
        } else {
            const std::size_t size = order.size();
            std::sort(order.begin(), order.end(), [&](int a, int b) { return fibers[a].warp < fibers[b].warp; });
            std::vector<int> turns(warps.size());
            for (std::size_t i = 0; i < turns.size(); ++i) turns[i] = static_cast<int>(i);
            shuffle(turns);
            for (int turn : turns)
                while (error.empty() && run_ready(std::min<std::size_t>(turn * warp_size, size), std::min<std::size_t>((turn + 1) * warp_size, size)))
                    progress = true;
        }
        if (!error.empty()) return;
        if (!progress) {
            int at_block = 0, at_warp = 0;
            for (int i : order) at_block += fibers[i].wait == Wait::block, at_warp += fibers[i].wait == Wait::warp;
            error = "deadlock: " + std::to_string(at_block) + " threads wait at a block barrier (line " + std::to_string(barrier_line) +
                    "), " + std::to_string(at_warp) + " at a warp collective, " + std::to_string(order.size() - alive) + " have finished";
            return;
        }
    }
}

int launch(Body body, void* const* args, const Launch& how, char* text, int text_bytes) {
    const long long blocks = 1ll * how.grid[0] * how.grid[1] * how.grid[2];
    std::vector<long long> order(blocks);
    for (long long i = 0; i < blocks; ++i) order[i] = i;
    std::uint64_t random = how.seed;
    if (how.seed != 0)
        for (long long i = blocks; i > 1; --i) {
            random = random * 6364136223846793005ull + 1442695040888963407ull;
            std::swap(order[i - 1], order[(random >> 33) % i]);
        }
    std::string error;
#pragma omp parallel num_threads(how.threads)
    {
        if (!runner) runner = new Runner;
        runner->body = body;
        runner->args = args;
        runner->error.clear();
        now.block_shape = {how.block[0], how.block[1], how.block[2]};
        now.grid_shape = {how.grid[0], how.grid[1], how.grid[2]};
        runner->prepare(now.block_shape);
#if defined(__SANITIZE_ADDRESS__)
        __asan_poison_memory_region(shared_bytes + how.shared_bytes, max_shared_bytes - how.shared_bytes);
#endif
#pragma omp for schedule(dynamic, 1)
        for (long long i = 0; i < blocks; ++i) {
            if (!runner->error.empty()) continue;
            const auto b = static_cast<unsigned long long>(order[i]);
            std::memset(shared_bytes, 0xff, how.shared_bytes);
            runner->run_block({unsigned(b % how.grid[0]), unsigned(b / how.grid[0] % how.grid[1]), unsigned(b / (1ull * how.grid[0] * how.grid[1]))}, how.seed);
        }
#if defined(__SANITIZE_ADDRESS__)
        __asan_unpoison_memory_region(shared_bytes, max_shared_bytes);
#endif
        if (!runner->error.empty()) {
            for (Fiber& fiber : runner->fibers) fiber.started = false;
#pragma omp critical
            error = runner->error;
        }
    }
    if (error.empty()) return 0;
    std::snprintf(text, text_bytes, "%s", error.c_str());
    return -1;
}

int sync_block(int vote, unsigned line) { return runner->sync_block(vote, line); }
void collective(unsigned mask, void* slot, void (*act)(void* const*), unsigned line) { runner->collective(mask, slot, act, line); }
unsigned lanes_of_collective() { return runner->warps[runner->current->warp].mask[runner->current->lane]; }
void fail(const char* what) { runner->fail(what); }
void copy(void* to, const void* from) { runner->copy(to, from); }
void group_copies() { ++runner->current->group; }
void wait_for_groups(int newest) { runner->wait_for_groups(newest); }
void wait_for_copies() { runner->wait_for_copies(); }

}  // namespace cuda_on_cpu
