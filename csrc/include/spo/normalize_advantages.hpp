#pragma once
#include <cstddef>

#include "spo/array.hpp"

namespace spo {

// One advantage a segment, [S], with its number of action tokens; or, with a mask, one a token: [B, T], or
// packed [N] with offsets.
struct AdvantageArrays {
  Array advantages;
  Array lengths;     // [S], >= 0; not given: all 1
  Array mask;        // shaped like the advantages
  Array cu_seqlens;  // [B + 1]
  Array groups;      // int64, one a segment, in [0, segments); not given: one group
};

struct NormalizeOptions {
  bool by_token;  // every action token counts; else every segment that has tokens
  bool center, scale;
  double eps;
};

// (A - mean) / (deviation + eps) by group into `out`, with statistics in float64 that do not depend on the
// number of threads; 0 where nothing counts. A group that is constant, or one unit, is never scaled.
void normalize_advantages(const AdvantageArrays& arrays, const NormalizeOptions& options, const Array& out,
                          std::size_t threads);

}  // namespace spo
