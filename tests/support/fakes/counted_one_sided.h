// Wraps one-sided reads of any kind, and counts the bytes that they are asked for, which a device would bring from the
// publisher's memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/transport/ucx/wire/remote_reads.h"

namespace layercast::test {

using ByteCounter = std::shared_ptr<std::atomic<std::uint64_t>>;  // owners: who counts, and who reads the count

// One thread only.
class CountedReads final : public ucx_channel::RemoteReads {
 public:
  CountedReads(std::unique_ptr<RemoteReads> reads, ByteCounter bytes)
      : reads_(std::move(reads)), bytes_(std::move(bytes)) {}
  void Connect(std::span<const std::byte> address) override { reads_->Connect(address); }
  std::string lane() const override { return reads_->lane(); }
  std::unique_ptr<ucx_channel::RemoteKey> Open(std::span<const std::byte> key) override { return reads_->Open(key); }
  bool Read(const ucx_channel::RemoteKey& key, std::uint64_t address, std::span<std::byte> destination,
            std::uint64_t ticket) override {
    *bytes_ += destination.size();
    return reads_->Read(key, address, destination, ticket);
  }
  std::optional<std::uint64_t> TakeLanded() override { return reads_->TakeLanded(); }
  bool Progress() override { return reads_->Progress(); }
  bool Arm() override { return reads_->Arm(); }
  int fd() const override { return reads_->fd(); }
  const std::string& failure() const override { return reads_->failure(); }
  void Abandon() noexcept override { reads_->Abandon(); }

 private:
  const std::unique_ptr<RemoteReads> reads_;
  const ByteCounter bytes_;
};

// Immutable; thread-safe.
class CountedOneSided final : public ucx_channel::OneSided {
 public:
  CountedOneSided(std::shared_ptr<const OneSided> one_sided, ByteCounter bytes)
      : one_sided_(std::move(one_sided)), bytes_(std::move(bytes)) {}
  bool Here() const override { return one_sided_->Here(); }
  std::unique_ptr<ucx_channel::RemoteMemory> MakeMemory() const override { return one_sided_->MakeMemory(); }
  std::unique_ptr<ucx_channel::RemoteReads> MakeReads() const override {
    return std::make_unique<CountedReads>(one_sided_->MakeReads(), bytes_);
  }

 private:
  const std::shared_ptr<const OneSided> one_sided_;
  const ByteCounter bytes_;
};

}  // namespace layercast::test
