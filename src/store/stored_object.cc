#include "src/store/stored_object.h"

#include <algorithm>
#include <cstring>

#include "layercast/error.h"
#include "src/base/digest/digest_all.h"
#include "src/base/utf8.h"
#include "src/store/version_record.h"

namespace layercast {
namespace {

[[noreturn]] void FailCorrupt(const std::filesystem::path& path, const std::string& what) {
  throw Error(ErrorCode::kCorrupt, Quote(path.native()) + ": " + what);
}

}  // namespace

void WriteObject(std::span<const std::byte> bytes, const Digest& digest, NewFile& file) {
  std::vector<Digest> leaves(NumLeaves(bytes.size()));
  DigestLeaves(bytes, leaves);
  if (const Digest now = DigestOfLeaves(leaves); now != digest) {
    throw Error(ErrorCode::kCorrupt, "a tensor's bytes have changed since it was published: expected digest " +
                                         digest.ToHex() + ", got " + now.ToHex());
  }
  file.Write(bytes);
  if (leaves.size() > 1) file.Write(std::as_bytes(std::span(leaves)));  // little-endian, high half first
}

StoredObject::StoredObject(const std::filesystem::path& path, const Digest& digest, std::uint64_t tensor_bytes)
    : path_(path),
      tensor_bytes_(static_cast<std::size_t>(tensor_bytes)),
      file_(path),
      leaves_(NumLeaves(tensor_bytes_)),
      checked_(leaves_.size()) {
  const std::size_t size = file_.bytes().size();
  if (size != ObjectBytes(tensor_bytes)) {
    FailCorrupt(path, "expected " + std::to_string(ObjectBytes(tensor_bytes)) + " bytes, got " + std::to_string(size));
  }
  if (leaves_.size() == 1) {
    leaves_.front() = digest;
    return;
  }
  const std::span<const std::byte> stored = file_.bytes().subspan(tensor_bytes_);
  file_.Populate(stored);
  std::memcpy(leaves_.data(), stored.data(), stored.size());  // they may lie anywhere
  if (const Digest now = DigestOfLeaves(leaves_); now != digest) {
    FailCorrupt(path, "expected digest " + digest.ToHex() + ", got " + now.ToHex());
  }
}

void StoredObject::Check(std::uint64_t offset, std::uint64_t count, WorkerPool& pool) {
  const std::size_t last = count == 0 ? 0 : static_cast<std::size_t>((offset + count - 1) / kLeafBytes);
  for (std::size_t leaf = static_cast<std::size_t>(offset / kLeafBytes); leaf <= last;) {
    if (checked_[leaf]) {
      ++leaf;
      continue;
    }
    std::size_t end = leaf;
    while (end <= last && !checked_[end]) ++end;
    CheckLeaves(leaf, end - leaf, pool);
    leaf = end;
  }
}

void StoredObject::CheckLeaves(std::size_t first, std::size_t count, WorkerPool& pool) {
  const std::span<const std::byte> part =
      bytes().subspan(first * kLeafBytes, std::min(count * kLeafBytes, tensor_bytes_ - first * kLeafBytes));
  file_.Populate(part);
  std::vector<Digest> now(count);
  pool.For((count - 1) / kLeavesOfShare + 1, [&](std::size_t share) {
    const std::size_t begin = share * kLeavesOfShare;
    const std::size_t leaves = std::min(kLeavesOfShare, count - begin);
    const std::size_t end = std::min((begin + leaves) * kLeafBytes, part.size());
    DigestLeaves(part.subspan(begin * kLeafBytes, end - begin * kLeafBytes), std::span(now).subspan(begin, leaves));
  });
  for (std::size_t i = 0; i < count; ++i) {
    if (now[i] != leaves_[first + i]) {
      FailCorrupt(path_, "its bytes from " + std::to_string((first + i) * kLeafBytes) +
                             " on are not those that were "
                             "stored: expected digest " +
                             leaves_[first + i].ToHex() + ", got " + now[i].ToHex());
    }
    checked_[first + i] = true;
  }
}

}  // namespace layercast
