#include "spo/prompt_tracker.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <unordered_set>
#include <utility>

#include "spo/evidence.hpp"
#include "spo/faults.hpp"

namespace spo {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

double checked_rho(double rho) {
  Faults faults("PromptTracker");
  if (!(rho > 0.0 && rho <= 1.0)) faults.add("rho: expected 0 < rho <= 1, got " + text(rho));
  faults.raise();
  return rho;
}

double ratio(const PromptTracker::Task& task) { return task.alpha.hi / add(task.alpha, task.beta).hi; }

}  // namespace

PromptTracker::PromptTracker(double rho) : rho_(checked_rho(rho)) {}

PromptTracker::PromptTracker(const State& state)
    : rho_(checked_rho(state.rho)),
      publishes_(state.publishes),
      next_ticket_(state.next_ticket),
      tasks_(state.tasks) {
  Faults faults("PromptTracker state");
  if (publishes_ < 0) faults.add("publishes: expected >= 0, got " + std::to_string(publishes_));
  if (next_ticket_ < 0) faults.add("next_ticket: expected >= 0, got " + std::to_string(next_ticket_));
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    const Task& task = tasks_[i];
    const std::string name = "task " + std::to_string(i);
    if (task.reference < 0 || task.reference > publishes_) {
      faults.add(name + ": expected a reference in [0, " + std::to_string(publishes_) + "], got " +
                 std::to_string(task.reference));
    }
    const auto valid = [](DoubleDouble x) {
      return x.hi >= 0.0 && std::isfinite(x.hi) && std::isfinite(x.lo) && x.hi + x.lo == x.hi;
    };
    if (!valid(task.alpha) || !valid(task.beta) || !(task.alpha.hi + task.beta.hi > 0.0)) {
      faults.add(name + ": expected finite evidence >= 0 that is not all zero, got alpha " +
                 text(task.alpha.hi) + " + " + text(task.alpha.lo) + " and beta " + text(task.beta.hi) +
                 " + " + text(task.beta.lo));
    }
  }
  if (state.tickets.size() != state.requests.size()) faults.add("tickets: expected one a request");
  faults.raise();
  requests_.reserve(state.tickets.size());
  for (std::size_t i = 0; i < state.tickets.size(); ++i) {
    const Request& request = state.requests[i];
    const std::int64_t ticket = state.tickets[i];
    const std::string name = "ticket " + std::to_string(ticket);
    if (ticket < 0 || ticket >= next_ticket_)
      faults.add(name + ": expected one below " + std::to_string(next_ticket_));
    if (request.task < 0 || request.task >= size()) {
      faults.add(name + ": expected a task in [0, " + std::to_string(size()) + "), got " +
                 std::to_string(request.task));
    }
    if (request.dispatched < 0 || request.dispatched > publishes_) {
      faults.add(name + ": expected dispatch in [0, " + std::to_string(publishes_) + "], got " +
                 std::to_string(request.dispatched));
    }
    if (!(request.value >= 0.0 && request.value <= 1.0)) {
      faults.add(name + ": expected a value in [0, 1], got " + text(request.value));
    }
    if (!requests_.emplace(ticket, request).second) faults.add(name + " appears twice");
  }
  faults.raise();
}

PromptTracker::State PromptTracker::state() const {
  State state{rho_, publishes_, next_ticket_, tasks_, {}, {}};
  state.tickets.reserve(requests_.size());
  for (const auto& [ticket, request] : requests_) state.tickets.push_back(ticket);
  std::sort(state.tickets.begin(), state.tickets.end());
  state.requests.reserve(requests_.size());
  for (const std::int64_t ticket : state.tickets) state.requests.push_back(requests_.at(ticket));
  return state;
}

void PromptTracker::register_tasks(std::span<const double> successes, std::span<const double> trials,
                                   std::span<const double> masses) {
  const std::vector<Prior> priors = jeffreys_priors(successes, trials, masses);
  // Grow geometrically here: reserve() alone would fit exactly and make many small calls quadratic.
  if (tasks_.capacity() < tasks_.size() + priors.size()) {
    tasks_.reserve(std::max(tasks_.size() + priors.size(), 2 * tasks_.capacity()));
  }
  for (const Prior& prior : priors) tasks_.push_back({{prior.alpha, 0.0}, {prior.beta, 0.0}, publishes_});
}

