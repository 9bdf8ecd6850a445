// The same loops for AVX2 and FMA. CMake compiles this file for them; nothing here runs before they are
// found.
#include "segment_kernel.hpp"

#if defined(__AVX2__) && defined(__FMA__)
#include "segment_kernel_impl.hpp"

namespace spo {
namespace {

const SegmentKernel kernel{moments<float>, squares<float>, apply<float, float>};

}  // namespace

const SegmentKernel* avx2_segment_kernel() { return &kernel; }

}  // namespace spo
#else
namespace spo {

const SegmentKernel* avx2_segment_kernel() { return nullptr; }

}  // namespace spo
#endif
