// Sums over the counted entries of one segment.
#pragma once
#include <cstdint>
#include <limits>

namespace spo {

struct Moments {
  double count = 0;
  double pivot = 0;  // a value of the set: sums about it keep their digits under a common offset
  double sum = 0;    // of the distances from the pivot; NaN if a value is
  double squares = 0;  // of the same
  double least = std::numeric_limits<double>::infinity(), most = -least;
};

// How a value becomes a result: (value - shift) * factor.
struct Scaling {
  double shift = 0, factor = 1;
};

// Float values and a mask of bytes, both in a line.
struct SegmentKernel {
  void (*moments)(const float* values, const std::uint8_t* mask, std::int64_t n, Moments& moments);
  void (*apply)(const float* values, const std::uint8_t* mask, std::int64_t n, Scaling scaling, float* out);
};

extern const SegmentKernel portable_segment_kernel;
const SegmentKernel* avx2_segment_kernel();  // null if it was not compiled in

}  // namespace spo
