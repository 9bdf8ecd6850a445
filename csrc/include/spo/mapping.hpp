#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace spo {

/// One contiguous range of addresses, far larger than what is used of it: private memory, or a file that
/// every process that maps it shares. Pages come with extend() and go with discard(); nothing ever moves.
/// Zero-filled.
///
/// Failures of the system are std::system_error.
class Mapping {
 public:
  /// Private memory.
  Mapping();
  /// Shared memory: the file open at `descriptor`, which is closed with the mapping.
  explicit Mapping(int descriptor);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  static constexpr std::size_t kPage = 4096, kHugePage = std::size_t{2} << 20;

  bool shared() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  std::byte* at(std::uint64_t offset) const { return base_ + offset; }
  std::uint64_t size() const { return size_; }
  std::uint64_t file_bytes() const;

  /// Makes [offset, offset + bytes) usable, huge pages where it is private and large.
  void extend(std::uint64_t offset, std::uint64_t bytes);
  /// Gives [offset, offset + bytes) back to the system; it reads as zero afterwards. A file system that
  /// cannot do so keeps the pages.
  void discard(std::uint64_t offset, std::uint64_t bytes);

 private:
  void reserve();

  int descriptor_ = -1;
  std::byte* base_ = nullptr;
  std::uint64_t size_ = 0;
};

[[noreturn]] void raise_system_error(const std::string& what);

}  // namespace spo
