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

}  // namespace spo
