// A data channel: how chunks get from a publisher's memory to a rank. One folder per transport; all of them pass one
// conformance suite (tests/conformance). Sessions sit above and trust none: they check digest, count and version.
//
// Pull: the publisher's end only offers memory; the receiving end asks, and supplies the memory that bytes go to. A
// slow or dead receiver therefore holds nobody up, and nothing is written after a failure.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/memory.h"
#include "src/base/deadline.h"
#include "src/base/failpoint.h"
#include "src/tensor/region.h"

namespace layercast {

// What a publisher lets receivers read: the tensors of a version (or of one stream slot), by manifest index.
// Immutable while it is offered, but for what a relay has yet to receive; the memory is borrowed.
struct OfferedTensor {
  const std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  const std::atomic<bool>* written = nullptr;  // null: it is; until it is set, requests for the tensor are refused
};

// Not a version's: bytes that both ends know, by which a channel is measured (session/channel_probe.h).
inline constexpr std::uint64_t kProbeOffer = ~std::uint64_t{0};

struct Offer {
  std::uint64_t id = 0;                // unique within a publisher
  std::vector<OfferedTensor> tensors;  // tensors[i] is tensor i of the manifest; empty (null, 0): not in this offer
  Device device{};                     // where they all lie
};

// The publisher's end; serves any number of receivers. Thread-safe. Its destructor ends every connection; nobody
// reads any offer's memory through a copying channel after it.
class OfferingEnd {
 public:
  virtual ~OfferingEnd() = default;
  // Where receivers connect: opaque to the session, which carries it in its handshake. What follows a '#' is a secret
  // that only those may know: no message shows it.
  virtual std::string address() const = 0;
  // Memory that this channel can hand over without a copy; null when any host memory will do. Offers of such a
  // channel must lie in it.
  virtual MemoryResource* arena() { return nullptr; }
  // Whether offers may lie in that device's memory too; host memory always may.
  virtual bool reads_from(const Device& /*device*/) const { return false; }
  // Throws kInvalidArgument when memory lies outside the arena, or the identifier is offered already.
  virtual void Add(const Offer& offer) = 0;
  // After it returns, no receiver reads the offer's memory through a copying channel any more, and a new request for it
  // is answered with kNotFound. Receivers that attached keep the mapping: the session's release says when they let go.
  // Receivers that stopped reading lose their connection after a second or so; nothing happens if it is not offered.
  virtual void Remove(std::uint64_t offer_id) = 0;
  // `serve.chunk`, for each chunk of a version that the offering end sends; they outlive it.
  virtual void Arm(FailPoints& /*failpoints*/) {}
  // What its own threads have computed so far, and those of the library below it that can be told apart. Thread-safe.
  virtual double core_seconds() { return 0; }
};

struct ChunkRequest {
  std::uint64_t ticket = 0;  // the caller's name for it, unique among those under way
  std::uint64_t offer_id = 0;
  std::span<const Region> regions;   // read during Submit only
  std::span<std::byte> destination;  // at least the regions' bytes, untouched by the caller until completion;
                                     // may be empty for a channel that attaches
};

struct ChunkCompletion {
  std::uint64_t ticket = 0;
  // One view per region, in order. An attaching channel's are in the publisher's memory and stay valid until Close;
  // a copying channel's are in `destination`, packed. The publisher may reuse the memory of an offer that it removed: a
  // request of no regions, made after reading, tells whether what was read was still the offer (else kNotFound).
  std::vector<RegionView> views;
};

// The receiving end: one connection to one publisher. One thread only.
class FetchingEnd {
 public:
  virtual ~FetchingEnd() = default;
  virtual bool attaches() const = 0;  // hands out views of the publisher's memory: requests need no destination
  // Whether destinations may lie in that device's memory too; host memory always may.
  virtual bool writes_to(const Device& /*device*/) const { return false; }
  // What the bytes go by, where a library has chosen that ("tcp/eth0"); empty: as the transport's name says.
  virtual std::string lane() const { return {}; }
  // Asks for a chunk. Throws what Poll throws.
  virtual void Submit(const ChunkRequest& request) = 0;
  // The next completion, in any order; nullopt when the deadline passes first, and at once when nothing is under way.
  // Throws kUnavailable (the peer is gone, or has been silent for seconds), kNotFound (the offer is), kInvalidArgument
  // (it refused the regions), kCorrupt (it breaks the protocol), each naming the address: the connection is then of no
  // more use, and every later call throws the same again. After Close: kFailedPrecondition.
  virtual std::optional<ChunkCompletion> Poll(Deadline deadline) = 0;
  // Drops every request under way; when it returns no destination is written any more. Idempotent, never throws;
  // also done by the destructor.
  virtual void Close() noexcept = 0;
};

// What an end says of its host in the handshake: decides which channels are viable between two ends.
struct HostIdentity {
  std::string boot_id;  // equal: the same running kernel
  std::string network;  // the network namespace; equal: the same loopback interface and abstract sockets
  std::string user;     // the effective user id
  std::string process;  // "<pid>@<pid namespace>": equal: the same process
  static HostIdentity Mine();
  bool operator==(const HostIdentity&) const = default;
};

// What an end that offers is told; each transport heeds what concerns it. Value.
struct OfferingOptions {
  std::string bind_host = "127.0.0.1";  // the interface a network channel listens on
  std::size_t fleet_size = 1;           // receivers that take the same at the same time: `nccl` serves them together
};

// A transport by name. Thread-safe. Keep it as long as you go on connecting: `shm` keeps mappings for the next version.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;  // "shm"
  // Why this process cannot use it with anybody ("no CUDA device is here: ..."); empty: it can.
  virtual std::string WhyNotHere() const { return {}; }
  // Why a receiver at `mine` cannot reach a publisher at `theirs`; empty: it can.
  virtual std::string WhyNotBetween(const HostIdentity& /*mine*/, const HostIdentity& /*theirs*/) const {
    return WhyNotHere();
  }
  // Whether it may be taken where nobody asked for it by name.
  virtual bool ByDefault(const HostIdentity& /*mine*/, const HostIdentity& /*theirs*/) const { return true; }
  // Whether publishers offer it that were not told which to offer.
  virtual bool OfferedUnasked() const { return true; }
  // Throws kInvalidArgument.
  virtual std::unique_ptr<OfferingEnd> Offering(const OfferingOptions& options) const = 0;
  // The most that connecting takes with a publisher that is well: beyond it a session gives the channel up.
  virtual std::chrono::milliseconds connect_time() const { return std::chrono::seconds(5); }
  // Throws kUnavailable or kDeadlineExceeded naming `address`.
  virtual std::unique_ptr<FetchingEnd> Connect(const std::string& address, Deadline deadline) const = 0;
};

// Every transport of this build, the one to prefer first: inproc, shm, ucx, cuda_ipc, nccl, zmq. Some may not be usable
// here. Channels between GPUs work on that CUDA device; none: on the calling thread's, when they are asked for
// something first.
std::vector<std::unique_ptr<Transport>> AllTransports(std::optional<int> cuda_device = std::nullopt);
// Those of them that are named; of no names, all that are usable here and offered unasked. Throws what ThrowNoChannel
// throws, and kUnsupported where a named one is not usable here.
std::vector<std::unique_ptr<Transport>> TransportsNamed(std::span<const std::string> names);
// kUnsupported, naming what this build has instead, and why it lacks that one.
[[noreturn]] void ThrowNoChannel(const std::string& name);

}  // namespace layercast
