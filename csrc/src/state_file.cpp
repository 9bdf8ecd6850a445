// Shared files, and saved copies.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "spo/faults.hpp"
#include "state_layout.hpp"

namespace spo {
namespace {

constexpr char kSharedMagic[16] = "spo_fast.shared", kSavedMagic[16] = "spo_fast.saved\n";
constexpr std::uint64_t kVersion = 1;
constexpr std::size_t kChunk = 1 << 20;
constexpr std::size_t kAhead = 16;  // insertions in flight

std::string_view bytes_of(const void* data, std::size_t size) {
  return {static_cast<const char*>(data), size};
}

// The digest of a stream: of each part, chained.
class Chain {
 public:
  void add(std::string_view part) {
    const Digest words[2] = {digest_, digest128(part)};
    digest_ = digest128(bytes_of(words, sizeof words));
  }
  const Digest& digest() const { return digest_; }

 private:
  Digest digest_;
};

class FileLock {
 public:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {
    while (flock(descriptor_, LOCK_EX) != 0) {
      if (errno != EINTR) raise_system_error("StateTable: the file cannot be locked");
    }
  }
  ~FileLock() { flock(descriptor_, LOCK_UN); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int descriptor_;
};

class Writer {
 public:
  explicit Writer(int descriptor) : descriptor_(descriptor) { buffer_.reserve(kChunk); }

  void put(const void* data, std::size_t size) {
    std::string_view left = bytes_of(data, size);
    while (!left.empty()) {
      const std::size_t part = std::min(left.size(), kChunk - buffer_.size());
      buffer_.append(left.substr(0, part));
      left.remove_prefix(part);
      if (buffer_.size() == kChunk) flush();
    }
  }
  void finish() {
    if (!buffer_.empty()) flush();
    const Digest digest = chain_.digest();
    buffer_.append(bytes_of(&digest, sizeof digest));
    write_out();
  }

 private:
  void flush() {
    chain_.add(buffer_);
    write_out();
  }
  void write_out() {
    std::string_view left = buffer_;
    while (!left.empty()) {
      const ssize_t written = ::write(descriptor_, left.data(), left.size());
      if (written < 0 && errno != EINTR) raise_system_error("StateTable: saving failed");
      if (written > 0) left.remove_prefix(static_cast<std::size_t>(written));
    }
    buffer_.clear();
  }

  int descriptor_;
  std::string buffer_;
  Chain chain_;
};

// Reads what a Writer wrote: `size` bytes before the digest.
class Reader {
 public:
  Reader(int descriptor, std::uint64_t size) : descriptor_(descriptor), left_(size) {}

  void get(void* data, std::size_t size) {
    auto* to = static_cast<char*>(data);
    while (size > 0) {
      if (at_ == buffer_.size()) refill();
      const std::size_t part = std::min(size, buffer_.size() - at_);
      std::memcpy(to, buffer_.data() + at_, part);
      to += part;
      at_ += part;
      size -= part;
    }
  }
  bool finish() {
    Digest digest;
    if (left_ != 0 || at_ != buffer_.size()) return false;
    read_in(reinterpret_cast<char*>(&digest), sizeof digest);
    return digest == chain_.digest();
  }

 private:
  void refill() {
    buffer_.resize(std::min<std::uint64_t>(kChunk, left_));
    if (buffer_.empty()) throw std::invalid_argument("the file is truncated or damaged");
    read_in(buffer_.data(), buffer_.size());
    left_ -= buffer_.size();
    at_ = 0;
    chain_.add(buffer_);
  }
  void read_in(char* to, std::size_t size) {
    while (size > 0) {
      const ssize_t got = ::read(descriptor_, to, size);
      if (got == 0) throw std::invalid_argument("the file is truncated or damaged");
      if (got < 0 && errno != EINTR) raise_system_error("StateTable: loading failed");
      if (got > 0) to += got, size -= static_cast<std::size_t>(got);
    }
  }

