<% include "device/attention.cuh" %>
// How blocks share the work of attention over queries. A piece is QUERIES queries of HEADS neighbouring heads of one sequence;
// such heads of a sequence are a unit. Blocks take pieces in turns, forth and back, and sections of units are walked from most
// keys to fewest and back, so that all blocks get as much: pieces that follow each other are alike. Of a section all units are
// worked on at a time: the L2 cache holds its keys and values, and neighbouring units have the same ones.
template <i32 QUERIES, i32 HEADS, bool MORE_LATER>
struct Pieces {
    u32 length, heads, sequences, units_of_section;
    u32 round;
    i32 first_query, head, sequence;

    __device__ __forceinline__ Pieces(i32 length, i32 heads, i32 sequences, i32 section)
        : length(length), heads(heads), sequences(sequences), units_of_section(section), round(0) {}

    // Finds this block's next piece, if there is one.
    __device__ __forceinline__ bool next() {
        // Renewed, so that what divisions prepare is not kept in registers in between.
        const u32 section = renewed(units_of_section);
        const u32 n_tiles = (renewed(length) + QUERIES - 1) / QUERIES;
        const u32 units_of_sequence = renewed(heads) / HEADS;
        const u32 n_units = units_of_sequence * sequences;
        const u32 blocks = renewed(gridDim.x);
        const u32 piece = round * blocks + (round % 2 == 0 ? blockIdx.x : blocks - 1 - blockIdx.x);
        ++round;
        if (piece >= n_units * n_tiles) return false;
        const u32 own_section = piece / (section * n_tiles);
        const u32 first_unit = own_section * section;
        const u32 units = n_units - first_unit < section ? n_units - first_unit : section;
        const u32 place = piece - first_unit * n_tiles;
        const u32 tile = place / units;
        const u32 unit = first_unit + place % units;
        // The last section ends with the fewest keys.
        const bool few_last = ((n_units - 1) / section - own_section) % 2 == 0;
        first_query = static_cast<i32>(MORE_LATER && few_last ? n_tiles - 1 - tile : tile) * QUERIES;
        sequence = static_cast<i32>(unit / units_of_sequence);
        head = static_cast<i32>(unit % units_of_sequence) * HEADS;
        return true;
    }
};
