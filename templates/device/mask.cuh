<% include "device/types.cuh" %>
// Which keys a query sees. Queries and keys end together, whatever their numbers: a query stands at the key `query + keys - queries`,
// which may be none. It sees that key, LEFT before it and RIGHT behind it, of those that are real; where a bound is below 0 all on
// that side. RIGHT = 0 is the causal mask.
//
// Every kernel of attention asks this struct and nothing else, by itself or through the tiles that device/tiles.cuh makes of it. They
// count on this much: as queries go on, first_key and end_key never go back, and first_query and end_query are their inverses. So a
// mask that knows where documents begin is one more struct with these four.
template <i32 LEFT, i32 RIGHT>
struct Mask {
    static constexpr bool WINDOWED = LEFT >= 0;
    // Do late queries see more keys than early ones, so that blocks should begin with them?
    static constexpr bool MORE_LATER = RIGHT >= 0;
    i32 queries, keys;

    // The first key that a query sees, and the one behind the last: none where they are one. `query` may lie behind the sequence.
    __device__ __forceinline__ i32 first_key(i32 query) const {
        if constexpr (LEFT < 0) return 0;
        const i32 first = query + (keys - queries) - LEFT;
        return first > 0 ? first : 0;
    }
    __device__ __forceinline__ i32 end_key(i32 query) const {
        if constexpr (RIGHT < 0) return keys;
        const i32 end = query + (keys - queries) + RIGHT + 1;
        return end < 0 ? 0 : end < keys ? end : keys;
    }

    // The first query that sees a key, and the one behind the last.
    __device__ __forceinline__ i32 first_query(i32 key) const {
        if constexpr (RIGHT < 0) return 0;
        const i32 first = key - (keys - queries) - RIGHT;
        return first > 0 ? first : 0;
    }
    __device__ __forceinline__ i32 end_query(i32 key) const {
        if constexpr (LEFT < 0) return queries;
        const i32 end = key - (keys - queries) + LEFT + 1;
        return end < 0 ? 0 : end < queries ? end : queries;
    }
};
