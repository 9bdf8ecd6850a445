// The kernels of the code path in use; see spo/cpu_path.hpp.
#pragma once
#include "row_kernel.hpp"
#include "segment_kernel.hpp"

namespace spo {

const RowKernel& row_kernel();
const SegmentKernel& segment_kernel();

}  // namespace spo
