// The tensor core's vocabulary: mma, ldmatrix and stmatrix, with the fragment layouts of the PTX ISA.
//
// With `group` = lane / 4 and `within` = lane % 4, a lane holds of a product d (16 x 8) += a (16 x K) b (K x 8):
//   d  rows group and group + 8, columns 2 within and 2 within + 1, in the order d[2 * lower half + column]
//   a  2-byte types: register r holds the pair of row group + 8 (r % 2), columns 2 within + 8 (r / 2) and the next
//      tf32: register r holds row group + 8 (r % 2), column within + 4 (r / 2)
//   b  2-byte types: register r holds the pair of rows 2 within + 8 r and the next, column group
//      tf32: register r holds row within + 4 r, column group
// Products are exact in fp32; they are added in fp32 in the order of k, to the old d. tf32 operands lose all but 10 bits
// of their fractions.
//
// ldmatrix: lane 8 m + i gives the address of row i of matrix m, 8 elements of 2 bytes; register m of a lane is then the
// pair at row group, columns 2 within and the next, of matrix m, or of its transpose.
#include "model.h"

#include "kernwright_numbers.h"

namespace kernwright {

struct MatrixWords {
    u64 of[2];
};

struct MatrixFloats {
    float of[4];
};

enum Form : i32 { bf16_k16, bf16_k8, fp16_k16, fp16_k8, tf32_k8 };

struct Product {
    float d[4];
    u32 a[4];
    u32 b[2];
    i32 form;
};

static float narrow(u32 bits, bool is_bf16) {
    const u16 half = static_cast<u16>(bits);
    return is_bf16 ? float_of_bf16_bits(half) : float_of_fp16_bits(half);
}

static float tf32(u32 bits) { return float_of_word(bits & 0xffffe000u); }

static void multiply(Thread* lanes, i32 form) {
    const bool is_bf16 = form == bf16_k16 || form == bf16_k8;
    const bool is_tf32 = form == tf32_k8;
    const u32 k = form == bf16_k16 || form == fp16_k16 ? 16 : 8;
    float a[16][16];
    float b[16][8];
    float d[16][8];
    for (u32 lane = 0; lane < WARP; ++lane) {
        const Product& own = *static_cast<Product*>(lanes[lane].operands);
        const u32 group = lane / 4;
        const u32 within = lane % 4;
        for (u32 i = 0; i < 4; ++i) d[group + i / 2 * 8][2 * within + i % 2] = own.d[i];
        if (is_tf32) {
            for (u32 r = 0; r < 4; ++r) a[group + r % 2 * 8][within + r / 2 * 4] = tf32(own.a[r]);
            for (u32 r = 0; r < 2; ++r) b[within + r * 4][group] = tf32(own.b[r]);
            continue;
        }
        for (u32 r = 0; r < k / 4; ++r) {
            float* const to = &a[group + r % 2 * 8][2 * within + r / 2 * 8];
            to[0] = narrow(own.a[r], is_bf16);
            to[1] = narrow(own.a[r] >> 16, is_bf16);
        }
        for (u32 r = 0; r < k / 8; ++r) {
            b[2 * within + r * 8][group] = narrow(own.b[r], is_bf16);
            b[2 * within + r * 8 + 1][group] = narrow(own.b[r] >> 16, is_bf16);
        }
    }
    for (u32 row = 0; row < 16; ++row) {
        float sum[8];
        memcpy(sum, d[row], sizeof sum);
        for (u32 i = 0; i < k; ++i) {
            const float left = a[row][i];
            for (u32 column = 0; column < 8; ++column) sum[column] += left * b[i][column];
        }
        memcpy(d[row], sum, sizeof sum);
    }
    for (u32 lane = 0; lane < WARP; ++lane) {
        Product& own = *static_cast<Product*>(lanes[lane].operands);
        for (u32 i = 0; i < 4; ++i) own.d[i] = d[lane / 4 + i / 2 * 8][2 * (lane % 4) + i % 2];
    }
}

// A warp that lacks lanes cannot do these.
static void need_whole_warp(Thread& thread, Operation operation) {
    if (thread.warp->threads == WARP) return;
    Report& report = begin_report(thread, Fault::absent_lane);
    report.operation = static_cast<u32>(operation);
    report.detail = thread.warp->threads;
    report.other_detail = thread.block->n_threads;
    fail(thread);
}

struct Rows {
    const u8* row;
    u32 to[4];
};

static void distribute(Thread* lanes, u32 matrices, bool is_transposed) {
    u16 elements[4][8][8];
    for (u32 matrix = 0; matrix < matrices; ++matrix) {
        for (u32 row = 0; row < 8; ++row) {
            memcpy(elements[matrix][row], static_cast<Rows*>(lanes[8 * matrix + row].operands)->row, 16);
        }
    }
    for (u32 lane = 0; lane < WARP; ++lane) {
        Rows& own = *static_cast<Rows*>(lanes[lane].operands);
        const u32 row = lane / 4;
        const u32 column = 2 * (lane % 4);
        for (u32 matrix = 0; matrix < matrices; ++matrix) {
            const auto& of = elements[matrix];
            const u32 low = is_transposed ? of[column][row] : of[row][column];
            const u32 high = is_transposed ? of[column + 1][row] : of[row][column + 1];
            own.to[matrix] = low | high << 16;
        }
    }
}

// The other way round: where lanes gave rows, their registers' pairs go.
static void collect(Thread* lanes, u32 matrices, bool is_transposed) {
    u16 elements[4][8][8];
    for (u32 lane = 0; lane < WARP; ++lane) {
        const Rows& own = *static_cast<Rows*>(lanes[lane].operands);
        const u32 row = lane / 4;
        const u32 column = 2 * (lane % 4);
        for (u32 matrix = 0; matrix < matrices; ++matrix) {
            auto& of = elements[matrix];
            (is_transposed ? of[column][row] : of[row][column]) = static_cast<u16>(own.to[matrix]);
            (is_transposed ? of[column + 1][row] : of[row][column + 1]) = static_cast<u16>(own.to[matrix] >> 16);
        }
    }
    for (u32 matrix = 0; matrix < matrices; ++matrix) {
        for (u32 row = 0; row < 8; ++row) {
            u8* const to = const_cast<u8*>(static_cast<Rows*>(lanes[8 * matrix + row].operands)->row);
            memcpy(to, elements[matrix][row], 16);
        }
    }
}

}  // namespace kernwright

