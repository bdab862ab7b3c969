// The receiver's end of the cuda_ipc channel: maps the publisher's arena, and copies what it is granted from there to
// where the caller wants it, on a stream of its own.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/net/control_socket.h"
#include "src/transport/channel/channel.h"
#include "src/transport/channel/connection_guard.h"
#include "src/transport/channel/liveness.h"
#include "src/transport/channel/mapping_cache.h"
#include "src/transport/channel/requests_under_way.h"
#include "src/transport/cuda_ipc/cuda_ipc_messages.h"
#include "src/transport/cuda_ipc/cuda_ipc_transport.h"

namespace layercast::cuda_ipc_channel {

// Mappings of segments, by the publisher's address and the segment's number there.
using Mappings = MappingCache<std::pair<std::string, std::uint32_t>, MappedSegment>;
using Mapping = std::shared_ptr<const MappedSegment>;  // owners: the cache, and connections, which copy from it

// One thread only.
class CudaIpcFetchingEnd final : public FetchingEnd {
 public:
  // Throws kUnavailable or kDeadlineExceeded, naming `address`. `mappings` is shared with the transport.
  CudaIpcFetchingEnd(CudaIpcParts parts, std::shared_ptr<Mappings> mappings, const std::string& address,
                     Deadline deadline);
  ~CudaIpcFetchingEnd() override { Close(); }

  bool attaches() const override { return false; }
  bool writes_to(const Device& device) const override { return device == parts_.device->device_memory().device(); }
  std::string lane() const override { return lane_; }
  void Submit(const ChunkRequest& request) override;
  std::optional<ChunkCompletion> Poll(Deadline deadline) override;
  void Close() noexcept override;

 private:
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

  // Runs `step`; if it fails, drops all mappings of this publisher.
  template <typename Step>
  auto Run(const Step& step);
  // Connects, and exchanges HELLO and WELCOME. False: the publisher's event cannot be opened, and this end has to
  // connect again without asking for it.
  bool Greet(const std::string& name, bool takes_events, Deadline deadline);

  // Takes what has come; true if there was something. Throws the publisher's refusal, or what has gone wrong.
  bool Progress();
  bool TakeMessages();
  void TakeMessage(std::span<const std::byte> message);
  void TakeSegment(const Announced& announced);
  void TakeGranted(const Granted& granted);
  RegionView Locate(const Place& place, const Region& region, std::vector<Mapping>& mappings) const;

  // The stages of a chunk: each function moves the chunks that can go on to the next stage.
  bool CopyGranted();
  void Copy(Chunk& chunk);
  bool Land();

  void Wait(Deadline deadline);
  void Sleep(std::chrono::microseconds time);

  const CudaIpcParts parts_;
  const std::shared_ptr<Mappings> mappings_;
  const std::string address_;
  ConnectionGuard guard_;
  std::string lane_;
  std::optional<ControlSocket> control_;
  std::map<std::uint32_t, Mapping> segments_;
  std::unique_ptr<IpcEvent> event_;
  RequestsUnderWay<Chunk> requests_;
  std::deque<Chunk*> granted_;
  std::deque<Chunk*> copying_;
  std::size_t pinned_bytes_ = 0;  // of the chunks in copying_
  Deadline::Clock::time_point moved_;
  Liveness liveness_;
  std::unique_ptr<CopyStream> stream_;
};

}  // namespace layercast::cuda_ipc_channel
