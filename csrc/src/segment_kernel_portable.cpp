#include "segment_kernel_impl.hpp"

namespace spo {

const SegmentKernel portable_segment_kernel{moments<float>, apply<float, float>};

}  // namespace spo
