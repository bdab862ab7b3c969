// The receiver's end of the cuda_ipc channel: maps the publisher's arena, and copies what it is granted from there to
// where the caller wants it, on a stream of its own.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/transport/channel/controlled_fetching.h"
#include "src/transport/channel/mapping_cache.h"
#include "src/transport/cuda_ipc/cuda_ipc_messages.h"
#include "src/transport/cuda_ipc/cuda_ipc_transport.h"

namespace layercast::cuda_ipc_channel {

// Mappings of segments, by the publisher's address and the segment's number there.
using Mappings = MappingCache<std::pair<std::string, std::uint32_t>, MappedSegment>;
using Mapping = std::shared_ptr<const MappedSegment>;  // owners: the cache, and connections, which copy from it

// A chunk that was asked for.
struct Chunk : RequestedChunk {
  std::vector<Region> regions;
  bool reached = false;  // the device reaches the destination, and copies there by itself
  bool granted = false;
  bool waits = false;               // it may be copied only once the publisher's event is reached
  std::vector<RegionView> sources;  // where each region lies, in `mappings`
  std::vector<Mapping> mappings;    // kept until the chunk has landed
  Buffer pinned;                    // where the bytes go first, unless `reached`
  std::uint64_t copied = 0;         // the mark in the stream behind its copies
};

// One thread only.
class CudaIpcFetchingEnd final : public ControlledFetching<Chunk> {
 public:
  // Throws kUnavailable or kDeadlineExceeded, naming `address`. `mappings` is shared with the transport.
  CudaIpcFetchingEnd(CudaIpcParts parts, std::shared_ptr<Mappings> mappings, const std::string& address,
                     Deadline deadline);
  ~CudaIpcFetchingEnd() override { Close(); }

  bool writes_to(const Device& device) const override { return device == parts_.device->device_memory().device(); }
  std::string lane() const override { return lane_; }
  std::optional<ChunkCompletion> Poll(Deadline deadline) override;

 private:
  // Connects, and exchanges HELLO and WELCOME. False: the publisher's event cannot be opened, and this end has to
  // connect again without asking for it.
  bool Greet(const std::string& name, const Token& key, bool takes_events, Deadline deadline);

  void Prepare(Chunk& chunk, const ChunkRequest& request, const std::vector<std::byte>& message) override;
  bool Progress() override;
  void Sleep(Deadline deadline) override;
  void Failed() override;  // drops all mappings of this publisher
  void End() noexcept override;
  void TakeMessage(std::span<const std::byte> message) override;
  void TakeSegment(const Announced& announced);
  void TakeGranted(const Granted& granted);
  RegionView Locate(const Place& place, const Region& region, std::vector<Mapping>& mappings) const;

  // The stages of a chunk: each function moves the chunks that can go on to the next stage.
  bool CopyGranted();
  void Copy(Chunk& chunk);
  bool Land();
  bool device_works() const { return !granted_.empty() || !copying_.empty(); }

  const CudaIpcParts parts_;
  const std::shared_ptr<Mappings> mappings_;
  const std::string address_;
  std::string lane_;
  std::map<std::uint32_t, Mapping> segments_;
  std::unique_ptr<IpcEvent> event_;
  std::deque<Chunk*> granted_;
  std::deque<Chunk*> copying_;
  std::size_t pinned_bytes_ = 0;  // of the chunks in copying_
  Deadline::Clock::time_point moved_;
  std::unique_ptr<CopyStream> stream_;
};

}  // namespace layercast::cuda_ipc_channel
