#include "token_rows.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>

#include "spo/faults.hpp"
#include "spo/threads.hpp"

namespace spo {
namespace {

// Below this many numbers waking a thread costs more than it saves.
constexpr std::int64_t kWorthAThread = 1 << 16;

std::span<const std::int64_t> without_last(const std::vector<std::int64_t>& axes) {
  return {axes.data(), axes.size() - 1};
}

}  // namespace

RowReader::RowReader(const TokenRows& rows)
    : logits_(rows.logits),
      offsets_(without_last(logits_.shape), without_last(logits_.strides)),
      ids_(rows.token_ids),
      mask_(rows.mask),
      temperatures_(rows.temperatures),
      temperature_(rows.temperature),
      softcap_(static_cast<float>(rows.softcap)),
      count_(1),
      vocabulary_(logits_.shape.back()),
      stride_(logits_.strides.back()) {
  for (const std::int64_t axis : without_last(logits_.shape)) count_ *= axis;
}

Row RowReader::row(std::int64_t i) const {
  return {logits_.at(offsets_[i]), logits_.dtype, vocabulary_, stride_, softcap_, temperature(i)};
}

std::vector<std::int64_t> RowReader::checked_rows() const {
  std::vector<std::int64_t> rows;
  std::int64_t foreign = 0, first_foreign = 0;
  std::string faults;
  for (std::int64_t i = 0; i < count_; ++i) {
    if (!active(i)) continue;
    rows.push_back(i);
    if (const std::int64_t id = token(i); id < 0 || id >= vocabulary_) {
      if (foreign++ == 0) first_foreign = id;
    }
  }
  if (foreign > 0) {
    faults = "token_ids: expected ids in [0, " + std::to_string(vocabulary_) +
             ") where action_mask is non-zero, got " + std::to_string(first_foreign) + " (in " +
             std::to_string(foreign) + " rows)";
  }
  for (const std::int64_t i : rows) {
    if (temperature(i) > 0) continue;
    faults += (faults.empty() ? "" : "; ") +
              ("temperature: expected numbers > 0, got " + std::to_string(temperature(i)));
    break;
  }
  if (!faults.empty()) throw std::invalid_argument(faults);
  return rows;
}

RowWriter::RowWriter(const Array& out)
    : out_(out), offsets_(without_last(out_.shape), without_last(out_.strides)) {}

void RowWriter::expect_all() const {
#if defined(__linux__)
  constexpr std::uintptr_t kHugePage = 1 << 21;
  const auto first = reinterpret_cast<std::uintptr_t>(out_.data);
  const auto last = first + static_cast<std::uintptr_t>(out_.size()) * size_of(out_.dtype);
  const std::uintptr_t begin = (first + kHugePage - 1) / kHugePage * kHugePage,
                       end = last / kHugePage * kHugePage;
  if (begin < end)
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);  // advice: failure is no fault
#endif
}

void for_rows(const std::vector<std::int64_t>& rows, std::int64_t vocabulary, std::size_t threads,
              const std::function<void(std::int64_t)>& body) {
  const auto n = static_cast<std::int64_t>(rows.size());
  if (n * vocabulary < kWorthAThread) threads = 1;
  parallel_for(rows.size(), threads, [&](std::size_t k) { body(rows[k]); });
}

}  // namespace spo
