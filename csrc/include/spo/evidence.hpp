#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "spo/faults.hpp"

namespace spo {

/// One task's prior as (alpha, beta): mass (s + 1/2) / (n + 1) and the rest of the mass. Without trials the
/// mass is 1, so the prior is Jeffreys' (1/2, 1/2).
struct Prior {
  double alpha;
  double beta;
};

/// Priors of a batch of new tasks. Throws std::invalid_argument, naming every fault, unless sizes agree,
/// 0 <= successes <= trials, trials are whole and masses lie in [1e-100, 1e100].
std::vector<Prior> jeffreys_priors(std::span<const double> successes, std::span<const double> trials,
                                   std::span<const double> masses);

/// Adds a fault for each outcome that is not in [0, 1] (NaN included).
void check_outcomes(std::span<const double> outcomes, Faults& faults);

/// Adds a fault for each index outside [0, size).
void check_tasks(std::span<const std::int64_t> tasks, std::size_t size, Faults& faults);

/// A number as it appears in messages: shortest text that reads back as the same double.
std::string text(double value);

}  // namespace spo
