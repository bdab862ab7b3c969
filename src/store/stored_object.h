// An object of a store: the bytes of one tensor, and behind them the digests of their leaves, so that what is read of
// them can be checked without the rest (FORMAT.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "layercast/version.h"
#include "src/base/digest/digest.h"
#include "src/base/threads/worker_pool.h"
#include "src/checkpoint/mapped_file.h"
#include "src/store/new_file.h"

namespace layercast {

// Writes a tensor's bytes into `file`. Throws kCorrupt if they have another digest: they changed since it was taken.
void WriteObject(std::span<const std::byte> bytes, const Digest& digest, NewFile& file);

// Resource; one thread only, but for `bytes`. What was mapped stays, also when the file is removed (but for network
// file systems, which may refuse to read on).
class StoredObject {
 public:
  // Throws kNotFound if there is no such file, and kCorrupt if its size or the digests of its leaves are wrong.
  StoredObject(const std::filesystem::path& path, const Digest& digest, std::uint64_t tensor_bytes);

  // The tensor's bytes. They may be read where Check has been.
  std::span<const std::byte> bytes() const { return file_.bytes().first(tensor_bytes_); }
  // Reads the leaves that these bytes touch, but for those that were checked before. Throws kCorrupt if one is not what
  // was stored.
  void Check(std::uint64_t offset, std::uint64_t count, WorkerPool& pool);
  void CheckAll(WorkerPool& pool) { Check(0, tensor_bytes_, pool); }

 private:
  void CheckLeaves(std::size_t first, std::size_t count, WorkerPool& pool);

  const std::filesystem::path path_;
  const std::size_t tensor_bytes_;
  const MappedFile file_;
  std::vector<Digest> leaves_;
  std::vector<bool> checked_;  // by leaf
};

}  // namespace layercast
