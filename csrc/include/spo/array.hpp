#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace spo {

enum class Dtype { boolean, uint8, int32, int64, float16, bfloat16, float32, float64 };

std::size_t size_of(Dtype dtype);

// Someone else's array: `data` points at the element whose indices are all 0; strides count elements and may
// be 0 or negative. Without data it stands for an argument that was not given.
struct Array {
  void* data = nullptr;
  Dtype dtype = Dtype::float32;
  std::vector<std::int64_t> shape{}, strides{};

  explicit operator bool() const { return data != nullptr; }
  std::int64_t size() const;
  void* at(std::int64_t offset) const;
};

// How far entry i of the flattened axes lies from the first.
class Offsets {
 public:
  Offsets(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides);

  std::int64_t operator[](std::int64_t i) const {
    if (shape_.empty()) return i * inner_;
    std::int64_t offset = 0;
    for (std::size_t axis = shape_.size(); axis-- > 0; i /= shape_[axis])
      offset += i % shape_[axis] * strides_[axis];
    return offset;
  }

 private:
  std::int64_t inner_ = 0;  // the one stride, if the axes form one
  std::vector<std::int64_t> shape_{}, strides_{};
};

// The numbers of an array, flattened and read as double; int64 beyond 2^53 is rounded.
class Column {
 public:
  explicit Column(const Array& array) : array_(array), offsets_(array.shape, array.strides) {}

  explicit operator bool() const { return static_cast<bool>(array_); }
  double operator[](std::int64_t i) const;
  std::int64_t integer(std::int64_t i) const;  // exact, of an integer array
  void load(std::int64_t first, std::span<double> values) const;
  void store(std::int64_t i, double value) const;

 private:
  Array array_;
  Offsets offsets_;
};

}  // namespace spo
