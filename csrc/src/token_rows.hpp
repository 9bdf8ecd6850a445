// TokenRows, row by row.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "row.hpp"
#include "spo/token_logprob.hpp"

namespace spo {

class RowReader {
 public:
  explicit RowReader(const TokenRows& rows);

  std::int64_t count() const { return count_; }
  std::int64_t vocabulary() const { return vocabulary_; }
  bool active(std::int64_t i) const { return !mask_ || mask_[i] != 0; }
  std::int64_t token(std::int64_t i) const { return ids_.integer(i); }
  Row row(std::int64_t i) const;
  // Numbers of the rows to compute; throws std::invalid_argument if one has a wrong id or temperature.
  std::vector<std::int64_t> checked_rows() const;

 private:
  double temperature(std::int64_t i) const { return temperatures_ ? temperatures_[i] : temperature_; }

  Array logits_;
  Offsets offsets_;
  Column ids_, mask_, temperatures_;
  double temperature_;
  float softcap_;
  std::int64_t count_, vocabulary_, stride_;
};

// Where the rows of an array shaped like the logits lie.
class RowWriter {
 public:
  explicit RowWriter(const Array& out);
  void* row(std::int64_t i) const { return out_.at(offsets_[i]); }
  std::int64_t stride() const { return out_.strides.back(); }
  void zero(std::int64_t i) const { write_zeros(out_.dtype, out_.shape.back(), row(i), stride()); }
  // Asks for large pages where the whole array is about to be written for the first time.
  void expect_all() const;

 private:
  Array out_;
  Offsets offsets_;
};

// Calls body(i) for the given rows of a vocabulary of this size, on several threads if there is work for
// them.
void for_rows(const std::vector<std::int64_t>& rows, std::int64_t vocabulary, std::size_t threads,
              const std::function<void(std::int64_t)>& body);

}  // namespace spo
