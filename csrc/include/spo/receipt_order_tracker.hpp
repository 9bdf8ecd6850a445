#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "spo/evidence.hpp"

namespace spo {

/// Beta evidence of SPO, folded in the order in which results are received:
///
///   rho = clip(2^(-drift / d_half), rho_min, rho_max),   alpha <- rho alpha + R,   beta <- rho beta + 1 - R.
///
/// Tasks are indices in order of registration; calls are atomic as PromptTracker's are.
class ReceiptOrderTracker {
 public:
  ReceiptOrderTracker(double rho_min, double rho_max, double d_half);
  /// Restores saved evidence; refuses numbers that cannot be evidence.
  ReceiptOrderTracker(double rho_min, double rho_max, double d_half, std::vector<Prior> evidence);

  double rho_min() const { return rho_min_; }
  double rho_max() const { return rho_max_; }
  double d_half() const { return d_half_; }
  std::int64_t size() const { return static_cast<std::int64_t>(tasks_.size()); }
  const std::vector<Prior>& tasks() const { return tasks_; }

  void register_tasks(std::span<const double> successes, std::span<const double> trials,
                      std::span<const double> masses);
  /// Outcome minus the value just before it, in array order: a repeated task sees its earlier outcomes.
  std::vector<double> update(std::span<const std::int64_t> tasks, std::span<const double> outcomes,
                             std::span<const double> drift);
  std::vector<double> values(std::span<const std::int64_t> tasks) const;
  std::vector<double> evidence(std::span<const std::int64_t> tasks) const;

 private:
  double rho_min_, rho_max_, d_half_;
  std::vector<Prior> tasks_;
};

}  // namespace spo
