#include "spo/evidence.hpp"

#include <charconv>
#include <cmath>

namespace spo {

std::string text(double value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return std::string(buffer, end);
}

std::vector<Prior> jeffreys_priors(std::span<const double> successes, std::span<const double> trials,
                                   std::span<const double> masses) {
  Faults faults("register");
  if (successes.size() != trials.size() || masses.size() != trials.size()) {
    faults.add("successes, trials and mass: expected one of each a task, got " +
               std::to_string(successes.size()) + ", " + std::to_string(trials.size()) + " and " +
               std::to_string(masses.size()));
    faults.raise();
  }
  std::vector<Prior> priors;
  priors.reserve(trials.size());
  for (std::size_t i = 0; i < trials.size(); ++i) {
    const double s = successes[i], n = trials[i], mass = masses[i];
    const std::string at = "[" + std::to_string(i) + "]";
    const bool counted = n >= 0.0 && std::isfinite(n) && n == std::floor(n);
    if (!counted) faults.add("trials" + at + ": expected a whole number >= 0, got " + text(n));
    if (!(s >= 0.0) || (counted && s > n)) {
      faults.add("successes" + at + ": expected 0 <= successes <= trials, got " + text(s) + " of " + text(n));
    }
    // Beyond these limits evidence would leave the range in which doubles keep full precision.
    if (!(mass >= 1e-100 && mass <= 1e100)) {
      faults.add("mass" + at + ": expected a number in [1e-100, 1e100], got " + text(mass));
    }
    if (n == 0.0) {
      priors.push_back({0.5, 0.5});
    } else {
      priors.push_back({mass * ((s + 0.5) / (n + 1.0)), mass * ((n - s + 0.5) / (n + 1.0))});
    }
  }
  faults.raise();
  return priors;
}

void check_outcomes(std::span<const double> outcomes, Faults& faults) {
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    if (!(outcomes[i] >= 0.0 && outcomes[i] <= 1.0)) {
      faults.add("outcomes[" + std::to_string(i) + "]: expected a number in [0, 1], got " +
                 text(outcomes[i]));
    }
  }
}

void check_tasks(std::span<const std::int64_t> tasks, std::size_t size, Faults& faults) {
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (tasks[i] < 0 || static_cast<std::uint64_t>(tasks[i]) >= size) {
      faults.add("tasks[" + std::to_string(i) + "]: expected an index in [0, " + std::to_string(size) +
                 "), got " + std::to_string(tasks[i]));
    }
  }
}

}  // namespace spo
