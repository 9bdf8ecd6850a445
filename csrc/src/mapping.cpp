#include "spo/mapping.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace spo {
namespace {

constexpr std::uint64_t kLargest = std::uint64_t{1} << 38, kSmallest = std::uint64_t{1} << 28;

}  // namespace

void raise_system_error(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

Mapping::Mapping() { reserve(); }

Mapping::Mapping(int descriptor) : descriptor_(descriptor) { reserve(); }

Mapping::~Mapping() {
  munmap(base_, size_);
  if (shared()) close(descriptor_);
}

void Mapping::reserve() {
  const int flags = (shared() ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS) | MAP_NORESERVE;
  // A limit on address space may leave less than asked for.
  for (size_ = kLargest; size_ >= kSmallest; size_ /= 2) {
    void* const found = mmap(nullptr, size_ + kHugePage, PROT_READ | PROT_WRITE, flags, descriptor_, 0);
    if (found == MAP_FAILED) continue;
    base_ = static_cast<std::byte*>(found);
    if (shared()) {
      size_ += kHugePage;
      return;
    }
    // Huge pages need addresses that are multiples of theirs.
    const std::uint64_t past = reinterpret_cast<std::uintptr_t>(found) % kHugePage;
    const std::uint64_t before = past == 0 ? 0 : kHugePage - past;
    if (before > 0) munmap(base_, before);
    base_ += before;
    if (before < kHugePage) munmap(base_ + size_, kHugePage - before);
    return;
  }
  const int error = errno;
  if (shared()) close(descriptor_);
  errno = error;
  raise_system_error("StateTable: no address space left");
}

std::uint64_t Mapping::file_bytes() const {
  struct stat status {};
  if (fstat(descriptor_, &status) != 0) raise_system_error("StateTable");
  return static_cast<std::uint64_t>(status.st_size);
}

void Mapping::extend(std::uint64_t offset, std::uint64_t bytes) {
  if (!shared()) {
    const std::uint64_t first = (offset + kHugePage - 1) / kHugePage * kHugePage;
    const std::uint64_t last = (offset + bytes) / kHugePage * kHugePage;
    if (first < last) madvise(at(first), last - first, MADV_HUGEPAGE);
    return;
  }
  // Blocks that exist: a full disk is an error here instead of a SIGBUS on a later write.
  if (fallocate(descriptor_, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0) return;
  if (errno != EOPNOTSUPP) raise_system_error("StateTable: the file cannot grow");
  // Unlike ftruncate, a write can only lengthen a file that other processes lengthen too.
  const char zero = 0;
  if (pwrite(descriptor_, &zero, 1, static_cast<off_t>(offset + bytes - 1)) != 1)
    raise_system_error("StateTable: the file cannot grow");
}

void Mapping::discard(std::uint64_t offset, std::uint64_t bytes) {
  if (shared()) {
    fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(bytes));
  } else {
    madvise(at(offset), bytes, MADV_DONTNEED);
  }
}

}  // namespace spo
