#pragma once
#include <cstddef>
#include <cstdint>

#include "spo/array.hpp"

namespace spo {

// Rows of logits and the token that each scores: z = softcap(logits) / temperature.
struct TokenRows {
  Array logits;        // [..., V], float32, bfloat16 or float16
  Array token_ids;     // [...], int64
  Array mask;          // [...]; where 0, nothing of the row is read. Not given: every row
  Array temperatures;  // [...]; not given: `temperature` for all
  double temperature = 1;
  double softcap = 0;  // 0: none
};

// Log-probabilities, and with `entropy` given entropies, both [...]; 0 in masked rows. `stats` takes float64
// [rows, 3] for the backward pass, where the row was computed. Throws std::invalid_argument, before anything
// is written, for an id outside [0, V) or a temperature that is not > 0 in a row to compute.
void token_logprob_forward(const TokenRows& rows, const Array& logprobs, const Array& entropy,
                           const Array& stats, std::size_t threads);

// The gradient with respect to the logits, into `out`, shaped like them; it may be the logits. Masked rows
// are set to 0 unless `clean` says that they are.
void token_logprob_backward(const TokenRows& rows, const Array& stats, const Array& grad_logprobs,
                            const Array& grad_entropy, const Array& out, bool clean, std::size_t threads);

// Logits that exist a tile at a time: columns `first`... of `tile.logits` [n, width], whose ids are those of
// the whole vocabulary and whose mask is not read. For each row, `sums` [n, 3] float64 (-inf, 0, 0 at the
// start) and the chosen token's logit in `chosen` [n] float64 grow until every tile was added.
void add_tile(const TokenRows& tile, std::int64_t first, bool with_entropy, const Array& sums,
              const Array& chosen, std::size_t threads);

// Log-probabilities and, if given, entropies of rows whose tiles were all added; `sums` become the stats that
// write_tile_gradient reads. Of `tile` only the ids, temperatures and softcap count.
void score_tiles(const TokenRows& tile, const Array& sums, const Array& chosen, const Array& logprobs,
                 const Array& entropy);

// Replaces a tile by the gradient with respect to it.
void write_tile_gradient(const TokenRows& tile, std::int64_t first, const Array& stats, const Array& chosen,
                         const Array& grad_logprobs, const Array& grad_entropy, std::size_t threads);

}  // namespace spo
