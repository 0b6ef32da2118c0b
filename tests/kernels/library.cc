// The library that the checks open: the kernels' emulation, and the names of all kernels in it, one a line.
#include "emulation/launch.cc"

extern "C" const char* kt_kernel_names() {
    static const std::string names = [] {
        std::string all;
        for (const auto& kernel : kt::kernels()) all += kernel.first + '\n';
        return all;
    }();
    return names.c_str();
}
