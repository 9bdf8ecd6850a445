// One row of logits, one chosen token: value, entropy and gradient.
#pragma once
#include "row_kernel.hpp"

namespace spo {

// What the forward pass leaves for the backward pass.
struct RowStats {
  double maximum, sum, entropy;
};

struct RowScore {
  double logprob;
  RowStats stats;  // entropy 0 unless it was asked for
};

struct Upstream {
  double logprob, entropy;
};

RowScore score_row(const Row& row, std::int64_t token, bool with_entropy);

// The score of a row whose entries were added piece by piece; `chosen` is the logit of the token.
RowScore score_of(const RowSums& sums, float chosen, const Row& row, bool with_entropy);

// Writes g ([j = token] - p_j) - h p_j (log p_j + H) through softcap and temperature. `out` may be the row
// itself.
void write_row_gradient(const Row& row, std::int64_t token, const RowStats& stats, Upstream upstream,
                        void* out, std::int64_t out_stride);

// The same for a piece of a row that starts at entry `first`; `chosen` is the logit of the token, wherever it
// lies.
void write_piece_gradient(const Row& piece, std::int64_t first, std::int64_t token, float chosen,
                          const RowStats& stats, Upstream upstream, void* out, std::int64_t out_stride);

void write_zeros(Dtype dtype, std::int64_t n, void* out, std::int64_t stride);

float logit_at(const Row& row, std::int64_t i);

}  // namespace spo