  int descriptor_;
  std::uint64_t left_;
  std::string buffer_;
  std::size_t at_ = 0;
  Chain chain_;
};

struct SavedHead {
  char magic[16];
  std::uint64_t version;
  StoredOptions options;
};

// Fixed numbers at the end: they are known when the rows have been written.
struct SavedTail {
  std::uint64_t rows, origins, trajectories;
};

struct SavedOrigin {
  Digest name;
  std::uint64_t to;
};

std::uint64_t size_of(int descriptor) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0) raise_system_error("StateTable");
  return static_cast<std::uint64_t>(status.st_size);
}

// A descriptor of `path`, or of a new file of another name in its folder, whose name is put into `fresh`.
int open_or_make(const std::string& path, std::string& fresh) {
  while (true) {
    int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (descriptor >= 0) return descriptor;
    if (errno != ENOENT) raise_system_error(path);
    fresh = path + "." + std::to_string(random_digest().a) + ".tmp";
    descriptor = ::open(fresh.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0) return descriptor;
    if (errno != EEXIST) raise_system_error(path);
  }
}

bool begins_with(int descriptor, const char (&magic)[16]) {
  char found[16];
  return pread(descriptor, found, sizeof found, 0) == sizeof found &&
         std::memcmp(found, magic, sizeof found) == 0;
}

std::unique_ptr<Mapping> map_file(int descriptor, bool fresh) {
  auto mapping = std::make_unique<Mapping>(descriptor);
  if (fresh) return mapping;
  if (begins_with(descriptor, kSavedMagic))
    throw std::invalid_argument("this is a saved copy, not a shared file; StateTable.load reads it");
  if (!begins_with(descriptor, kSharedMagic))
    throw std::invalid_argument(
        "expected a StateTable file of spo_fast, got a file that does not begin like one");
  if (size_of(descriptor) < kBlocksOffset) throw std::invalid_argument("the file is truncated");
  return mapping;
}

}  // namespace

StoredOptions stored(const StateTable::Options& options) {
  return {options.alpha,
          options.zeta,
          options.omega_k,
          options.xi,
          options.g_max,
          options.seed.has_value(),
          options.seed.value_or(HashKey{})};
}

StateTable::Options options_from(const StoredOptions& stored) {
  StateTable::Options options{stored.alpha, stored.xi, stored.zeta, stored.omega_k, stored.g_max, {}};
  if (stored.seeded != 0) options.seed = stored.seed;
  return options;
}

void StateTable::File::Fixed::sign() {
  version = kVersion;
  std::memcpy(magic, kSharedMagic, sizeof magic);
  check = digest128(bytes_of(this, offsetof(Fixed, check)));
}

bool StateTable::File::Fixed::signed_right() const {
  return version == kVersion && check == digest128(bytes_of(this, offsetof(Fixed, check)));
}

StateTable::StateTable(const Options& options, std::uint64_t capacity, const std::string& path)
    : options_(checked(options)) {
  while (!mapping_) {
    std::string fresh;
    const int descriptor = open_or_make(path, fresh);
    mapping_ = map_file(descriptor, !fresh.empty());
    if (fresh.empty()) {
      open_shared(options);
    } else if (!make_shared(capacity, path, fresh)) {
      // In this order: the owners leave their list, which lies in the mapping.
      map_.reset();
      owners_.reset();
      mapping_.reset();
    }
  }
}

// The file is whole before it has its name; false: another process was faster.
bool StateTable::make_shared(std::uint64_t capacity, const std::string& path, const std::string& fresh) {
  const std::unique_ptr<const char, void (*)(const char*)> remove(fresh.c_str(),
                                                                  [](const char* name) { unlink(name); });
  if (ftruncate(mapping_->descriptor(), static_cast<off_t>(kBlocksOffset)) != 0) raise_system_error(path);
  attach();
  format(capacity);
  owners_->enter();
  if (link(fresh.c_str(), path.c_str()) == 0) return true;
  if (errno != EEXIST) raise_system_error(path);
  return false;
}

void StateTable::open_shared(const Options& given) {
  const FileLock lock(mapping_->descriptor());
  attach();
  const File& found = file();
  if (!found.fixed.signed_right())
    throw std::invalid_argument("the file is damaged, or of another version or machine");
  options_ = options_from(found.fixed.options);
  check_options(given, "options");
  const bool alone = !owners_->others();
  const bool closed = alone && found.closed.load() != 0;
  map_->check(alone && !closed);
  const std::uint64_t last = found.journal.load();
  if (last != 0 && !(map_->inside(last, 1) && map_->inside(last, journal()->pages)))
    throw std::invalid_argument("the file is damaged: the last delta is out of place");
  if (closed && contents_digest() != found.seal)
    throw std::invalid_argument("the file is damaged: the checksum does not match");
  owners_->enter();
  file().closed.store(0);
}

StateTable::~StateTable() {
  if (!map_ || !mapping_->shared() || !owners_->entered()) return;
  try {
    const FileLock lock(mapping_->descriptor());
    if (!owners_->others()) {
      map_->for_each([](const SegmentMap::Slot&) {}, [] {});  // finishes what the dead left undone
      file().seal = contents_digest();
      file().closed.store(1);
    }
    owners_.reset();
  } catch (const std::exception&) {
    // Not closed: the next process that opens the file looks at every state instead.
  }
}

