// All kernels as one shared library for the CPU, launched by name with an array of pointers to arguments, as
// cuLaunchKernel does, so that host code can be the same for both:
//
//   g++ -std=c++17 -O2 -fPIC -shared -x c++ kernels/emulation/launch.cc -Ikernels -o libkernels.so
#include "../kt.h"
#include "../kt_hopper.h"

#include "../attention.cu"
#include "../attention_sm90.cu"
#include "../embed.cu"
#include "../gather.cu"
#include "../gemm.cu"
#include "../gemm_sm90.cu"
#include "../layer_norm.cu"
#include "../pool.cu"
#include "../score_head.cu"
#include "../top_k.cu"

KT_EXPORT(embed);
KT_EXPORT(layer_norm);
KT_EXPORT(gather);
KT_EXPORT(pool);
KT_EXPORT(score_head);
KT_EXPORT(top_k);

KT_EXPORT(attention_32);
KT_EXPORT(attention_64);
KT_EXPORT(attention90_64);

KT_EXPORT(gemm_bias_64x64);
KT_EXPORT(gemm_gelu_64x64);
KT_EXPORT(gemm_residual_64x64);
KT_EXPORT(gemm_bias_128x128);
KT_EXPORT(gemm_gelu_128x128);
KT_EXPORT(gemm_residual_128x128);
KT_EXPORT(gemm_bias_128x256);
KT_EXPORT(gemm_gelu_128x256);
KT_EXPORT(gemm_residual_128x256);

KT_EXPORT(gemm90_bias_128x128);
KT_EXPORT(gemm90_gelu_128x128);
KT_EXPORT(gemm90_residual_128x128);
KT_EXPORT(gemm90_bias_128x256);
KT_EXPORT(gemm90_gelu_128x256);
KT_EXPORT(gemm90_residual_128x256);

// 0, or 1 where there is no such kernel.
extern "C" int kt_launch(const char* kernel, const unsigned grid[3], const unsigned block[3], size_t shared_bytes, void** args,
                         uint64_t seed, int late_copies, int late_mma) {
    auto found = kt::kernels().find(kernel);
    if (found == kt::kernels().end()) return 1;
    kt::Options options;
    options.seed = seed;
    options.late_copies = late_copies;
    options.late_mma = late_mma;
    found->second(dim3(grid[0], grid[1], grid[2]), dim3(block[0], block[1], block[2]), shared_bytes, args, options);
    return 0;
}

// Describes a matrix of bf16 to TMA: what cuTensorMapEncodeTiled fills on the GPU.
extern "C" void kt_tensor_map(void* map, const void* base, uint64_t rows, uint64_t columns, uint64_t row_bytes, uint32_t box_rows,
                              uint32_t box_columns) {
    if ((uintptr_t)map & 63) kt::die("a tensor map begins at a multiple of 64 bytes");
    if ((uintptr_t)base & 15 || row_bytes & 15) kt::die("a matrix for TMA and its rows begin at multiples of 16 bytes");
    if (box_columns != kt::BOX_COLUMNS || box_rows == 0 || box_rows > 256) kt::die("a box has 64 columns and 1 to 256 rows");
    *(TensorMap*)map = {{(u64)base, rows, columns, row_bytes, box_rows, box_columns}};
}
