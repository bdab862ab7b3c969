// Host memory. Copies go past the caches: an engine reads all of its weights before it reads one again.
#include <cstdint>
#include <cstring>

#include "engine_side/reload/commit/place.h"
#include "engine_side/reload/layout/strided.h"
#include "src/base/digest/digest.h"
#include "src/tensor/kernels/stream_copy.h"

namespace layercast {
namespace {

class HostDigests final : public TensorDigests {
 public:
  void Add(const std::byte* from, std::size_t bytes, Digest& digest) override { digest = DigestOf({from, bytes}); }
  void Finish() override {}
};

class HostPlace final : public Place {
 public:
  HostPlace(WorkerPool& pool, const Memory& memory) : Place(Device::Kind::kHost, memory), pool_(pool) {}

  // If the tensors are small together, only this thread works: it is done with them before another thread is awake, and
  // small layers are many.
  void ForEach(std::span<const KernelTensor> tensors, const std::function<void(std::size_t)>& body) override {
    constexpr std::uint64_t kWorthWaking = 128U << 10;  // bytes; some microseconds of digesting or copying
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < tensors.size() && bytes < kWorthWaking; ++i) bytes += tensors[i].num_bytes;
    if (bytes >= kWorthWaking) return pool_.For(tensors.size(), body);
    for (std::size_t i = 0; i < tensors.size(); ++i) body(i);
  }
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
  std::unique_ptr<TensorDigests> BeginDigests() override { return std::make_unique<HostDigests>(); }
  void Wait() override {}

 private:
  WorkerPool& pool_;
};

}  // namespace

std::unique_ptr<Place> MakeHostPlace(WorkerPool& pool, MemoryResource& kept, MemoryResource& layer) {
  return std::make_unique<HostPlace>(pool, Place::Memory{kept, kept, layer});
}

}  // namespace layercast
