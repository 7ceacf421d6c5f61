<% include "device/mask.cuh" %>
// Which tiles of QUERIES queries and KEYS keys attention works on, in all of its passes: none of which no query sees a key; with a
// mask (an edge) where some queries do not see some keys; and plainly where all see all. What is new, such as documents, changes
// device/mask.cuh alone.

// Does every query of a tile see every key of another? Queries behind the sequence count as if they were there, keys do not.
template <i32 QUERIES, i32 KEYS, typename SEEN>
__device__ __forceinline__ bool all_seen(SEEN mask, i32 first_query, i32 first_key) {
    return mask.first_key(first_query + QUERIES - 1) <= first_key && mask.end_key(first_query) >= first_key + KEYS;
}

// The tiles of keys that a tile of queries sees, at least one: queries that see nothing have an edge to learn it from. They lie from
// `begin` to `end`, those that are no edge from `plain_begin` to `plain_end`.
template <typename SEEN, i32 QUERIES, i32 KEYS>
struct KeyTiles {
    i32 begin, plain_begin, plain_end, end, n_edge, n;
    // Keys that some query sees: the first, and the one behind the last.
    i32 first_seen, end_seen;

    __device__ __forceinline__ KeyTiles(SEEN mask, i32 first_query) {
        const i32 last_query = first_query + QUERIES - 1;
        const i32 last = last_query < mask.queries ? last_query : mask.queries - 1;
        first_seen = mask.first_key(first_query);
        end_seen = mask.end_key(last);
        begin = first_seen / KEYS;
        end = (end_seen + KEYS - 1) / KEYS;
        end = end > begin ? end : begin + 1;
        // `all_seen`, for all tiles at once: what the last query sees first, up to what the first one sees last.
        plain_begin = (mask.first_key(last) + KEYS - 1) / KEYS;
        plain_end = mask.end_key(first_query) / KEYS;
        plain_begin = plain_begin < end ? plain_begin : end;
        plain_end = plain_end > plain_begin ? plain_end : plain_begin;
        n_edge = plain_begin - begin + end - plain_end;
        n = end - begin;
    }

    // First key of the tile at a place of the order in which edges come first: those behind the plain ones from the last on, those
    // before them, the plain ones.
    __device__ __forceinline__ i32 first_key(i32 place) const {
        const i32 n_behind = end - plain_end;
        const i32 tile = place < n_behind ? end - 1 - place
                         : place < n_edge ? begin + place - n_behind
                                          : plain_begin + place - n_edge;
        return tile * KEYS;
    }
};

// The tiles of queries that see a tile of keys, from `begin` to `end`; perhaps none. They are those that have it among theirs, but for
// the edge of what sees nothing.
template <typename SEEN, i32 QUERIES, i32 KEYS>
struct QueryTiles {
    i32 begin, end;

    __device__ __forceinline__ QueryTiles(SEEN mask, i32 first_key) {
        const i32 last_key = first_key + KEYS - 1;
        begin = mask.first_query(first_key) / QUERIES;
        end = (mask.end_query(last_key < mask.keys ? last_key : mask.keys - 1) + QUERIES - 1) / QUERIES;
        end = end > begin ? end : begin;
    }
};
