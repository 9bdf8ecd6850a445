// Sums and gradients over one row of logits: what token_logprob, its fused forms and the tiled head share.
//
// With z = softcap(x), m = max z and c = log2(e) / temperature, everything is said in powers of two, 2^t with
// t = (z - m) c: a power of two is an exponent to shift and a polynomial, and the subtraction of m, not of a
// logarithm, keeps the digits.
#pragma once
#include <cstdint>
#include <limits>

#include "spo/array.hpp"

namespace spo {

// A row, or a piece of one.
struct Row {
  const void* data;
  Dtype dtype;  // float32, bfloat16 or float16
  std::int64_t size, stride;
  float softcap;  // 0: none
  double temperature;
};

struct RowSums {
  double maximum = -std::numeric_limits<double>::infinity();  // of z
  double sum = 0;                                             // of 2^t
  double weighted = 0;                                        // of 2^t t, if asked for
};

struct RowKernel {
  const char* name;
  // Adds a row's entries to `sums`; a row may come in pieces. NaN or +inf anywhere makes the sum NaN.
  void (*add)(const Row& row, bool weighted, RowSums& sums);
  // Writes 2^t (constant + slope t) softcap'(x), exactly 0 where x is -inf, in the dtype of the row; `out`
  // may be the row itself. The maximum must be finite, or the constant NaN.
  void (*gradient)(const Row& row, double maximum, double constant, double slope, void* out,
                   std::int64_t out_stride);
  // z of one entry, with the very rounding that `add` used.
  float (*capped)(float x, float softcap);
};

// The fastest this machine runs, unless choose_row_kernel said otherwise.
const RowKernel& row_kernel();

extern const RowKernel portable_row_kernel;
const RowKernel* avx2_row_kernel();  // null if it was not compiled in

}  // namespace spo
