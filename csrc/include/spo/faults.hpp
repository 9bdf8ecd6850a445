#pragma once
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

namespace spo {

/// Collects everything that is wrong with a call, so that one exception tells all of it before anything has
/// changed.
class Faults {
 public:
  explicit Faults(std::string where) : message_(std::move(where)) {}

  void add(const std::string& fault) {
    ++count_;
    if (count_ > kShown) return;
    message_ += count_ == 1 ? ": " : "; ";
    message_ += fault;
  }

  /// Throws std::invalid_argument if anything was added.
  void raise() const {
    if (count_ == 0) return;
    if (count_ > kShown) {
      throw std::invalid_argument(message_ + "; and " + std::to_string(count_ - kShown) + " more");
    }
    throw std::invalid_argument(message_);
  }

 private:
  static constexpr std::size_t kShown = 8;
  std::string message_;
  std::size_t count_ = 0;
};

}  // namespace spo
