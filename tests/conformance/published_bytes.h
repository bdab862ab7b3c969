// What the conformance suite offers and expects: tensors of known bytes, in memory that the channel can hand over.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/memory.h"
#include "src/transport/channel/channel.h"

namespace layercast::test {

constexpr std::chrono::seconds kPatience{20};  // a test that waits this long has failed

// The transport `nccl` over a fake library and fake devices.
inline constexpr std::string_view kFakeNccl = "nccl_fake";
// The transport `cuda_ipc`, which needs a GPU, over a fake driver with VMM and events, and over one with neither.
inline constexpr std::string_view kFakeCudaIpc = "cuda_ipc_fake";
inline constexpr std::string_view kFakeLegacyCudaIpc = "cuda_ipc_legacy_fake";

// The transport `ucx` with one-sided reads, which need RDMA at both ends: over fake devices, and over UCX's own shared
// memory.
inline constexpr std::string_view kFakeReads = "ucx_reads_fake";
inline constexpr std::string_view kPosixReads = "ucx_reads_posix";

// The transports that the suite runs on: those above, and all of this build. `cuda_ipc` itself is among them where
// there is a GPU, and `nccl` where there are two.
std::vector<std::string> TransportNames();
std::unique_ptr<Transport> TransportNamed(const std::string& name);

// A transport, and how many bytes have moved from one of its ends to another so far. They are counted below the
// channel: by what the suite fakes, or by the reads that go to a device. `moved` is null if nothing below the channel
// counts; the kernel may count then.
struct CountedTransport {
  std::unique_ptr<Transport> transport;
  std::function<std::uint64_t()> moved;
};
CountedTransport CountedTransportNamed(const std::string& name);

// The host on which the suite's publishers listen: what the environment says
// (tests/end_to_end/faults/test_networks.py), or loopback.
inline std::string HostFrom(const char* variable) {
  const char* const host = std::getenv(variable);
  return host != nullptr ? host : "127.0.0.1";
}

// The sizes of the tensors that conformance_peer offers, as 7 and as 8.
constexpr std::array<std::size_t, 2> kPeerSizes{3'000'000, 4096};

// Byte `index` of tensor `tensor` in round `round`. Neighbours, tensors and rounds all differ.
inline std::byte PatternByte(std::uint64_t round, std::uint64_t tensor, std::uint64_t index) {
  const std::uint64_t mixed =
      (index + 1) * 0x9E3779B97F4A7C15U + tensor * 0xD1B54A32D192ED03U + round * 0x8CB92BA72F3D8DD7U;
  return static_cast<std::byte>(mixed >> 56);
}

// Tensors of given sizes, filled with the pattern, and offered until the object ends. Resource.
class PublishedBytes {
 public:
  PublishedBytes(OfferingEnd& end, std::uint64_t offer_id, std::span<const std::size_t> sizes, std::uint64_t round = 0);
  ~PublishedBytes();
  PublishedBytes(const PublishedBytes&) = delete;
  PublishedBytes& operator=(const PublishedBytes&) = delete;

  std::uint64_t id() const { return offer_.id; }
  const std::vector<OfferedTensor>& tensors() const { return offer_.tensors; }
  void Withdraw();                 // removes the offer now
  void Overwrite(std::byte with);  // call it only after Withdraw

 private:
  OfferingEnd& end_;
  HostMemory host_;
  std::vector<Buffer> buffers_;
  Offer offer_;
  bool offered_ = false;
};

// The bytes that these regions must bring, made byte by byte in the obvious way.
std::vector<std::byte> ExpectedBytes(std::span<const Region> regions, std::uint64_t round = 0);
// The bytes that arrived, view by view, packed.
std::vector<std::byte> BytesOf(const ChunkCompletion& completion);

// A chunk on its way: its regions, and the memory that it goes to.
struct Fetch {
  explicit Fetch(std::vector<Region> wanted);
  void Submit(FetchingEnd& end, std::uint64_t ticket, std::uint64_t offer_id);
  bool IsRight(const ChunkCompletion& completion, std::uint64_t round = 0) const;

  std::vector<Region> regions;
  std::vector<std::byte> destination;
};

// Submits one chunk and waits for it. Throws what the channel throws.
ChunkCompletion FetchOne(FetchingEnd& end, std::uint64_t offer_id, Fetch& fetch);

}  // namespace layercast::test