std::vector<std::int64_t> PromptTracker::dispatch(std::span<const std::int64_t> tasks) {
  Faults faults("dispatch");
  check_tasks(tasks, tasks_.size(), faults);
  if (tasks.size() > static_cast<std::uint64_t>(kMax - next_ticket_))
    faults.add("no ticket numbers are left");
  faults.raise();

  std::vector<std::int64_t> tickets;
  tickets.reserve(tasks.size());
  try {
    for (const std::int64_t task : tasks) {
      const std::int64_t ticket = next_ticket_ + static_cast<std::int64_t>(tickets.size());
      requests_.emplace(ticket, Request{task, publishes_, value(task)});
      tickets.push_back(ticket);
    }
  } catch (...) {  // out of memory half-way
    for (const std::int64_t ticket : tickets) requests_.erase(ticket);
    throw;
  }
  next_ticket_ += static_cast<std::int64_t>(tickets.size());
  return tickets;
}

void PromptTracker::check_tickets(std::span<const std::int64_t> tickets, Faults& faults) const {
  std::unordered_set<std::int64_t> seen;
  seen.reserve(tickets.size());
  for (const std::int64_t ticket : tickets) {
    if (!requests_.contains(ticket)) {
      const bool issued = ticket >= 0 && ticket < next_ticket_;
      faults.add("ticket " + std::to_string(ticket) +
                 (issued ? " has been completed or cancelled already" : " was never issued"));
    } else if (!seen.insert(ticket).second) {
      faults.add("ticket " + std::to_string(ticket) + " appears twice in this call");
    }
  }
}

std::vector<double> PromptTracker::complete(std::span<const std::int64_t> tickets,
                                            std::span<const double> outcomes) {
  Faults faults("complete");
  if (outcomes.size() != tickets.size()) {
    faults.add("outcomes: expected one a ticket (" + std::to_string(tickets.size()) + "), got " +
               std::to_string(outcomes.size()));
  }
  check_tickets(tickets, faults);
  check_outcomes(outcomes, faults);
  faults.raise();

  std::vector<double> advantages(tickets.size());
  for (std::size_t i = 0; i < tickets.size(); ++i) {
    const auto found = requests_.find(tickets[i]);
    const Request request = found->second;
    requests_.erase(found);
    advantages[i] = outcomes[i] - request.value;

    Task& task = tasks_[static_cast<std::size_t>(request.task)];
    DoubleDouble weight{1.0, 0.0};
    if (request.dispatched > task.reference) {
      const DoubleDouble decay = power(rho_, request.dispatched - task.reference);
      task.alpha = multiply(task.alpha, decay);
      task.beta = multiply(task.beta, decay);
      task.reference = request.dispatched;
    } else {
      weight = power(rho_, task.reference - request.dispatched);
    }
    task.alpha = add(task.alpha, multiply(weight, {outcomes[i], 0.0}));
    task.beta = add(task.beta, multiply(weight, two_sum(1.0, -outcomes[i])));
  }
  return advantages;
}

void PromptTracker::cancel(std::span<const std::int64_t> tickets) {
  Faults faults("cancel");
  check_tickets(tickets, faults);
  faults.raise();
  for (const std::int64_t ticket : tickets) requests_.erase(ticket);
}

void PromptTracker::publish(std::int64_t times) {
  Faults faults("publish");
  if (times < 0) {
    faults.add("times: expected a whole number >= 0, got " + std::to_string(times));
  } else if (times > kMax - publishes_) {
    faults.add("times: " + std::to_string(times) + " more would overflow the count of " +
               std::to_string(publishes_));
  }
  faults.raise();
  publishes_ += times;
}

double PromptTracker::value(std::int64_t task) const { return ratio(tasks_[static_cast<std::size_t>(task)]); }

std::vector<double> PromptTracker::values(std::span<const std::int64_t> tasks) const {
  Faults faults("values");
  check_tasks(tasks, tasks_.size(), faults);
  faults.raise();
  std::vector<double> out;
  out.reserve(tasks.size());
  for (const std::int64_t task : tasks) out.push_back(value(task));
  return out;
}

std::vector<double> PromptTracker::evidence(std::span<const std::int64_t> tasks) const {
  Faults faults("evidence");
  check_tasks(tasks, tasks_.size(), faults);
  faults.raise();
  std::vector<double> out;
  out.reserve(2 * tasks.size());
  for (const std::int64_t index : tasks) {
    const Task& task = tasks_[static_cast<std::size_t>(index)];
    const DoubleDouble decay = power(rho_, publishes_ - task.reference);
    out.push_back(multiply(task.alpha, decay).hi);
    out.push_back(multiply(task.beta, decay).hi);
  }
  return out;
}

}  // namespace spo
