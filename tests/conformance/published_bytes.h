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
#include "src/transport/channel.h"

namespace layercast::test {

constexpr std::chrono::seconds kPatience{20};  // a test that waits this long has failed

// NCCL takes one end for a GPU, and most machines have no two: the suite runs on a library and devices that it plays.
inline constexpr std::string_view kFakeNccl = "nccl_fake";
// CUDA IPC wants a GPU: a driver that is played, with VMM and events; and one with neither.
inline constexpr std::string_view kFakeCudaIpc = "cuda_ipc_fake";
inline constexpr std::string_view kFakeLegacyCudaIpc = "cuda_ipc_legacy_fake";

// One-sided reads of ucx want RDMA at both ends: devices that are played, and UCX itself over shared memory.
inline constexpr std::string_view kFakeReads = "ucx_reads_fake";
inline constexpr std::string_view kPosixReads = "ucx_reads_posix";

// What the suite runs on: all of this build.
std::vector<std::string> TransportNames();
std::unique_ptr<Transport> TransportNamed(const std::string& name);

// A transport, and how many bytes have moved from one of its ends to another so far, counted below the channel: by what
// the suite plays, or the reads that go to a device. Null where nothing below it counts; there the kernel may.
struct CountedTransport {
  std::unique_ptr<Transport> transport;
  std::function<std::uint64_t()> moved;
};
CountedTransport CountedTransportNamed(const std::string& name);

// Where publishers of the suite listen: what the environment says (tests/end_to_end/test_networks.py), else loopback.
inline std::string HostFrom(const char* variable) {
  const char* const host = std::getenv(variable);
  return host != nullptr ? host : "127.0.0.1";
}

// What conformance_peer offers, as 7 and as 8.
constexpr std::array<std::size_t, 2> kPeerSizes{3'000'000, 4096};

// Byte `index` of tensor `tensor` in round `round`: no two neighbours, tensors or rounds look alike.
inline std::byte PatternByte(std::uint64_t round, std::uint64_t tensor, std::uint64_t index) {
  const std::uint64_t mixed =
      (index + 1) * 0x9E3779B97F4A7C15U + tensor * 0xD1B54A32D192ED03U + round * 0x8CB92BA72F3D8DD7U;
  return static_cast<std::byte>(mixed >> 56);
}

// Tensors of given sizes, filled with the pattern, offered until the end of its life. Resource.
class PublishedBytes {
 public:
  PublishedBytes(OfferingEnd& end, std::uint64_t offer_id, std::span<const std::size_t> sizes, std::uint64_t round = 0);
  ~PublishedBytes();
  PublishedBytes(const PublishedBytes&) = delete;
  PublishedBytes& operator=(const PublishedBytes&) = delete;

  std::uint64_t id() const { return offer_.id; }
  const std::vector<OfferedTensor>& tensors() const { return offer_.tensors; }
  void Withdraw();                 // Remove, now
  void Overwrite(std::byte with);  // only after Withdraw

 private:
  OfferingEnd& end_;
  HostMemory host_;
  std::vector<Buffer> buffers_;
  Offer offer_;
  bool offered_ = false;
};

// The obvious way: the bytes that these regions must bring, one by one.
std::vector<std::byte> ExpectedBytes(std::span<const Region> regions, std::uint64_t round = 0);
// What arrived, view by view, packed.
std::vector<std::byte> BytesOf(const ChunkCompletion& completion);

// A chunk on its way: its regions and the memory that it goes to.
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
