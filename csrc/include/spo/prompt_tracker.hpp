#pragma once
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "spo/double_double.hpp"
#include "spo/faults.hpp"

namespace spo {

/// Event-time Beta evidence of SPO++: an outcome counts from the publish under which its request was
/// dispatched, however late it arrives.
///
/// With k publishes so far, a task registered at k0 has
///
///   alpha = rho^(k - k0) alpha0 + sum_i rho^(k - k_i) R_i,   beta the same with 1 - R_i,   v = alpha /
///   (alpha + beta).
///
/// The decay rho^(k - k_ref) common to all terms is never stored: a task keeps mantissas (a, b) that are
/// exact at a publish k_ref of its own, the latest k_i it has heard of. An outcome of k_i <= k_ref joins with
/// weight rho^(k_ref - k_i); one of k_i > k_ref first moves the mantissas there. Either is O(1), both orders
/// end in the same sums, and v = a / (a + b) does not change, let alone underflow, while nothing arrives.
///
/// Tasks are indices in order of registration. Each call checks its whole batch first and throws
/// std::invalid_argument, with every fault named and nothing changed, if any part of it is wrong. Not
/// synchronised.
class PromptTracker {
 public:
  struct Task {
    DoubleDouble alpha, beta;  // mantissas: the evidence as it stood at publish `reference`
    std::int64_t reference;
  };
  struct Request {
    std::int64_t task;
    std::int64_t dispatched;  // publishes before it was dispatched, k_i
    double value;             // v at that moment; never changes
  };
  /// Everything there is to save. Requests are sorted by ticket.
  struct State {
    double rho = 1.0;
    std::int64_t publishes = 0;
    std::int64_t next_ticket = 0;
    std::vector<Task> tasks;
    std::vector<std::int64_t> tickets;
    std::vector<Request> requests;
  };

  explicit PromptTracker(double rho);

  /// Refuses (std::invalid_argument) a state that no sequence of calls could have produced.
  explicit PromptTracker(const State& state);
  State state() const;

  double rho() const { return rho_; }
  std::int64_t publishes() const { return publishes_; }
  std::int64_t size() const { return static_cast<std::int64_t>(tasks_.size()); }
  std::int64_t in_flight() const { return static_cast<std::int64_t>(requests_.size()); }

  /// New tasks get the indices size(), size() + 1, ...
  void register_tasks(std::span<const double> successes, std::span<const double> trials,
                      std::span<const double> masses);
  /// One ticket a task; a task may be named any number of times.
  std::vector<std::int64_t> dispatch(std::span<const std::int64_t> tasks);
  /// Outcome minus the value frozen at dispatch, one a ticket.
  std::vector<double> complete(std::span<const std::int64_t> tickets, std::span<const double> outcomes);
  void cancel(std::span<const std::int64_t> tickets);
  void publish(std::int64_t times);

  double value(std::int64_t task) const;
  std::vector<double> values(std::span<const std::int64_t> tasks) const;
  /// alpha and beta of each task in turn, decayed to now: 2 numbers a task.
  std::vector<double> evidence(std::span<const std::int64_t> tasks) const;

 private:
  void check_tickets(std::span<const std::int64_t> tickets, Faults& faults) const;

  double rho_;
  std::int64_t publishes_ = 0;
  std::int64_t next_ticket_ = 0;
  std::vector<Task> tasks_;
  std::unordered_map<std::int64_t, Request> requests_;
};

}  // namespace spo