using namespace kernwright;

extern "C" {

MatrixFloats kernwright_mma(MatrixFloats d, u64 a_low, u64 a_high, u64 b, i32 form) {
    Thread& thread = *current;
    need_whole_warp(thread, Operation::mma);
    Product own;
    memcpy(own.d, d.of, sizeof own.d);
    own.a[0] = static_cast<u32>(a_low);
    own.a[1] = static_cast<u32>(a_low >> 32);
    own.a[2] = static_cast<u32>(a_high);
    own.a[3] = static_cast<u32>(a_high >> 32);
    own.b[0] = static_cast<u32>(b);
    own.b[1] = static_cast<u32>(b >> 32);
    own.form = form;
    const u64 site = KERNWRIGHT_SITE;
    if (arrive(thread, Operation::mma, site, &own)) {
        multiply(thread.warp->first, form);
        release(*thread.warp, thread);
    }
    memcpy(d.of, own.d, sizeof own.d);
    return d;
}

MatrixWords kernwright_ldmatrix(const void* row, i32 matrices, i32 transposed) {
    Thread& thread = *current;
    need_whole_warp(thread, Operation::ldmatrix);
    const u64 site = KERNWRIGHT_SITE;
    Rows own{static_cast<const u8*>(row), {}};
    // Lanes beyond the matrices' rows give an address that nobody looks at.
    if (thread.lane < 8 * static_cast<u32>(matrices)) {
        const Launch& launch = *thread.block->launch;
        const u64 address = reinterpret_cast<u64>(row);
        if (launch.checks) check_row(thread, address, Access::read, site);
        if (launch.counters != nullptr) count_access(thread, address, 16, site);
    }
    if (arrive(thread, Operation::ldmatrix, site, &own)) {
        distribute(thread.warp->first, static_cast<u32>(matrices), transposed != 0);
        release(*thread.warp, thread);
    }
    return MatrixWords{{own.to[0] | static_cast<u64>(own.to[1]) << 32, own.to[2] | static_cast<u64>(own.to[3]) << 32}};
}

void kernwright_stmatrix(void* row, u64 low, u64 high, i32 matrices, i32 transposed) {
    Thread& thread = *current;
    need_whole_warp(thread, Operation::stmatrix);
    const u64 site = KERNWRIGHT_SITE;
    Rows own{static_cast<const u8*>(row), {}};
    for (u32 i = 0; i < 4; ++i) own.to[i] = static_cast<u32>((i < 2 ? low : high) >> i % 2 * 32);
    if (thread.lane < 8 * static_cast<u32>(matrices)) {
        const Launch& launch = *thread.block->launch;
        const u64 address = reinterpret_cast<u64>(row);
        if (launch.checks) check_row(thread, address, Access::write, site);
        if (launch.counters != nullptr) count_access(thread, address, 16, site);
    }
    if (arrive(thread, Operation::stmatrix, site, &own)) {
        collect(thread.warp->first, static_cast<u32>(matrices), transposed != 0);
        release(*thread.warp, thread);
    }
}
}
