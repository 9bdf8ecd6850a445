#include "spo/array.hpp"

#include <stdexcept>

#include "half.hpp"

namespace spo {
namespace {

template <class Use>
decltype(auto) visit(Dtype dtype, void* data, const Use& use) {
  switch (dtype) {
    case Dtype::boolean: return use(static_cast<std::uint8_t*>(data));
    case Dtype::uint8: return use(static_cast<std::uint8_t*>(data));
    case Dtype::int32: return use(static_cast<std::int32_t*>(data));
    case Dtype::int64: return use(static_cast<std::int64_t*>(data));
    case Dtype::float16: return use(static_cast<Float16*>(data));
    case Dtype::bfloat16: return use(static_cast<BFloat16*>(data));
    case Dtype::float32: return use(static_cast<float*>(data));
    case Dtype::float64: return use(static_cast<double*>(data));
  }
  throw std::logic_error("a dtype without a case");
}

template <class T>
double as_double(T x) {
  return static_cast<double>(x);
}
double as_double(Float16 x) { return widen(x); }
double as_double(BFloat16 x) { return widen(x); }

template <class T>
void assign(T& to, double value) {
  to = static_cast<T>(value);
}
void assign(Float16& to, double value) { to = narrow<Float16>(static_cast<float>(value)); }
void assign(BFloat16& to, double value) { to = narrow<BFloat16>(static_cast<float>(value)); }

}  // namespace

std::size_t size_of(Dtype dtype) {
  return visit(dtype, nullptr, [](auto* p) { return sizeof(*p); });
}

std::int64_t Array::size() const {
  std::int64_t n = 1;
  for (const std::int64_t axis : shape) n *= axis;
  return n;
}

void* Array::at(std::int64_t offset) const {
  return static_cast<char*>(data) + offset * static_cast<std::int64_t>(size_of(dtype));
}

Offsets::Offsets(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) {
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 1) continue;
    if (!shape_.empty() && strides_.back() == shape[axis] * strides[axis]) {
      shape_.back() *= shape[axis];
      strides_.back() = strides[axis];
    } else {
      shape_.push_back(shape[axis]);
      strides_.push_back(strides[axis]);
    }
  }
  if (shape_.size() > 1) return;
  inner_ = strides_.empty() ? 0 : strides_[0];
  shape_.clear();
}

double Column::operator[](std::int64_t i) const {
  return visit(array_.dtype, array_.data, [&](const auto* p) { return as_double(p[offsets_[i]]); });
}

std::int64_t Column::integer(std::int64_t i) const {
  if (array_.dtype == Dtype::int64) return static_cast<const std::int64_t*>(array_.data)[offsets_[i]];
  return static_cast<std::int64_t>((*this)[i]);
}

void Column::load(std::int64_t first, std::span<double> values) const {
  visit(array_.dtype, array_.data, [&](const auto* p) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = as_double(p[offsets_[first + static_cast<std::int64_t>(i)]]);
    }
  });
}

void Column::store(std::int64_t i, double value) const {
  visit(array_.dtype, array_.data, [&](auto* p) { assign(p[offsets_[i]], value); });
}

}  // namespace spo
