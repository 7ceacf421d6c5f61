// Stands in for cuBLASLt and the driver, on the host: what is "on the GPU" is the host's memory, and everything is done at
// once. It takes settings of the sizes that the headers of CUDA say, and multiplies as they are documented to say. Of the
// eight algorithms it offers two are right, at different speeds; the others are each wrong in a way of their own. One is wrong
// in what it writes beside the result, where it writes such a thing.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int INVALID = 7, NOT_SUPPORTED = 15;
constexpr int FP32 = 0, BF16 = 14;
// Bits of an epilogue: its matrix is one that is read or written.
constexpr uint32_t BIAS = 4, GELU = 32, SLOPE = 64, MATRIX = 128;
constexpr uint64_t MARK = 0x5741544f4e494e47;

struct Algorithm {
    uint64_t id, mark, rest[6];
};

struct Offer {
    Algorithm algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

struct Layout {
    uint32_t type;
    uint64_t rows, columns;
    int64_t leading;
    int32_t batches = 1;
    int64_t stride = 0;
};

struct Operation {
    uint32_t compute;
    int32_t transposed_a = 0, transposed_b = 0, bias_type = -1;
    uint32_t epilogue = 1;
    const void* bias = nullptr;
    void* matrix = nullptr;
    int64_t matrix_leading = 0;
};

struct Preference {
    uint64_t workspace = 0;
    uint32_t reductions = 7, alignment[4] = {256, 256, 256, 256};
};

template <typename T>
int take(T& into, const void* from, size_t bytes) {
    if (bytes != sizeof(T)) return INVALID;
    memcpy(&into, from, bytes);
    return 0;
}

size_t size_of(uint32_t type) { return type == FP32 ? 4 : 2; }

float load(const void* at, uint32_t type, int64_t index) {
    if (type == FP32) return static_cast<const float*>(at)[index];
    uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t*>(at)[index]) << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

void store(void* at, uint32_t type, int64_t index, float value) {
    if (type == FP32) {
        static_cast<float*>(at)[index] = value;
        return;
    }
    uint32_t bits;
    memcpy(&bits, &value, 4);
    bits += 0x7fff + (bits >> 16 & 1);
    static_cast<uint16_t*>(at)[index] = static_cast<uint16_t>(bits >> 16);
}

void* moved(const void* at, const Layout* of, int64_t batch) {
    return const_cast<char*>(static_cast<const char*>(at)) + batch * of->stride * static_cast<int64_t>(size_of(of->type));
}

// Alignments of a pointer that were not promised would be a fault on a GPU.
bool fits(const Operation* operation, const Layout* a, const Layout* b, const Layout* c, const Layout* d) {
    auto rows = [](const Layout* of, int transposed) { return transposed ? of->columns : of->rows; };
    auto columns = [](const Layout* of, int transposed) { return transposed ? of->rows : of->columns; };
    bool types = a->type == b->type && c->type == d->type && (d->type == a->type || d->type == FP32);
    uint32_t epilogue = operation->epilogue;
    bool known = epilogue == 1 || epilogue == BIAS || (epilogue & ~(BIAS | MATRIX)) == GELU || epilogue == (SLOPE | MATRIX);
    bool bias = (epilogue & BIAS) == 0 || operation->bias_type == static_cast<int>(d->type);
    // A matrix beside the result has rows in multiples of 8, one result per call, and where it is known for its alignment.
    int64_t leading = operation->matrix_leading;
    bool matrix = (epilogue & MATRIX) == 0 || (operation->matrix != nullptr && leading % 8 == 0 && d->batches == 1 &&
                                               leading >= static_cast<int64_t>(d->rows));
    bool gelu = (epilogue & (GELU | SLOPE)) == 0 || (a->type == BF16 && d->type == BF16);
    bool shapes = rows(a, operation->transposed_a) == d->rows && columns(b, operation->transposed_b) == d->columns &&
                  columns(a, operation->transposed_a) == rows(b, operation->transposed_b) && c->rows == d->rows &&
                  c->columns == d->columns && a->batches == d->batches && b->batches == d->batches && c->batches == d->batches;
    auto apart = [](const Layout* of) { return of->leading >= static_cast<int64_t>(of->rows); };
    return types && known && bias && matrix && gelu && shapes && apart(a) && apart(b) && apart(c) && apart(d) && operation->compute == 68;
}

// The tanh form, and its slope.
double gelu(double x) { return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

double slope(double x) {
    double scale = std::sqrt(2 / M_PI), t = std::tanh(scale * (x + 0.044715 * x * x * x));
    return (1 + t) / 2 + x / 2 * (1 - t * t) * scale * (1 + 3 * 0.044715 * x * x);
}

unsigned calls = 0;

// What would have passed on a GPU: a clock of its own, so that a busy machine changes no test.
float milliseconds = 0.0f;

}  // namespace

extern "C" {

size_t cublasLtGetVersion() { return 130207; }

int cublasLtCreate(void** handle) { return *handle = malloc(1), 0; }

int cublasLtDestroy(void* handle) { return free(handle), 0; }

int cublasLtMatmulDescCreate(Operation** made, uint32_t compute, uint32_t scale) {
    if (scale != FP32) return NOT_SUPPORTED;
    *made = new Operation{compute};
    return 0;
}

int cublasLtMatmulDescDestroy(Operation* made) { return delete made, 0; }

int cublasLtMatmulDescSetAttribute(Operation* on, uint32_t which, const void* from, size_t bytes) {
    switch (which) {
        case 3: return take(on->transposed_a, from, bytes);
        case 4: return take(on->transposed_b, from, bytes);
        case 7: return take(on->epilogue, from, bytes);
        case 8: return take(on->bias, from, bytes);
        case 11: return take(on->matrix, from, bytes);
        case 12: return take(on->matrix_leading, from, bytes);
        case 26: return take(on->bias_type, from, bytes);
        default: return INVALID;
    }
}

int cublasLtMatrixLayoutCreate(Layout** made, uint32_t type, uint64_t rows, uint64_t columns, int64_t leading) {
    *made = new Layout{type, rows, columns, leading};
    return 0;
}

int cublasLtMatrixLayoutDestroy(Layout* made) { return delete made, 0; }

int cublasLtMatrixLayoutSetAttribute(Layout* on, uint32_t which, const void* from, size_t bytes) {
    switch (which) {
        case 5: return take(on->batches, from, bytes);
        case 6: return take(on->stride, from, bytes);
        default: return INVALID;
    }
}

int cublasLtMatmulPreferenceCreate(Preference** made) { return *made = new Preference, 0; }

int cublasLtMatmulPreferenceDestroy(Preference* made) { return delete made, 0; }

int cublasLtMatmulPreferenceSetAttribute(Preference* on, uint32_t which, const void* from, size_t bytes) {
    switch (which) {
        case 1: return take(on->workspace, from, bytes);
        case 3: return take(on->reductions, from, bytes);
        case 5: case 6: case 7: case 8: return take(on->alignment[which - 5], from, bytes);
        default: return INVALID;
    }
}

int cublasLtMatmulAlgoGetHeuristic(void*, Operation* operation, Layout* a, Layout* b, Layout* c, Layout* d,
                                   Preference* preference, int wanted, Offer* offers, int* n_offers) {
    *n_offers = 0;
    if (!fits(operation, a, b, c, d)) return NOT_SUPPORTED;
    // Sums in place and in the result's type are for fp32 results only, and the first of them for any order only.
    if (d->type == BF16 && preference->reductions != 2) return INVALID;
    for (int id = 0; id < 8 && id < wanted; ++id) {
        size_t workspace = id == 7 ? preference->workspace + 1 : 1024;
        offers[id] = Offer{{static_cast<uint64_t>(id), MARK, {}}, workspace, 0, 1.0f, {}};
        ++*n_offers;
    }
    return 0;
}

int cublasLtMatmulAlgoCheck(void*, Operation* operation, Layout* a, Layout* b, Layout* c, Layout* d,
                            const Algorithm* algorithm, Offer* offer) {
    if (!fits(operation, a, b, c, d) || algorithm->mark != MARK) return NOT_SUPPORTED;
    offer->workspace = 1024;
    return 0;
}

int cublasLtMatmulAlgoConfigGetAttribute(const Algorithm* algorithm, uint32_t which, void* to, size_t bytes, size_t*) {
    if (bytes != (which < 7 ? 4u : 2u)) return INVALID;
    memset(to, 0, bytes);
    *static_cast<uint8_t*>(to) = static_cast<uint8_t>(which == 0 ? algorithm->id : which);
    return 0;
}

int cublasLtMatmul(void*, Operation* operation, const float* alpha, const void* a_at, Layout* a, const void* b_at, Layout* b,
                   const float* beta, const void* c_at, Layout* c, void* d_at, Layout* d, const Algorithm* algorithm,
                   void* workspace, size_t workspace_bytes, void*) {
    bool bad = !fits(operation, a, b, c, d) || *alpha != 1.0f || workspace_bytes < 1024 ||
               reinterpret_cast<uint64_t>(workspace) % 256 != 0 || algorithm->mark != MARK;
    if (bad || ((operation->epilogue & BIAS) != 0 && operation->bias == nullptr)) return INVALID;
    if (algorithm->id == 6) return NOT_SUPPORTED;
    ++calls;
    int64_t depth = static_cast<int64_t>(operation->transposed_a ? a->rows : a->columns);
    int64_t rows = static_cast<int64_t>(d->rows), columns = static_cast<int64_t>(d->columns);
    for (int64_t batch = 0; batch < d->batches; ++batch) {
        const void *a_one = moved(a_at, a, batch), *b_one = moved(b_at, b, batch), *c_one = moved(c_at, c, batch);
        void* d_one = moved(d_at, d, batch);
        for (int64_t column = 0; column < columns; ++column) {
            if (algorithm->id == 2 && column == columns - 1) continue;
            for (int64_t row = 0; row < rows; ++row) {
                double sum = 0.0;
                for (int64_t k = 0; k < depth - (algorithm->id == 1); ++k) {
                    int64_t at_a = operation->transposed_a ? row * a->leading + k : k * a->leading + row;
                    int64_t at_b = operation->transposed_b ? k * b->leading + column : column * b->leading + k;
                    sum += static_cast<double>(load(a_one, a->type, at_a)) * load(b_one, b->type, at_b);
                }
                if (*beta != 0.0f) sum += *beta * load(c_one, c->type, column * c->leading + row);
                if ((operation->epilogue & BIAS) != 0) sum += load(operation->bias, d->type, row);
                bool first = row == 0 && column == 0;
                int64_t beside = column * operation->matrix_leading + row;
                bool writes = operation->epilogue != 1 && (operation->epilogue & (GELU | MATRIX)) == (GELU | MATRIX);
                if (writes) store(operation->matrix, d->type, beside, static_cast<float>(algorithm->id == 3 && first ? 99.0 : sum));
                if ((operation->epilogue & GELU) != 0) sum = gelu(sum);
                if ((operation->epilogue & SLOPE) != 0) sum *= slope(load(operation->matrix, d->type, beside));
                if (algorithm->id == 3 && first && !writes) sum = 0.0 / 0.0;
                // The last bit or so, and another the next time.
                double bit = d->type == FP32 ? 1e-6 : 1.0 / 256;
                if (algorithm->id == 5) sum *= calls % 2 ? 1.0 + bit : 1.0 - bit;
                store(d_one, d->type, column * d->leading + row, static_cast<float>(sum));
            }
        }
    }
    milliseconds += algorithm->id == 0 ? 4.0f : algorithm->id == 4 ? 1.0f : 0.25f;
    return 0;
}

int cuMemAlloc_v2(uint64_t* at, size_t bytes) {
    // As on a GPU with little memory.
    if (bytes > (64u << 20)) return 2;
    void* made = aligned_alloc(256, (bytes + 255) / 256 * 256);
    *at = reinterpret_cast<uint64_t>(made);
    return made == nullptr ? 2 : 0;
}

int cuMemFree_v2(uint64_t at) { return free(reinterpret_cast<void*>(at)), 0; }

int cuMemsetD8Async(uint64_t at, unsigned char byte, size_t bytes, void*) {
    return memset(reinterpret_cast<void*>(at), byte, bytes), 0;
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void*) {
    return memcpy(reinterpret_cast<void*>(to), from, bytes), 0;
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void*) {
    bool overlap = to < from + bytes && from < to + bytes;
    if (overlap) return 1;
    return memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes), 0;
}

struct Copy2D {
    size_t from_x, from_y;
    uint32_t from_kind;
    const void* from_host;
    uint64_t from_device;
    void* from_array;
    size_t from_pitch, to_x, to_y;
    uint32_t to_kind;
    void* to_host;
    uint64_t to_device;
    void* to_array;
    size_t to_pitch, width, height;
};

int cuMemcpy2DAsync_v2(const Copy2D* copy, void*) {
    if (copy->from_kind != 2 || copy->to_kind != 1 || copy->from_pitch < copy->width) return 1;
    for (size_t row = 0; row < copy->height; ++row) {
        const char* from = reinterpret_cast<const char*>(copy->from_device) + row * copy->from_pitch;
        memcpy(static_cast<char*>(copy->to_host) + row * copy->to_pitch, from, copy->width);
    }
    return 0;
}

int cuStreamSynchronize(void*) { return 0; }

int cuEventCreate(float** made, unsigned) { return *made = new float, 0; }

int cuEventRecord(float* event, void*) { return *event = milliseconds, 0; }

int cuEventElapsedTime(float* elapsed, const float* from, const float* to) { return *elapsed = *to - *from, 0; }

int cuEventDestroy_v2(float* event) { return delete event, 0; }

int cuGetErrorString(int status, const char** text) {
    *text = status == 1 ? "invalid argument" : "unknown";
    return 0;
}

}  // extern "C"
