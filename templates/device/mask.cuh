<% include "device/types.cuh" %>
// Which keys a query sees: those of its sequence, with CAUSAL none behind it, and with WINDOW > 0 only those nearer than
// that.
template <bool CAUSAL, i32 WINDOW>
struct Mask {
    static constexpr bool WINDOWED = WINDOW > 0;
    i32 length;

    // The first key that a query sees, and the one behind the last; `query` may lie behind the sequence.
    __device__ __forceinline__ i32 first_key(i32 query) const {
        return WINDOWED && query >= WINDOW ? query - WINDOW + 1 : 0;
    }
    __device__ __forceinline__ i32 end_key(i32 query) const {
        if constexpr (CAUSAL) return query < length ? query + 1 : length;
        return WINDOWED && query < length - WINDOW ? query + WINDOW : length;
    }

    // The first query that sees a key, and the one behind the last.
    __device__ __forceinline__ i32 first_query(i32 key) const {
        if constexpr (CAUSAL) return key;
        return WINDOWED && key >= WINDOW ? key - WINDOW + 1 : 0;
    }
    __device__ __forceinline__ i32 end_query(i32 key) const {
        return WINDOWED && key < length - WINDOW ? key + WINDOW : length;
    }
};
