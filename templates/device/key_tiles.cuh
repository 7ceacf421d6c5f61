<% include "device/mask.cuh" %>
// Which tiles of KEYS keys a block of QUERIES queries works on, and in which order: `n` of them, the first `n_edge` with a
// mask, for some of their keys are not seen by some of the queries. What no query sees is not among them.

template <typename SEEN, i32 QUERIES, i32 KEYS>
struct KeyTiles {
    i32 begin, plain_begin, plain_end, end, n_edge, n;

    __device__ __forceinline__ KeyTiles(SEEN mask, i32 first_query) {
        const i32 last_query = first_query + QUERIES - 1;
        const i32 last = last_query < mask.length ? last_query : mask.length - 1;
        begin = mask.first_key(first_query) / KEYS;
        end = (mask.end_key(last) + KEYS - 1) / KEYS;
        // Seen by every query of the block: what its last one sees first, up to what its first one sees last.
        plain_begin = (mask.first_key(last) + KEYS - 1) / KEYS;
        plain_end = mask.end_key(first_query) / KEYS;
        plain_begin = plain_begin < end ? plain_begin : end;
        plain_end = plain_end > plain_begin ? plain_end : plain_begin;
        n_edge = plain_begin - begin + end - plain_end;
        n = end - begin;
    }

    // First key of the tile at a place of the order: those behind the plain ones from the last on, those before them, the
    // plain ones.
    __device__ __forceinline__ i32 first_key(i32 place) const {
        const i32 n_behind = end - plain_end;
        const i32 tile = place < n_behind ? end - 1 - place
                         : place < n_edge ? begin + place - n_behind
                                          : plain_begin + place - n_edge;
        return tile * KEYS;
    }
};