// Of all that matters; only for a file that nobody else uses.
Digest StateTable::contents_digest() const {
  const File& all = file();
  Chain chain;
  const auto* head = reinterpret_cast<const char*>(&all.head);
  chain.add({head, static_cast<std::size_t>(reinterpret_cast<const char*>(&all.lock) - head)});
  const std::span<const Origin> others = origins();
  chain.add(bytes_of(others.data(), others.size_bytes()));
  if (const Journal* last = journal()) chain.add(bytes_of(last, last->pages * Mapping::kPage));
  map_->for_each_part([&](std::string_view part) { chain.add(part); });
  return chain.digest();
}

void StateTable::write(int descriptor) {
  owners_->enter();
  Writer writer(descriptor);
  SavedHead head{{}, kVersion, stored(options_)};
  std::memcpy(head.magic, kSavedMagic, sizeof head.magic);
  writer.put(&head, sizeof head);
  SavedTail tail{};
  std::vector<SegmentMap::Row> rows;
  const auto take = [&](const SegmentMap::Slot& slot) {
    rows.push_back({SegmentMap::key_of(slot), SegmentMap::total_of(slot)});
  };
  map_->for_each(take, [&] {
    writer.put(rows.data(), rows.size() * sizeof(SegmentMap::Row));
    tail.rows += rows.size();
    rows.clear();
  });
  // What it learns from now on, a copy tells under another name; this one's deltas it has up to here.
  std::vector<SavedOrigin> origins{{origin(), mark()}};
  for (const Origin& other : this->origins()) origins.push_back({other.name, other.to.load()});
  writer.put(origins.data(), origins.size() * sizeof(SavedOrigin));
  tail.origins = origins.size();
  tail.trajectories = t() - 1;
  writer.put(&tail, sizeof tail);
  writer.finish();
}

std::unique_ptr<StateTable> StateTable::read(int descriptor) {
  if (begins_with(descriptor, kSharedMagic))
    throw std::invalid_argument("this is a shared file, not a saved copy; StateTable(path=...) maps it");
  if (!begins_with(descriptor, kSavedMagic))
    throw std::invalid_argument(
        "expected a StateTable file of spo_fast, got a file that does not begin like one");
  const std::uint64_t size = size_of(descriptor),
                      around = sizeof(SavedHead) + sizeof(SavedTail) + sizeof(Digest);
  SavedTail tail;
  if (size < around ||
      pread(descriptor, &tail, sizeof tail, static_cast<off_t>(size - sizeof(Digest) - sizeof tail)) !=
          static_cast<ssize_t>(sizeof tail))
    throw std::invalid_argument("the file is truncated");
  const std::uint64_t most = size / sizeof(SegmentMap::Row);
  if (tail.rows > most || tail.origins > kMostOrigins + 1 ||
      tail.rows * sizeof(SegmentMap::Row) + tail.origins * sizeof(SavedOrigin) + around != size)
    throw std::invalid_argument("the file is truncated or damaged");

  Reader reader(descriptor, size - sizeof(Digest));
  SavedHead head;
  reader.get(&head, sizeof head);
  if (head.version != kVersion)
    throw std::invalid_argument("expected version " + std::to_string(kVersion) + ", got " +
                                std::to_string(head.version));
  auto table = std::make_unique<StateTable>(options_from(head.options), tail.rows);
  table->owners_->enter();
  std::vector<SegmentMap::Row> rows(4096);
  for (std::uint64_t left = tail.rows; left > 0; left -= rows.size()) {
    rows.resize(std::min<std::uint64_t>(left, rows.size()));
    reader.get(rows.data(), rows.size() * sizeof(SegmentMap::Row));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (i + kAhead < rows.size()) table->map_->prefetch(rows[i + kAhead].key);
      if (!plausible(rows[i])) throw std::invalid_argument("the file is damaged");
      table->map_->add_foreign(rows[i].key, rows[i].tally);
    }
  }
  std::vector<SavedOrigin> origins(tail.origins);
  reader.get(origins.data(), origins.size() * sizeof(SavedOrigin));
  reader.get(&tail, sizeof tail);
  if (!reader.finish()) throw std::invalid_argument("the checksum does not match; the file is damaged");
  table->count_trajectories(0, tail.trajectories);
  for (const SavedOrigin& origin : origins) table->remember(origin.name, origin.to);
  return table;
}

}  // namespace spo
