// Host memory. Copies go past the caches: an engine reads all of its weights before it reads one again.
#include <cstdint>
#include <cstring>

#include "engine_side/reload/commit/place.h"
#include "engine_side/reload/layout/strided.h"
#include "src/base/digest/digest_all.h"
#include "src/tensor/kernels/stream_copy.h"

namespace layercast {
namespace {

class HostDigests final : public TensorDigests {
 public:
  explicit HostDigests(WorkerPool& pool) : pool_(pool) {}

  void Add(std::span<const std::span<const std::byte>> tensors, std::span<Digest> digests) override {
    DigestAll(tensors, digests, pool_);
  }
  void Finish() override {}

 private:
  WorkerPool& pool_;
};

class HostPlace final : public Place {
 public:
  HostPlace(WorkerPool& pool, const Memory& memory) : Place(Device::Kind::kHost, memory), pool_(pool) {}

  void Copy(const std::byte* from, std::byte* to, std::size_t bytes) override { StreamCopy(from, bytes, to); }
  void Scatter(std::span<const std::byte> packed, const CapturedBuffer& to) override {
    ForEachRun(to, [&](std::byte* address, std::size_t offset, std::size_t count) {
      StreamCopy(packed.data() + offset, count, address);
    });
  }
  void Zero(const CapturedBuffer& buffer) override {
    ForEachRun(buffer,
               [](std::byte* address, std::size_t /*offset*/, std::size_t count) { std::memset(address, 0, count); });
  }
  void Save(const CapturedBuffer& buffer, std::span<std::byte> log) override {
    ForEachRun(buffer, [&](const std::byte* address, std::size_t offset, std::size_t count) {
      StreamCopy(address, count, log.data() + offset);
    });
  }
  void Restore(std::span<const std::byte> log, const CapturedBuffer& buffer) override { Scatter(log, buffer); }
  std::unique_ptr<TensorDigests> BeginDigests() override { return std::make_unique<HostDigests>(pool_); }
  void Wait() override {}

 private:
  WorkerPool& pool_;
};

}  // namespace

std::unique_ptr<Place> MakeHostPlace(WorkerPool& pool, MemoryResource& kept, MemoryResource& layer) {
  return std::make_unique<HostPlace>(pool, Place::Memory{kept, kept, layer});
}

}  // namespace layercast
