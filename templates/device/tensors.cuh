<% include "device/types.cuh" %>
// Tables of tensors that one launch walks: each has blocks of its own, and knows the number of its first.

// The last of n tensors that begins at this block or before: the one the block belongs to.
template <typename T>
__device__ __forceinline__ const T& tensor_of(const T* tensors, i32 n, i64 block) {
    i32 found = 0;
    for (i32 end = n; end - found > 1;) {
        const i32 middle = (found + end) / 2;
        if (tensors[middle].first_block <= block) {
            found = middle;
        } else {
            end = middle;
        }
    }
    return tensors[found];
}
