#include "spo/receipt_order_tracker.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "spo/faults.hpp"

namespace spo {

ReceiptOrderTracker::ReceiptOrderTracker(double rho_min, double rho_max, double d_half)
    : ReceiptOrderTracker(rho_min, rho_max, d_half, {}) {}

ReceiptOrderTracker::ReceiptOrderTracker(double rho_min, double rho_max, double d_half,
                                         std::vector<Prior> evidence)
    : rho_min_(rho_min), rho_max_(rho_max), d_half_(d_half), tasks_(std::move(evidence)) {
  Faults faults("ReceiptOrderTracker");
  if (!(rho_min > 0.0 && rho_min <= rho_max && rho_max <= 1.0)) {
    faults.add("rho_min, rho_max: expected 0 < rho_min <= rho_max <= 1, got " + text(rho_min) + " and " +
               text(rho_max));
  }
  if (!(d_half > 0.0 && std::isfinite(d_half)))
    faults.add("d_half: expected a number > 0, got " + text(d_half));
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    const auto [alpha, beta] = tasks_[i];
    if (!(alpha >= 0.0 && beta >= 0.0 && alpha + beta > 0.0 && std::isfinite(alpha + beta))) {
      faults.add("task " + std::to_string(i) + ": expected finite evidence >= 0 that is not all zero, got " +
                 text(alpha) + " and " + text(beta));
    }
  }
  faults.raise();
}

void ReceiptOrderTracker::register_tasks(std::span<const double> successes, std::span<const double> trials,
                                         std::span<const double> masses) {
  const std::vector<Prior> priors = jeffreys_priors(successes, trials, masses);
  tasks_.insert(tasks_.end(), priors.begin(), priors.end());
}

std::vector<double> ReceiptOrderTracker::update(std::span<const std::int64_t> tasks,
                                                std::span<const double> outcomes,
                                                std::span<const double> drift) {
  Faults faults("update");
  if (outcomes.size() != tasks.size() || drift.size() != tasks.size()) {
    faults.add("outcomes and drift: expected one of each a task (" + std::to_string(tasks.size()) +
               "), got " + std::to_string(outcomes.size()) + " and " + std::to_string(drift.size()));
  }
  check_tasks(tasks, tasks_.size(), faults);
  check_outcomes(outcomes, faults);
  for (std::size_t i = 0; i < drift.size(); ++i) {
    if (!(drift[i] >= 0.0)) {
      faults.add("drift[" + std::to_string(i) + "]: expected a number >= 0, got " + text(drift[i]));
    }
  }
  faults.raise();

  std::vector<double> advantages(tasks.size());
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    Prior& task = tasks_[static_cast<std::size_t>(tasks[i])];
    advantages[i] = outcomes[i] - task.alpha / (task.alpha + task.beta);
    const double rho = std::clamp(std::exp2(-drift[i] / d_half_), rho_min_, rho_max_);
    task.alpha = rho * task.alpha + outcomes[i];
    task.beta = rho * task.beta + (1.0 - outcomes[i]);
  }
  return advantages;
}

std::vector<double> ReceiptOrderTracker::values(std::span<const std::int64_t> tasks) const {
  Faults faults("values");
  check_tasks(tasks, tasks_.size(), faults);
  faults.raise();
  std::vector<double> out;
  out.reserve(tasks.size());
  for (const std::int64_t index : tasks) {
    const auto [alpha, beta] = tasks_[static_cast<std::size_t>(index)];
    out.push_back(alpha / (alpha + beta));
  }
  return out;
}

std::vector<double> ReceiptOrderTracker::evidence(std::span<const std::int64_t> tasks) const {
  Faults faults("evidence");
  check_tasks(tasks, tasks_.size(), faults);
  faults.raise();
  std::vector<double> out;
  out.reserve(2 * tasks.size());
  for (const std::int64_t index : tasks) {
    out.push_back(tasks_[static_cast<std::size_t>(index)].alpha);
    out.push_back(tasks_[static_cast<std::size_t>(index)].beta);
  }
  return out;
}

}  // namespace spo
