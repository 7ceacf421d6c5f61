// Access to memory by the vocabulary's names: vectors, atomics, asynchronous copies.
//
// Each checks itself as the compiler's hooks check plain accesses. A thread's own stack is local memory, and free to it.
// Asynchronous copies are noted when issued and done when their group is waited for. Blocks run on several host threads,
// so atomics are the host's atomics.
#include "model.h"

#include "kernwright_numbers.h"

#include <cmath>

namespace kernwright {

static inline void touch(const void* at, u32 bytes, Access access, u64 site) {
    Thread& thread = *current;
    const Launch& launch = *thread.block->launch;
    const u64 address = reinterpret_cast<u64>(at);
    if (address - thread.stack_low < STACK_BYTES) return;
    if (launch.checks) check(thread, address, bytes, access, site);
    if (launch.counters != nullptr) count_access(thread, address, bytes, site);
}

template <typename T>
static T load(const void* from) {
    T value;
    memcpy(&value, from, sizeof value);
    return value;
}

// Replaces a word by what `change` makes of it, and returns the old one.
template <typename Change>
static u32 replace(u32* to, Change change) {
    u32 old = __atomic_load_n(to, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(to, &old, change(old), true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return old;
}

static void add_float(float* to, float value) {
    replace(reinterpret_cast<u32*>(to), [&](u32 old) { return word_of_float(float_of_word(old) + value); });
}

struct Words4 {
    u64 of[2];
};

struct Floats4 {
    float of[4];
};

}  // namespace kernwright

using namespace kernwright;

extern "C" {

Words4 kernwright_load_16(const void* from) {
    touch(from, 16, Access::read, KERNWRIGHT_SITE);
    return load<Words4>(from);
}

u64 kernwright_load_8(const void* from) {
    touch(from, 8, Access::read, KERNWRIGHT_SITE);
    return load<u64>(from);
}

u32 kernwright_load_4(const void* from) {
    touch(from, 4, Access::read, KERNWRIGHT_SITE);
    return load<u32>(from);
}

void kernwright_store_16(void* to, u64 low, u64 high) {
    touch(to, 16, Access::write, KERNWRIGHT_SITE);
    const Words4 value{{low, high}};
    memcpy(to, &value, 16);
}

void kernwright_store_8(void* to, u64 value) {
    touch(to, 8, Access::write, KERNWRIGHT_SITE);
    memcpy(to, &value, 8);
}

void kernwright_store_4(void* to, u32 value) {
    touch(to, 4, Access::write, KERNWRIGHT_SITE);
    memcpy(to, &value, 4);
}

void kernwright_atomic_add_float(float* to, float value) {
    touch(to, 4, Access::atomic, KERNWRIGHT_SITE);
    add_float(to, value);
}

void kernwright_atomic_add_4(float* to, Floats4 values) {
    touch(to, 16, Access::atomic, KERNWRIGHT_SITE);
    for (int i = 0; i < 4; ++i) add_float(to + i, values.of[i]);
}

u32 kernwright_atomic_add_word(u32* to, u32 value) {
    touch(to, 4, Access::atomic, KERNWRIGHT_SITE);
    return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}

void kernwright_add_release(u32* to, u32 value) {
    touch(to, 4, Access::atomic, KERNWRIGHT_SITE);
    __atomic_fetch_add(to, value, __ATOMIC_RELEASE);
}

// Who asks again and again waits for another block: others of this one go on meanwhile.
u32 kernwright_load_acquire(const u32* from) {
    touch(from, 4, Access::atomic, KERNWRIGHT_SITE);
    resume(*current);
    wait(*current);
    return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}

void kernwright_atomic_add_pair(u32* to, u32 pair, i32 is_bf16) {
    touch(to, 4, Access::atomic, KERNWRIGHT_SITE);
    const auto sum = [&](u32 one, u32 other) -> u32 {
        const u16 a = static_cast<u16>(one);
        const u16 b = static_cast<u16>(other);
        if (is_bf16) return bf16_of_float(float_of_bf16_bits(a) + float_of_bf16_bits(b));
        return fp16_of_float(float_of_fp16_bits(a) + float_of_fp16_bits(b));
    };
    replace(to, [&](u32 old) { return sum(old, pair) | sum(old >> 16, pair >> 16) << 16; });
}

void kernwright_cp_async(void* to, const void* from, i32 real) {
    Thread& thread = *current;
    const Launch& launch = *thread.block->launch;
    const u64 site = KERNWRIGHT_SITE;
    const Copy copy{static_cast<u8*>(to), real ? static_cast<const u8*>(from) : nullptr, thread.groups};
    if (launch.checks) begin_copy(thread, copy.to, copy.from, site);
    if (launch.counters != nullptr) {
        count_access(thread, reinterpret_cast<u64>(to), 16, site);
        if (real) count_access(thread, reinterpret_cast<u64>(from), 16, site);
    }
    thread.copies.push_back(copy);
}

void kernwright_cp_async_commit() { ++current->groups; }

// Does the copies of all committed groups but the `newest`.
void kernwright_cp_async_wait(i32 newest) {
    Thread& thread = *current;
    const u64 site = KERNWRIGHT_SITE;
    const bool is_checked = thread.block->launch->checks != 0;
    size_t done = 0;
    for (; done < thread.copies.size(); ++done) {
        const Copy& copy = thread.copies[done];
        if (copy.group + static_cast<u64>(newest) >= thread.groups) break;
        if (is_checked) finish_copy(thread, copy.to, site);
        if (copy.from != nullptr) {
            memcpy(copy.to, copy.from, 16);
        } else {
            memset(copy.to, 0, 16);
        }
    }
    thread.copies.erase(thread.copies.begin(), thread.copies.begin() + static_cast<std::ptrdiff_t>(done));
}

void kernwright_sine_cosine_pi(float x, float* sine, float* cosine) {
    // Within half a turn of zero, where the double's rounding of pi no longer shows.
    const double turn = static_cast<double>(x) - 2.0 * std::nearbyint(static_cast<double>(x) / 2.0);
    *sine = static_cast<float>(std::sin(turn * M_PI));
    *cosine = static_cast<float>(std::cos(turn * M_PI));
}
}
