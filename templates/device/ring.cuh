<% include "device/mbarrier.cuh" %>
<% include "device/warp.cuh" %>
// PLACES of BYTES of shared memory each that one thread has filled by copies, and WARPS warps use, in turns: where one stands
// among them. A place has a barrier that says full, and one that says empty.
template <i32 PLACES, i32 BYTES, i32 WARPS>
struct Ring {
    static constexpr i32 BARRIERS = 2 * PLACES;

    u8* room;
    Mbarrier* full;
    Mbarrier* empty;
    i32 next;
    u32 phase;

    __device__ __forceinline__ Ring(u8* room, Mbarrier* barriers)
        : room(room), full(barriers), empty(barriers + PLACES), next(0), phase(0) {}

    // By one thread, before anybody uses it.
    __device__ __forceinline__ void init() const {
        for (i32 i = 0; i < PLACES; ++i) {
            mbarrier_init(full + i, 1);
            mbarrier_init(empty + i, WARPS);
        }
    }

    // Goes to where one stands after so many places.
    __device__ __forceinline__ void stand_behind(u32 places) {
        next = places % PLACES;
        phase = places / PLACES % 2;
    }

    __device__ __forceinline__ u8* at(i32 place) const { return room + place * BYTES; }

    __device__ __forceinline__ i32 advance() {
        const i32 place = next;
        next = place + 1 == PLACES ? 0 : place + 1;
        phase ^= next == 0;
        return place;
    }

    // Waits until the next place is empty; copies of all its bytes may then begin, which arrive at `full + place`.
    __device__ __forceinline__ i32 begin_fill() {
        return begin_fill(BYTES, [](i32) {});
    }
    // The same for so many bytes, and for what `write` puts there by itself.
    template <typename WRITE>
    __device__ __forceinline__ i32 begin_fill(u32 bytes, WRITE write) {
        mbarrier_wait(empty + next, phase ^ 1);
        write(next);
        mbarrier_expect_bytes_and_arrive(full + next, bytes);
        return advance();
    }

    // Waits until the next place is full. Every warp releases it when it has used it.
    __device__ __forceinline__ i32 take() {
        mbarrier_wait(full + next, phase);
        return advance();
    }
    __device__ __forceinline__ void release(i32 place) const {
        if (lane_index() == 0) mbarrier_arrive(empty + place);
    }
};
